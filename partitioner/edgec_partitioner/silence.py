"""Keeps native libraries from writing to standard output and standard error."""

from __future__ import annotations

import ctypes
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_STANDARD_STREAMS = (1, 2)
"""The descriptors of standard output and standard error."""

FIRST_COPY = 3
"""Copies of descriptors get this number or a higher one: a closed standard output would
otherwise become a copy.
"""

_SWAP = threading.Lock()
"""Descriptors belong to the whole process: two threads that swapped them at a time
would restore the wrong ones.
"""


@contextmanager
def descriptors_silenced() -> Iterator[None]:
    """Point the descriptors 1 and 2 at /dev/null while the block runs.

    Python's sys.stdout cannot do this for C code, as C writes to the descriptors. The
    output of other threads is lost too, so the block should be short.
    """
    with _SWAP:
        _flush_c_streams()
        copies = {number: _copied(number) for number in _STANDARD_STREAMS}
        _point_at_null()
        try:
            yield
        finally:
            _flush_c_streams()
            for number, copy in copies.items():
                _restore(number, copy)


def _point_at_null() -> None:
    """Let both standard descriptors write to /dev/null."""
    null = os.open(os.devnull, os.O_WRONLY)
    for number in _STANDARD_STREAMS:
        if number != null:
            os.dup2(null, number)
    # If a standard descriptor was closed, /dev/null has taken its number.
    if null not in _STANDARD_STREAMS:
        os.close(null)


def _restore(number: int, copy: int | None) -> None:
    """Let a descriptor be again what `copy` is; close it if it was closed."""
    if copy is None:
        os.close(number)
        return
    os.dup2(copy, number)
    os.close(copy)


def _copied(number: int) -> int | None:
    """Return a copy of a descriptor.

    None if the process does not have it; a daemon may have closed it.
    """
    try:
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, FIRST_COPY)
    except OSError:
        return None


def _flush_c_streams() -> None:
    """Write out the buffers of C.

    printf keeps text for a pipe until exit, when the descriptor is back.
    """
    ctypes.CDLL(None).fflush(None)
