"""The steps of a job, reported as they begin, and timed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

Progress = Callable[[str], None]
"""Called with each step as it begins, and with "" at the end.

"calibrate 3/100" is a turn of a counted step, "step 2 of 6: calibrate 3/100" one of a
job whose steps are known before.
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
        plan: the steps of which the job surely has each, in order; all others are told
            as parts of the one before. Empty: the steps are not counted.
    """

    tell: Progress | None = None
    clock: Callable[[], float] = time.perf_counter
    plan: Sequence[str] = ()
    _seconds: dict[str, float] = field(default_factory=dict)
    _now: str = ""
    _since: float = 0.0
    _turn: int = 0

    def __call__(self, text: str) -> None:
        """Begin a step, and end the one before; "" only ends it."""
        now = self.clock()
        if self._now:
            before = self._seconds.get(self._now, 0.0)
            self._seconds[self._now] = before + now - self._since
        # Without the count, so that all turns of a counted step are one entry.
        self._now = counted(text)[0]
        self._since = now
        if self._now in self.plan:
            self._turn = self.plan.index(self._now) + 1
        if self.tell is not None:
            counts = bool(text and self._turn)
            prefix = f"step {self._turn} of {len(self.plan)}: " if counts else ""
            self.tell(prefix + text)

    def done(self) -> tuple[Step, ...]:
        """Return the steps that have ended, in the order of their beginnings."""
        return tuple(Step(name, seconds) for name, seconds in self._seconds.items())


@dataclass(frozen=True)
class Prefixed:
    """A Progress that forwards the steps of a part of a job.

    Attributes:
        prefix: the words before each step.
        tell: receives the steps.
    """

    prefix: str
    tell: Progress

    def __call__(self, text: str) -> None:
        """Begin a step; "" ends the one before."""
        self.tell(self.prefix + text if text else "")


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
