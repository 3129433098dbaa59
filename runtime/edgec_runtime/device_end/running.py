"""Programs that the device end starts: none outlives it, none writes more than it may.

This is part of the device end, see wire.py.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from typing import Dict, List, Optional

MAX_OUTPUT_BYTES = 16 << 20
_SLICE_S = 0.5


class TooMuch(OSError):
    """The program wrote more than MAX_OUTPUT_BYTES."""


def run(
    command: List[str],
    *,
    timeout: float,
    cwd: Optional[str] = None,
    env: Optional[Dict[str, str]] = None,
    stdin: int = subprocess.DEVNULL,
    capture_output: bool = True,
    listen: Optional[int] = None,
) -> "subprocess.CompletedProcess[bytes]":
    """As subprocess.run, but in a process group of its own, which ends with the program: by itself, by the timeout, by
    an exception here, or, where `listen` is a descriptor, when nobody is there to write to it any more.

    Raises TimeoutExpired, TooMuch, OSError.
    """
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=subprocess.PIPE if capture_output else subprocess.DEVNULL,
        stderr=subprocess.PIPE if capture_output else subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,
    )
    try:
        said = _read(process, time.monotonic() + timeout, timeout, listen)
    finally:
        _end(process)
    return subprocess.CompletedProcess(command, process.returncode, said[0], said[1])


def _read(
    process: "subprocess.Popen[bytes]", until: float, timeout: float, listen: Optional[int]
) -> "tuple[bytes, bytes]":
    """Standard output and error, until the program itself has ended: a child of its may hold them open for ever."""
    pipes = [p for p in (process.stdout, process.stderr) if p is not None]
    parts: Dict[int, List[bytes]] = {p.fileno(): [] for p in pipes}
    poll = select.poll()
    for fd in parts:
        poll.register(fd, select.POLLIN)
    if listen is not None:
        poll.register(listen, 0)  # no more than that it is closed
    size, open_pipes = 0, len(parts)
    while True:
        ended = process.poll() is not None
        left = until - time.monotonic()
        if left <= 0 and not ended:
            raise subprocess.TimeoutExpired(process.args, timeout, *(b"".join(p) for p in parts.values()))
        came = poll.poll(0 if ended else 1000 * min(left, _SLICE_S if open_pipes else 0.02))
        if ended and not any(fd in parts for fd, _ in came):
            break
        for fd, _ in came:
            if fd not in parts:
                raise BrokenPipeError("nobody waits for the program any more")
            data = os.read(fd, 1 << 16)
            if not data:
                poll.unregister(fd)
                open_pipes -= 1
            parts[fd].append(data)
            size += len(data)
        if size > MAX_OUTPUT_BYTES:
            raise TooMuch(f"the program wrote more than {MAX_OUTPUT_BYTES >> 20} MB")
    joined = [b"".join(p) for p in parts.values()]
    return (joined[0], joined[1]) if joined else (b"", b"")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """The whole group, whatever is left of it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
