"""Starts programs for the device end, which do not outlive it and whose output is
limited.

This is part of the device end, see wire.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import threading
import time
from typing import Any, Dict, Iterator, List, Optional

from edgec_runtime.device_end.bundles import MAX_FILES
from edgec_runtime.device_end.disk import Refused
from edgec_runtime.device_end.requests import RunRequest

MAX_OUTPUT_BYTES = 16 << 20
# options of csrc/main.c that a host may give
TIMING = (
    "--runs",
    "--seconds",
    "--warmup",
    "--profile",
    "--threads",
    "--stream",
)
LONGEST_S = 7 * 86400.0  # longest time limit that a host may give a program
# variables by which the loader, Python and libc load other code
LOADED = ("LD_", "PYTHON", "GCONV_PATH")
_SLICE_S = 0.5
_CLOSED_SLICE_S = 0.02
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GUARD = ["/bin/sh", "-c", 'read -r group; read -r rest; kill -s KILL -- "-$group"']
"""A shell command that kills a process group at the end of its standard input.

Only the device end has the other end of that pipe open.
"""


def check_limit(request: RunRequest) -> None:
    """Raise Refused for an impossible time limit."""
    if not 0 < request.limit <= LONGEST_S:
        raise Refused(
            "input",
            f"the program cannot be given {request.limit!r:.40} s",
            f"give at most {LONGEST_S:.0f} s",
        )


def check_sizes(request: RunRequest, blob: bytes) -> None:
    """Raise Refused unless the sizes of the inputs add up to the blob's."""
    sizes = request.inputs
    if len(sizes) > MAX_FILES or min(sizes, default=0) < 0 or sum(sizes) != len(blob):
        raise Refused(
            "input", "the list of the inputs' sizes is impossible", "update edgec"
        )


def check_options(request: RunRequest) -> None:
    """Raise Refused for options that are not about timing.

    So the host cannot choose files that the program reads or writes.
    """
    words = "".join(f"{word} " for word in request.options)
    if not re.fullmatch(rf"(({'|'.join(TIMING)}) \d+(\.\d+)? )*", words):
        what = f"the program is not run with {words.strip():.80}"
        raise Refused("device", what, "update edgec")


class TooMuch(OSError):
    """The program wrote more than MAX_OUTPUT_BYTES."""


def environment(trusting: bool) -> Dict[str, str]:
    """Return the environment of a slot's program.

    Args:
        trusting: whether the device has a key, so that no variable may let the program
            load code without a signature
    """
    return {
        k: v for k, v in os.environ.items() if not (trusting and k.startswith(LOADED))
    }


def run(
    command: List[str],
    *,
    timeout: float,
    listen: Optional[int] = None,
    **settings: Any,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program in a process group of its own; otherwise like subprocess.run.

    The whole group ends when the program ends.

    Args:
        command: the program and its arguments
        timeout: time limit in seconds
        listen: a descriptor; the program is ended when its other end is closed
        settings: other arguments of `RunningProgram`

    Raises:
        subprocess.TimeoutExpired: the program took longer
        TooMuch: it wrote too much
        OSError: it cannot be started, or `listen` was closed
    """
    with RunningProgram(command, **settings) as program:
        output, errors = _read(
            program.process, time.monotonic() + timeout, timeout, listen
        )
    return subprocess.CompletedProcess(
        command, program.process.returncode, output, errors
    )


class RunningProgram:
    """A program in a process group that ends with the `with` block or this process.

    A second process, the guard, kills the group even if this process is killed.
    """

    def __init__(
        self,
        command: List[str],
        cwd: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        stdin: int = subprocess.DEVNULL,
        capture_output: bool = True,
    ) -> None:
        null = subprocess.DEVNULL
        output = subprocess.PIPE if capture_output else null
        with contextlib.ExitStack() as undo:
            with _delayed_signals():
                # It starts first, so that the program is without a guard only for the
                # moment of its start.
                self._guard = subprocess.Popen(
                    _GUARD,
                    stdin=subprocess.PIPE,
                    stdout=null,
                    stderr=null,
                    bufsize=0,
                    start_new_session=True,
                )
                undo.callback(self._end_guard)
                self.process = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env=env,
                    stdin=stdin,
                    stdout=output,
                    stderr=output,
                    bufsize=0,
                    start_new_session=True,
                )
                undo.callback(self.end)
                with contextlib.suppress(BrokenPipeError):
                    assert self._guard.stdin is not None
                    self._guard.stdin.write(b"%d\n" % self.process.pid)
            undo.pop_all()

    def __enter__(self) -> "RunningProgram":
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """Kill what is left of the whole process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        # Before wait(), after which another group could get the same number.
        self._end_guard()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def _end_guard(self) -> None:
        self._guard.kill()
        self._guard.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()


@contextlib.contextmanager
def _delayed_signals() -> Iterator[None]:
    """Delay signals that end this process, so that it knows each program it started."""
    # Python handles signals only in the main thread.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrivals: List[int] = []
    # A signal that is ignored stays so, since the program inherits that.
    numbers = [n for n in _ENDING if callable(signal.getsignal(n))]
    before = {n: signal.signal(n, lambda n, _: arrivals.append(n)) for n in numbers}
    try:
        yield
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)
        for number in arrivals:
            signal.raise_signal(number)


