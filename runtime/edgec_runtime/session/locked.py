"""A lock and its condition that a Ctrl-C in the main thread leaves unlocked."""

from __future__ import annotations

import threading
from typing import Any, Tuple


def locked() -> Tuple[Any, threading.Condition]:
    """To be taken by `with` the lock: that of a condition is written in Python, so that
    the exception of a signal can come between taking it and the block that gives it
    back, and all threads wait for ever then.
    """
    lock = threading.RLock()
    return lock, threading.Condition(lock)
