"""The pieces of a graph that precision is chosen for, and the runs of neighbours that
they form.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from edgec.ir import Graph, Op
from edgec.quantize.change.channel_groups import whole
from edgec.quantize.change.domains import activations

_ELEMENT = 10
"""An element that is computed and converted takes as long as about so many
multiply-accumulates.
"""


@dataclass(frozen=True)
class OpGroup:
    """Ops that stay together."""

    ops: tuple[Op, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of their first results: those that these have whichever way `separate` parts
        them.
        """
        return tuple(dict.fromkeys(whole(op.outputs[0].name) for op in self.ops))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of each op."""
        return tuple(op.kind for op in self.ops)

    @property
    def work(self) -> int:
        """A rough measure of the time that it takes."""
        return sum(
            op.spec.macs(op) + _ELEMENT * sum(v.type.size for v in op.outputs)
            for op in self.ops
        )

    @classmethod
    def of(cls, parts: Sequence[OpGroup]) -> OpGroup:
        """All as one."""
        return cls(tuple(op for p in parts for op in p.ops))


def op_groups(graph: Graph, ops: Collection[Op]) -> list[OpGroup]:
    """Each product of weights with what is computed from it before the next; what no
    product reads is by itself. Parts of channels (`separate`) stay together.
    """
    producer = graph.producers()
    users = graph.users()
    behind = set[Op]()
    for op in reversed(graph.ops):
        if all(
            not u.spec.macs(u) and u in behind
            for v in op.outputs
            for u in users.get(v, [])
        ):
            behind.add(op)
    found: list[list[Op]] = []
    at: dict[Op, int] = {}
    named: dict[str, int] = {}
    for op in (op for op in graph.ops if op in ops):
        before = (producer.get(v) for v in activations(op))
        home = next((at[p] for p in before if p in at), None)
        name = op.outputs[0].name
        if whole(name) != name and whole(name) in named:
            home = named[whole(name)]
        elif home is None or op.spec.macs(op) or op in behind:
            home = len(found)
            found.append([])
        named[whole(name)] = home
        at[op] = home
        found[home].append(op)
    return [OpGroup(tuple(some)) for some in found]


def neighbour_runs(
    every: Sequence[OpGroup], there: Sequence[OpGroup]
) -> Iterator[list[OpGroup]]:
    """Runs of all lengths of a series that begins 1, 2, 3, 4, 6, 8, 12, 16, with those
    of their units that are still `there`, in the graph's order; and all of them.
    """
    left = {*there}
    for length in [*_lengths(len(every)), len(every)]:
        for start in range(len(every) - length + 1):
            if run := [u for u in every[start : start + length] if u in left]:
                yield run


def _lengths(most: int) -> Iterator[int]:
    length = 1
    step = 1
    while length < most:
        yield length
        if length >= 4 * step:
            step *= 2
        length += step
