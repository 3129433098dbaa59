"""Lifetimes of buffers in the arena, and the peak of live bytes.

The peak is the most bytes that live at any step. No memory plan needs less.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from edgec.ir import KernelCall, Scratch, Value
from edgec.schedule.views import Places, copy_of, is_done

ALIGNMENT = 64
"""Bytes that buffers are aligned to: a cache line of the boards' CPUs."""

STACK_BYTES = 16 << 10
"""Bytes of the largest scratch that is on the stack rather than in the arena."""


def aligned(nbytes: int) -> int:
    """Return a size rounded up to the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Lifetime:
    """A buffer and the steps at which it must stay untouched.

    Attributes:
        name: its name
        nbytes: its size
        first: the first step
        last: the last step, inclusive
    """

    name: str
    nbytes: int
    first: int
    last: int


def lifetimes(
    steps: Iterable[Iterable[Value]], where: Places, border: Collection[Value]
) -> list[Lifetime]:
    """Return the lifetime of each buffer, from its first user to its last.

    Args:
        steps: the values that each step reads and writes
        where: the places of values
        border: values that the caller of the model owns, which need no buffer
    """
    spans: dict[Value, tuple[int, int]] = {}
    for i, values in enumerate(steps):
        for v in values:
            root = where[v].root
            first, _ = spans.setdefault(root, (i, i))
            spans[root] = (first, i)

    lives: list[Lifetime] = []
    for root, (first, last) in spans.items():
        if root not in border:
            lives.append(Lifetime(root.name, root.type.nbytes, first, last))
    return lives


def tensors(calls: Iterable[KernelCall]) -> list[Value]:
    """Return the values that calls read and write, without constants."""
    pointers = (p for call in calls for p in call.pointers())
    return [p.value for p in pointers if p.value.const is None]


def step_lifetimes(
    steps: Sequence[Sequence[KernelCall]],
    where: Places,
    border: Collection[Value],
    threads: int,
) -> list[Lifetime]:
    """Return the lifetimes of all buffers, and of the scratch in the arena.

    Args:
        steps: the calls of each step
        where: the places of values
        border: values that the caller of the model owns
        threads: each of so many has scratch of its own; a small one is on the stack
    """
    values = (tensors(calls) for calls in steps)
    lives = lifetimes(values, where, border)
    for i, calls in enumerate(steps):
        for scratch in scratches(calls):
            if scratch.nbytes > STACK_BYTES:
                lives.append(Lifetime("", scratch.nbytes * threads, i, i))
    return lives


def scratches(calls: Iterable[KernelCall]) -> list[Scratch]:
    """Return the scratch operands of calls."""
    return [x for call in calls for x in call.operands if isinstance(x, Scratch)]


def peak(lives: Sequence[Lifetime]) -> int:
    """Return the most bytes that live at any step."""
    steps = max((b.last for b in lives), default=0) + 1
    return max(live_bytes(lives, steps))


def live_bytes(lives: Sequence[Lifetime], steps: int) -> list[int]:
    """Return the bytes that live at each step."""
    # The sum of all changes up to a step, rather than a sum at each step.
    change = [0] * (steps + 1)
    for b in lives:
        nbytes = aligned(b.nbytes)
        change[b.first] += nbytes
        change[b.last + 1] -= nbytes

    totals = list(accumulate(change))
    return totals[:steps]


class PlacementPeak:
    """The peak of live bytes, without scratch, for one choice of places after another.

    Evaluating a choice costs only what it changes, since `places` tries many.
    """

    def __init__(
        self, calls: Sequence[Sequence[KernelCall]], border: Collection[Value]
    ) -> None:
        """Prepare for the calls of each op.

        Args:
            calls: the calls
            border: values that the caller of the model owns
        """
        self._border = border
        self._bytes = np.zeros(len(calls), np.int64)
        self._where: Places = {}
        self._copies: list[list[tuple[KernelCall, list[Value]]]] = []
        """The copies of each op, and their values: one that is done uses none."""
        self._always_used: list[set[Value]] = []
        """The values of the other calls of each op."""
        self._copy_users: dict[Value, list[int]] = {}
        """The ops whose use of a value depends on places."""
        self._users: dict[Value, list[int]] = {}
        """The ops that use a value with the present places, in order."""
        self._residents: dict[Value, dict[Value, None]] = {}
        """The values that lie in a value's bytes."""
        self._spans: dict[Value, list[int]] = {}
        """The first and the last user of a value's bytes; empty without users."""

        # At first without any place: the first call of the peak adds all of them.
        for i, op_calls in enumerate(calls):
            self._add_op(i, op_calls)

    def _add_op(self, i: int, calls: Sequence[KernelCall]) -> None:
        """Add the calls of op number `i`, with no copy done yet."""
        copies: list[tuple[KernelCall, list[Value]]] = []
        always_used: set[Value] = set()
        for call in calls:
            values = tensors([call])
            if copy_of(call) is None:
                always_used.update(values)
            else:
                copies.append((call, values))
        self._copies.append(copies)
        self._always_used.append(always_used)

        # Ops come in order, so that the lists of their numbers are sorted.
        copied = {v for _, values in copies for v in values}
        for v in copied:
            self._copy_users.setdefault(v, []).append(i)
        for v in always_used | copied:
            self._users.setdefault(v, []).append(i)

    def __call__(self, where: Places) -> int:
        """Return the peak with these places."""
        old = self._where
        self._where = where

        # Places of values that do not move are the same objects.
        changed = [v for v, p in where.items() if old.get(v) is not p]
        roots: set[Value] = set()
        for v in changed:
            root = where[v].root
            roots.add(root)
            if v in old:
                old_root = old[v].root
                roots.add(old_root)
                del self._residents[old_root][v]
            self._residents.setdefault(root, {})[v] = None

        # Copies that are done now, or no longer, change what their ops use.
        ops: set[int] = set()
        for v in changed:
            ops.update(self._copy_users.get(v, ()))
        for i in ops:
            roots |= self._update_users(i)

        for root in roots - {*self._border}:
            self._update_bytes(root)
        return int(self._bytes.max(initial=0))

    def _update_users(self, i: int) -> set[Value]:
        """Update which values op number `i` uses; return the roots that may change."""
        used_now = set(self._always_used[i])
        for copy, values in self._copies[i]:
            if not is_done(copy, self._where):
                used_now.update(values)

        roots: set[Value] = set()
        for _, values in self._copies[i]:
            for v in values:
                _set_user(self._users[v], i, v in used_now)
                roots.add(self._where[v].root)
        return roots

    def _update_bytes(self, root: Value) -> None:
        """Update the live bytes for the residents of a value and their users."""
        ends: list[int] = []
        for v in self._residents.get(root, ()):
            ends += _ends(self._users.get(v, []))

        # The bytes live from the first user of any resident to the last.
        new = [min(ends), max(ends)] if ends else []
        old = self._spans.get(root, [])
        self._spans[root] = new
        if new == old:
            return

        nbytes = aligned(root.type.nbytes)
        if old:
            self._bytes[old[0] : old[1] + 1] -= nbytes
        if new:
            self._bytes[new[0] : new[1] + 1] += nbytes


