"""Moves transposes to where they cost least, which for a convolutional model is its
border.

Front-ends import every image op as transpose → NHWC op → transpose. Take one
permutation P. Each value of its rank can be stored in two ways: A, and B = transpose(A,
P). A convolution wants B; the op that the file has wants A; an op with `OpDef.permute`
can work in either. A transpose by P is then nothing but a change of storage, and
choosing the storage of every op so that the fewest bytes change is a minimum cut: ops
are nodes, storage A is the source's side, storage B the sink's, and an edge costs the
bytes that are moved when producer and consumers disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edgec.ir import Graph, Op, Value
from edgec.ops.shape import Transpose
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
)
from edgec.passes.sink_transposes import through_reshape

_CALL = 4096
"""Bytes that moving nothing would cost: one transpose rather than two of half the size."""
_HARD = 1
_SOFT = 3
"""A byte costs both, but only `_SOFT` if the transpose goes on through a reshape and
may yet meet its inverse.
"""


def run(graph: Graph) -> bool:
    """One cut for each permutation (with its inverse) of the graph, channels-last
    first, until one helps.
    """
    return any(_improve(graph, perm) for perm in _permutations(graph))


def _improve(graph: Graph, perm: Perm) -> bool:
    """Cut, and rewrite if the cut is better than what is there."""
    layout = Storage(graph, perm)
    storage = _cheapest(layout) if layout.free else None
    if storage is None:
        return False
    Relayout(layout, storage).run()
    return True


def _permutations(graph: Graph) -> list[Perm]:
    cost: dict[Perm, int] = {}
    for op in graph.ops:
        if isinstance(op.spec, Transpose):
            perm = op.spec.perm
            last = channels_last(len(perm))
            key = last if last in (perm, inverse(perm)) else min(perm, inverse(perm))
            cost[key] = cost.get(key, 0) + op.output.type.nbytes
    return sorted(
        cost, key=lambda p: (len(p) < 4 or p != channels_last(len(p)), -cost[p], p)
    )


@dataclass
class _Cell:
    """One stored value: the free op that makes it, and its readers (a value with the
    wanted side, the free op).
    """

    maker: Op | None
    readers: list[tuple[Value, Op | None]] = field(default_factory=list)
    soft: list[Value] = field(default_factory=list)
    """Read by a reshape that a transpose can go through."""


def _cheapest(layout: Storage) -> dict[Op, int] | None:
    """The storage that each free op shall work in; None when the present one is as
    good.
    """
    graph = MinCut()
    nodes = dict[Op, int]()
    if len(layout.perm) >= 4 and layout.perm == channels_last(len(layout.perm)):
        prefer = B
    else:
        prefer = None
    cost = 0
    unit = len(layout.free) + 1  # all preferences together weigh less than one byte
    for op in layout.graph.ops:
        if op in layout.free:
            nodes[op] = graph.node()
            is_side = layout.side[op.outputs[0]]
            wanted = is_side if prefer is None else prefer
            cost += is_side != wanted
            graph.edge(
                nodes[op] if wanted == B else SOURCE,
                SINK if wanted == B else nodes[op],
                1,
            )
    for cell, ends in _cells(layout).items():
        side = layout.side[cell]
        if ends.maker is not None:
            made = nodes[ends.maker]
        else:
            made = graph.node() if _is_transposed(layout, cell) else _terminal(side)
        hard = [
            _terminal(layout.side[v]) if op is None else nodes[op]
            for v, op in ends.readers
        ]
        soft = [_terminal(layout.side[v]) for v in ends.soft]
        if only_moves_ones(layout.alternative[side], cell.type.shape):
            price = 0
        else:
            price = (cell.type.nbytes + _CALL) * unit
        _connect(graph, made, hard, price * _HARD)
        _connect(graph, made, hard + soft, price * _SOFT)
        differs = [layout.side[v] != side for v, _ in ends.readers]
        cost += price * (
            _HARD * any(differs)
            + _SOFT * any([*differs, *(layout.side[v] != side for v in ends.soft)])
        )
    best, source_side = graph.solve()
    if best < cost:
        return {op: A if node in source_side else B for op, node in nodes.items()}
    return None


def _terminal(side: int) -> int:
    return SOURCE if side == A else SINK


def _is_transposed(layout: Storage, cell: Value) -> bool:
    """Whether another transpose makes the cell: it merges with whatever follows, so
    either storage is free.
    """
    maker = layout.makers.get(cell)
    return maker is not None and isinstance(maker.spec, Transpose)


def _cells(layout: Storage) -> dict[Value, _Cell]:
    """Every value that the file's ops write, with the readers of all its linked copies."""
    cells: dict[Value, _Cell] = {}
    for v in layout.side:
        if v not in layout.root:
            maker = layout.makers.get(v)
            cells[v] = _Cell(maker if maker in layout.free else None)
    for op in layout.graph.ops:
        if isinstance(op.spec, Transpose):
            # linked ones are the change of storage itself, others merge with what
            # stands before them
            continue
        tied = set(layout.tied(op)) if op in layout.free else set()
        for v in dict.fromkeys(op.inputs):
            if v in layout.side:
                cell = cells[layout.root.get(v, v)]
                if v not in tied and _lets_through(layout, op, v):
                    cell.soft.append(v)
                else:
                    cell.readers.append((v, op if v in tied else None))
    for v in dict.fromkeys(layout.graph.outputs):
        if v in layout.side:
            cells[layout.root.get(v, v)].readers.append((v, None))
    return cells


def _lets_through(layout: Storage, op: Op, v: Value) -> bool:
    """Whether a transpose before this op would go on behind it."""
    if op.kind != "reshape":
        return False
    there = layout.alternative[layout.side[v]]
    plan = through_reshape(
        tuple(v.type.shape[p] for p in there), inverse(there), op.output.type.shape
    )
    return plan is not None and only_moves_ones(
        plan.inner, tuple(v.type.shape[p] for p in there)
    )


def _connect(graph: MinCut, made: int, read: list[int], cost: int) -> None:
    """`cost` once, if any reader is on another side than the maker, however many
    readers share the moved copy.
    """
    if len(set(read)) == 1:
        graph.edge(made, read[0], cost)
        graph.edge(read[0], made, cost)
    elif read and cost:
        to_b = graph.node()
        to_a = graph.node()
        graph.edge(made, to_b, cost)
        graph.edge(to_a, made, cost)
        for r in set(read):
            graph.edge(to_b, r, UNLIMITED)
            graph.edge(r, to_a, UNLIMITED)
