"""Lifetimes of buffers in the arena, and the most that lives at any time, which no plan
can beat.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from edgec.ir import KernelCall, Value
from edgec.schedule.views import Places, copy_of, is_done

ALIGNMENT = 64
"""Bytes; a cache line of the boards' CPUs."""

STACK_BYTES = 16 << 10
"""The largest scratch of a call that is on the stack, not in the arena."""


def aligned(nbytes: int) -> int:
    """Rounded up to the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Lifetime:
    """Bytes that must stay untouched while steps first..last (inclusive) run."""

    name: str
    nbytes: int
    first: int
    last: int


def lifetimes(
    steps: Iterable[Iterable[Value]], where: Places, border: Collection[Value]
) -> list[Lifetime]:
    """From the step that writes a buffer to the last one that reads any of it.

    steps: what each reads and writes. border: what the caller owns.
    """
    span: dict[Value, tuple[int, int]] = {}
    for i, values in enumerate(steps):
        for root in (where[v].root for v in values):
            first, _ = span.setdefault(root, (i, i))
            span[root] = (first, i)
    return [
        Lifetime(v.name, v.type.nbytes, *at)
        for v, at in span.items()
        if v not in border
    ]


def tensors(calls: Iterable[KernelCall]) -> list[Value]:
    """What calls read and write, constants left out."""
    return [p.value for call in calls for p in call.pointers() if p.value.const is None]


def peak(lives: Sequence[Lifetime]) -> int:
    """The most bytes that live at any time."""
    change = [0] * (max((b.last for b in lives), default=0) + 2)
    for b in lives:
        change[b.first] += aligned(b.nbytes)
        change[b.last + 1] -= aligned(b.nbytes)
    return max(accumulate(change))


def live_bytes(lives: Sequence[Lifetime], steps: int) -> list[int]:
    """The bytes that live at each step."""
    change = [0] * (steps + 1)
    for b in lives:
        change[b.first] += aligned(b.nbytes)
        change[b.last + 1] -= aligned(b.nbytes)
    return list(accumulate(change))[:steps]


class PlacementPeak:
    """The most bytes that live at any op, scratch left out, for one choice of places
    after the other: what a choice costs is what it changes.
    """

    def __init__(
        self, calls: Sequence[Sequence[KernelCall]], border: Collection[Value]
    ) -> None:
        self._border = border
        self._bytes = np.zeros(len(calls), np.int64)
        self._where: Places = {}
        self._copies = [
            [(c, tensors([c])) for c in some if copy_of(c) is not None]
            for some in calls
        ]
        self._others = [
            {*tensors(c for c in some if copy_of(c) is None)} for some in calls
        ]
        self._ops: dict[Value, list[int]] = {}
        """The ops that a value's use may change of: what is copied to where it is, is
        not read.
        """
        self._used: dict[Value, list[int]] = {}
        self._in: dict[Value, dict[Value, None]] = {}
        """What lies in a value's bytes."""
        self._span: dict[Value, tuple[int, int]] = {}
        for i, copies in enumerate(self._copies):
            for v in self._others[i]:
                self._used.setdefault(v, []).append(i)
            for v in {v for _, values in copies for v in values}:
                self._ops.setdefault(v, []).append(i)
                if v not in self._others[i]:
                    self._used.setdefault(v, []).append(i)

    def __call__(self, where: Places) -> int:
        """The most with these places."""
        old = self._where
        self._where = where
        changed = [v for v, p in where.items() if old.get(v) is not p]
        roots = {where[v].root for v in changed} | {
            old[v].root for v in changed if v in old
        }
        for v in changed:
            if v in old:
                del self._in[old[v].root][v]
            self._in.setdefault(where[v].root, {})[v] = None
        for i in {i for v in changed for i in self._ops.get(v, ())}:
            roots |= self._use(i)
        for root in roots - {*self._border}:
            self._lives(root)
        return int(self._bytes.max(initial=0))

    def _use(self, i: int) -> set[Value]:
        """Learn again what an op reads and writes; the values whose bytes it may be."""
        now = self._others[i].union(
            *(values for c, values in self._copies[i] if not is_done(c, self._where))
        )
        values = {v for _, some in self._copies[i] for v in some}
        for v in values:
            used = self._used[v]
            at = bisect_left(used, i)
            has = used[at : at + 1] == [i]
            if has and v not in now:
                del used[at]
            elif v in now and not has:
                used.insert(at, i)
        return {self._where[v].root for v in values}

    def _lives(self, root: Value) -> None:
        used = [u for v in self._in.get(root, ()) if (u := self._used.get(v))]
        span = (min(u[0] for u in used), max(u[-1] for u in used)) if used else None
        old = self._span.pop(root, None)
        if span is not None:
            self._span[root] = span
        for sign, places in ((-1, old), (1, span)):
            if places is not None and old != span:
                self._bytes[places[0] : places[1] + 1] += sign * aligned(
                    root.type.nbytes
                )


class LiveBytes:
    """The bytes that live at each place in the order of steps, kept up to date while
    steps move: a change costs what it changes, where `peak` looks at all.
    """

    def __init__(self, places: int, where: Places, border: Collection[Value]) -> None:
        self.where = where
        self.border = border
        self._bytes = np.zeros(places, np.int64)
        self._at: dict[Value, list[int]] = {}

    def add(self, at: int, values: Iterable[Value]) -> None:
        """A step there reads and writes these."""
        for root in self._roots(values):
            places = self._at.setdefault(root, [])
            old = places[:1] + places[-1:]
            insort(places, at)
            self._lives(root, old, [places[0], places[-1]])

    def remove(self, at: int, values: Iterable[Value]) -> None:
        """It does so no more."""
        for root in self._roots(values):
            places = self._at[root]
            old = [places[0], places[-1]]
            del places[bisect_left(places, at)]
            self._lives(root, old, places[:1] + places[-1:])

    def last(self, root: Value) -> int:
        """The last place where a step reads or writes any of a value's bytes."""
        return self._at[root][-1]

    def move(self, own: Value, root: Value) -> Callable[[], None]:
        """What lies in a value's bytes goes to another's; returns what undoes it."""
        here = self._at.pop(own)
        there = self._at[root]
        self._at[root] = sorted([*here, *there])
        self._moved(own, root, (here, there), ([], self._at[root]))

        def undo() -> None:
            self._moved(own, root, ([], self._at[root]), (here, there))
            self._at[own], self._at[root] = here, there

        return undo

    def _moved(
        self,
        own: Value,
        root: Value,
        old: tuple[Sequence[int], ...],
        new: tuple[Sequence[int], ...],
    ) -> None:
        for v, before, after in zip((own, root), old, new, strict=True):
            self._lives(v, [*before[:1], *before[-1:]], [*after[:1], *after[-1:]])

    def peak(self) -> int:
        """The most bytes that live at any place."""
        return int(self._bytes.max(initial=0))

    def _roots(self, values: Iterable[Value]) -> list[Value]:
        roots = dict.fromkeys(self.where[v].root for v in values)
        return [root for root in roots if root not in self.border]

    def _lives(self, root: Value, old: Sequence[int], new: Sequence[int]) -> None:
        for sign, span in ((-1, old), (1, new)):
            if span and list(old) != list(new):
                self._bytes[span[0] : span[1] + 1] += sign * aligned(root.type.nbytes)
