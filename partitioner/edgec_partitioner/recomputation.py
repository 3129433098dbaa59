"""Copies of operations in the Edge TPU segments that need their results.

A network with an operation for the CPU in its middle has values that pass it by, such as
the skip connections of a U-Net. Between two segments, such a value is read back over
the slow side of the link and sent again, though a few operations may make it of less:
then the later segment computes them once more.

The operations R to repeat in a segment are those with the least

    sum of the time of the operations of R on the Edge TPU
    + sum of the transfer of the values that R or the segment read, and neither makes

which is a minimum cut between the inputs of the graph and the segment. The idea is that
of Hwang and El Gamal, "Min-cut replication in partitioned networks", IEEE Trans. CAD
14(1), 1995.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from edgec.ir import Graph, Op, Value
from edgec.ir.graph import Names
from edgec.passes._mincut import SINK, SOURCE, UNLIMITED, MinCut
from edgec_partitioner.cost import padded_bytes
from edgec_partitioner.legalize import Applied
from edgec_partitioner.regions import Costs, Places

NAME = "recomputation"

_NS_PER_MS = 1_000_000
"""Capacities of a cut are whole numbers: nanoseconds."""


@dataclass(frozen=True)
class Repeated:
    """A graph with copies of some operations.

    Attributes:
        graph: the graph.
        original: for each copy, the operation that it repeats. Where all readers of
            that one read copies, it is gone, and the first copy stands for it: it
            repeats itself.
    """

    graph: Graph
    original: Mapping[Op, Op]

    def copy(self) -> Repeated:
        """Return a copy of the graph, with the same ops in the same order."""
        twin = self.graph.copy()
        twin_of = dict(zip(self.graph.ops, twin.ops, strict=True))
        original: dict[Op, Op] = {}
        for again, first in self.original.items():
            original[twin_of[again]] = twin_of[first]
        return Repeated(twin, original)

    def records(self) -> list[Applied]:
        """Return a record of each op that is computed once more."""
        records: list[Applied] = []
        for again, first in self.original.items():
            if again is first:
                continue
            copy_name = again.outputs[0].name
            at = first.outputs[0].name
            records.append(Applied(NAME, at, first.source, (copy_name,)))
        return records


def repeated(
    graph: Graph, stage: Mapping[Op, int], allowed: Places, costs: Costs
) -> Repeated | None:
    """Return a copy of a graph whose segments repeat what is cheaper than to transfer.

    stage: for each op, odd in an Edge TPU segment (see `regions.stages`). allowed: what
    the rules allow, as only ops for the Edge TPU are repeated. None if all transfers
    are cheaper.
    """
    ops_by_stage: dict[int, list[Op]] = {}
    for number in sorted(set(stage.values())):
        if number % 2 == 0:
            continue
        ops = worth_repeating(graph, stage, number, allowed, costs)
        if ops:
            ops_by_stage[number] = ops
    if not ops_by_stage:
        return None
    return _with_copies(graph, stage, ops_by_stage)


def worth_repeating(
    graph: Graph,
    stage: Mapping[Op, int],
    number: int,
    allowed: Places,
    costs: Costs,
) -> list[Op]:
    """Return the ops that the segment of a stage should repeat, in the graph's order.

    stage, allowed, costs: see `repeated`. number: the stage.
    """
    return _Repetition(graph, stage, allowed, costs).cheapest(number)


@dataclass
class _Repetition:
    """The choice of the ops that one segment repeats, as a minimum cut.

    What is on the sink's side is in the segment. An op there costs its time on the Edge
    TPU, and a value whose op is on the other side its transfer.

    Attributes:
        graph, stage, allowed, costs: see `repeated`.
        cut: the network.
        op_nodes: the node of each op that may be repeated.
        value_nodes: the node of each value that would have to be in the segment.
        waiting: the ops whose inputs have no nodes yet.
    """

    graph: Graph
    stage: Mapping[Op, int]
    allowed: Places
    costs: Costs
    cut: MinCut = field(default_factory=MinCut)
    op_nodes: dict[Op, int] = field(default_factory=dict)
    value_nodes: dict[Value, int] = field(default_factory=dict)
    waiting: list[Op] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._producer = self.graph.producers()
        self._users = self.graph.users()
        self._outputs = set(self.graph.outputs)

    def cheapest(self, number: int) -> list[Op]:
        """Return the ops that the segment of a stage should repeat, in order."""
        segment = [op for op in self.graph.ops if self.stage[op] == number]
        results = {v for op in segment for v in op.outputs}
        # Whatever the segment reads must be on its side.
        for op in segment:
            self._demand(op, SINK, results)
        # The network grows backwards, from the segment to the inputs of the graph.
        while self.waiting:
            op = self.waiting.pop()
            self._demand(op, self.op_nodes[op], results)

        # The other side has what the segment gets over the link.
        _, elsewhere = self.cut.solve()
        ordered = [op for op in self.graph.ops if op in self.op_nodes]
        return [op for op in ordered if self.op_nodes[op] not in elsewhere]

    def _demand(self, op: Op, node: int, made: Collection[Value]) -> None:
        """Let the inputs of an op be on the sink's side if a node is.

        made: the values that the segment makes itself.
        """
        for v in op.inputs:
            if v.const is None and v not in made:
                self.cut.edge(self._value_node(v), node, UNLIMITED)

    def _value_node(self, v: Value) -> int:
        """Return the node of a value, with the cost of its transfer."""
        if v in self.value_nodes:
            return self.value_nodes[v]
        node = self.cut.node()
        self.value_nodes[v] = node
        op = self._producer.get(v)
        # Inputs of the graph, and what the CPU makes, are always transferred.
        source = SOURCE
        if op is not None and self.allowed[op] == "edgetpu":
            source = self._op_node(op)
        self.cut.edge(source, node, _ns(self._transfer_ms(v)))
        return node

    def _op_node(self, op: Op) -> int:
        """Return the node of an op, with the cost to repeat it."""
        if op not in self.op_nodes:
            node = self.cut.node()
            self.op_nodes[op] = node
            self.cut.edge(SOURCE, node, _ns(self.costs.tpu_op_ms(op)))
            self.waiting.append(op)
        return self.op_nodes[op]

    def _transfer_ms(self, v: Value) -> float:
        """Return the time to bring a value into the segment.

        It is read back from another segment for that, unless the CPU reads it too.
        """
        read_back = 0
        op = self._producer.get(v)
        if op is not None and self.stage[op] % 2 == 1:
            # The CPU would get it without this segment, too.
            on_cpu = any(self.stage[user] % 2 == 0 for user in self._users[v])
            if not on_cpu and v not in self._outputs:
                read_back = padded_bytes(v)
        return self.costs.transfer_ms(v.type.nbytes, read_back)


def _ns(ms: float) -> int:
    return round(ms * _NS_PER_MS)


def _with_copies(
    graph: Graph, stage: Mapping[Op, int], wanted: Mapping[int, Sequence[Op]]
) -> Repeated:
    """Return a copy of a graph with copies of ops for some stages.

    wanted: the ops to repeat for each stage, in the graph's order.
    """
    twin = graph.copy()
    twin_of = dict(zip(graph.ops, twin.ops, strict=True))
    names = Names(v.name for v in twin.values())
    behind: dict[Op, list[Op]] = {}
    original: dict[Op, Op] = {}
    for number, ops in wanted.items():
        copies: dict[Value, Value] = {}
        for op in ops:
            first = twin_of[op]
            # What an earlier segment repeats for `first` is read from there. Chains
            # of copies through several segments would be the cheapest set by the
            # formula, but a worse start for the choice of places: ConvNeXt V2 atto on
            # a Pi 4 takes an estimated 55.5 ms so, 61.0 ms with them.
            read = [copies.get(v, v) for v in first.inputs]
            copy = _copied(first, read, names)
            copies |= zip(first.outputs, copy.outputs, strict=True)
            behind.setdefault(first, []).append(copy)
            original[copy] = first
        # The segment's own ops read the copies.
        for op in graph.ops:
            if stage[op] == number:
                reader = twin_of[op]
                reader.inputs = [copies.get(v, v) for v in reader.inputs]

    # Right behind the originals, all inputs of the copies are there.
    ops_in_order: list[Op] = []
    for op in twin.ops:
        ops_in_order.append(op)
        ops_in_order += behind.get(op, [])
    twin.ops = ops_in_order
    twin.drop_unused()
    return _of_graph(twin, original)


def _copied(op: Op, inputs: list[Value], names: Names) -> Op:
    """Return an op of the same kind that reads other values."""
    outputs: list[Value] = []
    for v in op.outputs:
        name = names.new(f"{v.name}_again")
        outputs.append(Value(name, v.type))
    return Op(op.spec, inputs, outputs, op.source)


def without_idle(r: Repeated, stage: Mapping[Op, int]) -> Repeated | None:
    """Return a graph without the copies that a choice of stages made needless.

    Such a copy is in the segment of its original, or both are on the CPU: then one is
    enough. None if there is no such copy. The graph is edited in place.
    """
    has_idle = False
    for op, first in r.original.items():
        if op is first or not _one_is_enough(stage[first], stage[op]):
            continue
        # Copies of inputs that are still in use differ for a reason.
        if op.inputs != first.inputs:
            continue
        for again, v in zip(op.outputs, first.outputs, strict=True):
            r.graph.replace(again, v)
        has_idle = True
    if not has_idle:
        return None
    # What only those copies read goes with them.
    r.graph.drop_unused()
    return _of_graph(r.graph, r.original)


def _one_is_enough(first: int, again: int) -> bool:
    """Return whether the first of two equal ops serves the readers of both."""
    on_cpu = first % 2 == 0 and again % 2 == 0
    return first == again or (on_cpu and first < again)


def _of_graph(graph: Graph, original: Mapping[Op, Op]) -> Repeated:
    """Return a graph with the copies that are in it, in its order."""
    ops = set(graph.ops)
    stands_for: dict[Op, Op] = {}
    left: dict[Op, Op] = {}
    for op in graph.ops:
        if op not in original:
            continue
        first = original[op]
        # The first copy takes the place of an original that is gone.
        if first not in ops:
            first = stands_for.setdefault(first, op)
        left[op] = first
    return Repeated(graph, left)
