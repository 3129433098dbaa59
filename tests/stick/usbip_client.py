"""A client of USB/IP that tests what the stick answers, one transfer at a time."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.waiting import LIMIT_S

STALLED, TAKEN_BACK = -32, -104
SCU_CTRL_3, TILE_CONFIG, OUTFEED_CHUNK, DESCRIPTORS = 0x1A318, 0x48788, 0x4C058, 0x4C148
_SCALAR_ENGINES = (0x44018, 0x44158, 0x44198, 0x441D8, 0x44218)
_TILE_ENGINES = (0x400C0, 0x40110, 0x40150, 0x40190, 0x401D0, 0x40210)
_MESH = (0x40250, 0x40298, 0x402E0, 0x40328)
ENGINES = (*_SCALAR_ENGINES, *_TILE_ENGINES, *_MESH)


@dataclass(frozen=True)
class Listed:
    """A device in a server's list."""

    busid: str
    speed: int
    ids: tuple[int, int]


class GoneError(Exception):
    """The connection has ended: the device is gone."""


class RefusedError(Exception):
    """The import is refused, with this status."""


def listed(path: Path | int) -> list[Listed]:
    """The devices of a server at a Unix socket, or at a TCP port of this machine."""
    with _connected(path) as s:
        s.sendall(struct.pack(">HHI", 0x0111, 0x8005, 0))
        version, code, status, count = struct.unpack(">HHII", _received(s, 12))
        assert (version, code, status) == (0x0111, 5, 0)
        found = []
        for _ in range(count):
            data = _received(s, 312)
            _received(s, 4 * data[311])
            speed, vendor, product = struct.unpack_from(">IHH", data, 296)
            busid = data[256:288].rstrip(b"\0").decode()
            found.append(Listed(busid, speed, (vendor, product)))
        return found


def awaited(path: Path, ids: tuple[int, int]) -> Listed:
    """The device, when it is there under these numbers."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        for device in listed(path):
            if device.ids == ids:
                return device
        time.sleep(0.01)
    raise AssertionError(f"{ids[0]:04x}:{ids[1]:04x} does not come")


class Client:
    """An imported device."""

    def __init__(self, path: Path, busid: str = "1-1") -> None:
        self._socket = _connected(path)
        self._socket.sendall(
            struct.pack(">HHI32s", 0x0111, 0x8003, 0, busid.encode()),
        )
        _, code, status = struct.unpack(">HHI", _received(self._socket, 8))
        assert code == 3
        if status:
            self._socket.close()
            raise RefusedError(status)
        _received(self._socket, 312)
        self._number = 0
        self._ended: dict[int, tuple[int, bytes]] = {}
        self._inwards: dict[int, bool] = {}

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def begin(
        self,
        endpoint: int,
        data: bytes | int,
        setup: bytes = b"",
        inwards: bool = False,
    ) -> int:
        """Begin a transfer: bytes outwards, or the most bytes inwards."""
        inwards = inwards or isinstance(data, int)
        length = data if isinstance(data, int) else len(data)
        self._number += 1
        self._inwards[self._number] = inwards
        head = (1, self._number, 1, int(inwards), endpoint, 0, length, 0, 0, 0)
        message = struct.pack(">10I8s", *head, setup)
        try:
            self._socket.sendall(message + (b"" if isinstance(data, int) else data))
        except (BrokenPipeError, ConnectionResetError) as e:
            raise GoneError from e
        return self._number

    def end(self, number: int, limit_s: float = LIMIT_S) -> tuple[int, bytes]:
        """The status and bytes of a transfer; TimeoutError where it does not end."""
        stop = time.monotonic() + limit_s
        while number not in self._ended:
            self._socket.settimeout(max(0.001, stop - time.monotonic()))
            self._read()
        return self._ended.pop(number)

    def take_back(self, number: int) -> int:
        """Take a transfer back; the status of that."""
        self._number += 1
        mine = self._number
        self._inwards[mine] = False
        message = struct.pack(">6I24x", 2, mine, 1, 0, 0, number)
        self._socket.sendall(message)
        return self.end(mine)[0]

    def control(
        self, kind: int, request: int, value: int, index: int, data: bytes | int = b""
    ) -> bytes | None:
        """A control transfer; None where it stalls."""
        length = data if isinstance(data, int) else len(data)
        setup = struct.pack("<BBHHH", kind, request, value, index, length)
        given: bytes | int = data if kind & 0x80 else (data or b"")
        status, made = self.end(self.begin(0, given, setup))
        assert status in (0, STALLED)
        return made if status == 0 else None

    def read(self, address: int, size: int = 8) -> int:
        """A register."""
        request = {8: 0, 4: 1}[size]
        made = self.control(0xC0, request, address & 0xFFFF, address >> 16, size)
        assert made is not None
        return int.from_bytes(made, "little")

    def write(self, address: int, value: int, size: int = 8) -> None:
        """Write a register."""
        request = {8: 0, 4: 1}[size]
        data = value.to_bytes(size, "little")
        made = self.control(0x40, request, address & 0xFFFF, address >> 16, data)
        assert made is not None

    def open_chip(self) -> None:
        """What a driver does before the first program, as far as the stick minds."""
        self.write(SCU_CTRL_3, 3 << 22, 4)
        assert self.read(SCU_CTRL_3, 4) >> 8 & 3 == 2
        self.write(SCU_CTRL_3, 2 << 22, 4)
        assert self.read(SCU_CTRL_3, 4) >> 8 & 3 == 0
        self.write(TILE_CONFIG, 0x7F)
        assert self.read(TILE_CONFIG) == 0x7F
        self.write(DESCRIPTORS, 0xF0)
        self.write(OUTFEED_CHUNK, 0x80)
        for address in ENGINES:
            self.write(address, 1)

    def send(self, tag: int, data: bytes) -> None:
        """Send a packet, and wait until the stick has it."""
        for part in (struct.pack("<IBxxx", len(data), tag), data):
            assert self.end(self.begin(1, part))[0] == 0

    def receive(self, endpoint: int, size: int, limit_s: float = LIMIT_S) -> bytes:
        """What a bulk transfer inwards brings."""
        status, data = self.end(self.begin(endpoint, size), limit_s)
        assert status == 0
        return data

    def reset(self) -> None:
        """Reset the port."""
        self.control(0x23, 3, 4, 1)

    def _read(self) -> None:
        head = _received(self._socket, 48)
        command, number = struct.unpack_from(">II", head)
        status, actual = struct.unpack_from(">iI", head, 20)
        data = b""
        if command == 3 and self._inwards[number]:
            data = _received(self._socket, actual)
        self._ended[number] = (status, data)


def _connected(path: Path | int) -> socket.socket:
    if isinstance(path, int):
        return socket.create_connection(("127.0.0.1", path), LIMIT_S)
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(LIMIT_S)
    s.connect(str(path))
    return s


def _received(s: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            part = s.recv(size - len(data))
        except ConnectionResetError as e:
            raise GoneError from e
        if not part:
            raise GoneError
        data += part
    return data
