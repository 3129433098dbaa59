"""Where the trials of a search run: threads of this process, or the workers of a Dask cluster."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

from edgec.errors import DeviceError, EdgecError, InputError, ToolError

_DASK = re.compile(r"dask://([^/\s]+:\d+)/?")
_TIMES = 4
"""How often a trial may be begun: what ran it can go away."""

A = TypeVar("A")
B = TypeVar("B")


@contextlib.contextmanager
def workers(url: str | None, jobs: int, timeout: float) -> Iterator[Executor]:
    """The cluster of "dask://host:port"; without a URL, so many threads.

    Raises InputError for another URL, ToolError where Dask is not installed, DeviceError where no cluster answers.
    """
    if url is None:
        pool = ThreadPoolExecutor(jobs)
        try:
            yield pool
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return
    address = _DASK.fullmatch(url.strip())
    if address is None:
        raise InputError(f'"{url}" names no workers', at="--workers", hint="give for example dask://192.168.1.5:8786")
    try:
        from distributed import Client
    except ImportError as e:
        raise ToolError("Dask is not installed", at="--workers", hint="pip install 'edgec[dask]'") from e
    try:
        client = Client(f"tcp://{address[1]}", timeout=timeout, set_as_default=False)
    except (OSError, TimeoutError) as e:
        hint = "start it there: dask scheduler, and dask worker on each machine"
        raise DeviceError(f"no Dask scheduler answers at {address[1]}: {e}", at="--workers", hint=hint) from e
    with client:
        yield client.get_executor(pure=False, retries=_TIMES)


def each_done(executor: Executor, work: Callable[[A], B], items: Sequence[A]) -> Generator[tuple[A, B], None, None]:
    """Every item with what was made of it, as they are done; once more if what worked on it went away.

    Raises what the work raises. What has not begun when it is closed never does.
    """
    begun = dict.fromkeys(range(len(items)), 1)
    waiting: dict[Future[B], int] = {executor.submit(work, item): i for i, item in enumerate(items)}
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
                waiting[_again(executor, work, items[i], begun[i], e)] = i
            else:
                yield items[i], result
    finally:
        for future in waiting:
            future.cancel()


def _gone(e: BaseException) -> bool:
    """Whether that is about who worked, not about the work."""
    return isinstance(e, (BrokenExecutor, CancelledError)) or type(e).__module__.startswith("distributed")


def _again(executor: Executor, work: Callable[[A], B], item: A, time: int, why: BaseException) -> Future[B]:
    try:
        if time <= _TIMES:
            return executor.submit(work, item)
    except RuntimeError as e:  # it takes no more
        why = e
    hint = "run it again: what was found is kept"
    raise EdgecError(f"the workers are gone: {why or type(why).__name__}", at="--workers", hint=hint) from why
