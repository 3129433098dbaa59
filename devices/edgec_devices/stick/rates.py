"""How fast bytes cross the USB, in both directions.

Figures: tinycoral's NOTES.md measured 300 to 360 MB/s towards a stick at USB 3 and 55
MB/s from it; a Raspberry Pi 3 at USB 2 takes 43.84 ms for a MB and 142.1 ms for a MB
back (fitted in partitioner/edgec_partitioner/cost.py to published times).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

_GRAIN_S = 1e-3
"""What a timer can wait; shorter waits add up before one is made."""


@dataclass(frozen=True)
class Rates:
    """Bytes per second.

    Attributes:
        outwards: from the host
        inwards: to the host
    """

    outwards: float
    inwards: float


SUPER_SPEED = Rates(330e6, 55e6)
HIGH_SPEED = Rates(1e9 / 43.84, 1e9 / 142.1)
SLOW_HUB = Rates(1e6, 0.5e6)
"""A hub of USB 1.1's speed, in between."""


class Line:
    """One direction; one transfer crosses it at a time.

    Attributes:
        busy: whether one is on its way
    """

    def __init__(
        self, rate: float | None, later: Callable[[float, Callable[[], None]], None]
    ) -> None:
        """Begin idle.

        rate: bytes per second; None for at once
        later: calls a function after some seconds
        """
        self.busy = False
        self._rate = rate
        self._later = later
        self._free = 0.0

    def carry(self, size: int, then: Callable[[], None]) -> None:
        """Carry some bytes, and go on when they have crossed."""
        if self._rate is None:
            then()
            return
        now = time.monotonic()
        self._free = max(self._free, now) + size / self._rate
        if self._free - now < _GRAIN_S:
            then()
            return

        def end() -> None:
            self.busy = False
            then()

        self.busy = True
        self._later(self._free - now, end)
