"""Groups of operations that stay together in int8 or float, and runs of neighbours."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from edgec.ir import Graph, Op
from edgec.quantize.change.channel_groups import whole
from edgec.quantize.change.domains import activations

ELEMENT_MACS = 10
"""An element that is computed and converted takes about as long as so many
multiply-accumulates.
"""
CONSECUTIVE_LENGTHS = 4
"""Lengths of runs grow by one up to here, then by ever larger steps."""


@dataclass(frozen=True)
class OpGroup:
    """Operations that stay together."""

    ops: tuple[Op, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the first results, as they were before channels were split.

        Every candidate has these, however it splits the channels.
        """
        return tuple(dict.fromkeys(whole(op.outputs[0].name) for op in self.ops))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each operation."""
        return tuple(op.kind for op in self.ops)

    @property
    def macs(self) -> int:
        """The multiply-accumulates."""
        return sum(op.spec.macs(op) for op in self.ops)

    @property
    def work(self) -> int:
        """A rough measure of the time, in multiply-accumulates."""
        elements = sum(v.type.size for op in self.ops for v in op.outputs)
        return self.macs + ELEMENT_MACS * elements

    @classmethod
    def of(cls, parts: Sequence[OpGroup]) -> OpGroup:
        """Return all operations of several groups as one."""
        return cls(tuple(op for part in parts for op in part.ops))


def op_groups(graph: Graph, ops: Collection[Op]) -> list[OpGroup]:
    """Return the operations `ops` in groups, in the graph's order.

    A group is a product of weights with everything computed from it before the next
    product. Operations that no product reads are groups of their own. The parts of split
    channels stay together.
    """
    grouping = _OpGrouping(graph)
    for op in graph.ops:
        if op in ops:
            grouping.add(op)

    return [OpGroup(tuple(group)) for group in grouping.groups]


class _OpGrouping:
    """The groups of a graph, built in the order of its operations.

    Attributes:
        groups: the operations of each group.
    """

    def __init__(self, graph: Graph) -> None:
        self.groups: list[list[Op]] = []
        self._producer = graph.producers()
        self._tail = _without_later_products(graph)
        # The number of each operation's group, and of each name before channels were
        # split.
        self._number: dict[Op, int] = {}
        self._number_of_name: dict[str, int] = {}

    def add(self, op: Op) -> None:
        """Put an operation into a group."""
        number = self._home(op)
        if number == len(self.groups):
            self.groups.append([])
        self.groups[number].append(op)
        self._number[op] = number
        self._number_of_name[whole(op.outputs[0].name)] = number

    def _home(self, op: Op) -> int:
        """Return the number of an operation's group, which may be new."""
        name = op.outputs[0].name
        original = whole(name)
        # Another part of the same split channels may have a group.
        if original != name and original in self._number_of_name:
            return self._number_of_name[original]

        if op.spec.macs(op) or op in self._tail:
            return len(self.groups)

        for v in activations(op):
            producer = self._producer.get(v)
            if producer in self._number:
                return self._number[producer]

        return len(self.groups)


def _without_later_products(graph: Graph) -> set[Op]:
    """Return the operations from which no product of weights is computed."""
    users = graph.users()
    tail: set[Op] = set()
    # From the outputs backwards: the consumers of an op are decided before it.
    for op in reversed(graph.ops):
        consumers = [u for v in op.outputs for u in users.get(v, [])]
        if all(not u.spec.macs(u) and u in tail for u in consumers):
            tail.add(op)

    return tail


def neighbour_runs(
    groups: Sequence[OpGroup], present: Sequence[OpGroup]
) -> Iterator[list[OpGroup]]:
    """Yield runs of neighbours in the graph's order, and all groups together.

    The lengths are 1, 2, 3, 4, 6, 8, 12, 16, …: all lengths would be too many, and long
    runs that differ by one group are alike. A run consists of those of its groups that
    are among `present`.
    """
    remaining = {*present}
    for length in [*_lengths(len(groups)), len(groups)]:
        for start in range(len(groups) - length + 1):
            run = [g for g in groups[start : start + length] if g in remaining]
            if run:
                yield run


def _lengths(limit: int) -> Iterator[int]:
    """Yield 1, 2, 3, 4, 6, 8, 12, 16, … below `limit`."""
    length = 1
    step = 1
    while length < limit:
        yield length
        if length >= CONSECUTIVE_LENGTHS * step:
            step *= 2
        length += step
