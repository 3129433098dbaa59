"""Lifetimes of buffers in the arena, and the most that lives at any time, which no plan can beat."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from edgec.ir import KernelCall, Value
from edgec.schedule.views import Places

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


def lifetimes(steps: Iterable[Iterable[Value]], where: Places, border: Collection[Value]) -> list[Lifetime]:
    """From the step that writes a buffer to the last one that reads any of it.

    steps: what each reads and writes. border: what the caller owns.
    """
    span: dict[Value, tuple[int, int]] = {}
    for i, values in enumerate(steps):
        for root in (where[v].root for v in values):
            first, _ = span.setdefault(root, (i, i))
            span[root] = (first, i)
    return [Lifetime(v.name, v.type.nbytes, *at) for v, at in span.items() if v not in border]


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
