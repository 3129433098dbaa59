"""Byte streams to a device: what a link gives to the protocol (protocol.py)."""

from __future__ import annotations

import contextlib
import hashlib
import queue
import signal
import subprocess
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import edgec_runtime
from edgec_runtime import DeviceError, InputError
from edgec_runtime.device_end.packed import one_file

from edgec_devices.bare import bare
from edgec_devices.device import TIMEOUT_S, link_module, patience

DEVICE_END = (
    "wire",
    "packed",
    "printable",
    "ed25519",
    "disk",
    "trust",
    "elf",
    "bundles",
    "slots",
    "incoming",
    "running",
    "vitals",
    "facts",
    "units",
    "wheels",
    "showing",
    "agent",
)
# modules come from nowhere but Python's own folders
HOME = "import sys;sys.path[:]=filter(None,sys.path);"
SIGN = "os.write(1,bytes([10]))"
LAST_LINES = 40  # of standard error, for a message
NO_PYTHON = "sudo apt-get install python3 on the device (3.9 or later)"


class LinkLost(DeviceError):
    """The stream ended or fell silent.

    What was sent before is kept, so it is worth trying again.
    """


@dataclass(frozen=True)
class Page:
    """Where a device is to serve a page.  name: of the show (device_end/showing.py).
    place: "socket", or a port.
    """

    name: str
    place: str | int


