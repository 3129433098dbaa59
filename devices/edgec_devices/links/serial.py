"""serial:///dev/ttyUSB0?baud=115200 reaches a console over USB gadget or UART.

The console's first text decides: a login prompt gets user and password
(EDGEC_SERIAL_USER, EDGEC_SERIAL_PASSWORD, or asked), a shell gets one line of Python
that receives the device end in lines with checksums. A device end that a killed host
left running answers the greeting instead.
"""

from __future__ import annotations

import base64
import contextlib
import getpass
import hashlib
import os
import re
import select
import time
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from edgec_runtime import DeviceError, EdgecError, InputError, ToolError
from edgec_runtime.device_end.wire import FROM_DEVICE, Decoder
from edgec_runtime.errors import did_you_mean

from edgec_devices.device import Device
from edgec_devices.remote import Remote
from edgec_devices.stream import HOME, NO_PYTHON, ByteStream, LinkLost, device_end

USAGE = "serial:///dev/ttyUSB0?baud=115200"
BAUD = 115200
PYTHON = "python3"
LINE = 192
"""Bytes of the device end in a line."""
LINES_AHEAD = 8
"""Lines that are sent before the first is acknowledged."""
QUIET_S = 2.0
"""Time in which a console answers a key, s."""
# ^U deletes the text typed so far, in a shell and at a login prompt.
FORGET = b"\x15"

_LOGIN = re.compile(r"(?<!Last )login: *")
_PASSWORD = re.compile(r"[Pp]assword: *")
_INCORRECT = re.compile(r"[Ii]ncorrect|[Aa]ccess denied|failure")
_AFTER_LOGIN = re.compile(rf"{_INCORRECT.pattern}|{_LOGIN.pattern}|[$#>%] *$")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\^U")  # and the echo of FORGET
_NOT_FOUND = re.compile(r"not found|No such file")
_TAKEN = re.compile(r"#(\d+)!")

# The program in the one line of Python. The console is raw from here on, and restored at
# the end or if nothing comes for a minute. A line is #number:base64:crc32; text that the
# console mixes in has no checksum.
LOADER = """
import base64, hashlib, os, signal, sys, termios, tty, zlib
before = termios.tcgetattr(0)
parts, rest = {}, b""
signal.signal(signal.SIGALRM, lambda *_: sys.exit(1))
try:
    tty.setraw(0)
    os.write(1, b"edgec-" + b"ready#")
    while len(parts) < COUNT:
        signal.alarm(60)
        data = os.read(0, 4096)
        if not data: sys.exit(1)
        *lines, rest = (rest + data).split(b";")
        for line in lines:
            try:
                number, text, check = line.split(b"#")[-1].split(b":")
                text = base64.b64decode(text)
                if zlib.crc32(text) == int(check):
                    parts[int(number)] = text
                    os.write(1, b"#%d!" % int(number))
            except ValueError: pass
    signal.alarm(0)
    source = b"".join(parts[i] for i in range(COUNT))
    if hashlib.sha256(source).hexdigest() == "SHA256":
        exec(zlib.decompress(source), {"__name__": "__main__"})
finally:
    termios.tcsetattr(0, termios.TCSADRAIN, before)
"""


def open_device(rest: str) -> Device:
    """Open ///dev/ttyUSB0?baud=115200."""
    return Remote(lambda: open_stream(rest))


def open_stream(rest: str, ask: bool = False) -> ByteStream:
    """Return a stream that is not opened yet; raises InputError for a wrong URL."""
    url = f"serial:{rest}"
    parts = urlsplit(url)
    port = parts.netloc + parts.path
    options = parse_qs(parts.query, keep_blank_values=True)
    for name in options:
        if name != "baud":
            raise InputError(
                f'"{name}" is not an option of a serial link{did_you_mean(name, ["baud"])}',
                at=url,
                hint=USAGE,
            )
    text = options.get("baud", [str(BAUD)])[-1]
    if not port or not text.isdecimal() or not 50 <= int(text) <= 4_000_000:
        message = f'"{text}" is not a speed' if port else "which serial port?"
        raise InputError(message, at=url, hint=f"for example {USAGE}")
    return SerialStream(url, port, int(text), ask)


