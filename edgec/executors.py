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
from functools import cache
from threading import Semaphore
from typing import TypeVar

from edgec.errors import EdgecError

TIMES = 4
"""How often a piece of work may be begun: what ran it can go away."""

A = TypeVar("A")
B = TypeVar("B")


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
    work: Callable[[A], B],
    items: Sequence[A],
) -> Generator[tuple[A, B], None, None]:
    """Yield every item with the result of `work(item)`, in the order of completion.

    An item whose worker went away is worked on again, up to `TIMES` times. Items that
    have not begun when the generator is closed never do.

    Raises what the work raises, and EdgecError where the workers are gone.
    """
    begun = dict.fromkeys(range(len(items)), 1)
    waiting: dict[Future[B], int] = {
        executor.submit(work, item): i for i, item in enumerate(items)
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
                future = _again(executor, work, items[i], begun[i], e)
                waiting[future] = i
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
    work: Callable[[A], B],
    item: A,
    time: int,
    why: BaseException,
) -> Future[B]:
    try:
        if time <= TIMES:
            return executor.submit(work, item)
    except RuntimeError as e:  # it takes no more
        why = e
    hint = "run it again: what was found is kept"
    raise EdgecError(
        f"the workers are gone: {why or type(why).__name__}", at="--workers", hint=hint
    ) from why
