"""Locks, waits and ends that a Ctrl-C in the main thread leaves in order.

A signal's exception can come between any two steps of Python code. So a lock is taken
and given back by C (`with` a lock itself), a change that others wait for is told again
by the next call, and an end that was not reached can be called again.
"""

from __future__ import annotations

import threading
import weakref
from queue import SimpleQueue
from typing import Any, Callable, Tuple, TypeVar

T = TypeVar("T")


def locked() -> Tuple[Any, threading.Condition]:
    """Return a lock to take with `with`, and a condition of this lock.

    A condition takes its lock in Python code. A signal's exception can come between the
    taking and the block that gives the lock back, and all threads would wait for ever.
    The main thread may notify, all of those who wait, but not wait itself.
    """
    lock = threading.RLock()
    return lock, threading.Condition(lock)


class Signal:
    """Wakes the threads that wait for a change, the main thread among them."""

    def __init__(self) -> None:
        # Reentrant, since the collector may run a finalizer that waits, too.
        self._turn = threading.RLock()
        self._tokens: "SimpleQueue[None]" = SimpleQueue()

    def send(self) -> None:
        """Let who waits look again; after every change, and again if in doubt."""
        self._tokens.put(None)

    def wait(self, look: Callable[[], T]) -> T:
        """Return what `look` returns as soon as that is true.

        One thread looks at a time, so that a wake-up that an exception took away is
        nobody else's: the next one looks before it waits.
        """
        with self._turn:
            while True:
                while not self._tokens.empty():
                    self._tokens.get_nowait()
                seen = look()
                if seen:
                    return seen
                self._tokens.get()


def finish(end: "weakref.finalize[Any, Any]") -> None:
    """Call the function of a finalizer, which stays in force until that has ended."""
    alive = end.peek()
    if alive is not None:
        _, function, arguments, _ = alive
        function(*arguments)
        end.detach()
