"""Keeps native libraries from writing to a command's standard output and standard
error.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_STANDARD_STREAMS = (1, 2)
"""The descriptors of standard output and standard error."""

_FIRST_FREE = 3
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

    Python's sys.stdout cannot do that for C code, which writes to the descriptors. What
    other threads write meanwhile is lost too, so the block should be short.
    """
    with _SWAP:
        _flush_c_streams()
        copies = {number: _copied(number) for number in _STANDARD_STREAMS}
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in _STANDARD_STREAMS:
            if number != nowhere:
                os.dup2(nowhere, number)
        if nowhere not in _STANDARD_STREAMS:
            os.close(nowhere)
        try:
            yield
        finally:
            _flush_c_streams()
            for number, copy in copies.items():
                if copy is None:
                    os.close(number)
                else:
                    os.dup2(copy, number)
                    os.close(copy)


def _copied(number: int) -> int | None:
    """A copy of a descriptor; None if the process does not have it, as a daemon may
    have closed it.
    """
    try:
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
    except OSError:
        return None


def _flush_c_streams() -> None:
    """Write out what C has buffered: printf keeps text for a pipe until exit, when the
    descriptor is back.
    """
    ctypes.CDLL(None).fflush(None)
