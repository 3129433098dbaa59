"""The threads of a session, which are those of csrc/ek_thread_pool.h in the library."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, List, Optional

import numpy as np
from numpy.typing import NDArray

from ..errors import DeviceError

ALIGN = 64  # alignment of buffers: a cache line, and enough for any vector load
_POOL_BYTES = 1024  # EK_POOL_BYTES


def aligned(nbytes: int) -> NDArray[Any]:
    """Return zeroed bytes that start on a multiple of ALIGN.

    Raises:
        DeviceError: there is not enough memory
    """
    try:
        raw = np.zeros(nbytes + ALIGN, np.uint8)
    except MemoryError as e:
        what = f"the model needs {nbytes:,} bytes of memory, more than are free"
        raise DeviceError(
            what, hint="end other programs, or take a smaller model"
        ) from e
    start = -raw.ctypes.data % ALIGN
    return raw[start : start + nbytes]


class ThreadPool:
    """A pool of threads, which ends when it is stopped or garbage.

    Args:
        library: the bundle's library
        threads: number of threads, with the caller's

    Raises:
        DeviceError: the system cannot start the threads
    """

    def __init__(self, library: ctypes.CDLL, threads: int) -> None:
        memory = aligned(_POOL_BYTES)
        start = library.edgec_threads_start
        stop = library.edgec_threads_stop
        start.restype = ctypes.c_void_p
        start.argtypes = [ctypes.c_void_p, ctypes.c_int]
        stop.restype = None
        stop.argtypes = [ctypes.c_void_p]
        # This comes before the start, so that a forked child always forgets the pool.
        _POOLS.add(self)
        started: List[Optional[int]] = []
        self.stop = weakref.finalize(self, _stop, stop, started, memory)
        # A Ctrl-C cannot interrupt this single step. Unknown threads would use memory
        # after it is freed.
        started.extend(map(start, (memory.ctypes.data,), (threads,)))
        if not started[0]:
            raise DeviceError(
                f"the system cannot start {threads} threads",
                hint="run it on one: threads=1",
            )
        self.address = ctypes.c_void_p(started[0])


_POOLS: "weakref.WeakSet[ThreadPool]" = weakref.WeakSet()


def _forget() -> None:
    """Forget all pools in a forked child: a wait for their threads would never end."""
    for pool in list(_POOLS):
        pool.stop.detach()


os.register_at_fork(after_in_child=_forget)


def _stop(stop: Any, started: List[Optional[int]], memory: NDArray[Any]) -> None:
    """Stop the started pools, whose memory has to exist until their threads have ended."""
    for pool in filter(None, started):
        stop(pool)
