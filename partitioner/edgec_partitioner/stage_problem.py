"""The choice of a stage for every operation as nodes and edges.

The problem states which operations may share a segment, and the cost of each value that
crosses a boundary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgec.ir import Graph, Op, Value
from edgec_partitioner.cost import (
    CODE,
    TpuWork,
    padded_bytes,
)
from edgec_partitioner.regions import Costs, Places


@dataclass(eq=False)
class StageNode:
    """Operations that share a stage.

    Attributes:
        ops: the operations.
        cpu_ms: their time on the CPU.
        tpu_ms: their time on the Edge TPU; None if the rules refuse it.
        parameters: bytes of their constants.
    """

    ops: list[Op]
    cpu_ms: float
    tpu_ms: float | None
    parameters: int


@dataclass(frozen=True)
class NodeSet:
    """Nodes of a problem as the bits of one number.

    It is small enough for a set for every node of a large graph.

    Attributes:
        bits: the set; bit i is node i.
        at: the number of each node of the problem.
    """

    bits: int
    at: Mapping[StageNode, int]

    def __contains__(self, n: StageNode) -> bool:
        return bool(self.bits >> self.at[n] & 1)

    def __len__(self) -> int:
        return self.bits.bit_count()

    def isdisjoint(self, other: NodeSet) -> bool:
        """Return whether no node is in both sets."""
        return not self.bits & other.bits


@dataclass(frozen=True)
class Edge:
    """A value between nodes.

    Attributes:
        source: its producer; None for an input of the graph.
        readers: the other nodes that read it.
        groups: the readers that may be on the Edge TPU; readers of different groups
            can never share a segment.
        near: the readers that can share a segment with the producer.
        leaves: whether it certainly leaves the segment of its producer.
        in_ms, out_ms: its time over the link, to and from the Edge TPU.
    """

    source: StageNode | None
    readers: tuple[StageNode, ...]
    groups: tuple[tuple[StageNode, ...], ...]
    near: tuple[StageNode, ...]
    leaves: bool
    in_ms: float
    out_ms: float


@dataclass(frozen=True)
class Problem:
    """The nodes and edges of a graph, and the costs common to all segments.

    Attributes:
        nodes: in the order of their first operations.
        edges: the values between them.
        later: for each node, the nodes that depend on it.
        earlier: for each node, the nodes that it depends on.
        segment_ms: the overhead of an Edge TPU segment.
        streamed_ms: the time for each byte of parameters beyond the cache.
    """

    nodes: tuple[StageNode, ...]
    edges: tuple[Edge, ...]
    later: Mapping[StageNode, NodeSet]
    earlier: Mapping[StageNode, NodeSet]
    segment_ms: float
    streamed_ms: float

    def beside(self, n: StageNode) -> Iterator[StageNode]:
        """Yield the nodes that neither depend on a node nor it on them, in order."""
        later = self.later[n]
        own_bit = 1 << later.at[n]
        related = later.bits | self.earlier[n].bits | own_bit
        all_nodes = (1 << len(self.nodes)) - 1
        others = ~related & all_nodes
        while others:
            lowest = others & -others
            yield self.nodes[lowest.bit_length() - 1]
            others ^= lowest


def problem(graph: Graph, allowed: Places, costs: Costs) -> Problem:
    """Return the nodes and edges of a graph.

    Operations that only the CPU may run are one node if that loses nothing.
    """
    nodes: dict[Op, StageNode] = {}
    for op in graph.ops:
        nodes[op] = _node(op, allowed[op] == "edgetpu", costs)
    _merge(graph, nodes)

    # Merged nodes keep the place of their first op.
    order = _ordered(graph, nodes)
    readers_of = _readers(order, graph.producers(), nodes)
    later, earlier, apart = _reach(order, readers_of)
    edges = _edges(graph, nodes, apart, costs)

    link = costs.link

    # A segment costs a call and its basic instructions.
    segment = TpuWork(0, 0, round(CODE["segment"]), 0, 0.0)
    streamed_ms = link.per_mb_streamed / 1e6
    return Problem(order, tuple(edges), later, earlier, segment.ms(link), streamed_ms)


def _edges(
    graph: Graph, nodes: Mapping[Op, StageNode], apart: _Sets, costs: Costs
) -> list[Edge]:
    """Return an edge for each computed value that another node or the caller reads."""
    producer = graph.producers()
    users = graph.users()
    outputs = set(graph.outputs)
    edges: list[Edge] = []
    for v in graph.values():
        if v.const is not None:
            continue
        source = nodes[producer[v]] if v in producer else None
        all_readers = dict.fromkeys(nodes[user] for user in users.get(v, []))
        readers = tuple(n for n in all_readers if n is not source)
        # The caller reads it.
        returned = v in outputs and source is not None
        # A value that only its own node reads never crosses.
        if readers or returned:
            edges.append(_edge(v, source, readers, returned, apart, costs))
    return edges


def _edge(
    v: Value,
    source: StageNode | None,
    readers: tuple[StageNode, ...],
    returned: bool,
    apart: _Sets,
    costs: Costs,
) -> Edge:
    """Return the edge of one value. returned: whether the caller reads it."""
    work = TpuWork(v.type.nbytes, padded_bytes(v), 0, 0, 0.0)
    time = work.parts(costs.link)
    able = [r for r in readers if r.tpu_ms is not None]
    near: tuple[StageNode, ...] = ()
    if source is not None:
        near = tuple(r for r in able if r not in apart[source])
    return Edge(
        source=source,
        readers=readers,
        groups=_groups(able, apart),
        near=near,
        leaves=returned or len(near) < len(readers),
        in_ms=time.input,
        out_ms=time.output,
    )


def _node(op: Op, allowed: bool, costs: Costs) -> StageNode:
    """Return the node of one operation. allowed: whether the Edge TPU may run it."""
    tpu_ms = costs.tpu_op_ms(op) if allowed else None
    return StageNode([op], costs.op_ms(op), tpu_ms, costs.work(op).parameters)


def _merge(graph: Graph, nodes: dict[Op, StageNode]) -> None:
    """Merge neighbours on the CPU where the choice loses nothing.

    That is so if the first feeds only the second, or the second reads only the first.
    In the one case the first can always run as late as the second, in the other the
    second as early as the first: a CPU operation costs the same in any stage, and so do
    the values around it.
    """
    producer = graph.producers()
    # Each op is still alone when its turn comes.
    for op in graph.ops:
        node = nodes[op]
        sources = {nodes[producer[v]] for v in op.inputs if v in producer}
        only = _only_cpu_node(node, sources)
        if only is not None:
            _join(nodes, node, only)

    readers = _reading_ops(graph, nodes)
    # The second case, from the end, so that chains merge as a whole.
    for op in reversed(graph.ops):
        node = nodes[op]
        only = _only_cpu_node(node, {nodes[user] for user in readers[node]})
        if only is not None:
            _join(nodes, node, only)
            users = readers[node] | readers[only]
            readers[only] = {user for user in users if nodes[user] is not only}


def _only_cpu_node(node: StageNode, others: set[StageNode]) -> StageNode | None:
    """Return the only element of `others`, if it and `node` are for the CPU alone."""
    if node.tpu_ms is not None or len(others) != 1:
        return None
    other = next(iter(others))
    return other if other.tpu_ms is None else None


def _reading_ops(
    graph: Graph, nodes: Mapping[Op, StageNode]
) -> dict[StageNode, set[Op]]:
    """Return the ops of other nodes that read the values of each node."""
    users = graph.users()
    readers: dict[StageNode, set[Op]] = {n: set() for n in nodes.values()}
    for op in graph.ops:
        node = nodes[op]
        for v in op.outputs:
            others = [user for user in users.get(v, []) if nodes[user] is not node]
            readers[node].update(others)
    return readers


def _join(nodes: dict[Op, StageNode], node: StageNode, other: StageNode) -> None:
    """Move the operations of a node to another one."""
    other.ops += node.ops
    other.cpu_ms += node.cpu_ms
    for op in node.ops:
        nodes[op] = other


def _readers(
    order: Sequence[StageNode],
    producer: Mapping[Value, Op],
    nodes: Mapping[Op, StageNode],
) -> dict[StageNode, list[StageNode]]:
    """Return the other nodes that read each node's values, in order."""
    readers: dict[StageNode, dict[StageNode, None]] = {n: {} for n in order}
    for n in order:
        for op in n.ops:
            for v in op.inputs:
                source = nodes[producer[v]] if v in producer else n
                if source is not n:
                    readers[source][n] = None
    return {n: list(found) for n, found in readers.items()}


