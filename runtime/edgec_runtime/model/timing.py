"""Times repeated calls as csrc/main.c does: the first, the warm-up, then the runs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Callable, List, Optional, Sequence, Tuple

from ..errors import InputError

MIN_RUNS = 3  # however short the time is


@dataclass(frozen=True)
class Times:
    """ns.  at: when each call began.  total: how long it took.  parts: what each call
    returned.

    The first `warmup` entries are not among the runs.
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
    """Calls once, then until `warmup` seconds have passed, then `runs` times or for
    `seconds`, whichever is shorter, but not less than three of the runs.  call: returns
    ns of its parts.  Raises InputError for no runs.
    """
    if runs < 1:
        raise InputError(f"cannot time {runs} runs", hint="give runs of 1 or more")
    at: List[int] = []
    total: List[int] = []
    parts: List[Tuple[int, ...]] = []

    def one() -> None:
        start = time.monotonic_ns()
        found = call()
        total.append(time.monotonic_ns() - start)
        at.append(start)
        parts.append(tuple(found))

    begun = time.monotonic()
    one()
    while time.monotonic() - begun < warmup:
        one()
    leading = len(total)
    begun = time.monotonic()
    for done in range(runs):
        if (
            seconds is not None
            and done >= MIN_RUNS
            and time.monotonic() - begun >= seconds
        ):
            break
        one()
    return Times(leading, tuple(at), tuple(total), tuple(parts))
