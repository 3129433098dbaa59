"""The choice of a stage for every operation as nodes and edges: what may share a
segment, and what crossing costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgec.ir import Graph, Op, Value
from edgec_partitioner.cost import (
    CODE,
    CYCLES,
    PER_MB_PARAMETERS,
    TpuWork,
    padded_bytes,
)
from edgec_partitioner.regions import Costs, Places


@dataclass(eq=False)
class StageNode:
    """Operations that share a stage. cpu_ms, tpu_ms: their time at either place; tpu_ms
    is None where the rules refuse.

    parameters: bytes of their constants.
    """

    ops: list[Op]
    cpu_ms: float
    tpu_ms: float | None
    parameters: int


@dataclass(frozen=True)
class NodeSet:
    """Nodes of a problem as the bits of one number, so that there can be a set for
    every node of a large graph.

    at: the bit of each node of the problem, in their order.
    """

    bits: int
    at: Mapping[StageNode, int]

    def __contains__(self, n: StageNode) -> bool:
        return bool(self.bits >> self.at[n] & 1)

    def __len__(self) -> int:
        return self.bits.bit_count()

    def isdisjoint(self, other: NodeSet) -> bool:
        """Whether no node is in both."""
        return not self.bits & other.bits


@dataclass(frozen=True)
class Edge:
    """A value between nodes: who makes it (None: the caller), who else reads it, and
    its ms over the link.

    groups: the readers that may be on the Edge TPU, apart where they can never share a
    segment. near: the readers that can share one with who makes it. leaves: whether it
    is needed outside of the segment that makes it for certain.
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
    """Nodes in an order that respects the edges, and what all segments share."""

    nodes: tuple[StageNode, ...]
    edges: tuple[Edge, ...]
    later: Mapping[StageNode, NodeSet]
    """The nodes that depend on a node."""
    earlier: Mapping[StageNode, NodeSet]
    """Those that a node depends on."""
    segment_ms: float
    streamed_ms: float
    """For each byte of parameters beyond the cache, over what reading it on the chip
    costs.
    """

    def beside(self, n: StageNode) -> Iterator[StageNode]:
        """The nodes that neither depend on a node nor it on them, in order."""
        bit = self.later[n].at[n]
        others = ~(self.later[n].bits | self.earlier[n].bits | 1 << bit) & (
            (1 << len(self.nodes)) - 1
        )
        while others:
            lowest = others & -others
            yield self.nodes[lowest.bit_length() - 1]
            others ^= lowest


def problem(graph: Graph, allowed: Places, costs: Costs) -> Problem:
    """The nodes and edges of a graph.

    Operations that only the CPU may run are one node where that loses nothing.
    """
    nodes = {op: _node(op, allowed[op] == "edgetpu", costs) for op in graph.ops}
    _merge(graph, nodes)
    producer = graph.producers()
    users = graph.users()
    wanted = set(graph.outputs)
    edges = list[Edge]()
    order = _ordered(graph, nodes)
    readers_of = _readers(order, producer, nodes)
    later, earlier, apart = _reach(order, readers_of)
    for v in graph.values():
        if v.const is not None:
            continue
        source = nodes[producer[v]] if v in producer else None
        readers = tuple(
            dict.fromkeys(n for u in users.get(v, []) if (n := nodes[u]) is not source)
        )
        kept = v in wanted and source is not None
        if readers or kept:
            work = TpuWork(v.type.nbytes, padded_bytes(v), 0, 0, 0.0).parts(costs.link)
            able = [r for r in readers if r.tpu_ms is not None]
            near = tuple(r for r in able if source and r not in apart[source])
            leaves = kept or len(near) < len(readers)
            edges.append(
                Edge(
                    source,
                    readers,
                    _groups(able, apart),
                    near,
                    leaves,
                    work.input,
                    work.output,
                )
            )
    segment = TpuWork(0, 0, round(CODE["segment"]), 0, CYCLES["segment"] / 1e6).ms(
        costs.link
    )
    streamed = (costs.link.per_mb_sent - PER_MB_PARAMETERS) / 1e6
    return Problem(order, tuple(edges), later, earlier, segment, streamed)


def _node(op: Op, may: bool, costs: Costs) -> StageNode:
    work = costs.work(op)
    alone = (
        TpuWork(0, 0, 0, work.parameters, work.cycles / 1e6).ms(costs.link)
        - costs.link.invoke
    )
    alone += costs.link.per_mb_sent * work.code / 1e6
    return StageNode([op], costs.op_ms(op), alone if may else None, work.parameters)


