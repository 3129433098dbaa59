"""A greedy choice of places, and the change of cost when some operations move.

The change is computed from the surroundings of the operations alone. A joint is a place
in the order of the operations across which a single value passes. The cost behind a
joint depends on the ops before it by the stage of that value's producer only. So a move
changes the estimate of the blocks between joints that it is in, and of one block on
either side; beyond, stages are counted from another number, and no cost changes. Only
the parameters that do not fit the on-chip memory concern all segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from edgec.ir import Graph, Op, Value
from edgec_partitioner.cost import PARAMETER_CACHE
from edgec_partitioner.regions import (
    PLACES,
    Costs,
    Places,
    Region,
    crossing,
    regions,
    stages,
)
from edgec_partitioner.verdicts import Place

MIN_SAVING_MS = 1e-9
"""The least saving of a move: less is rounding."""


@dataclass(frozen=True)
class _Move:
    """A move of ops from the Edge TPU to the CPU.

    Attributes:
        change_ms: the change of the total when it is made alone.
        ops: the ops.
    """

    change_ms: float
    ops: tuple[Op, ...]


def greedy(graph: Graph, allowed: Places, costs: Costs) -> dict[Op, int]:
    """Return the stages of a good choice to start from.

    All allowed ops are on the Edge TPU at first. As long as moving one region, or one
    of its connected parts, to the CPU shortens the total, the best such move is made;
    moves that do not touch one another are made together.
    """
    places = dict(allowed)
    surroundings = Surroundings(graph, costs)
    producer = graph.producers()
    while True:
        moves: list[_Move] = []
        for ops in _candidates(producer, regions(graph, places)):
            # Each move is scored alone, in its window.
            moves.append(_Move(surroundings.change(places, ops, PLACES[0]), ops))
        # The sort is stable: of equal moves the first in the graph is made.
        moves.sort(key=lambda move: (move.change_ms, len(move.ops)))
        if not _make_all(moves, places, surroundings):
            return stages(graph, places)


def _make_all(
    moves: Sequence[_Move], places: dict[Op, Place], surroundings: Surroundings
) -> int:
    """Make the moves that shorten the total, and return their number.

    Of moves that touch one another, only the first is made.
    """
    changed_blocks: set[int] = set()
    count = 0
    for move in moves:
        window = set(surroundings.window(move.ops))
        if move.change_ms >= -MIN_SAVING_MS:
            continue
        if not changed_blocks.isdisjoint(window):
            continue
        # Earlier moves change the parameters that must be streamed.
        if count > 0:
            change_ms = surroundings.change(places, move.ops, PLACES[0])
            if change_ms >= -MIN_SAVING_MS:
                continue
        places.update(dict.fromkeys(move.ops, PLACES[0]))
        changed_blocks |= window
        count += 1
    return count


class Surroundings:
    """The blocks of a graph, and the changes of cost in them when ops move.

    Attributes:
        ops_seen: the number of ops whose costs were computed, all in all.
    """

    def __init__(self, graph: Graph, costs: Costs) -> None:
        self._costs = costs
        self._graph = graph
        self._users = graph.users()
        self._blocks = blocks(graph)
        self._block_of: dict[Op, int] = {}
        for i, block in enumerate(self._blocks):
            self._block_of |= dict.fromkeys(block, i)
        parameters = sum(costs.work(op).parameters for op in graph.ops)
        self._streams = parameters > PARAMETER_CACHE
        self.ops_seen = 0

    def window(self, ops: Iterable[Op]) -> range:
        """Return the blocks whose estimate changes when `ops` move.

        There is one block on either side of theirs.
        """
        numbers = [self._block_of[op] for op in ops]
        # Beyond these, only the numbers of the stages change.
        first = max(0, min(numbers) - 1)
        return range(first, min(len(self._blocks), max(numbers) + 2))

    def change(self, places: Places, ops: Sequence[Op], to: Place) -> float:
        """Return by how many ms the total grows when `ops` move to `to`.

        All of them are at the other place.
        """
        graph = self._part(self.window(ops))
        # The tests bound the work by this count.
        self.ops_seen += len(graph.ops)
        moved = {op: places[op] for op in graph.ops}
        moved |= dict.fromkeys(ops, to)
        difference = self._ms(graph, moved) - self._ms(graph, places)
        return difference + self._streaming(places, ops, to)

    def _part(self, window: range) -> Graph:
        """Return the ops of some blocks as a graph of the same values."""
        ops = [op for i in window for op in self._blocks[i]]
        inputs, outputs = crossing(self._graph, ops, self._users)
        return Graph("window", inputs, outputs, ops)

    def _ms(self, part: Graph, places: Places) -> float:
        """Return the estimated time of a part, without streamed parameters."""
        costs = self._costs
        parts = regions(part, places)
        # `_streaming` adds the parameters beyond the cache, which concern all segments.
        tpu = sum(work.ms(costs.link) for work in costs.works(parts))
        cpu = sum(costs.cpu_ms(r) for r in parts if r.place == PLACES[0])
        return tpu + cpu

    def _streaming(self, places: Places, ops: Iterable[Op], to: Place) -> float:
        """Return the change of the time for parameters beyond the on-chip memory."""
        if not self._streams:
            return 0.0
        costs = self._costs
        on_tpu = [op for op in self._graph.ops if places[op] == PLACES[1]]
        before = sum(costs.work(op).parameters for op in on_tpu)
        moved = sum(costs.work(op).parameters for op in ops)
        after = before + (moved if to == PLACES[1] else -moved)

        streamed_before = max(0, before - PARAMETER_CACHE)
        streamed_after = max(0, after - PARAMETER_CACHE)
        return costs.link.per_mb_streamed * (streamed_after - streamed_before) / 1e6


def blocks(graph: Graph) -> list[list[Op]]:
    """Return the ops in their order, cut at the joints.

    A joint lies where a single value passes, and where no later op begins without an
    input that is computed.
    """
    last = len(graph.ops)
    alive = _values_alive(graph)
    beginnings = _last_beginning(graph)
    result: list[list[Op]] = [[]]
    for i, op in enumerate(graph.ops):
        result[-1].append(op)
        # An op that begins later would connect both sides of the cut.
        if i + 1 < last and alive[i + 1] == 1 and i >= beginnings:
            result.append([])
    return [block for block in result if block]


def _values_alive(graph: Graph) -> list[int]:
    """Return the number of computed values alive in the gap before each op.

    A value is alive from the gap behind its producer to the gap before its last user.
    The last gap, behind all ops, has the outputs and unused values.
    """
    last = len(graph.ops)
    produced = dict.fromkeys(graph.inputs, -1)
    last_use: dict[Value, int] = {}
    for i, op in enumerate(graph.ops):
        produced |= dict.fromkeys(op.outputs, i)
        last_use |= dict.fromkeys(op.inputs, i)

    # Differences of neighbouring gaps, summed up at the end.
    outputs = set(graph.outputs)
    steps = [0] * (last + 2)
    for v, i in produced.items():
        steps[i + 1] += 1
        end = last
        if v not in outputs and v in last_use:
            end = last_use[v]
        steps[end + 1] -= 1
    return list(accumulate(steps))


def _last_beginning(graph: Graph) -> int:
    """Return the number of the last op with constant inputs only, -1 without any."""
    computed = set(graph.inputs)
    for op in graph.ops:
        computed.update(op.outputs)
    beginning = -1
    for i, op in enumerate(graph.ops):
        if computed.isdisjoint(op.inputs):
            beginning = i
    return beginning


def _candidates(
    producer: Mapping[Value, Op], parts: Iterable[Region]
) -> Iterator[tuple[Op, ...]]:
    """Yield the connected parts of each Edge TPU region, and the whole region."""
    for region in parts:
        if region.place != PLACES[1]:
            continue
        pieces = list(connected(region.ops, producer))
        yield from pieces
        if len(pieces) > 1:
            # A region may be worth its overhead only with all parts, or not at all.
            yield region.ops


def connected(
    ops: Sequence[Op], producer: Mapping[Value, Op]
) -> Iterator[tuple[Op, ...]]:
    """Yield the parts of `ops` that exchange values directly.

    Each part is in the given order.
    """
    leader = {op: op for op in ops}

    def find(op: Op) -> Op:
        # Union-find with path halving.
        while leader[op] is not op:
            leader[op] = leader[leader[op]]
            op = leader[op]
        return op

    for op in ops:
        for v in op.inputs:
            source = producer.get(v)
            if source is not None and source in leader:
                leader[find(op)] = find(source)

    groups: dict[Op, list[Op]] = {}
    for op in ops:
        groups.setdefault(find(op), []).append(op)
    yield from map(tuple, groups.values())