class ByteStream(ABC):
    """A byte stream to a device.  chunk, window, rate: what fits the line
    (edgec_runtime/device_end/wire.py).
    """

    url: str
    chunk = 1 << 14
    window = 32
    rate = 1e6
    silence_hint = "check that nothing else uses the line, then try again"
    timeout = TIMEOUT_S
    """Seconds for which nothing may move before it counts as a dead end."""
    supposed = False
    """Whether start() found nothing to start and only supposes that a device end is
    there already.
    """
    deaf = False
    """Whether Ctrl-C, which a terminal gives to all of its programs, is none to the one
    that this link starts.
    """

    @property
    def stirs(self) -> int:
        """Grows when something moves that read() does not give: a link is being made."""
        return 0

    @property
    def stage(self) -> str:
        """How far the link is, for the message that it went no further; "" where
        nothing tells.
        """
        return ""

    def carry_page(self, port: int) -> Page:
        """Before start(): this port of this machine's loopback address is to lead to a
        page on the device.

        Raises InputError where the link carries none.
        """
        raise InputError(
            "a page cannot come through this line",
            at=self.url,
            hint="go through ssh, or give --no-display",
        )

    @abstractmethod
    def start(self, again: bool = False) -> None:
        """Brings the device end up.  again: another version of it is running and was
        told to end.
        """

    @abstractmethod
    def read(self, timeout: float) -> bytes:
        """What has come, or after `timeout` seconds nothing.

        LinkLost when the stream has ended.
        """

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Writes all of it.  LinkLost when the stream has ended."""

    @abstractmethod
    def close(self) -> None:
        """Ends it.  Never raises."""


def stream_for(url: str, ask: bool = False, timeout: float = TIMEOUT_S) -> ByteStream:
    """A stream of "ssh://pi@host" and the like, not started.  ask: a person is there to
    type a password.

    timeout: seconds for which nothing may move.  Raises InputError for a URL of no kind
    or of one that has no stream.
    """
    _, module, rest = link_module(url)
    opened: ByteStream = module.open_stream(rest, ask)
    opened.timeout = patience(timeout)
    return opened


def device_end() -> tuple[bytes, str]:
    """The device end as one file of Python, and the sha256 it goes by."""
    with _ONE_AT_A_TIME:
        return _device_end()


_ONE_AT_A_TIME = threading.Lock()
"""CPython 3.11 ends ast.parse with a SystemError where two threads call it at once, as
for many devices.
"""


@cache
def _device_end() -> tuple[bytes, str]:
    folder = Path(edgec_runtime.__file__).parent / "device_end"
    texts = {
        name: bare((folder / f"{name}.py").read_text(encoding="utf-8"))
        for name in DEVICE_END
    }
    sha = hashlib.sha256(repr(texts).encode()).hexdigest()
    return one_file(texts, sha).encode(), sha


def bootstrap() -> tuple[str, bytes]:
    """Python for `python3 -S -u -c` that starts what comes first on its standard input,
    and that.

    The text is safe in double quotes in any shell.  It reads so many bytes and none
    beyond: what follows is not its own.  It says an empty line when it is there and
    when all has come, by which the host sees that something moves.
    """
    packed = zlib.compress(device_end()[0], 9)
    size = len(packed)
    loop = f"while len(b)<{size}:b+=os.read(0,{size}-len(b))or os._exit(1)"
    return (
        f"{HOME}import os,zlib;b=b'';{SIGN};exec('{loop}');{SIGN};exec(zlib.decompress(b))",
        packed,
    )


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Programs that are started meanwhile do not hear Ctrl-C; only the main thread can
    see to that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class PipeStream(ByteStream):
    """The standard input and output of a program that starts Python on the device, or
    is it.
    """

    def __init__(
        self, url: str, command: list[str], env: dict[str, str] | None = None
    ) -> None:
        self.url = url
        self._command = command
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None
        self._came: queue.Queue[bytes] = queue.Queue()
        self._said: list[bytes] = []
        self._stirs = 0
        self._readers: list[threading.Thread] = []

    def command(self) -> list[str]:
        """The program and its arguments."""
        return self._command

    @property
    def stirs(self) -> int:
        """Of its standard error."""
        return self._stirs

    def start(self, again: bool = False) -> None:
        """Starts the program and sends the device end."""
        self.close()
        self._came = queue.Queue()
        self._said = []
        command = self.command()
        try:
            with _deaf() if self.deaf else contextlib.nullcontext():
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    env=self._env,
                )
        except OSError as e:
            raise self.explain(None, f"{command[0]}: {e.strerror}") from e
        self._readers = [
            threading.Thread(target=f, daemon=True)
            for f in (self._read_output, self._read_errors)
        ]
        for reader in self._readers:
            reader.start()
        self.write(bootstrap()[1])

    def _read_output(self) -> None:
        """In a thread: the program never waits for us to read, and not every system has
        select for pipes.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        came = self._came
        source = self._process.stdout
        with contextlib.suppress(OSError, ValueError):
            while data := source.read(1 << 16):
                came.put(data)
        came.put(b"")

    def _read_errors(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        said = self._said
        source = self._process.stderr
        rest = b""
        with contextlib.suppress(OSError, ValueError):
            while data := source.read(4096):
                self._stirs += 1
                *lines, rest = (rest + data).split(b"\n")
                said += [line for line in lines if not self.chatter(line)]
                del said[:-LAST_LINES]
        said += [rest] if rest else []

    def chatter(self, line: bytes) -> bool:
        """Whether a line of standard error only says that the link is being made."""
        return False

    def read(self, timeout: float) -> bytes:
        """What has come."""
        try:
            data = self._came.get(timeout=max(timeout, 0.0))
        except queue.Empty:
            return b""
        if not data:
            raise self._ended()
        return data

    def write(self, data: bytes) -> None:
        """Writes all of it."""
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            view = memoryview(data)
            while view:
                view = view[self._process.stdin.write(view) or 0 :]
        except (OSError, ValueError):
            raise self._ended() from None

    def _ended(self) -> DeviceError | InputError:
        status = None
        if self._process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(5)
        for reader in self._readers:
            reader.join(1)
        return self.explain(
            status, b"\n".join(self._said).decode(errors="replace").strip()
        )

    def explain(self, status: int | None, said: str) -> DeviceError | InputError:
        """Why the program ended, as an error with a hint.  said: the end of its
        standard error.
        """
        last = said.splitlines()[-1] if said else f"status {status}"
        if status == 127 or "command not found" in said:
            return DeviceError(
                f"there is no python3 on the device ({last})",
                at=self.url,
                hint=NO_PYTHON,
            )
        return LinkLost(
            f"the device end stopped: {last}",
            at=self.url,
            hint="try again; what was sent is kept",
        )

    def close(self) -> None:
        """Ends the program."""
        process = self._process
        self._process = None
        if process is None:
            return
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        # told to end, it ends the program that it runs first
        for end in (process.terminate, process.kill):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(3)
                break
            end()
        process.wait()
        for reader in self._readers:
            reader.join(1)
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