def _read(
    process: "subprocess.Popen[bytes]",
    until: float,
    timeout: float,
    listen: Optional[int],
) -> "tuple[bytes, bytes]":
    """Return standard output and error when the program itself has ended.

    The end of the pipes is no sign of that, since its children may keep them open.

    Args:
        process: the program
        until: when it has to end, in monotonic seconds
        timeout: its time limit in seconds, for the exception
        listen: a descriptor whose other end has to stay open, or None
    """
    output = _Output(process, listen)
    while True:
        ended = process.poll() is not None
        left = until - time.monotonic()
        if left <= 0 and not ended:
            raise subprocess.TimeoutExpired(process.args, timeout, *output.texts())

        has_read = output.read(left, ended)
        if ended and not has_read:
            break

    texts = output.texts()
    return (texts[0], texts[1]) if texts else (b"", b"")


class _Output:
    """The output of a program, read from its pipes."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", listen: Optional[int]
    ) -> None:
        """Begin to wait for the pipes, and for the end of `listen`."""
        pipes = [p for p in (process.stdout, process.stderr) if p is not None]
        self._parts: Dict[int, List[bytes]] = {p.fileno(): [] for p in pipes}
        self._size = 0
        self._open_pipes = len(pipes)
        self._poll = select.poll()
        for fd in self._parts:
            self._poll.register(fd, select.POLLIN)
        if listen is not None:
            # Without events only its end is reported.
            self._poll.register(listen, 0)

    def read(self, seconds: float, ended: bool) -> bool:
        """Read the bytes that the pipes have now.

        Args:
            seconds: the longest time to wait for some
            ended: whether the program has ended: then there is no wait

        Returns:
            whether a pipe had bytes or came to its end
        """
        # poll() does not report the end of the program, so each wait is short. It can be
        # longer while pipes are open, whose end usually comes with the program's.
        slice_s = _SLICE_S if self._open_pipes else _CLOSED_SLICE_S
        events = self._poll.poll(0 if ended else 1000 * min(seconds, slice_s))
        has_read = any(fd in self._parts for fd, _ in events)
        if ended and not has_read:
            return False

        for fd, _ in events:
            if fd not in self._parts:
                raise BrokenPipeError("nobody waits for the program any more")
            self._read_pipe(fd)
        if self._size > MAX_OUTPUT_BYTES:
            raise TooMuch(f"the program wrote more than {MAX_OUTPUT_BYTES >> 20} MB")
        return has_read

    def _read_pipe(self, fd: int) -> None:
        data = os.read(fd, 1 << 16)
        if not data:
            self._poll.unregister(fd)
            self._open_pipes -= 1
        self._parts[fd].append(data)
        self._size += len(data)

    def texts(self) -> List[bytes]:
        """Return the bytes of each pipe so far."""
        return [b"".join(parts) for parts in self._parts.values()]
