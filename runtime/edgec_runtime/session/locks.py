"""Locks, waits and ends that a Ctrl-C in the main thread leaves in order.

A signal's exception can come between any two steps of Python code. So a lock is taken
and given back by `alone`, a change that others wait for is told again by the next call,
and an end that was not reached can be called again.
"""

from __future__ import annotations

import _thread
import threading
import weakref
from queue import SimpleQueue
from typing import Any, Callable, Optional, Sequence, Tuple, TypeVar

T = TypeVar("T")


def locked() -> Tuple[Any, threading.Condition]:
    """Return a lock to take with `with`, and a condition of this lock.

    A condition takes its lock in Python code. A signal's exception can come between the
    taking and the block that gives the lock back, and all threads would wait for ever.
    The main thread may notify, all of those who wait, but not wait itself.
    """
    lock = threading.RLock()
    return lock, threading.Condition(lock)


def alone(lock: Any, call: Callable[[], T]) -> T:
    """Return what a function returns that is called while no other thread has a lock.

    `with` takes a lock in one step, but before Python 3.10 an exception can come between
    its block and the step that gives the lock back. Then the lock is still this
    thread's.

    lock: a threading.RLock that no thread takes twice
    """
    try:
        with lock:
            return call()
    finally:
        if lock._is_owned():
            lock.release()


class Signal:
    """Wakes the threads that wait for a change, the main thread among them."""

    def __init__(self) -> None:
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
        return alone(self._turn, lambda: self._waited(look))

    def _waited(self, look: Callable[[], T]) -> T:
        while True:
            while not self._tokens.empty():
                self._tokens.get_nowait()
            seen = look()
            if seen:
                return seen
            self._tokens.get()


def start(threads: Sequence[threading.Thread]) -> None:
    """Start threads, from a thread of its own: no signal's exception comes there.

    Within `Thread.start` it would leave a lock of that thread taken, or its entry in
    the list of threads. One that comes here does not keep the threads from starting.

    Raises RuntimeError where the system gives no thread.
    """
    answers: "SimpleQueue[Optional[BaseException]]" = SimpleQueue()

    def start_all() -> None:
        error = None
        try:
            for thread in threads:
                thread.start()
        except BaseException as e:
            error = e
        answers.put(error)

    _thread.start_new_thread(start_all, ())
    error = answers.get()
    if error is not None:
        raise error


def finish(end: "weakref.finalize[Any, Any]") -> None:
    """Call the function of a finalizer, which stays in force until that has ended."""
    alive = end.peek()
    if alive is not None:
        _, function, arguments, _ = alive
        function(*arguments)
        end.detach()
