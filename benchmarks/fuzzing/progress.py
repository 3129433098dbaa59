"""Counts how the cases of a long run end, and says how far it is."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

LINE_S = 20.0
"""Seconds between two lines on the screen."""


class Progress:
    """The progress of a run.

    Attributes:
        ends: how many cases ended in each way
        failed: how many failed
        slowest: the seconds of the slowest case
    """

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()
        self.failed = 0
        self.slowest = 0.0

    def cases(self, numbers: Sequence[int]) -> Iterator[int]:
        """Yield the cases, and print a line at times."""
        start = time.monotonic()
        last = start
        for i, number in enumerate(numbers):
            yield number
            now = time.monotonic()
            if now - last > LINE_S:
                last = now
                rate = (i + 1) / (now - start)
                text = f"{i + 1} of {len(numbers)}, {self.failed} failed, {rate:.1f}/s"
                print(text, file=sys.stderr, flush=True)

    def add(self, end: str, failed: bool, seconds: float) -> None:
        """Count a case."""
        self.ends[end] += 1
        self.failed += failed
        self.slowest = max(self.slowest, seconds)
