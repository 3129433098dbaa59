"""From a place for each op to a linear order of regions, and which Edge TPU regions are worth their transfers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgec.ir import Graph, Op, Value
from edgec_partitioner.cost import CpuCost, Link, TpuWork, streamed_bytes, tpu_work
from edgec_partitioner.verdicts import Place

Places = Mapping[Op, Place]


@dataclass(frozen=True)
class Region:
    """Ops of one place, in the graph's order, and the computed values that cross its border."""

    place: Place
    ops: tuple[Op, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


def stages(graph: Graph, places: Places) -> dict[Op, int]:
    """The stage of each op: even on the CPU, odd on the Edge TPU, never below those of the ops that it reads.

    It is the least such number, which counts the changes of place on the longest path to the op. So the ops of one
    stage are of one place and convex, and running the stages by number respects every edge.
    """
    producer = graph.producers()
    stage: dict[Op, int] = {}
    for op in graph.ops:
        earliest = max((stage[producer[v]] for v in op.inputs if v in producer), default=0)
        stage[op] = earliest + (earliest % 2 != (places[op] == "edgetpu"))
    return stage


def regions(graph: Graph, places: Places) -> list[Region]:
    """One region per stage that has ops, in a valid order; every op is in exactly one."""
    stage = stages(graph, places)
    groups: dict[int, list[Op]] = {}
    for op in graph.ops:
        groups.setdefault(stage[op], []).append(op)
    users = graph.users()
    return [_region(graph, places[ops[0]], ops, users) for _, ops in sorted(groups.items())]


def _region(graph: Graph, place: Place, ops: Sequence[Op], users: Mapping[Value, list[Op]]) -> Region:
    inside = set(ops)
    made = [v for op in ops for v in op.outputs]
    own, wanted = set(made), set(graph.outputs)
    read = dict.fromkeys(v for op in ops for v in op.inputs if v.const is None and v not in own)
    leaving = [v for v in made if v in wanted or any(u not in inside for u in users.get(v, []))]
    return Region(place, tuple(ops), tuple(read), tuple(leaving))


@dataclass(frozen=True)
class Costs:
    """What placements are judged by."""

    link: Link
    cpu: CpuCost

    def works(self, parts: Iterable[Region]) -> list[TpuWork]:
        """The work of each Edge TPU region, in order."""
        return [tpu_work(r.ops, r.inputs, r.outputs) for r in parts if r.place == "edgetpu"]

    def tpu_ms(self, parts: Iterable[Region]) -> list[float]:
        """The time of each Edge TPU region, in order."""
        works = self.works(parts)
        return [w.ms(self.link, s) for w, s in zip(works, streamed_bytes(works), strict=True)]

    def total_ms(self, parts: Sequence[Region]) -> float:
        """All regions, one after the other."""
        cpu = sum(self.cpu.op_ms(op) for r in parts if r.place == "cpu" for op in r.ops)
        return cpu + sum(self.tpu_ms(parts))


@dataclass(frozen=True)
class Move:
    """Ops that were moved together to the CPU, and the estimated milliseconds that this saved."""

    ops: tuple[Op, ...]
    saved_ms: float


def choose_places(graph: Graph, allowed: Places, costs: Costs) -> tuple[dict[Op, Place], list[Move]]:
    """Places no faster than the rules allow, and worth it: what does not pay on the Edge TPU is moved to the CPU.

    Greedy: as long as moving one region, or one of its connected parts, shortens the estimated total, the move that
    shortens it most is made. An exact optimiser can take this function's place.
    """
    places, moves = dict(allowed), list[Move]()
    parts = regions(graph, places)
    best = costs.total_ms(parts)
    while True:
        scored = [
            (costs.total_ms(regions(graph, _moved(places, ops))), len(ops), i, ops)
            for i, ops in enumerate(_candidates(graph, parts))
        ]
        total, _, _, ops = min(scored, key=lambda s: s[:3], default=(best, 0, 0, ()))
        if total >= best:
            return places, moves
        moves.append(Move(ops, best - total))
        places = _moved(places, ops)
        parts, best = regions(graph, places), total


def _moved(places: Places, ops: Iterable[Op]) -> dict[Op, Place]:
    return {**places, **dict.fromkeys(ops, "cpu")}


def _candidates(graph: Graph, parts: Iterable[Region]) -> Iterator[tuple[Op, ...]]:
    producer = graph.producers()
    for region in parts:
        if region.place == "edgetpu":
            pieces = list(connected(region.ops, producer))
            yield from pieces
            if len(pieces) > 1:
                yield region.ops


def connected(ops: Sequence[Op], producer: Mapping[Value, Op]) -> Iterator[tuple[Op, ...]]:
    """The parts of `ops` that exchange values directly, each in the given order."""
    leader = {op: op for op in ops}

    def find(op: Op) -> Op:
        while leader[op] is not op:
            leader[op] = leader[leader[op]]
            op = leader[op]
        return op

    for op in ops:
        for v in op.inputs:
            above = producer.get(v)
            if above is not None and above in leader:
                leader[find(op)] = find(above)
    groups: dict[Op, list[Op]] = {}
    for op in ops:
        groups.setdefault(find(op), []).append(op)
    yield from map(tuple, groups.values())
