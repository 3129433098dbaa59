"""Defines the byte stream to a device, from a link to the protocol (protocol.py)."""

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
from edgec_runtime.device_end.single_file import one_file

from edgec_devices.device import TIMEOUT_S, link_module, patience
from edgec_devices.minify import bare

DEVICE_END = (
    "wire",
    "single_file",
    "requests",
    "printable",
    "ed25519",
    "disk",
    "trust",
    "elf",
    "bundles",
    "slots",
    "reception",
    "programs",
    "vitals",
    "trial_model",
    "facts",
    "units",
    "wheels",
    "serving",
    "remote_show",
    "agent",
)
"""Modules of the device end, which go to the device as one file."""
# Modules come only from Python's own folders.
HOME = "import sys;sys.path[:]=filter(None,sys.path);"
SIGN = "os.write(1,bytes([10]))"
LAST_LINES = 40
"""Lines of standard error that are kept for a message."""
NO_PYTHON = "sudo apt-get install python3 on the device (3.9 or later)"


class LinkLost(DeviceError):
    """Says that the stream ended or fell silent.

    The device keeps the data sent before, so that another attempt is worth it.
    """


@dataclass(frozen=True)
class Page:
    """The place where a device serves a page.

    Attributes:
        name: name of the show (device_end/remote_show.py)
        place: "socket", or a port
    """

    name: str
    place: str | int


