"""The steps of a job, reported as they begin, and timed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

Progress = Callable[[str], None]
"""Called with the name of each step as it begins, "calibrate 3/100" where it is
counted, and "" at the end.
"""

COMPILE_C = "compile C"
"""The beginning of the names of steps that wait for the C compiler."""

_COUNTED = re.compile(r"(.+) (\d+)/(\d+)")
T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """A step that has ended, with its time in seconds."""

    name: str
    seconds: float


@dataclass
class Steps:
    """A Progress that forwards the steps, and adds up the time of each.

    Attributes:
        tell: receives the steps; None: nobody does.
        clock: the time in seconds.
    """

    tell: Progress | None = None
    clock: Callable[[], float] = time.perf_counter
    _seconds: dict[str, float] = field(default_factory=dict)
    _now: str = ""
    _since: float = 0.0

    def __call__(self, text: str) -> None:
        """Begin a step, and end the one before; "" only ends it."""
        now = self.clock()
        if self._now:
            before = self._seconds.get(self._now, 0.0)
            self._seconds[self._now] = before + now - self._since
        # Without the count, so that all turns of a counted step are one entry.
        self._now = counted(text)[0]
        self._since = now
        if self.tell is not None:
            self.tell(text)

    def done(self) -> tuple[Step, ...]:
        """Return the steps that have ended, in the order of their beginnings."""
        return tuple(Step(name, seconds) for name, seconds in self._seconds.items())


def counted(text: str) -> tuple[str, int, int]:
    """Return the name, turn and number of turns of a step; 0 and 0 without a count."""
    match = _COUNTED.fullmatch(text)
    if match is None:
        return text, 0, 0
    return match[1], int(match[2]), int(match[3])


def each(items: Iterable[T], count: int, name: str, say: Progress) -> Iterator[T]:
    """Yield the items, and report the turn of each."""
    for i, item in enumerate(items, 1):
        say(f"{name} {i}/{count}")
        yield item