def _set_user(users: list[int], i: int, is_user: bool) -> None:
    """Add op number `i` to a sorted list of users, or remove it."""
    position = bisect_left(users, i)
    was_user = users[position : position + 1] == [i]
    if was_user and not is_user:
        del users[position]
    elif is_user and not was_user:
        users.insert(position, i)


class LiveBytes:
    """The bytes that live at each position in the order of steps, while steps move.

    A change costs only what it changes, whereas `peak` looks at all lifetimes.
    """

    def __init__(
        self, positions: int, where: Places, border: Collection[Value]
    ) -> None:
        """Begin without steps.

        Args:
            positions: the number of positions
            where: the places of values
            border: values that the caller of the model owns
        """
        self.where = where
        self.border = border
        self._bytes = np.zeros(positions, np.int64)
        self._users: dict[Value, list[int]] = {}
        """The positions of the steps that use a value's bytes, in order."""

    def add(self, position: int, values: Iterable[Value]) -> None:
        """Add a step that reads and writes these values."""
        for root in self._roots(values):
            users = self._users.setdefault(root, [])
            old = _ends(users)
            insort(users, position)

            self._replace_span(root, old, _ends(users))

    def remove(self, position: int, values: Iterable[Value]) -> None:
        """Remove a step that reads and writes these values."""
        for root in self._roots(values):
            users = self._users[root]
            old = _ends(users)

            # Of equal positions any one may go.
            index = bisect_left(users, position)
            del users[index]
            self._replace_span(root, old, _ends(users))

    def last(self, root: Value) -> int:
        """Return the last position at which a step uses a value's bytes."""
        return self._users[root][-1]

    def move(self, own: Value, root: Value) -> Callable[[], None]:
        """Move the contents of a value's bytes to another's; return the inverse."""
        own_users = self._users.pop(own)
        root_users = self._users[root]
        all_users = sorted([*own_users, *root_users])
        self._users[root] = all_users

        # Nothing is left in the former bytes.
        self._replace_span(own, _ends(own_users), [])
        self._replace_span(root, _ends(root_users), _ends(all_users))

        def undo() -> None:
            present = _ends(self._users[root])
            self._replace_span(own, [], _ends(own_users))
            self._replace_span(root, present, _ends(root_users))

            self._users[own] = own_users
            self._users[root] = root_users

        return undo

    def peak(self) -> int:
        """Return the most bytes that live at any position."""
        return int(self._bytes.max(initial=0))

    def _roots(self, values: Iterable[Value]) -> list[Value]:
        """Return the values in whose bytes the given ones lie, without the border."""
        roots = dict.fromkeys(self.where[v].root for v in values)
        return [root for root in roots if root not in self.border]

    def _replace_span(
        self, root: Value, old: Sequence[int], new: Sequence[int]
    ) -> None:
        """Update the bytes for a buffer that lives from new[0] to new[1].

        An empty span is a buffer that does not live at all.
        """
        if old == new:
            return
        nbytes = aligned(root.type.nbytes)
        if old:
            self._bytes[old[0] : old[1] + 1] -= nbytes
        if new:
            self._bytes[new[0] : new[1] + 1] += nbytes


def _ends(users: Sequence[int]) -> list[int]:
    """Return the first and the last of sorted positions; none if there are none."""
    return [users[0], users[-1]] if users else []