_Sets = dict[StageNode, NodeSet]


def _reach(
    order: Sequence[StageNode], readers: Mapping[StageNode, list[StageNode]]
) -> tuple[_Sets, _Sets, _Sets]:
    """Return the sets `later`, `earlier` and `apart` of each node.

    These are the nodes that depend on it; the nodes that it depends on; and of the
    first, the ones with a node of the CPU in between on some path. Those never share a
    segment with it.
    """
    at = {n: i for i, n in enumerate(order)}
    later = dict.fromkeys(order, 0)
    earlier = dict.fromkeys(order, 0)
    apart = dict.fromkeys(order, 0)
    postorder = _postorder(order, readers)
    for n in postorder:
        for r in readers[n]:
            later[n] |= later[r] | 1 << at[r]
            # Everything behind a node of the CPU is apart.
            apart[n] |= later[r] if r.tpu_ms is None else apart[r]
    for n in reversed(postorder):
        for r in readers[n]:
            earlier[r] |= earlier[n] | 1 << at[n]

    def sets(bits: Mapping[StageNode, int]) -> _Sets:
        return {n: NodeSet(of_node, at) for n, of_node in bits.items()}

    return sets(later), sets(earlier), sets(apart)


def _groups(
    readers: Sequence[StageNode], apart: _Sets
) -> tuple[tuple[StageNode, ...], ...]:
    """Return the readers in as many groups as possible.

    Two readers of different groups are always apart.
    """
    groups: list[tuple[StageNode, ...]] = []
    for r in readers:
        # A reader that may share a segment with several groups joins them.
        separate: list[tuple[StageNode, ...]] = []
        merged: list[StageNode] = []
        for group in groups:
            if all(r in apart[other] or other in apart[r] for other in group):
                separate.append(group)
            else:
                merged += group
        groups = [*separate, (*merged, r)]
    return tuple(groups)


def _postorder(
    order: Sequence[StageNode], readers: Mapping[StageNode, list[StageNode]]
) -> list[StageNode]:
    """Return every node after all nodes that read it (Kahn's algorithm).

    Merged nodes are not in the graph's order.
    """
    waiting = {n: len(readers[n]) for n in order}
    sources: dict[StageNode, list[StageNode]] = {n: [] for n in order}
    for n in order:
        for r in readers[n]:
            sources[r].append(n)

    ready = [n for n in order if not waiting[n]]
    # The list grows as sources become ready.
    for n in ready:
        for source in sources[n]:
            waiting[source] -= 1
            if not waiting[source]:
                ready.append(source)
    return ready


def _ordered(graph: Graph, nodes: Mapping[Op, StageNode]) -> tuple[StageNode, ...]:
    """Return the nodes, each once, by their first operation in the graph's order."""
    return tuple(dict.fromkeys(nodes[op] for op in graph.ops))
