"""Which operations go to the Edge TPU and in which segment: the choice that shortens
the estimated total, with a proof.

An integer program (stage_problem.py, stage_model.py) finds the best choice of a stage
for every operation. Its size grows with the number of segments, so that number is
limited, and the limit justified: whatever a choice with more segments gains, it pays
their overhead on top of a bound that holds for any number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter

from edgec.ir import Graph, Op
from edgec_partitioner.greedy import Surroundings, connected, greedy
from edgec_partitioner.regions import (
    CALL_MS,
    PLACES,
    Costs,
    Places,
    regions,
    staged,
    stages,
)
from edgec_partitioner.stage_model import GAP, relaxed, solve
from edgec_partitioner.stage_problem import Problem, problem
from edgec_partitioner.verdicts import Place

MOST_SEGMENTS = 24
"""Edge TPU segments that are considered at most."""

SEARCH_NODES = 2000
"""Nodes of the search tree after which the best choice found is taken, with the gap
that is left.
"""


@dataclass(frozen=True)
class Demoted:
    """Connected ops that the rules allow on the Edge TPU but that are faster on the
    CPU.

    lost_ms: how much longer one inference would take, by the estimate, with them on the
    Edge TPU.
    """

    ops: tuple[Op, ...]
    lost_ms: float


@dataclass(frozen=True)
class Cuts:
    """The chosen stage of every op (odd: on the Edge TPU), and how good the choice is.

    total_ms: its estimate. bound_ms: what no other choice is below; equal to the total
    but for rounding when the search ran to its end. demoted: what the rules would have
    allowed on the Edge TPU.
    """

    stages: Mapping[Op, int]
    total_ms: float
    bound_ms: float
    demoted: tuple[Demoted, ...]

    @property
    def places(self) -> dict[Op, Place]:
        """Where each op runs."""
        return {op: PLACES[s % 2] for op, s in self.stages.items()}

    @property
    def gap(self) -> float:
        """How much of the total a better choice might save at most, from 0 to 1; 0 if
        it is proven best.
        """
        slack = self.total_ms - self.bound_ms
        return slack / self.total_ms if slack > 1e-5 * self.total_ms else 0.0


def choose(graph: Graph, allowed: Places, costs: Costs) -> Cuts:
    """The placement with the least estimated total among those that the rules allow."""
    p = problem(graph, allowed, costs)
    relaxation = relaxed(p, overheads=True)
    # The relaxation knows nothing of stages, but where it says that each op is, the
    # choice is often the best one: then its cost is the bound, which proves it, and no
    # program with stages, which is far larger, need be solved.
    candidates = (greedy(graph, allowed, costs), stages(graph, relaxation.places))
    total, best = min(
        ((_total(graph, c, costs), c) for c in candidates), key=itemgetter(0)
    )
    if total - relaxation.bound_ms <= GAP * total:
        return Cuts(
            best,
            total,
            min(relaxation.bound_ms, total),
            tuple(_demoted(graph, best, allowed, costs, total)),
        )
    enough = relaxation.bound_ms * (1 + GAP)
    bound = total
    tried = 0
    floor = relaxed(p).bound_ms
    while (segments := min(_most(p, floor, total), MOST_SEGMENTS)) > tried:
        tried = segments if tried else min(segments, 2 + max(best.values()) // 2)
        found = solve(p, tried, SEARCH_NODES, enough)
        bound = max(
            relaxation.bound_ms, min(found.bound_ms, _with(p, floor, tried + 1))
        )
        if found.stage is not None:
            better = _tidy(found.stage)
            if (ms := _total(graph, better, costs)) < total:
                best = better
                total = ms
    return Cuts(
        best,
        total,
        min(bound, total),
        tuple(_demoted(graph, best, allowed, costs, total)),
    )


def _with(p: Problem, floor: float, segments: int) -> float:
    """What any choice with so many Edge TPU segments, at least one, costs at least:
    there are calls between them.
    """
    return floor + segments * (p.segment_ms + CALL_MS) - CALL_MS


def _most(p: Problem, floor: float, total: float) -> int:
    """How many segments a choice that is not worse than `total` can have."""
    return max(0, int((total - _with(p, floor, 0)) / (p.segment_ms + CALL_MS)))


def _tidy(found: Mapping[Op, int]) -> dict[Op, int]:
    """The same segments, numbered without gaps; CPU stages with nothing between them
    are one.
    """
    number = dict[int, int]()
    last = -1
    for s in sorted(set(found.values())):
        if s % 2:
            last += 1 + last % 2
        else:
            last += last % 2
        number[s] = last
    return {op: number[s] for op, s in found.items()}


def _total(graph: Graph, stage: Mapping[Op, int], costs: Costs) -> float:
    return costs.total_ms(staged(graph, stage))


def _demoted(
    graph: Graph, stage: Mapping[Op, int], allowed: Places, costs: Costs, total: float
) -> Iterator[Demoted]:
    places = {op: PLACES[s % 2] for op, s in stage.items()}
    look = Surroundings(graph, costs)
    # what the choice gains by stages that are not the earliest
    later = costs.total_ms(regions(graph, places)) - total
    for ops in connected(
        [op for op in graph.ops if places[op] != allowed[op]], graph.producers()
    ):
        yield Demoted(ops, max(0.0, later + look.change(places, ops, PLACES[1])))
