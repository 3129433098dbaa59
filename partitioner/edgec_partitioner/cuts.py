"""The choice of a stage for every operation with the least estimated total time.

An integer program (stage_problem.py, stage_model.py) finds the best choice of a stage
for every operation. Its size grows with the number of segments, so that number is
limited, and the limit justified: a choice with more segments pays their overhead on top
of a bound that holds for any number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter

from edgec.ir import Graph, Op
from edgec_partitioner.greedy import Surroundings, connected, greedy
from edgec_partitioner.linear_program import GAP
from edgec_partitioner.regions import (
    CALL_MS,
    PLACES,
    Costs,
    Places,
    late,
    regions,
    staged,
    stages,
)
from edgec_partitioner.stage_model import relaxed, solve
from edgec_partitioner.stage_problem import Problem, problem
from edgec_partitioner.verdicts import Place

MOST_SEGMENTS = 24
"""The largest number of Edge TPU segments that is considered."""

SEARCH_NODES = 2000
"""Nodes of the search tree after which the best choice found is taken, with the gap
that is left.
"""


@dataclass(frozen=True)
class Demoted:
    """Connected ops that are allowed on the Edge TPU, but faster on the CPU.

    Attributes:
        ops: the ops.
        lost_ms: how much longer one inference would take with them on the Edge TPU, by
            the estimate.
    """

    ops: tuple[Op, ...]
    lost_ms: float


@dataclass(frozen=True)
class Cuts:
    """The chosen stage of every op, and how good the choice is.

    Attributes:
        stages: the stage of each op; odd ones are on the Edge TPU.
        total_ms: the estimated time of an inference.
        bound_ms: a lower bound for any choice; equal to the total but for rounding if
            the search ran to its end.
        demoted: the ops on the CPU that the rules allow on the Edge TPU.
    """

    stages: Mapping[Op, int]
    total_ms: float
    bound_ms: float
    demoted: tuple[Demoted, ...]

    @property
    def places(self) -> dict[Op, Place]:
        """The place of each op."""
        return {op: PLACES[s % 2] for op, s in self.stages.items()}

    @property
    def gap(self) -> float:
        """The largest share of the total that a better choice might save, 0 to 1.

        It is 0 if the choice is proven best.
        """
        slack = self.total_ms - self.bound_ms
        return slack / self.total_ms if slack > 1e-5 * self.total_ms else 0.0


def choose(
    graph: Graph, allowed: Places, costs: Costs, copies: Collection[Op] = ()
) -> Cuts:
    """Return the stages with the least estimated total that the rules allow.

    copies: ops that repeat others for the segments that read them.
    """
    p = problem(graph, allowed, costs)
    relaxation = relaxed(p, overheads=True)
    # The relaxation knows nothing of stages, but with the places it finds the choice is
    # often the best one: then its cost equals the bound, a proof, and no program with
    # stages, a far larger one, need be solved.
    candidates = [greedy(graph, allowed, costs), stages(graph, relaxation.places)]
    if copies:
        candidates += [late(graph, stage, copies) for stage in candidates]
    scored: list[_Scored] = []
    for stage in candidates:
        scored.append((_total(graph, stage, costs), stage))
    total, best = min(scored, key=itemgetter(0))
    bound = relaxation.bound_ms
    # The relaxation lets copies be in the segment of their originals, so that a search
    # for a proof would be long.
    if not copies and total - bound > GAP * total:
        total, best, bound = _search(graph, costs, p, bound, (total, best))
    demoted = _demoted(graph, best, allowed, costs, total)
    return Cuts(best, total, min(bound, total), tuple(demoted))


_Scored = tuple[float, Mapping[Op, int]]
"""The total time of a choice in ms, and its stage of each op."""


def _search(
    graph: Graph, costs: Costs, p: Problem, relaxed_ms: float, start: _Scored
) -> tuple[float, Mapping[Op, int], float]:
    """Return the total, the stages and the lower bound of the best choice.

    Programs with more and more segments are solved, until a choice with even more
    cannot be better. relaxed_ms: a lower bound. start: a choice to improve.
    """
    total, best = start
    enough = relaxed_ms * (1 + GAP)
    # The bound without overheads, to which those of the segments are added.
    floor = relaxed(p).bound_ms
    bound = total
    tried = 0
    while True:
        segments = min(_most_segments(p, floor, total), MOST_SEGMENTS)
        if segments <= tried:
            return total, best, bound
        # The first program is a small one: it may lower the total, and so the number.
        if tried == 0:
            segments = min(segments, 2 + max(best.values()) // 2)
        tried = segments
        # A choice as good as the relaxation's bound ends the search.
        solution = solve(p, tried, SEARCH_NODES, enough)
        # A choice with more segments than tried is bounded by their overhead.
        more_segments = _least_with(p, floor, tried + 1)
        bound = max(relaxed_ms, min(solution.bound_ms, more_segments))
        if solution.stage is None:
            continue
        stage = _tidy(solution.stage)
        ms = _total(graph, stage, costs)
        if ms < total:
            total = ms
            best = stage


def _least_with(p: Problem, floor: float, segments: int) -> float:
    """Return a lower bound for any choice with so many Edge TPU segments.

    There is at least one, and there are calls between them. floor: a bound without
    overheads.
    """
    return floor + segments * (p.segment_ms + CALL_MS) - CALL_MS


def _most_segments(p: Problem, floor: float, total: float) -> int:
    """Return the most segments that a choice not worse than `total` can have."""
    slack = total - _least_with(p, floor, 0)
    return max(0, int(slack / (p.segment_ms + CALL_MS)))


def _tidy(stage: Mapping[Op, int]) -> dict[Op, int]:
    """Return the same segments, numbered without gaps.

    CPU stages with nothing between them become one.
    """
    numbers: dict[int, int] = {}
    last = -1
    for s in sorted(set(stage.values())):
        # Odd stages are Edge TPU segments and stay apart.
        if s % 2:
            last += 1 + last % 2
        else:
            last += last % 2
        numbers[s] = last
    return {op: numbers[s] for op, s in stage.items()}


def _total(graph: Graph, stage: Mapping[Op, int], costs: Costs) -> float:
    return costs.total_ms(staged(graph, stage))


def _demoted(
    graph: Graph, stage: Mapping[Op, int], allowed: Places, costs: Costs, total: float
) -> Iterator[Demoted]:
    """Yield the groups of ops that the choice keeps from the Edge TPU."""
    places = {op: PLACES[s % 2] for op, s in stage.items()}
    surroundings = Surroundings(graph, costs)
    # The gain of stages that are not the earliest.
    later = costs.total_ms(regions(graph, places)) - total
    demoted = [op for op in graph.ops if places[op] != allowed[op]]
    for ops in connected(demoted, graph.producers()):
        change = surroundings.change(places, ops, PLACES[1])
        yield Demoted(ops, max(0.0, later + change))
