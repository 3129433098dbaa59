"""Processes that outlive the program that started them, known by what is on their
command line.
"""

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
    """Whether the process is alive and has `mark` on its command line: a number alone
    may be another's by now.
    """
    if pid is None:
        return False
    try:
        return mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def end(pid: int | None, mark: str, timeout: float = 10.0) -> bool:
    """Kills the process if it is ours and waits until it is gone.

    False: there was none.
    """
    if pid is None:
        return False
    try:
        # from here on it is this process that is checked and killed, whoever gets the
        # number
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
    """One process at a time for a folder; the others wait."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
