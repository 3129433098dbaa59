"""The threads of a session, by csrc/ek_thread_pool.h of the bundle's library."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, List, Optional

import numpy as np
from numpy.typing import NDArray

from ..errors import DeviceError

ALIGN = 64  # of every buffer: a cache line, and more than any vector load needs
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
    """`threads` threads, the caller's among them, until it is stopped or nobody has it
    any more.

    Raises DeviceError where the system gives none.
    """

    def __init__(self, library: ctypes.CDLL, threads: int) -> None:
        memory = aligned(_POOL_BYTES)
        start = library.edgec_threads_start
        stop = library.edgec_threads_stop
        start.restype = ctypes.c_void_p
        start.argtypes = [ctypes.c_void_p, ctypes.c_int]
        stop.restype = None
        stop.argtypes = [ctypes.c_void_p]
        # Before they start: a forked child is to forget them.
        _POOLS.add(self)
        started: List[Optional[int]] = []
        self.stop = weakref.finalize(self, _stop, stop, started, memory)
        # One step for a Ctrl-C: threads that nobody knows would go on in freed memory.
        started.extend(map(start, (memory.ctypes.data,), (threads,)))
        if not started[0]:
            raise DeviceError(
                f"the system cannot start {threads} threads",
                hint="run it on one: threads=1",
            )
        self.address = ctypes.c_void_p(started[0])


_POOLS: "weakref.WeakSet[ThreadPool]" = weakref.WeakSet()


def _forget() -> None:
    """A forked child has none of the threads; to wait for them would be to wait for
    ever.
    """
    for pool in list(_POOLS):
        pool.stop.detach()


os.register_at_fork(after_in_child=_forget)


def _stop(stop: Any, started: List[Optional[int]], memory: NDArray[Any]) -> None:
    """Stop the pools that were started; memory: the threads' until they have ended."""
    for pool in filter(None, started):
        stop(pool)
