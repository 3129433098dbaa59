"""Moves transposes to where they cost least, for a convolutional model its interface.

Front-ends import every image op as transpose → NHWC op → transpose. Take one
permutation P. Each value of its rank can be stored in two orders: A, and
B = transpose(A, P). A convolution works in B, the op of the file around it in A, and an
op with `OpDef.permute` in either. A transpose by P then only changes the storage order,
and the choice of the order of every op that moves the fewest bytes is a minimum cut:

    minimize  sum over values of bytes(value) * [producer and a consumer disagree]

Ops are nodes, order A is the source's side, order B the sink's, and an edge costs the
bytes moved when producer and consumers disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edgec.ir import Graph, Op, Value
from edgec.passes._mincut import SINK, SOURCE, UNLIMITED, MinCut
from edgec.passes._relayout import Relayout
from edgec.passes._storage import (
    A,
    B,
    Perm,
    Storage,
    channels_last,
    inverse,
    only_moves_ones,
    permutation,
)
from edgec.passes.sink_transposes import through_reshape

TRANSPOSE_OVERHEAD_BYTES = 4096
"""The cost of a transpose beside its bytes: one transpose is better than two of half
the size.
"""
HARD_WEIGHT = 1
SOFT_WEIGHT = 3
"""The cost of a byte is the sum of both weights, but only `SOFT_WEIGHT` if the
transpose goes on through a reshape and may yet meet its inverse.
"""


def run(graph: Graph) -> bool:
    """Solve one cut for each permutation of the graph until one is an improvement.

    A permutation and its inverse share a cut. Channels-last comes first.
    """
    return any(_improve(graph, perm) for perm in _permutations(graph))


def _improve(graph: Graph, perm: Perm) -> bool:
    """Rewrite the graph if the cut costs less than the present storage orders.

    Return whether it did.
    """
    layout = Storage(graph, perm)
    if not layout.free:
        return False
    storage = _cheapest(layout)
    if storage is None:
        return False
    Relayout(layout, storage).run()
    return True


def _permutations(graph: Graph) -> list[Perm]:
    """Return the permutations of the graph's transposes, one of each inverse pair.

    Channels-last permutations of images come first, then those moving the most bytes.
    """
    moved_bytes: dict[Perm, int] = {}
    for op in graph.ops:
        perm = permutation(op)
        if perm is None:
            continue
        pair = (perm, inverse(perm))
        # A permutation and its inverse are the two directions of one change of order.
        last = channels_last(len(perm))
        key = last if last in pair else min(pair)
        moved_bytes[key] = moved_bytes.get(key, 0) + op.output.type.nbytes

    def priority(perm: Perm) -> tuple[bool, int, Perm]:
        return not _is_image_layout(perm), -moved_bytes[perm], perm

    return sorted(moved_bytes, key=priority)


def _is_image_layout(perm: Perm) -> bool:
    """Return whether `perm` makes a tensor of images channels-last."""
    return len(perm) >= 4 and perm == channels_last(len(perm))


@dataclass
class _Cell:
    """A value that an op of the file writes, with the readers of all its copies.

    Attributes:
        maker: the free op that writes the value, None for another op or an input.
        readers: each value read, and the free op that reads it (None for another op
            or for an output of the graph).
        soft: the values read by a reshape that a transpose can go through.
    """

    maker: Op | None
    readers: list[tuple[Value, Op | None]] = field(default_factory=list)
    soft: list[Value] = field(default_factory=list)


class _Network:
    """The flow network of a layout problem.

    Attributes:
        present_cost: the cost of the storage orders as they stand.
        unit: the capacity of one byte. All preferences together weigh less.
    """

    def __init__(self, layout: Storage) -> None:
        self.layout = layout
        self.graph = MinCut()
        self.nodes: dict[Op, int] = {}
        self.present_cost = 0
        self.unit = len(layout.free) + 1

    def add_op(self, op: Op) -> None:
        """Add a node for a free op, with a preference of cost 1.

        An op of images prefers channels-last; another op prefers its present order, so
        that a tie changes nothing.
        """
        # The cut puts the node on the side of its order.
        node = self.graph.node()
        self.nodes[op] = node

        present = self.layout.side[op.outputs[0]]
        preferred = B if _is_image_layout(self.layout.perm) else present
        if preferred != present:
            self.present_cost += 1
        if preferred == B:
            self.graph.edge(node, SINK, 1)
        else:
            self.graph.edge(SOURCE, node, 1)

    def add_cell(self, cell: Value, ends: _Cell) -> None:
        """Add the edges for a value: its bytes move if maker and readers disagree."""
        side = self.layout.side
        producer = self._producer(cell, ends)

        # A reader without a choice is one of the terminals.
        hard: list[int] = []
        for v, op in ends.readers:
            hard.append(_terminal(side[v]) if op is None else self.nodes[op])
        soft = [_terminal(side[v]) for v in ends.soft]

        price = self._price(cell)
        _connect(self.graph, producer, hard, price * HARD_WEIGHT)
        _connect(self.graph, producer, hard + soft, price * SOFT_WEIGHT)

        # The same sums for the graph as it stands.
        hard_differ = any(side[v] != side[cell] for v, _ in ends.readers)
        soft_differ = any(side[v] != side[cell] for v in ends.soft)
        if hard_differ:
            self.present_cost += price * HARD_WEIGHT
        if hard_differ or soft_differ:
            self.present_cost += price * SOFT_WEIGHT

    def _producer(self, cell: Value, ends: _Cell) -> int:
        """Return the node of the op that writes a value.

        A value that no free op writes has a fixed order, unless another transpose
        writes it.
        """
        if ends.maker is not None:
            return self.nodes[ends.maker]
        if _is_transposed(self.layout, cell):
            return self.graph.node()
        return _terminal(self.layout.side[cell])

    def _price(self, cell: Value) -> int:
        """Return the cost of a transpose of a value, 0 if it moves no element."""
        perm = self.layout.alternative[self.layout.side[cell]]
        if only_moves_ones(perm, cell.type.shape):
            return 0
        return (cell.type.nbytes + TRANSPOSE_OVERHEAD_BYTES) * self.unit


def _cheapest(layout: Storage) -> dict[Op, int] | None:
    """Return the storage order for each free op with the fewest bytes moved.

    None if the present orders cost as little.
    """
    network = _Network(layout)
    for op in layout.graph.ops:
        if op in layout.free:
            network.add_op(op)
    for cell, ends in _cells(layout).items():
        network.add_cell(cell, ends)

    # The price of one byte exceeds all preferences together, so these only break ties.
    best_cost, source_side = network.graph.solve()
    if best_cost >= network.present_cost:
        return None
    nodes = network.nodes
    return {op: A if node in source_side else B for op, node in nodes.items()}


def _terminal(side: int) -> int:
    return SOURCE if side == A else SINK


def _is_transposed(layout: Storage, cell: Value) -> bool:
    """Return whether a transpose by another permutation writes the value.

    That transpose merges with any that follows, so either storage order is free.
    """
    return permutation(layout.makers.get(cell)) is not None


def _cells(layout: Storage) -> dict[Value, _Cell]:
    """Return every value that an op of the file writes, with its readers.

    The copies made by linked transposes belong to the value they copy.
    """
    cells: dict[Value, _Cell] = {}
    for v in layout.side:
        if v not in layout.root:
            maker = layout.makers.get(v)
            cells[v] = _Cell(maker if maker in layout.free else None)

    for op in layout.graph.ops:
        # A linked transpose is the change of storage order itself, and another one
        # merges with a transpose before it.
        if permutation(op) is None:
            _add_readers(layout, op, cells)

    for v in dict.fromkeys(layout.graph.outputs):
        if v in layout.side:
            cell = cells[layout.root.get(v, v)]
            cell.readers.append((v, None))
    return cells


def _add_readers(layout: Storage, op: Op, cells: dict[Value, _Cell]) -> None:
    """Add an op to the readers of each of its inputs."""
    tied = set(layout.tied(op)) if op in layout.free else set()
    for v in dict.fromkeys(op.inputs):
        if v not in layout.side:
            continue
        cell = cells[layout.root.get(v, v)]
        if v in tied:
            cell.readers.append((v, op))
        elif _lets_through(layout, op, v):
            cell.soft.append(v)
        else:
            cell.readers.append((v, None))


def _lets_through(layout: Storage, op: Op, v: Value) -> bool:
    """Return whether a transpose before `op` could move behind it as a whole."""
    if op.kind != "reshape":
        return False
    perm = layout.alternative[layout.side[v]]
    permuted_shape = tuple(v.type.shape[p] for p in perm)

    # Only a transpose that leaves nothing but dimensions of 1 before the reshape
    # counts.
    target = op.output.type.shape
    plan = through_reshape(permuted_shape, inverse(perm), target)
    return plan is not None and only_moves_ones(plan.inner, permuted_shape)


def _connect(graph: MinCut, producer: int, readers: list[int], cost: int) -> None:
    """Charge `cost` once if any reader is on another side than the producer.

    The readers share the moved copy. Two helper nodes express that: the cut separates
    the producer from the one of a side as soon as a reader is on that side.
    """
    distinct = set(readers)
    if len(distinct) == 1:
        graph.edge(producer, readers[0], cost)
        graph.edge(readers[0], producer, cost)
    elif readers and cost:
        to_b = graph.node()
        to_a = graph.node()
        graph.edge(producer, to_b, cost)
        graph.edge(to_a, producer, cost)
        for reader in distinct:
            graph.edge(to_b, reader, UNLIMITED)
            graph.edge(reader, to_a, UNLIMITED)