def _merge(graph: Graph, nodes: dict[Op, StageNode]) -> None:
    """Let neighbours on the CPU be one node if the first feeds only the second, or the
    second reads only the first.

    In the first case the first can always run as late as the second, in the other the
    second as early as the first: a CPU operation costs the same in any stage, and so do
    the values around it.
    """
    producer = graph.producers()
    users = graph.users()
    for op in graph.ops:  # each is alone yet when its turn comes
        own = nodes[op]
        others = {nodes[producer[v]] for v in op.inputs if v in producer}
        if (
            own.tpu_ms is None
            and len(others) == 1
            and (other := others.pop()).tpu_ms is None
        ):
            _join(nodes, own, other)
    readers = {
        n: {
            u
            for op in n.ops
            for v in op.outputs
            for u in users.get(v, [])
            if nodes[u] is not n
        }
        for n in dict.fromkeys(nodes.values())
    }
    for op in reversed(graph.ops):
        own = nodes[op]
        others = {nodes[u] for u in readers[own]}
        if (
            own.tpu_ms is None
            and len(others) == 1
            and (other := others.pop()).tpu_ms is None
        ):
            _join(nodes, own, other)
            readers[other] = {
                u for u in readers[own] | readers[other] if nodes[u] is not other
            }


def _join(nodes: dict[Op, StageNode], own: StageNode, other: StageNode) -> None:
    """Let what a node computes be a part of another."""
    other.ops += own.ops
    other.cpu_ms += own.cpu_ms
    nodes |= dict.fromkeys(own.ops, other)


def _readers(
    order: Sequence[StageNode],
    producer: Mapping[Value, Op],
    nodes: Mapping[Op, StageNode],
) -> dict[StageNode, list[StageNode]]:
    """The other nodes that read a node's values, in order."""
    readers: dict[StageNode, dict[StageNode, None]] = {n: {} for n in order}
    for n in order:
        for v in (v for op in n.ops for v in op.inputs if v in producer):
            if nodes[producer[v]] is not n:
                readers[nodes[producer[v]]][n] = None
    return {n: list(found) for n, found in readers.items()}


_Sets = dict[StageNode, NodeSet]


def _reach(
    order: Sequence[StageNode], readers: Mapping[StageNode, list[StageNode]]
) -> tuple[_Sets, _Sets, _Sets]:
    """For each node those that depend on it; those that it depends on; and of the
    first, those that a node of the CPU lies between on some path.

    The last never share a segment with it.
    """
    at = {n: i for i, n in enumerate(order)}
    later, earlier, apart = (dict.fromkeys(order, 0) for _ in range(3))
    found = _postorder(order, readers)
    for n in found:
        for r in readers[n]:
            later[n] |= later[r] | 1 << at[r]
            apart[n] |= later[r] if r.tpu_ms is None else apart[r]
    for n in reversed(found):
        for r in readers[n]:
            earlier[r] |= earlier[n] | 1 << at[n]
    sets = (
        {n: NodeSet(bits, at) for n, bits in each.items()}
        for each in (later, earlier, apart)
    )
    return next(sets), next(sets), next(sets)


def _groups(
    readers: Sequence[StageNode], apart: _Sets
) -> tuple[tuple[StageNode, ...], ...]:
    """Readers such that those of two groups are always apart, in as many groups as
    there can be.
    """
    groups = list[tuple[StageNode, ...]]()
    for r in readers:
        touching = [
            g for g in groups if any(r not in apart[o] and o not in apart[r] for o in g)
        ]
        groups = [g for g in groups if g not in touching] + [
            (*(o for g in touching for o in g), r)
        ]
    return tuple(groups)


def _postorder(
    order: Sequence[StageNode], readers: Mapping[StageNode, list[StageNode]]
) -> list[StageNode]:
    """Every node after all that read it.

    Merged nodes are not in the graph's order, so it is sought.
    """
    waiting = {n: len(readers[n]) for n in order}
    sources: dict[StageNode, list[StageNode]] = {n: [] for n in order}
    for n in order:
        for r in readers[n]:
            sources[r].append(n)
    done = [n for n in order if not waiting[n]]
    for n in done:
        for s in sources[n]:
            waiting[s] -= 1
            if not waiting[s]:
                done.append(s)
    return done


def _ordered(graph: Graph, nodes: Mapping[Op, StageNode]) -> tuple[StageNode, ...]:
    """The nodes, each once, by their first operation in the graph's order."""
    return tuple(dict.fromkeys(nodes[op] for op in graph.ops))
