"""Waiting for something that other threads and processes bring about."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT_S = 60.0
"""Longest wait for what takes a moment on a machine that does nothing else."""


def until(holds: Callable[[], object], what: str, within: float = LIMIT_S) -> None:
    """Return as soon as a condition holds.

    Args:
        holds: the condition; it is looked at every hundredth of a second
        what: the condition in words, for the AssertionError if it never holds
        within: the longest wait, seconds
    """
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end, f"not within {within:g} s: {what}"
        time.sleep(0.01)
