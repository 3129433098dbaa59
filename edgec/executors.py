"""Work on any `concurrent.futures.Executor`: threads, processes, a cluster."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
    as_completed,
)
from dataclasses import dataclass
from functools import cache
from threading import Semaphore
from typing import Generic, TypeVar

from edgec.errors import EdgecError

TIMES = 4
"""How often a piece of work may be begun: what ran it can go away."""

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, eq=False)
class Shared(Generic[A]):
    """What many calls are given, and is large: an executor of other machines sends it
    to each of them once.
    """

    value: A


def cores() -> int:
    """Of this machine, that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _room() -> Semaphore:
    return Semaphore(cores())


def in_order(
    work: Callable[[A], B], items: Iterable[A], threads: int
) -> Generator[B, None, None]:
    """What `work` makes of each item, in their order: by threads, which begin few more
    than were taken.

    However many callers there are, no more of their items are worked on at once than
    there are cores: each takes memory. So `work` must not call this itself.
    """

    def one(item: A) -> B:
        with _room():
            return work(item)

    with ThreadPoolExecutor(threads) as pool:
        waiting = deque[Future[B]]()
        for item in items:
            waiting.append(pool.submit(one, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def each_done(
    executor: Executor,
    work: Callable[..., B],
    items: Sequence[A],
    *shared: Shared[object],
) -> Generator[tuple[A, B], None, None]:
    """Every item with what `work(item, *shared)` made of it, as done; once more if what
    worked on it went away.

    Raises what the work raises. What has not begun when it is closed never does.
    """
    begun = dict.fromkeys(range(len(items)), 1)
    waiting: dict[Future[B], int] = {
        executor.submit(work, item, *shared): i for i, item in enumerate(items)
    }
    try:
        while waiting:
            future = next(as_completed(waiting))
            i = waiting.pop(future)
            try:
                result = future.result()
            except (Exception, CancelledError) as e:
                if not _gone(e):
                    raise
                begun[i] += 1
                waiting[_again(executor, work, (items[i], *shared), begun[i], e)] = i
            else:
                yield items[i], result
    finally:
        for future in waiting:
            future.cancel()


def _gone(e: BaseException) -> bool:
    """Whether that is about who worked, not about the work."""
    return isinstance(e, (BrokenExecutor, CancelledError)) or type(
        e
    ).__module__.startswith("distributed")


def _again(
    executor: Executor,
    work: Callable[..., B],
    given: tuple[object, ...],
    time: int,
    why: BaseException,
) -> Future[B]:
    try:
        if time <= TIMES:
            return executor.submit(work, *given)
    except RuntimeError as e:  # it takes no more
        why = e
    hint = "run it again: what was found is kept"
    raise EdgecError(
        f"the workers are gone: {why or type(why).__name__}", at="--workers", hint=hint
    ) from why
