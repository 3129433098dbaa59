"""Regions: ops of one place that run together, in a linear order, and their costs.

The input is a place or a stage for each op.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from edgec.ir import Graph, Op, Value
from edgec_partitioner.cost import (
    Link,
    OpWork,
    TpuTime,
    TpuWork,
    op_work,
    streamed_bytes,
    tpu_work,
)
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.verdicts import Place

Places = Mapping[Op, Place]

PLACES: tuple[Place, Place] = ("cpu", "edgetpu")
"""The place of a stage, by its parity."""

CALL_MS = 0.03
"""The time to start a CPU segment: a call through Python of some tens of microseconds
(assumed, not measured). The links' overheads contain that of the Edge
TPU.
"""


@dataclass(frozen=True)
class Region:
    """Ops of one place, in the graph's order.

    Attributes:
        place: the processor.
        ops: the ops.
        inputs: the computed values that they read from outside.
        outputs: the values of theirs that are read outside.
    """

    place: Place
    ops: tuple[Op, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


def stages(graph: Graph, places: Places) -> dict[Op, int]:
    """Return the stage of each op: even on the CPU, odd on the Edge TPU.

    It is never below the stages of the ops it reads, and the least such number, the
    number of changes of place on the longest path to the op. So the ops of one stage
    are of one place and convex, and running the stages by number respects every edge.
    """
    producer = graph.producers()
    stage: dict[Op, int] = {}
    for op in graph.ops:
        # Inputs of the graph are there from stage 0 on.
        sources = [producer[v] for v in op.inputs if v in producer]
        earliest = max((stage[source] for source in sources), default=0)
        if PLACES[earliest % 2] != places[op]:
            earliest += 1
        stage[op] = earliest
    return stage


def late(graph: Graph, stage: Mapping[Op, int], ops: Iterable[Op]) -> dict[Op, int]:
    """Return stages in which some ops are as late as those that read them allow.

    An op keeps its place. `stages` puts all ops as early as possible, but a
    copy has its use in the segment that reads it.
    """
    movable = set(ops)
    users = graph.users()
    outputs = set(graph.outputs)
    result = dict(stage)
    for op in reversed(graph.ops):
        if op not in movable or not outputs.isdisjoint(op.outputs):
            continue
        readers = [user for v in op.outputs for user in users.get(v, [])]
        latest = min((result[user] for user in readers), default=result[op])
        if latest % 2 != result[op] % 2:
            latest -= 1
        result[op] = max(result[op], latest)
    return result


def regions(graph: Graph, places: Places) -> list[Region]:
    """Return one region per stage that has ops.

    Each op is in the earliest stage that its place allows.
    """
    return staged(graph, stages(graph, places))


def staged(graph: Graph, stage: Mapping[Op, int]) -> list[Region]:
    """Return one region per stage that has ops, in a valid order.

    Every op is in exactly one. stage: for each op, odd on the Edge TPU, never below the
    stages of the ops it reads.
    """
    # Stages without ops are left out.
    groups: dict[int, list[Op]] = {}
    for op in graph.ops:
        groups.setdefault(stage[op], []).append(op)

    users = graph.users()
    result: list[Region] = []
    for number, ops in sorted(groups.items()):
        result.append(_region(graph, PLACES[number % 2], ops, users))
    return result


def _region(
    graph: Graph, place: Place, ops: Sequence[Op], users: Mapping[Value, list[Op]]
) -> Region:
    """Return the region of some ops, with the values that cross its boundary."""
    inputs, outputs = crossing(graph, ops, users)
    return Region(place, tuple(ops), tuple(inputs), tuple(outputs))


def crossing(
    graph: Graph, ops: Sequence[Op], users: Mapping[Value, list[Op]]
) -> tuple[list[Value], list[Value]]:
    """Return the computed values that some ops read from and write for others.

    users: the readers of each value. Outputs of the graph are read outside.
    """
    inside = set(ops)
    produced = dict.fromkeys(v for op in ops for v in op.outputs)
    graph_outputs = set(graph.outputs)

    # A dict keeps the order of the first use.
    inputs: dict[Value, None] = {}
    for op in ops:
        for v in op.inputs:
            if v.const is None and v not in produced:
                inputs[v] = None

    outputs: list[Value] = []
    for v in produced:
        read_outside = any(user not in inside for user in users.get(v, []))
        if v in graph_outputs or read_outside:
            outputs.append(v)
    return list(inputs), outputs


def cpu_ms(part: Region, cpu: CpuCost) -> float:
    """Return the time of a region on the CPU, whatever its place.

    It includes the call of its code.
    """
    return CALL_MS + sum(cpu.op_ms(op) for op in part.ops)


@dataclass(frozen=True)
class Costs:
    """The cost model for placements.

    An op's work is computed once: nothing may change the op afterwards.
    """

    link: Link
    cpu: CpuCost
    _works: dict[Op, OpWork] = field(default_factory=dict, compare=False, repr=False)

    def work(self, op: Op) -> OpWork:
        """Return the work of one op on the Edge TPU."""
        if op not in self._works:
            self._works[op] = op_work(op)
        return self._works[op]

    def op_ms(self, op: Op) -> float:
        """Return the time of one op on the CPU."""
        return self.cpu.op_ms(op)

    def tpu_op_ms(self, op: Op) -> float:
        """Return the time of one op in an Edge TPU segment that exists anyway.

        It has no transfers of tensors, only of the op's instructions.
        """
        work = self.work(op)
        alone = TpuWork(0, 0, 0, work.parameters, work.cycles / 1e6)
        instructions_ms = self.link.per_mb_sent * work.code / 1e6
        # The overhead is paid once for each segment.
        return alone.ms(self.link) - self.link.invoke + instructions_ms

    def transfer_ms(self, bytes_in: int, bytes_out: int) -> float:
        """Return the time of bytes to the Edge TPU and of (padded) bytes back."""
        transfer = TpuWork(bytes_in, bytes_out, 0, 0, 0.0)
        return transfer.ms(self.link) - self.link.invoke

    def works(self, parts: Iterable[Region]) -> list[TpuWork]:
        """Return the work of each Edge TPU region, in order."""
        result: list[TpuWork] = []
        for region in parts:
            if region.place == "edgetpu":
                works = [self.work(op) for op in region.ops]
                result.append(tpu_work(works, region.inputs, region.outputs))
        return result

    def tpu_times(self, parts: Iterable[Region]) -> list[TpuTime]:
        """Return the time of each Edge TPU region by its parts, in order."""
        works = self.works(parts)
        streamed = streamed_bytes(works)
        pairs = zip(works, streamed, strict=True)
        return [work.parts(self.link, size) for work, size in pairs]

    def tpu_ms(self, parts: Iterable[Region]) -> list[float]:
        """Return the time of each Edge TPU region, in order."""
        return [t.ms for t in self.tpu_times(parts)]

    def cpu_ms(self, part: Region) -> float:
        """Return the time of a region on the CPU, whatever its place."""
        return cpu_ms(part, self.cpu)

    def total_ms(self, parts: Sequence[Region]) -> float:
        """Return the time of all regions, one after the other."""
        on_cpu = sum(self.cpu_ms(region) for region in parts if region.place == "cpu")
        return on_cpu + sum(self.tpu_ms(parts))
