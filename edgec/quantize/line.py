"""What is computed once for all candidates that need it, whichever of their threads comes first."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from edgec.quantize.recipe import Candidate
    from edgec.quantize.steps import Step
    from edgec.quantize.work import Work

T = TypeVar("T")


class Once:
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


class Line:
    """A model through steps; candidates that begin with the same steps share them."""

    def __init__(self, work: Work) -> None:
        self.work, self._done = work, Once()

    def of(self, candidate: Candidate) -> Work:
        """After all its steps."""
        return self.after(candidate.steps)

    def after(self, steps: tuple[Step, ...]) -> Work:
        """After these."""
        return self._done.get(steps, lambda: self.after(steps[:-1]).do(steps[-1])) if steps else self.work