class ByteStream(ABC):
    """A byte stream to a device.

    `chunk` (bytes), `window` (chunks) and `rate` (bytes/s) suit the line
    (edgec_runtime/device_end/wire.py).
    """

    url: str
    chunk = 1 << 14
    window = 32
    rate = 1e6
    silence_hint = "check that nothing else uses the line, then try again"
    timeout = TIMEOUT_S
    """Time without progress after which the device is given up, s."""
    supposed = False
    """Whether start() only supposes that a device end is running already."""
    deaf = False
    """Whether the program of this link ignores Ctrl-C, which a terminal sends to all of
    its programs.
    """

    @property
    def stirs(self) -> int:
        """Return a number that grows with signs of life other than data."""
        return 0

    @property
    def stage(self) -> str:
        """Return the stage of the link, for the message that it failed there; or ""."""
        return ""

    def carry_page(self, port: int) -> Page:
        """Let a port of this machine's loopback address lead to a page on the device.

        It is called before start(). Raises InputError if the link cannot carry pages.
        """
        raise InputError(
            "this link cannot carry a page",
            at=self.url,
            hint="go through ssh, or give --no-display",
        )

    @abstractmethod
    def start(self, again: bool = False) -> None:
        """Start the device end.

        With `again`, another version of it was running, which received an order to end.
        """

    @abstractmethod
    def read(self, timeout: float) -> bytes:
        """Return the received bytes, or b"" after `timeout` seconds.

        Raises LinkLost if the stream has ended.
        """

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Write all of the data; raises LinkLost if the stream has ended."""

    @abstractmethod
    def close(self) -> None:
        """End the stream; never raises."""


def stream_for(url: str, ask: bool = False, timeout: float = TIMEOUT_S) -> ByteStream:
    """Return the stream of a URL such as "ssh://pi@host", not started.

    Raises InputError for an unknown kind of URL, or one without a stream.

    Args:
        url: URL of the device
        ask: whether a person can type a password
        timeout: time without progress after which the device is given up, s
    """
    _, module, address = link_module(url)
    stream: ByteStream = module.open_stream(address, ask)
    stream.timeout = patience(timeout)
    return stream


def device_end() -> tuple[bytes, str]:
    """Return the device end as one file of Python, and its SHA-256."""
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
    """Return a program for `python3 -S -u -c`, and the compressed device end for it.

    The program reads the device end from its standard input, not a byte beyond, and
    runs it. It is safe in double quotes in any shell. It prints an empty line at its
    start and when all bytes have come, by which the host sees progress.
    """
    # Sent with each connection, over lines as slow as 10 kB/s.
    packed = zlib.compress(device_end()[0], 9)
    size = len(packed)
    loop = f"while len(b)<{size}:b+=os.read(0,{size}-len(b))or os._exit(1)"
    return (
        f"{HOME}import os,zlib;b=b'';{SIGN};exec('{loop}');{SIGN};exec(zlib.decompress(b))",
        packed,
    )


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Make programs that are started meanwhile ignore Ctrl-C.

    Only the main thread can do so.
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
    """The standard input and output of a program that starts Python on the device."""

    def __init__(
        self, url: str, command: list[str], env: dict[str, str] | None = None
    ) -> None:
        self.url = url
        self._command = command
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None
        self._received: queue.Queue[bytes] = queue.Queue()
        self._messages: list[bytes] = []
        self._stirs = 0
        self._readers: list[threading.Thread] = []

    def command(self) -> list[str]:
        """Return the program and its arguments."""
        return self._command

    @property
    def stirs(self) -> int:
        """Return the number of reads of its standard error."""
        return self._stirs

    def start(self, again: bool = False) -> None:
        """Start the program and send the device end."""
        # A second start is after a lost link, whose program may still be there.
        self.close()
        self._received = queue.Queue()
        self._messages = []
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
        self._readers = []
        for read in (self._read_output, self._read_errors):
            reader = threading.Thread(target=read, daemon=True)
            self._readers.append(reader)
            reader.start()
        self.write(bootstrap()[1])

    def _read_output(self) -> None:
        """Read the output in a thread.

        The program never waits for a reader then, and not every system has select for
        pipes.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        received = self._received
        source = self._process.stdout
        with contextlib.suppress(OSError, ValueError):
            while data := source.read(1 << 16):
                received.put(data)
        # The end of the stream.
        received.put(b"")

    def _read_errors(self) -> None:
        """Read the standard error in a thread, and keep its last lines."""
        assert self._process is not None
        assert self._process.stderr is not None
        messages = self._messages
        source = self._process.stderr
        rest = b""
        with contextlib.suppress(OSError, ValueError):
            while data := source.read(4096):
                # ssh reports each stage of the login here, on a slow board for a minute.
                self._stirs += 1
                *lines, rest = (rest + data).split(b"\n")
                messages += [line for line in lines if not self.chatter(line)]
                del messages[:-LAST_LINES]
        if rest:
            messages.append(rest)

    def chatter(self, line: bytes) -> bool:
        """Return whether a line of standard error is only about making the link."""
        return False

    def read(self, timeout: float) -> bytes:
        """Return the received bytes, see ByteStream.read."""
        try:
            data = self._received.get(timeout=max(timeout, 0.0))
        except queue.Empty:
            return b""
        if not data:
            raise self._ended()
        return data

    def write(self, data: bytes) -> None:
        """Write all of the data, see ByteStream.write."""
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            view = memoryview(data)
            # An unbuffered pipe may take a part of the data only.
            while view:
                written = self._process.stdin.write(view) or 0
                view = view[written:]
        except (OSError, ValueError):
            raise self._ended() from None

    def _ended(self) -> DeviceError | InputError:
        """Return the error of a program that has ended."""
        status = None
        if self._process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                # The streams may end a little before the process does.
                status = self._process.wait(5)
        for reader in self._readers:
            reader.join(1)
        text = b"\n".join(self._messages).decode(errors="replace")
        return self.explain(status, text.strip())

    def explain(self, status: int | None, output: str) -> DeviceError | InputError:
        """Return why the program ended, as an error with a hint.

        `output` is the end of its standard error.
        """
        last = output.splitlines()[-1] if output else f"status {status}"
        if status == 127 or "command not found" in output:
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
        """End the program, see ByteStream.close."""
        process = self._process
        self._process = None
        if process is None:
            return
        # The end of its input tells the device end to finish by itself.
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        # At a SIGTERM, it first ends the program that it runs.
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
