"""The choice of a stage for every operation as a mixed-integer linear program, solved
by HiGHS.

Stages are numbered: even ones run on the CPU, odd ones are Edge TPU segments, and no
operation has a lower stage than one that it reads. With y[n, s] = 1 if node n has stage
s or a later one, "n is in segment s" is y[n, s] - y[n, s+1], so that places, order and
convexity are all said by differences, and every cost is linear:

    an Edge TPU segment that has a node          the link's overhead
    a CPU segment                                a call; there is one between two Edge TPU
                                                 segments
    a node that is in one                        its instructions and cycles, else its time on the
                                                 CPU
    a value made elsewhere that a segment reads  its bytes in, once for each segment
    a value of a segment that is read elsewhere  its padded bytes out
    parameters of all segments beyond the cache  their bytes, once
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import highspy
import numpy as np

from edgec.ir import Op
from edgec_partitioner.cost import PARAMETER_CACHE
from edgec_partitioner.regions import CALL_MS, Places
from edgec_partitioner.silence import descriptors_silenced
from edgec_partitioner.stage_problem import Edge, Problem, StageNode
from edgec_partitioner.verdicts import Place

RELAXATION_NODES = 2000
"""Nodes of the search tree of a relaxation after which its bound is taken as it is."""

GAP = 1e-6
"""Relative gap at which a solution counts as optimal."""


@dataclass(frozen=True)
class Solution:
    """stage: of each op; None when none was found. bound_ms: no choice within the model
    is below it.
    """

    stage: Mapping[Op, int] | None
    bound_ms: float


@dataclass
class _LinearProgram:
    """A linear program under construction: columns with bounds and costs, rows `low <=
    sum <= high`.
    """

    cost: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    row_low: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    offset: float = 0.0

    def column(
        self,
        cost: float = 0.0,
        low: float = 0.0,
        high: float = 1.0,
        whole: bool = False,
    ) -> int:
        self.cost.append(cost)
        self.low.append(low)
        self.high.append(high)
        self.whole.append(whole)
        return len(self.cost) - 1

    def at_least(self, terms: Sequence[tuple[int, float]], low: float) -> None:
        """The sum of coefficient * column is not below `low`."""
        merged: dict[int, float] = {}
        for column, coefficient in terms:
            merged[column] = merged.get(column, 0.0) + coefficient
        self.starts.append(len(self.index))
        self.index += merged
        self.value += merged.values()
        self.row_low.append(low)

    def model(self) -> highspy.HighsLp:
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.row_low)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = map(
            np.array, (self.cost, self.low, self.high)
        )
        lp.row_lower_ = np.array(self.row_low)
        lp.row_upper_ = np.full(len(self.row_low), highspy.kHighsInf)
        lp.offset_ = self.offset
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array([*self.starts, len(self.index)])
        lp.a_matrix_.index_, lp.a_matrix_.value_ = (
            np.array(self.index),
            np.array(self.value),
        )
        if any(self.whole):
            kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
            lp.integrality_ = [kinds[w] for w in self.whole]
        return lp


_Terms = list[tuple[int, float]]
_Inside = Mapping[StageNode, list[_Terms]]
"""For each node that may be on the Edge TPU and each segment: 1 if it is in it."""
_Crossing = tuple[Edge, StageNode, StageNode, int]
"""A value, a reader that could share the segment of who makes it, one of both, and a
column that is 1 if that one is in a segment that the other is not in.
"""


@dataclass(frozen=True)
class Relaxation:
    """The solution of a program without stages. bound_ms: no choice costs less. places:
    where each op would be.
    """

    bound_ms: float
    places: Places


def relaxed(p: Problem, overheads: bool = False) -> Relaxation:
    """What every choice costs at least, whatever its number of segments; without
    `overheads`, without theirs.

    Each node is at either place, and a value pays for going from one to the other. Of
    order there remains that nodes before and after a node that only the CPU runs are in
    different segments (see _sides, and _calls for how many segments there are at
    least). No column need be whole.
    """
    rows = _LinearProgram()
    inside = {
        n: [[(rows.column(whole=True), 1.0)]] for n in p.nodes if n.tpu_ms is not None
    }
    crossings = _costs(rows, p, inside)
    for n in p.nodes:
        if n.tpu_ms is None:
            _sides(rows, p, n, inside, crossings)
    if overheads and inside:
        _calls(rows, p, {n: terms[0] for n, terms in inside.items()})
    values, bound = _solve(rows, RELAXATION_NODES)
    places: dict[Op, Place] = {op: "cpu" for n in p.nodes for op in n.ops}
    for n, segments in inside.items():
        # there is one segment here, and one column that says whether a node is in it
        [(column, _)] = segments[0]
        if values is not None and values[column] > 0.5:
            places |= dict.fromkeys(n.ops, "edgetpu")
    return Relaxation(bound, places)


def _sides(
    rows: _LinearProgram,
    p: Problem,
    cpu: StageNode,
    inside: _Inside,
    crossings: Sequence[_Crossing],
) -> None:
    """Nodes on a path around `cpu` are before or after it; a value between the two
    sides leaves its segment.
    """
    after = p.later[cpu]
    before = p.earlier[cpu]
    around = p.beside(cpu)
    free = [
        n
        for n in around
        if not p.earlier[n].isdisjoint(before) and not p.later[n].isdisjoint(after)
    ]
    if not free:
        return
    side = {n: [(rows.column(whole=True), 1.0)] for n in free}  # 1 if after
    for e in p.edges:
        for r in e.readers:
            if e.source in side and r in side:
                rows.at_least([*side[r], *_minus(side[e.source])], 0.0)
    # column >= n inside, and source and reader on different sides
    for e, reader, n, column in crossings:
        assert e.source is not None
        sides = (
            e.source in side or e.source in before,
            reader in side or reader in after,
        )
        if all(sides) and (e.source in side or reader in side):
            terms = [
                (column, 1.0),
                *_minus(inside[n][0]),
                *_minus(side.get(reader, [])),
                *side.get(e.source, []),
            ]
            rows.at_least(terms, float(reader in after) - 1.0)


def _calls(
    rows: _LinearProgram, p: Problem, inside: Mapping[StageNode, _Terms]
) -> None:
    """The overheads of the segments that there are at least, and of the calls before,
    between and after them.

    Along a path of nodes that only the CPU runs, what lies between different pairs of
    them is in different segments.
    """
    count = rows.column(p.segment_ms + CALL_MS, high=float(len(inside)))
    slots = list[_Terms]()
    for nodes in _slots(p):
        slot = rows.column(whole=True)
        slots.append([(slot, 1.0)])
        for n in nodes:
            rows.at_least([(slot, 1.0), *_minus(inside[n])], 0.0)
    rows.at_least([(count, 1.0), *(t for slot in slots for t in _minus(slot))], 0.0)
    # there is one call less between segments than segments, if there are any
    some = rows.column(-CALL_MS, whole=True)
    rows.at_least([(count, 1.0), (some, -1.0)], 0.0)
    for terms in inside.values():
        rows.at_least([(count, 1.0), *_minus(terms)], 0.0)
    read = {n for e in p.edges if e.source is not None for n in e.readers}
    first = rows.column(CALL_MS)
    last = rows.column(CALL_MS)
    sources = [t for n in p.nodes if n not in read for t in inside.get(n, [])]
    sinks = [t for n in p.nodes if not p.later[n] for t in inside.get(n, [])]
    rows.at_least([(first, 1.0), *sources], 1.0)
    rows.at_least([(last, 1.0), (some, -1.0), *sinks], 0.0)


def _slots(p: Problem) -> list[list[StageNode]]:
    """The nodes that may be on the Edge TPU before, between and after the nodes of a
    longest path of others.
    """
    order = sorted(
        (n for n in p.nodes if n.tpu_ms is None), key=lambda n: len(p.later[n])
    )
    length = dict[StageNode, int]()
    behind = dict[StageNode, StageNode | None]()
    for i, n in enumerate(order):
        behind[n] = max(
            (o for o in order[:i] if o in p.later[n]),
            key=length.__getitem__,
            default=None,
        )
        nearest = behind[n]
        length[n] = 1 + (length[nearest] if nearest is not None else 0)
    path = list[StageNode]()
    at = max(order, key=length.__getitem__, default=None)
    while at is not None:
        path.append(at)
        at = behind[at]
    slots: list[list[StageNode]] = [[] for _ in range(len(path) + 1)]
    for n in (n for n in p.nodes if n.tpu_ms is not None):
        before = sum(n in p.later[c] for c in path)
        if all(c in p.later[n] for c in path[before:]):
            slots[before].append(n)
    return [nodes for nodes in slots if nodes]


def solve(p: Problem, segments: int, nodes: int, enough_ms: float = 0.0) -> Solution:
    """The best choice with at most so many Edge TPU segments.

    The search ends with a choice of at most `enough_ms`, or after `nodes` nodes of its
    tree, which, unlike a time limit, gives the same result on any machine.
    """
    rows = _LinearProgram()
    last = 2 * segments
    late = {n: _late(rows, n, last) for n in p.nodes}
    for e in p.edges:
        for reader in e.readers if e.source is not None else ():
            assert e.source is not None
            for a, b in zip(late[reader], late[e.source], strict=True):
                rows.at_least([(a, 1.0), (b, -1.0)], 0.0)
    inside = {
        n: [_inside(late[n], t, last) for t in range(1, last, 2)]
        for n in p.nodes
        if n.tpu_ms is not None
    }
    used = [rows.column(p.segment_ms + CALL_MS, whole=True) for _ in range(segments)]
    for t, z in enumerate(used):
        for terms in inside.values():
            rows.at_least([(z, 1.0), *_minus(terms[t])], 0.0)
        if t:
            rows.at_least([(used[t - 1], 1.0), (z, -1.0)], 0.0)
    _first_and_last(rows, p, late, used)
    _costs(rows, p, inside)
    values, bound = _solve(rows, nodes, enough_ms)
    if values is None:
        return Solution(None, bound)
    stage = {
        op: round(sum(values[c] for c in late[n])) for n in p.nodes for op in n.ops
    }
    return Solution(stage, bound)


def _first_and_last(
    rows: _LinearProgram,
    p: Problem,
    late: Mapping[StageNode, list[int]],
    used: Sequence[int],
) -> None:
    """CPU segments before the first and after the last on the Edge TPU; used[t] pays
    for the one before segment t.
    """
    rows.offset -= CALL_MS
    first = rows.column(CALL_MS)
    last = rows.column(CALL_MS)
    read = {n for e in p.edges if e.source is not None for n in e.readers}
    for n in p.nodes:
        columns = late[n]
        if n not in read:
            rows.at_least([(first, 1.0), (columns[0], 1.0)], 1.0)
        if not p.later[n]:
            rows.at_least([(last, 1.0), (columns[0], 1.0), (used[0], 1.0)], 1.0)
            for s in range(2, len(columns) + 1, 2):
                # no gaps in the numbering
                rows.at_least([(used[s // 2 - 1], 1.0), (columns[s - 1], -1.0)], 0.0)
                if s < len(columns):
                    more = [(columns[s], 1.0), (used[s // 2], 1.0)]
                else:
                    more = []
                rows.at_least([(last, 1.0), (columns[s - 1], -1.0), *more], 0.0)


def _late(rows: _LinearProgram, n: StageNode, last: int) -> list[int]:
    """The columns "stage s or later" of a node, for s from 1 to `last`; on the CPU
    alone, odd stages are the next.
    """
    if n.tpu_ms is None:
        columns = [c for _ in range(last // 2) for c in [rows.column(whole=True)] * 2]
    else:
        columns = [rows.column(whole=True) for _ in range(last)]
    for a, b in pairwise(columns):
        if a != b:
            rows.at_least([(a, 1.0), (b, -1.0)], 0.0)
    return columns


def _inside(late: Sequence[int], t: int, last: int) -> _Terms:
    """1 if a node has stage t."""
    return [(late[t - 1], 1.0)] + ([(late[t], -1.0)] if t < last else [])


def _minus(terms: _Terms) -> _Terms:
    return [(c, -k) for c, k in terms]


def _costs(rows: _LinearProgram, p: Problem, inside: _Inside) -> list[_Crossing]:
    """The costs of nodes, values and streamed parameters."""
    for n in p.nodes:
        rows.offset += n.cpu_ms
        if n.tpu_ms is not None:
            _add(rows, [c for terms in inside[n] for c in terms], n.tpu_ms - n.cpu_ms)
    crossings = [
        c
        for e in p.edges
        for t in range(len(next(iter(inside.values()), [])))
        for c in _cross(rows, e, inside, t)
    ]
    total = sum(n.parameters for n in inside)
    if total > PARAMETER_CACHE:
        streamed = rows.column(p.streamed_ms * 1e6, high=total / 1e6)
        terms = [
            (c, -k * n.parameters / 1e6)
            for n, each in inside.items()
            for t in each
            for c, k in t
        ]
        rows.at_least([(streamed, 1.0), *terms], -PARAMETER_CACHE / 1e6)
    return crossings


def _add(rows: _LinearProgram, terms: _Terms, ms: float) -> None:
    for c, k in terms:
        rows.cost[c] += k * ms


def _cross(
    rows: _LinearProgram, e: Edge, inside: _Inside, t: int
) -> Iterator[_Crossing]:
    """What a value costs in segment t.

    Where it is certain to cross, no column is needed.
    """
    own = inside[e.source][t] if e.source is not None and e.source in inside else []
    for group in e.groups:
        if len(group) == 1 and group[0] not in e.near:
            _add(rows, inside[group[0]][t], e.in_ms)
            continue
        c = rows.column(e.in_ms)
        for r in group:
            rows.at_least(
                [(c, 1.0), *_minus(inside[r][t]), *(own if r in e.near else [])], 0.0
            )
        yield from ((e, r, r, c) for r in group if own and r in e.near)
    if e.leaves:
        _add(rows, own, e.out_ms)
    elif own:
        c = rows.column(e.out_ms)
        for r in e.near:
            rows.at_least([(c, 1.0), *_minus(own), *inside[r][t]], 0.0)
        yield from ((e, r, e.source, c) for r in e.near if e.source is not None)


def _silent_solver() -> highspy.Highs:
    """Make a solver that has not printed and will not print.

    HiGHS 1.16 prints its version and licence to the process's standard output while the
    object is made, before any option can switch its output off.
    """
    with descriptors_silenced():
        solver = highspy.Highs()
    solver.silent()
    return solver


def _solve(
    rows: _LinearProgram, nodes: int, enough: float = -highspy.kHighsInf
) -> tuple[list[float] | None, float]:
    """The best values found and the proven bound.

    One thread and a fixed seed, so that it can be repeated.

    The search ends when it has found values that cost no more than `enough`. It begins
    with nothing: HiGHS 1.16.0 gives a known choice back in place of the better one that
    it has found, when presolving alone finds that.
    """
    if not rows.cost:
        return [], rows.offset
    h = _silent_solver()
    limits = {"mip_rel_gap": GAP, "mip_max_nodes": nodes, "objective_target": enough}
    for name, value in {"threads": 1, "random_seed": 0, **limits}.items():
        h.setOptionValue(name, value)
    h.passModel(rows.model())
    h.run()
    info = h.getInfo()
    whole = any(rows.whole)
    bound = info.mip_dual_bound if whole else info.objective_function_value
    found = (
        info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    )
    return list(h.getSolution().col_value) if found else None, bound
