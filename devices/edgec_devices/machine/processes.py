"""Finds and ends daemons, which are identified by a mark on their command line."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def runs(pid: int | None, mark: str) -> bool:
    """Return whether a process is alive and has `mark` on its command line.

    The number alone may belong to another process by now.
    """
    if pid is None:
        return False
    try:
        return mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def end(pid: int | None, mark: str, timeout: float = 10.0) -> bool:
    """Kill a process with the mark and wait until it is gone.

    Returns False if there was no such process.
    """
    if pid is None:
        return False
    try:
        # From here on this very process is checked and killed, even if another process
        # gets its number.
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not runs(pid, mark):
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [], timeout)
        return True
    finally:
        os.close(handle)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; others wait."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
