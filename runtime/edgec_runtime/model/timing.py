"""Measures repeated calls like csrc/main.c: the first, the warm-up, then the runs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Callable, List, Optional, Sequence, Tuple

from ..errors import InputError

MIN_RUNS = 3  # however short the time is


@dataclass(frozen=True)
class Times:
    """The times of calls in nanoseconds, with those before the runs.

    Attributes:
        warmup: number of calls before the runs
        at: start of each call
        total: duration of each call
        parts: the durations that each call returned
    """

    warmup: int
    at: Tuple[int, ...]
    total: Tuple[int, ...]
    parts: Tuple[Tuple[int, ...], ...]


def time_calls(
    call: Callable[[], Sequence[int]],
    runs: int,
    seconds: Optional[float] = None,
    warmup: float = 0.0,
) -> Times:
    """Measure calls: at least one before the runs, then the runs.

    Args:
        call: the function; it returns the nanoseconds of its parts
        runs: number of runs
        seconds: limit of the runs' total time, but for MIN_RUNS of them; None for none
        warmup: seconds of calls before the runs

    Raises:
        InputError: runs is less than 1
    """
    if runs < 1:
        raise InputError(f"cannot time {runs} runs", hint="give runs of 1 or more")
    at: List[int] = []
    total: List[int] = []
    parts: List[Tuple[int, ...]] = []

    def measure() -> None:
        start = time.monotonic_ns()
        durations = call()
        total.append(time.monotonic_ns() - start)
        at.append(start)
        parts.append(tuple(durations))

    begin = time.monotonic()
    measure()
    while time.monotonic() - begin < warmup:
        measure()
    leading = len(total)
    begin = time.monotonic()
    for i in range(runs):
        if (
            seconds is not None
            and i >= MIN_RUNS
            and time.monotonic() - begin >= seconds
        ):
            break
        measure()
    return Times(leading, tuple(at), tuple(total), tuple(parts))
