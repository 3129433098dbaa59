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
"""Attempts at a piece of work, since its worker can go away."""

A = TypeVar("A")
B = TypeVar("B")


def cores() -> int:
    """Return the number of cores of this machine for this process."""
    # In a container or under taskset, a process may have fewer than the machine.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# One for the whole process, whoever calls.
@cache
def _core_slots() -> Semaphore:
    """Return the semaphore of all callers of `in_order`, a slot for each core."""
    return Semaphore(cores())


def in_order(
    work: Callable[[A], B], items: Iterable[A], threads: int
) -> Generator[B, None, None]:
    """Yield the results of `work` for all items in their order, computed by threads.

    All callers together have at most as many items in work as there are cores. So
    `work` must not call this function itself.
    """

    # Each item in work takes memory, a sample's activations for example: callers that
    # run side by side must not multiply it.
    def work_in_slot(item: A) -> B:
        with _core_slots():
            return work(item)

    with ThreadPoolExecutor(threads) as pool:
        waiting = deque[Future[B]]()
        for item in items:
            waiting.append(pool.submit(work_in_slot, item))
            # Results wait for the caller, and fill memory: threads run little ahead.
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

    An item is tried again if its worker went away, up to `TIMES` times. Items that have
    not begun when the generator is closed never do.

    Raises the exceptions of `work`, and EdgecError if the workers are gone.
    """
    attempts = dict.fromkeys(range(len(items)), 1)
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
                # An exception of the work itself would only come again.
                if not _is_of_worker(e):
                    raise
                attempts[i] += 1
                future = _submit_again(executor, work, items[i], attempts[i], e)
                waiting[future] = i
            else:
                yield items[i], result
    finally:
        # The caller may stop early; a shared executor goes on to live.
        for future in waiting:
            future.cancel()


def _is_of_worker(e: BaseException) -> bool:
    """Return whether an exception is about the worker, and not of the work."""
    # By the name of the module: Dask is optional, and not imported for this.
    is_of_dask = type(e).__module__.startswith("distributed")
    return is_of_dask or isinstance(e, (BrokenExecutor, CancelledError))


def _submit_again(
    executor: Executor,
    work: Callable[[A], B],
    item: A,
    attempt: int,
    reason: BaseException,
) -> Future[B]:
    """Submit an item again. Raise EdgecError after the last attempt.

    reason: the exception of the attempt before.
    """
    try:
        if attempt <= TIMES:
            return executor.submit(work, item)
    except RuntimeError as e:
        # A broken or closed executor takes no work: this tells more than the first error.
        reason = e
    # str() of many of these exceptions is empty.
    message = f"the workers are gone: {str(reason) or type(reason).__name__}"
    hint = "run it again: what was found is kept"
    raise EdgecError(message, at="--workers", hint=hint) from reason
