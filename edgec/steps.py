"""The steps of a job, one after the other: told to who watches, and timed."""

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
"""What the names of steps begin with that wait for the C compiler."""

_COUNTED = re.compile(r"(.+) (\d+)/(\d+)")
T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """What was done, and how many seconds it took."""

    name: str
    seconds: float


@dataclass
class Steps:
    """A Progress that passes on what it is told, and keeps the time of each step.

    Seconds of a step that comes more than once, or is counted, are added up.
    """

    tell: Progress | None = None
    clock: Callable[[], float] = time.perf_counter
    _seconds: dict[str, float] = field(default_factory=dict)
    _now: str = ""
    _since: float = 0.0

    def __call__(self, text: str) -> None:
        """A step begins, and the one before it ends; "": there is none after it."""
        now = self.clock()
        if self._now:
            self._seconds[self._now] = (
                self._seconds.get(self._now, 0.0) + now - self._since
            )
        self._now = counted(text)[0]
        self._since = now
        if self.tell is not None:
            self.tell(text)

    def done(self) -> tuple[Step, ...]:
        """Those that have ended, in the order in which they first began."""
        return tuple(Step(name, seconds) for name, seconds in self._seconds.items())


def counted(text: str) -> tuple[str, int, int]:
    """A step's name, which of how many it is at; 0 of 0 if it is not counted."""
    match = _COUNTED.fullmatch(text)
    return (match[1], int(match[2]), int(match[3])) if match else (text, 0, 0)


def each(items: Iterable[T], count: int, name: str, say: Progress) -> Iterator[T]:
    """The items, telling which one is taken."""
    for i, item in enumerate(items, 1):
        say(f"{name} {i}/{count}")
        yield item
