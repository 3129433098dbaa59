"""From a place or a stage for each op to a linear order of regions, and what the
regions cost.
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
"""By the parity of a stage."""

CALL_MS = 0.03
"""What starting a CPU segment takes: a call through Python of some tens of microseconds
(assumed, not measured). The links' overheads have the Edge TPU's.
"""


@dataclass(frozen=True)
class Region:
    """Ops of one place, in the graph's order, and the computed values that cross its
    border.
    """

    place: Place
    ops: tuple[Op, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


def stages(graph: Graph, places: Places) -> dict[Op, int]:
    """The stage of each op: even on the CPU, odd on the Edge TPU, never below those of
    the ops that it reads.

    It is the least such number, which counts the changes of place on the longest path
    to the op. So the ops of one stage are of one place and convex, and running the
    stages by number respects every edge.
    """
    producer = graph.producers()
    stage: dict[Op, int] = {}
    for op in graph.ops:
        earliest = max(
            (stage[producer[v]] for v in op.inputs if v in producer), default=0
        )
        stage[op] = earliest + (earliest % 2 != (places[op] == "edgetpu"))
    return stage


def regions(graph: Graph, places: Places) -> list[Region]:
    """One region per stage that has ops, each op in the earliest stage that its place
    allows.
    """
    return staged(graph, stages(graph, places))


def staged(graph: Graph, stage: Mapping[Op, int]) -> list[Region]:
    """One region per stage that has ops, in a valid order; every op is in exactly one.

    stage: of each op, odd on the Edge TPU, never below those of the ops that it reads.
    """
    groups: dict[int, list[Op]] = {}
    for op in graph.ops:
        groups.setdefault(stage[op], []).append(op)
    users = graph.users()
    return [
        _region(graph, PLACES[s % 2], ops, users) for s, ops in sorted(groups.items())
    ]


def _region(
    graph: Graph, place: Place, ops: Sequence[Op], users: Mapping[Value, list[Op]]
) -> Region:
    inside = set(ops)
    made = [v for op in ops for v in op.outputs]
    own = set(made)
    wanted = set(graph.outputs)
    read = dict.fromkeys(
        v for op in ops for v in op.inputs if v.const is None and v not in own
    )
    leaving = [
        v for v in made if v in wanted or any(u not in inside for u in users.get(v, []))
    ]
    return Region(place, tuple(ops), tuple(read), tuple(leaving))


def cpu_ms(part: Region, cpu: CpuCost) -> float:
    """The time of a region's operations on the CPU, whatever its place, and of the call
    of its code.
    """
    return CALL_MS + sum(cpu.op_ms(op) for op in part.ops)


@dataclass(frozen=True)
class Costs:
    """What placements are judged by.

    An op's work is computed once: nothing may change the op meanwhile.
    """

    link: Link
    cpu: CpuCost
    _works: dict[Op, OpWork] = field(default_factory=dict, compare=False, repr=False)

    def work(self, op: Op) -> OpWork:
        """Of one op."""
        if op not in self._works:
            self._works[op] = op_work(op)
        return self._works[op]

    def op_ms(self, op: Op) -> float:
        """Of one op on the CPU."""
        return self.cpu.op_ms(op)

    def works(self, parts: Iterable[Region]) -> list[TpuWork]:
        """The work of each Edge TPU region, in order."""
        return [
            tpu_work([*map(self.work, r.ops)], r.inputs, r.outputs)
            for r in parts
            if r.place == "edgetpu"
        ]

    def tpu_times(self, parts: Iterable[Region]) -> list[TpuTime]:
        """The time of each Edge TPU region by its parts, in order."""
        works = self.works(parts)
        return [
            w.parts(self.link, s)
            for w, s in zip(works, streamed_bytes(works), strict=True)
        ]

    def tpu_ms(self, parts: Iterable[Region]) -> list[float]:
        """The time of each Edge TPU region, in order."""
        return [t.ms for t in self.tpu_times(parts)]

    def cpu_ms(self, part: Region) -> float:
        """The time of a region on the CPU, whatever its place."""
        return cpu_ms(part, self.cpu)

    def total_ms(self, parts: Sequence[Region]) -> float:
        """All regions, one after the other."""
        return sum(self.cpu_ms(r) for r in parts if r.place == "cpu") + sum(
            self.tpu_ms(parts)
        )
