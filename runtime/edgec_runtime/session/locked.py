"""A lock and its condition that a Ctrl-C in the main thread leaves unlocked."""

from __future__ import annotations

import threading
from typing import Any, Tuple


def locked() -> Tuple[Any, threading.Condition]:
    """Return a lock to take with `with`, and a condition of this lock.

    A condition takes its lock in Python code. A signal's exception can come between the
    taking and the block that gives the lock back, and all threads would wait for ever.
    """
    lock = threading.RLock()
    return lock, threading.Condition(lock)
