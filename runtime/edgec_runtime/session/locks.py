"""Locks, waits and finalizers that stay consistent after a Ctrl-C in the main thread.

The exception of a signal can come between any two steps of Python code. So `alone`
acquires and releases locks, a notification that was lost is repeated by the next call,
and a finalizer that was interrupted can be called again.
"""

from __future__ import annotations

import _thread
import threading
import weakref
from queue import SimpleQueue
from typing import Any, Callable, List, Sequence, Tuple, TypeVar

T = TypeVar("T")


def locked() -> Tuple[Any, threading.Condition]:
    """Return a lock for a `with` block, and a condition of this lock.

    A condition acquires its lock in Python code. After an exception between that and the
    block that releases the lock, all threads would wait for ever. So the main thread,
    in which signals arrive, may use `with` and notify_all, but must not wait.
    """
    lock = threading.RLock()
    return lock, threading.Condition(lock)


def alone(lock: Any, call: Callable[[], T]) -> T:
    """Call a function while this thread has a lock; return its result.

    `with` acquires a lock in one step, but before Python 3.10 an exception can come
    between its block and the release. Then this thread still has the lock.

    Args:
        lock: a threading.RLock that no thread acquires twice
        call: the function
    """
    try:
        with lock:
            return call()
    finally:
        if lock._is_owned():
            lock.release()


class Signal:
    """Wakes threads that wait for a change; the main thread may wait, too."""

    def __init__(self) -> None:
        self._turn = threading.RLock()
        self._tokens: "SimpleQueue[None]" = SimpleQueue()

    def send(self) -> None:
        """Let a waiting thread look again; call it after each change, or in doubt."""
        self._tokens.put(None)

    def wait(self, look: Callable[[], T]) -> T:
        """Call `look` until its result is true; return that.

        Only one thread does so at a time. After an exception has lost its notification,
        the next thread looks before it waits.
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

    def start_all() -> None:
        for thread in threads:
            thread.start()

    apart(start_all, lambda _: None)


def apart(call: Callable[[], T], undo: Callable[[T], None]) -> T:
    """Call a function in a thread of its own, where no signal's exception comes.

    Args:
        call: the function, whose result is returned and whose exception is raised here
        undo: is called with the result after an exception that comes here meanwhile
    """
    made: List[T] = []
    errors: List[BaseException] = []
    ended: "SimpleQueue[None]" = SimpleQueue()

    def work() -> None:
        try:
            made.append(call())
        except BaseException as e:
            errors.append(e)
        ended.put(None)  # for the wait below
        ended.put(None)  # for `clean`

    def clean() -> None:
        ended.get()
        for result in made:
            undo(result)

    try:
        _thread.start_new_thread(work, ())
        ended.get()
    except BaseException:
        _thread.start_new_thread(clean, ())
        raise
    for error in errors:
        raise error
    return made[0]


def finish(end: "weakref.finalize[Any, Any]") -> None:
    """Call the function of a finalizer, which stays in force until that has ended."""
    alive = end.peek()
    if alive is not None:
        _, function, arguments, _ = alive
        function(*arguments)
        end.detach()
