"""What is computed once for all candidates that need it, whichever of their threads
comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


class Memoized:
    """Results by key. Threads that want one which is being made wait for it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[Hashable, Future[Any]] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` made the first time."""
        with self._lock:
            mine = key not in self._found
            future: Future[T] = self._found.setdefault(key, Future())
        if mine:
            try:
                future.set_result(make())
            except BaseException as e:
                future.set_exception(e)
        return future.result()
