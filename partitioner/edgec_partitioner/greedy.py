"""A good choice of places to start from, and what moving some operations costs, found
by looking around them alone.

A joint is a place in the order of the operations across which a single value is handed
on. What follows a joint depends on what is before it by the stage of that value's
writer only, and so a move changes the estimate of the blocks between joints that it is
in, and of one block on either side; beyond, stages are counted from another number, and
no cost changes. Only the parameters that do not fit the on-chip memory are a matter of
all segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from edgec.ir import Graph, Op, Value
from edgec_partitioner.cost import PARAMETER_CACHE, PER_MB_PARAMETERS
from edgec_partitioner.regions import PLACES, Costs, Places, Region, regions, stages
from edgec_partitioner.verdicts import Place

_LEAST = 1e-9
"""ms that a move has to save: less is rounding."""


def greedy(graph: Graph, allowed: Places, costs: Costs) -> dict[Op, int]:
    """A good choice to start from: all that is allowed on the Edge TPU, but for what is
    better moved to the CPU.

    As long as moving one region, or one of its connected parts, shortens the total, the
    best such move is made; moves that do not touch one another are made together.
    """
    places = dict(allowed)
    look = Surroundings(graph, costs)
    producer = graph.producers()
    while True:
        candidates = list(_candidates(producer, regions(graph, places)))
        scored = sorted(
            (
                (look.change(places, ops, PLACES[0]), len(ops), i, ops)
                for i, ops in enumerate(candidates)
            ),
            key=lambda s: s[:3],
        )
        made = _make_all(scored, places, look)
        if not made:
            return stages(graph, places)


def _make_all(
    scored: Iterable[tuple[float, int, int, tuple[Op, ...]]],
    places: dict[Op, Place],
    look: Surroundings,
) -> int:
    """Make the moves that shorten the total, the best first, and of those that touch
    one another the first.
    """
    taken: set[int] = set()
    made = 0
    for ms, _, _, ops in scored:
        window = set(look.window(ops))
        better = ms < -_LEAST and taken.isdisjoint(window)
        if better and (not made or look.change(places, ops, PLACES[0]) < -_LEAST):
            places.update(dict.fromkeys(ops, PLACES[0]))
            taken |= window
            made += 1
    return made


class Surroundings:
    """The blocks of a graph, and what a move changes in them. ops_seen: how many ops
    were looked at, all in all.
    """

    def __init__(self, graph: Graph, costs: Costs) -> None:
        self._costs = costs
        self._graph = graph
        self._users = graph.users()
        self._wanted = set(graph.outputs)
        self._blocks = blocks(graph)
        self._block_of = {op: i for i, block in enumerate(self._blocks) for op in block}
        self._streams = (
            sum(costs.work(op).parameters for op in graph.ops) > PARAMETER_CACHE
        )
        self.ops_seen = 0

    def window(self, ops: Iterable[Op]) -> range:
        """The blocks that a move of `ops` changes the estimate of."""
        at = [self._block_of[op] for op in ops]
        return range(max(0, min(at) - 1), min(len(self._blocks), max(at) + 2))

    def change(self, places: Places, ops: Sequence[Op], to: Place) -> float:
        """By how many ms the total grows when `ops`, all of the other place, move."""
        graph = self._part(self.window(ops))
        moved = {op: places[op] for op in graph.ops} | dict.fromkeys(ops, to)
        self.ops_seen += len(graph.ops)
        return (
            self._ms(graph, moved)
            - self._ms(graph, places)
            + self._streaming(places, ops, to)
        )

    def _part(self, window: range) -> Graph:
        inside = [op for i in window for op in self._blocks[i]]
        own = dict.fromkeys(v for op in inside for v in op.outputs)
        read = dict.fromkeys(
            v for op in inside for v in op.inputs if v.const is None and v not in own
        )
        here = set(inside)
        leaving = [
            v
            for v in own
            if v in self._wanted or any(u not in here for u in self._users.get(v, []))
        ]
        return Graph("window", list(read), leaving, inside)

    def _ms(self, part: Graph, places: Places) -> float:
        """The estimate, without what streaming adds."""
        parts = regions(part, places)
        tpu = sum(w.ms(self._costs.link) for w in self._costs.works(parts))
        return tpu + sum(self._costs.cpu_ms(r) for r in parts if r.place == PLACES[0])

    def _streaming(self, places: Places, ops: Iterable[Op], to: Place) -> float:
        """What the move changes of the time for parameters beyond the on-chip memory."""
        if not self._streams:
            return 0.0
        now = sum(
            self._costs.work(op).parameters
            for op in self._graph.ops
            if places[op] == PLACES[1]
        )
        moved = sum(self._costs.work(op).parameters for op in ops)
        then = now + (moved if to == PLACES[1] else -moved)
        beyond = max(0, then - PARAMETER_CACHE) - max(0, now - PARAMETER_CACHE)
        return (self._costs.link.per_mb_sent - PER_MB_PARAMETERS) * beyond / 1e6


def blocks(graph: Graph) -> list[list[Op]]:
    """The ops in their order, cut where a single value is handed on, and nothing else
    is read or begins behind.
    """
    last = len(graph.ops)
    made = dict.fromkeys(graph.inputs, -1) | {
        v: i for i, op in enumerate(graph.ops) for v in op.outputs
    }
    read = {v: i for i, op in enumerate(graph.ops) for v in op.inputs}
    begins = max(
        (i for i, op in enumerate(graph.ops) if all(v not in made for v in op.inputs)),
        default=-1,
    )
    wanted = set(graph.outputs)
    steps = [0] * (last + 2)
    for v, i in made.items():
        # alive from the gap behind the op that makes it, to that before the last that
        # reads it
        steps[i + 1] += 1
        steps[last + 1 if v in wanted or v not in read else read[v] + 1] -= 1
    alive = list(accumulate(steps))
    found: list[list[Op]] = [[]]
    for i, op in enumerate(graph.ops):
        found[-1].append(op)
        if i + 1 < last and alive[i + 1] == 1 and i >= begins:
            found.append([])
    return [block for block in found if block]


def _candidates(
    producer: Mapping[Value, Op], parts: Iterable[Region]
) -> Iterator[tuple[Op, ...]]:
    for region in parts:
        if region.place == PLACES[1]:
            pieces = list(connected(region.ops, producer))
            yield from pieces
            if len(pieces) > 1:
                yield region.ops


def connected(
    ops: Sequence[Op], producer: Mapping[Value, Op]
) -> Iterator[tuple[Op, ...]]:
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
