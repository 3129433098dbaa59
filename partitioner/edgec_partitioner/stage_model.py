"""The choice of a stage for every operation as a mixed-integer linear program.

HiGHS solves it (see linear_program.py).

Stages are numbered: even ones run on the CPU, odd ones are Edge TPU segments, and no
operation has a lower stage than an operation it reads. With y[n, s] = 1 if node n has
stage s or a later one, "n is in segment s" is y[n, s] - y[n, s+1], so that places,
order and convexity are all expressed by differences, and every cost is linear:

    an Edge TPU segment that has a node          the link's overhead
    a CPU segment                                a call; there is one between two Edge
                                                 TPU segments
    a node that is in one                        its instructions and cycles, else its
                                                 time on the CPU
    a value made elsewhere that a segment reads  its bytes in, once for each segment
    a value of a segment that is read elsewhere  its padded bytes out
    parameters of all segments beyond the cache  their bytes, once
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from edgec.ir import Op
from edgec_partitioner.cost import PARAMETER_CACHE
from edgec_partitioner.linear_program import LinearProgram, solution_of
from edgec_partitioner.regions import CALL_MS, Places
from edgec_partitioner.stage_problem import Edge, NodeSet, Problem, StageNode
from edgec_partitioner.verdicts import Place

RELAXATION_NODES = 2000
"""The limit of nodes of the search tree of a relaxation; its bound is then taken."""


@dataclass(frozen=True)
class Solution:
    """The result of a program with stages.

    Attributes:
        stage: the stage of each op; None without a solution.
        bound_ms: a lower bound for any choice within the model.
    """

    stage: Mapping[Op, int] | None
    bound_ms: float


_Terms = list[tuple[int, float]]
"""A sum of columns with coefficients."""
_Inside = Mapping[StageNode, list[_Terms]]
"""For each node that may be on the Edge TPU and each segment: a sum that is 1 if the
node is in the segment.
"""


@dataclass(frozen=True)
class _Crossing:
    """A value that may leave or enter a segment.

    Attributes:
        edge: the value.
        reader: a reader that could share the segment of the producer.
        node: the reader or the producer.
        column: 1 if `node` is in a segment without the other one.
    """

    edge: Edge
    reader: StageNode
    node: StageNode
    column: int


@dataclass(frozen=True)
class Relaxation:
    """The solution of a program without stages.

    Attributes:
        bound_ms: a lower bound for the cost of any choice.
        places: the place of each op in the solution.
    """

    bound_ms: float
    places: Places


def relaxed(p: Problem, overheads: bool = False) -> Relaxation:
    """Return a lower bound for every choice, whatever its number of segments.

    Without `overheads`, the bound has none of the segments. Each node is at either
    place, and a value pays for crossing from one to the other. Of the order only this
    remains: nodes before and after a node for the CPU alone are in different segments
    (see _sides, and _calls for the least number of segments). No column need be whole.
    """
    rows = LinearProgram()
    inside: dict[StageNode, list[_Terms]] = {}
    for n in p.nodes:
        if n.tpu_ms is not None:
            inside[n] = [[(rows.column(whole=True), 1.0)]]
    crossings = _costs(rows, p, inside)
    for n in p.nodes:
        if n.tpu_ms is None:
            _sides(rows, p, n, inside, crossings)
    if overheads and inside:
        _calls(rows, p, {n: terms[0] for n, terms in inside.items()})

    values, bound = solution_of(rows, RELAXATION_NODES)
    places: dict[Op, Place] = {op: "cpu" for n in p.nodes for op in n.ops}
    for n, segments in inside.items():
        # There is one segment here, with one column for each node.
        [(column, _)] = segments[0]
        if values is not None and values[column] > 0.5:
            places |= dict.fromkeys(n.ops, "edgetpu")
    return Relaxation(bound, places)


@dataclass(frozen=True)
class _Around:
    """The nodes around a node for the CPU alone.

    Attributes:
        side: for each node on a path around it, a sum that is 1 if the node counts as
            after it, and 0 if as before.
        before: the nodes before it.
        after: the nodes after it.
    """

    side: Mapping[StageNode, _Terms]
    before: NodeSet
    after: NodeSet


def _sides(
    rows: LinearProgram,
    p: Problem,
    cpu: StageNode,
    inside: _Inside,
    crossings: Sequence[_Crossing],
) -> None:
    """Place the nodes on a path around `cpu` before or after it.

    A value between the two sides leaves its segment.
    """
    after = p.later[cpu]
    before = p.earlier[cpu]
    side: dict[StageNode, _Terms] = {}
    for n in p.beside(cpu):
        on_path = not p.earlier[n].isdisjoint(before)
        if on_path and not p.later[n].isdisjoint(after):
            side[n] = [(rows.column(whole=True), 1.0)]
    if not side:
        return

    # No reader is before a source that is after.
    for e in p.edges:
        if e.source not in side:
            continue
        for r in e.readers:
            if r in side:
                rows.at_least([*side[r], *_minus(side[e.source])], 0.0)
    around = _Around(side, before, after)
    for crossing in crossings:
        _separate(rows, crossing, inside, around)


def _separate(
    rows: LinearProgram, crossing: _Crossing, inside: _Inside, around: _Around
) -> None:
    """Let a value cross if its source and reader are on different sides.

    column >= (node is inside) + (reader is after) - (source is after) - 1
    """
    source = crossing.edge.source
    reader = crossing.reader
    side = around.side
    assert source is not None
    # Two nodes of fixed sides are apart: `_cross` has their cost.
    if source not in side and reader not in side:
        return
    if source not in side and source not in around.before:
        return
    if reader not in side and reader not in around.after:
        return

    terms = [
        (crossing.column, 1.0),
        *_minus(inside[crossing.node][0]),
        *_minus(side.get(reader, [])),
        *side.get(source, []),
    ]
    rows.at_least(terms, float(reader in around.after) - 1.0)


def _calls(rows: LinearProgram, p: Problem, inside: Mapping[StageNode, _Terms]) -> None:
    """Add the overheads of the least number of segments, and of the calls around them.

    Along a path of nodes for the CPU alone, nodes between different pairs of them are
    in different segments.
    """
    high = float(len(inside))
    # A column for the number of segments, each with a call before it.
    count = rows.column(p.segment_ms + CALL_MS, high=high)
    slots: _Terms = []
    # A slot counts as a segment as soon as one of its nodes is on the Edge TPU.
    for nodes in _slots(p):
        slot = rows.column(whole=True)
        slots.append((slot, 1.0))
        for n in nodes:
            rows.at_least([(slot, 1.0), *_minus(inside[n])], 0.0)
    rows.at_least([(count, 1.0), *_minus(slots)], 0.0)

    # There is one call less between segments than segments, if there are any.
    some = rows.column(-CALL_MS, whole=True)
    rows.at_least([(count, 1.0), (some, -1.0)], 0.0)
    for terms in inside.values():
        rows.at_least([(count, 1.0), *_minus(terms)], 0.0)

    # A call comes first unless a node without sources is on the Edge TPU, and last
    # unless one without readers is.
    first = rows.column(CALL_MS)
    last = rows.column(CALL_MS)
    reading = _reading(p)
    sources: _Terms = []
    sinks: _Terms = []
    for n in p.nodes:
        if n not in reading:
            sources += inside.get(n, [])
        if not p.later[n]:
            sinks += inside.get(n, [])
    rows.at_least([(first, 1.0), *sources], 1.0)
    rows.at_least([(last, 1.0), (some, -1.0), *sinks], 0.0)


def _reading(p: Problem) -> set[StageNode]:
    """Return the nodes that read the value of another node."""
    return {n for e in p.edges if e.source is not None for n in e.readers}


def _slots(p: Problem) -> list[list[StageNode]]:
    """Return the nodes before, between and after the nodes of a longest CPU path.

    The path has nodes for the CPU alone, the slots have nodes that may be on the Edge
    TPU. Empty slots are left out.
    """
    path = _longest_cpu_path(p)
    slots: list[list[StageNode]] = [[] for _ in range(len(path) + 1)]
    for n in p.nodes:
        if n.tpu_ms is None:
            continue
        # The node is behind this many nodes of the path.
        position = sum(n in p.later[c] for c in path)
        # Nodes beside the path may share a segment with either side.
        if all(c in p.later[n] for c in path[position:]):
            slots[position].append(n)
    return [nodes for nodes in slots if nodes]


def _longest_cpu_path(p: Problem) -> list[StageNode]:
    """Return a longest chain of nodes for the CPU alone that depend on one another."""
    cpu_nodes = [n for n in p.nodes if n.tpu_ms is None]
    # With this order, a node comes after all nodes that depend on it.
    cpu_nodes.sort(key=lambda n: len(p.later[n]))
    length: dict[StageNode, int] = {}
    following: dict[StageNode, StageNode | None] = {}
    for i, n in enumerate(cpu_nodes):
        dependents = [other for other in cpu_nodes[:i] if other in p.later[n]]
        nearest = max(dependents, key=length.__getitem__, default=None)
        following[n] = nearest
        length[n] = 1 + (length[nearest] if nearest is not None else 0)

    path: list[StageNode] = []
    node = max(cpu_nodes, key=length.__getitem__, default=None)
    while node is not None:
        path.append(node)
        node = following[node]
    return path


def solve(p: Problem, segments: int, nodes: int, enough_ms: float = 0.0) -> Solution:
    """Return the best choice with at most so many Edge TPU segments.

    The search ends with a choice of at most `enough_ms`, or after `nodes` nodes of its
    tree. Unlike a time limit, this gives the same result on any machine.
    """
    rows = LinearProgram()
    last = 2 * segments
    late = {n: _late(rows, n, last) for n in p.nodes}
    _order(rows, p, late)

    inside: dict[StageNode, list[_Terms]] = {}
    for n in p.nodes:
        if n.tpu_ms is not None:
            inside[n] = [_inside(late[n], t, last) for t in range(1, last, 2)]
    used = _used_segments(rows, p, inside, segments)
    _first_and_last(rows, p, late, used)
    _costs(rows, p, inside)

    values, bound = solution_of(rows, nodes, enough_ms)
    if values is None:
        return Solution(None, bound)
    stage: dict[Op, int] = {}
    for n in p.nodes:
        # A node of stage s has the first s columns.
        number = round(sum(values[column] for column in late[n]))
        stage |= dict.fromkeys(n.ops, number)
    return Solution(stage, bound)


def _order(
    rows: LinearProgram, p: Problem, late: Mapping[StageNode, list[int]]
) -> None:
    """Let no node have a lower stage than a node it reads."""
    for e in p.edges:
        if e.source is None:
            continue
        for reader in e.readers:
            for a, b in zip(late[reader], late[e.source], strict=True):
                rows.at_least([(a, 1.0), (b, -1.0)], 0.0)


def _used_segments(
    rows: LinearProgram, p: Problem, inside: _Inside, segments: int
) -> list[int]:
    """Return a column for each segment: 1 if it has a node.

    It pays for the segment and a call. Segments are used in their order.
    """
    cost = p.segment_ms + CALL_MS
    # Without this order, equal solutions with other numbers would be searched too.
    used = [rows.column(cost, whole=True) for _ in range(segments)]
    for t, column in enumerate(used):
        for terms in inside.values():
            rows.at_least([(column, 1.0), *_minus(terms[t])], 0.0)
        if t > 0:
            rows.at_least([(used[t - 1], 1.0), (column, -1.0)], 0.0)
    return used


def _first_and_last(
    rows: LinearProgram,
    p: Problem,
    late: Mapping[StageNode, list[int]],
    used: Sequence[int],
) -> None:
    """Add the calls of CPU segments before the first and after the last segment.

    used[t] pays for the call before segment t; the offset takes the first one back.
    """
    rows.offset -= CALL_MS
    first = rows.column(CALL_MS)
    last = rows.column(CALL_MS)
    reading = _reading(p)
    for n in p.nodes:
        columns = late[n]
        # A node of stage 0 without sources runs before all segments.
        if n not in reading:
            rows.at_least([(first, 1.0), (columns[0], 1.0)], 1.0)
        if not p.later[n]:
            rows.at_least([(last, 1.0), (columns[0], 1.0), (used[0], 1.0)], 1.0)
            _last_call(rows, last, columns, used)


def _last_call(
    rows: LinearProgram, last: int, columns: Sequence[int], used: Sequence[int]
) -> None:
    """Pay for a call after the last segment if a node without readers needs it.

    columns: of that node, from `_late`. It needs the call if it is in an even stage
    behind the last used segment.
    """
    for s in range(2, len(columns) + 1, 2):
        # No gaps in the numbering: a stage follows a used segment.
        rows.at_least([(used[s // 2 - 1], 1.0), (columns[s - 1], -1.0)], 0.0)
        terms = [(last, 1.0), (columns[s - 1], -1.0)]
        if s < len(columns):
            terms += [(columns[s], 1.0), (used[s // 2], 1.0)]
        rows.at_least(terms, 0.0)


def _late(rows: LinearProgram, n: StageNode, last: int) -> list[int]:
    """Return the columns "stage s or later" of a node, for s from 1 to `last`.

    A node for the CPU alone has one column for an odd stage and the next one.
    """
    columns: list[int] = []
    if n.tpu_ms is None:
        for _ in range(last // 2):
            columns += [rows.column(whole=True)] * 2
    else:
        columns += [rows.column(whole=True) for _ in range(last)]
    # "Stage s + 1 or later" is also "stage s or later".
    for a, b in pairwise(columns):
        if a != b:
            rows.at_least([(a, 1.0), (b, -1.0)], 0.0)
    return columns


def _inside(late: Sequence[int], t: int, last: int) -> _Terms:
    """Return a sum that is 1 if a node has stage t."""
    terms = [(late[t - 1], 1.0)]
    if t < last:
        terms.append((late[t], -1.0))
    return terms


def _minus(terms: _Terms) -> _Terms:
    return [(column, -coefficient) for column, coefficient in terms]


def _costs(rows: LinearProgram, p: Problem, inside: _Inside) -> list[_Crossing]:
    """Add the costs of nodes, values and streamed parameters.

    Return the values that may cross a boundary.
    """
    for n in p.nodes:
        rows.offset += n.cpu_ms
        if n.tpu_ms is not None:
            for terms in inside[n]:
                _add(rows, terms, n.tpu_ms - n.cpu_ms)

    # Each segment pays for each value that enters or leaves it.
    segments = len(next(iter(inside.values()), []))
    crossings: list[_Crossing] = []
    for e in p.edges:
        for t in range(segments):
            crossings += _cross(rows, e, inside, t)
    _stream(rows, p, inside)
    return crossings


def _stream(rows: LinearProgram, p: Problem, inside: _Inside) -> None:
    """Add the cost of parameters beyond the cache, in MB."""
    total = sum(n.parameters for n in inside)
    if total <= PARAMETER_CACHE:
        return
    # In MB, so that coefficients have similar magnitudes.
    streamed = rows.column(p.streamed_ms * 1e6, high=total / 1e6)
    terms = [(streamed, 1.0)]
    for n, segments in inside.items():
        for segment in segments:
            for column, coefficient in segment:
                terms.append((column, -coefficient * n.parameters / 1e6))
    rows.at_least(terms, -PARAMETER_CACHE / 1e6)


def _add(rows: LinearProgram, terms: _Terms, ms: float) -> None:
    """Add a cost to a sum of columns."""
    for column, coefficient in terms:
        rows.cost[column] += coefficient * ms


def _cross(
    rows: LinearProgram, e: Edge, inside: _Inside, t: int
) -> Iterator[_Crossing]:
    """Add the cost of a value in segment t, and yield its possible crossings.

    A certain crossing needs no column.
    """
    source_inside: _Terms = []
    if e.source is not None and e.source in inside:
        source_inside = inside[e.source][t]
    for group in e.groups:
        yield from _enter(rows, e, group, inside, t)

    if e.leaves:
        _add(rows, source_inside, e.out_ms)
    elif source_inside:
        # It leaves if the source is inside and a reader is not.
        column = rows.column(e.out_ms)
        for r in e.near:
            terms = [(column, 1.0), *_minus(source_inside), *inside[r][t]]
            rows.at_least(terms, 0.0)
        for r in e.near:
            if e.source is not None:
                yield _Crossing(e, r, e.source, column)


def _enter(
    rows: LinearProgram, e: Edge, group: Sequence[StageNode], inside: _Inside, t: int
) -> Iterator[_Crossing]:
    """Add the cost of reading a value into segment t for a group of readers.

    It is paid once for the group, if a reader is inside and the source is not.
    """
    if len(group) == 1 and group[0] not in e.near:
        _add(rows, inside[group[0]][t], e.in_ms)
        return
    source_inside: _Terms = []
    if e.source is not None and e.source in inside:
        source_inside = inside[e.source][t]

    column = rows.column(e.in_ms)
    for r in group:
        terms = [(column, 1.0), *_minus(inside[r][t])]
        if r in e.near:
            terms += source_inside
        rows.at_least(terms, 0.0)
    for r in group:
        if source_inside and r in e.near:
            yield _Crossing(e, r, r, column)