class SerialStream(ByteStream):
    """A serial port with a console at its other end."""

    chunk = 1024
    window = 8

    def __init__(self, url: str, port: str, baud: int, ask: bool = False) -> None:
        self.url = url
        self._name = port
        self._baud = baud
        self._ask = ask
        # A byte takes ten bits on the line: a start bit, eight of data and a stop bit.
        self.rate = baud / 10
        self.silence_hint = (
            f"check the wiring, the speed ({baud} baud) and that the device has a "
            "console on it: "
            "systemctl status 'serial-getty@*'"
        )
        self._port: Any = None
        self._logged_in = False
        self.supposed = False

    # ---- bytes

    def _open(self) -> None:
        """Open the port."""
        import serial

        # Another package of the package index is called serial too.
        if not hasattr(serial, "Serial"):
            hint = "pip uninstall serial; pip install --force-reinstall pyserial"
            raise ToolError(
                'the installed Python package "serial" is not pyserial', hint=hint
            )
        try:
            self._port = serial.Serial(
                self._name, self._baud, timeout=0, write_timeout=10, exclusive=True
            )
        except (OSError, ValueError) as e:
            raise self._cannot_open(e) from e

    def _cannot_open(self, error: Exception) -> EdgecError:
        """Return the error of a port that cannot be opened, by its errno."""
        number = getattr(error, "errno", None)
        if isinstance(error, FileNotFoundError) or number == 2:
            return InputError(
                f"there is no serial port {self._name}", at=self.url, hint=_ports_hint()
            )
        if number == 13:
            hint = "sudo usermod -aG dialout $USER, then log in again"
            return InputError(f"you may not open {self._name}", at=self.url, hint=hint)
        if number in (11, 16):
            hint = "close the terminal program that has it open"
            return DeviceError(f"{self._name} is in use", at=self.url, hint=hint)
        return InputError(
            f"cannot open {self._name}: {error}", at=self.url, hint=_ports_hint()
        )

    def read(self, timeout: float) -> bytes:
        """Return the received bytes, see ByteStream.read."""
        end = time.monotonic() + timeout
        try:
            if os.name == "posix":
                if not select.select([self._port], [], [], max(timeout, 0.0))[0]:
                    return b""
            else:  # pragma: no cover
                while not self._port.in_waiting and time.monotonic() < end:
                    time.sleep(0.002)
            data: bytes = self._port.read(1 << 16)
        except OSError as e:
            raise LinkLost(
                f"the serial port is gone: {e}",
                at=self.url,
                hint="plug it in and try again",
            ) from e
        return data

    def write(self, data: bytes) -> None:
        """Write all of the data, see ByteStream.write."""
        try:
            self._port.write(data)
        except OSError as e:
            raise LinkLost(
                f"the serial port takes no more: {e}",
                at=self.url,
                hint="check the cable",
            ) from e

    def close(self) -> None:
        """Log out after a login, and close the port."""
        if self._port is None:
            return
        with contextlib.suppress(EdgecError, OSError):
            if self._logged_in:
                # A shell discards text that comes before its prompt.
                self._wait(lambda text: text.strip() != "", QUIET_S)
                self.write(b"exit\r")
                self._port.flush()
        self._logged_in = False
        with contextlib.suppress(OSError):
            self._port.close()
        self._port = None

    # ---- the console

    def start(self, again: bool = False) -> None:
        """Log in if needed, and start the device end."""
        if self._port is None:
            self._open()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        self.supposed = False
        for _ in range(4):
            self.write(FORGET + b"\r")
            text = self._wait(_asks, QUIET_S)
            if text is None or not text.strip():
                # A device end sends frames or, silent, skips other text: the greeting
                # will tell. It may also be a device end that is about to end, or a slow
                # console.
                self.supposed = True
                return
            if _LOGIN.search(text):
                self._log_in()
            elif _PASSWORD.search(text):
                # Somebody's unfinished login: an empty password ends it.
                continue
            if self._is_shell():
                self._load()
                return
        hint = (
            "log in by hand once, for example with: screen "
            + f"{self._name} {self._baud}"
        )
        raise DeviceError(
            "the console answers, but not as a shell", at=self.url, hint=hint
        )

    def _wait(self, enough: Callable[[str], bool], seconds: float) -> str | None:
        """Return the console's text when it is enough, or after some seconds.

        It is None if a device end sends frames.
        """
        text = b""
        end = time.monotonic() + seconds
        frames = Decoder()
        while (left := end - time.monotonic()) > 0:
            data = self.read(left)
            if any(f.kind & FROM_DEVICE for f in frames.feed(data)):
                return None
            text += data
            if enough(_plain(text)):
                break
        return _plain(text)

    def _log_in(self) -> None:
        """Answer a login prompt."""
        user = self._secret("EDGEC_SERIAL_USER", "user", input)
        password = self._secret("EDGEC_SERIAL_PASSWORD", "password", getpass.getpass)
        self._settle()
        self.write(user.encode() + b"\r")
        text = self._wait(lambda t: bool(_PASSWORD.search(t)), self.timeout) or ""
        if _PASSWORD.search(text):
            self._settle()
            self.write(password.encode() + b"\r")
            text = (
                self._wait(lambda t: bool(_AFTER_LOGIN.search(t)), self.timeout) or ""
            )
            if _INCORRECT.search(text) or _LOGIN.search(text):
                hint = "set EDGEC_SERIAL_USER and EDGEC_SERIAL_PASSWORD"
                raise InputError(
                    f'the console refuses user "{user}" or the password',
                    at=self.url,
                    hint=hint,
                )
        self._logged_in = True

    def _secret(self, variable: str, what: str, ask: Callable[[str], str]) -> str:
        """Return user or password from a variable, or by asking a person."""
        if variable in os.environ:
            return os.environ[variable]
        if self._ask:
            return ask(f"{what} for {self.url}: ")
        raise InputError(
            f"the console wants a {what}",
            at=self.url,
            hint="set EDGEC_SERIAL_USER and EDGEC_SERIAL_PASSWORD",
        )

    def _settle(self) -> None:
        """Wait until the console is silent.

        login and shells discard text that was typed before they ask.
        """
        end = time.monotonic() + self.timeout
        while self.read(0.3) and time.monotonic() < end:
            pass

    def _interrupt(self) -> None:
        """Send ^C, which discards an unfinished line."""
        self.write(b"\x03")
        self._settle()

    def _is_shell(self) -> bool:
        """Return whether the console executes a command."""
        for _ in range(3):
            self._interrupt()
            # The quotes tell the command's output from its echo, and the space before
            # it keeps it out of many shells' history.
            self.write(b" echo 'edgec''-shell'\r")
            said = (
                self._wait(
                    lambda text: "edgec-shell" in text or _asks(text), self.timeout / 2
                )
                or ""
            )
            if "edgec-shell" in said:
                return True
            # The first words were a login prompt's.
            if _asks(said):
                return False
        return False

    def _load(self) -> None:
        """Start the loader in the shell, and send the device end to it."""
        packed = zlib.compress(device_end()[0], 9)
        pieces = [packed[i : i + LINE] for i in range(0, len(packed), LINE)]
        sha = hashlib.sha256(packed).hexdigest()
        loader = LOADER.replace("COUNT", str(len(pieces))).replace("SHA256", sha)
        encoded = base64.b64encode(zlib.compress(loader.encode(), 9)).decode()
        code = (
            f"{HOME}import base64,zlib;"
            f"exec(zlib.decompress(base64.b64decode('{encoded}')))"
        )
        for _ in range(3):
            self.write(f' {PYTHON} -S -u -c "{code}"\r'.encode())
            text = (
                self._wait(
                    lambda t: "edgec-ready#" in t or bool(_NOT_FOUND.search(t)),
                    self.timeout,
                )
                or ""
            )
            if "edgec-ready#" in text:
                self._send_lines(pieces)
                return
            if _NOT_FOUND.search(text):
                raise DeviceError(
                    "there is no python3 on the device", at=self.url, hint=NO_PYTHON
                )
            self._interrupt()
        raise DeviceError(
            "Python does not start on the device",
            at=self.url,
            hint="try there: python3 --version",
        )

    def _send_lines(self, pieces: list[bytes]) -> None:
        """Send the device end; a line is sent again until it is acknowledged."""
        lines = [
            b"#%d:%s:%d;" % (i, base64.b64encode(p), zlib.crc32(p))
            for i, p in enumerate(pieces)
        ]
        # The time at which each line is sent (again).
        due = dict.fromkeys(range(len(lines)), 0.0)
        heard = time.monotonic()
        text = b""
        while due:
            now = time.monotonic()
            for i in list(due)[:LINES_AHEAD]:
                if due[i] <= now:
                    self.write(lines[i])
                    # Twice the time for all lines ahead, and half a second for the
                    # device itself.
                    due[i] = now + 0.5 + 2 * LINES_AHEAD * len(lines[i]) / self.rate
            data = self.read(0.1)
            # Some text is kept, since an acknowledgement may come in two parts.
            text = (text + data)[-4096:]
            for match in _TAKEN.finditer(_plain(text)):
                if due.pop(int(match[1]), None) is not None:
                    heard = now
            if now - heard > self.timeout:
                raise LinkLost(
                    "the device confirmed nothing while edgec's program was sent to it",
                    at=self.url,
                    hint=self.silence_hint,
                )


def _asks(text: str) -> bool:
    """Return whether the console asks for a user or a password."""
    return bool(_LOGIN.search(text) or _PASSWORD.search(text))


def _plain(data: bytes) -> str:
    """Return text without control sequences of a terminal."""
    return _ANSI.sub("", data.decode(errors="replace"))


def _ports_hint() -> str:
    """Return a hint with the ports of this machine."""
    from serial.tools.list_ports import comports

    ports = [port.device for port in comports()]
    if ports:
        urls = " or ".join(f"serial://{port}" for port in ports[:4])
        return f"use {urls}"
    return "plug the cable in; none is there now"
