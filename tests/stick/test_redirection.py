"""A stick plugged into QEMU by the USB redirection protocol."""

from __future__ import annotations

import re
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from edgec_devices.stick import Stick, StickOptions
from edgec_devices.stick import redirection as messages
from edgec_devices.stick.descriptors import BOOT, FIRMWARE
from edgec_devices.stick.programs import ProgramBook
from edgec_devices.stick.redirection import redirected

from tests.stick.small_programs import OUT_BYTES, SmallProgram
from tests.stick.test_stick import DATA, EVENT
from tests.stick.usbip_client import ENGINES
from tests.waiting import LIMIT_S

PROGRAM = SmallProgram(3)
CAPABILITIES = 0b111_1010
QUIET_S = 0.15


class Guest:
    """QEMU's end of the protocol."""

    def __init__(self, path: Path, capabilities: int = CAPABILITIES) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(LIMIT_S)
        self._socket.connect(str(path))
        hello = b"test".ljust(64, b"\0") + struct.pack("<I", capabilities)
        self._socket.sendall(struct.pack("<III", messages.HELLO, len(hello), 0) + hello)
        kind, length, _ = struct.unpack("<III", self._received(12))
        assert kind == messages.HELLO
        assert self._received(length)[64] == CAPABILITIES

    def send(self, kind: int, data: bytes = b"", number: int = 0) -> None:
        """Send a message."""
        self._socket.sendall(struct.pack("<IIQ", kind, len(data), number) + data)

    def receive(self) -> tuple[int, int, bytes]:
        """The next message: kind, number, data."""
        kind, length, number = struct.unpack("<IIQ", self._received(16))
        return kind, number, self._received(length)

    def plugged(self) -> tuple[int, int]:
        """The numbers of the device that is connected next."""
        kind = data = None
        while kind != messages.CONNECT:
            kind, _, data = self.receive()
        assert data is not None
        vendor, product = struct.unpack_from("<HH", data, 4)
        return vendor, product

    def control(
        self, kind: int, request: int, value: int, index: int, data: bytes | int
    ) -> tuple[int, bytes]:
        """Status and bytes of a control transfer."""
        inwards = bool(kind & 0x80)
        length = data if isinstance(data, int) else len(data)
        head = struct.pack(
            "<BBBBHHH", kind & 0x80, request, kind, 0, value, index, length
        )
        self.send(messages.CONTROL, head + (b"" if isinstance(data, int) else data), 77)
        answer, number, made = self.receive()
        assert (answer, number) == (messages.CONTROL, 77)
        assert inwards or len(made) == 10
        return made[3], made[10:]

    def bulk(self, endpoint: int, data: bytes | int, number: int = 1) -> None:
        """Begin a bulk transfer."""
        length = data if isinstance(data, int) else len(data)
        head = struct.pack("<BBHIH", endpoint, 0, length & 0xFFFF, 0, length >> 16)
        self.send(
            messages.BULK, head + (b"" if isinstance(data, int) else data), number
        )

    def ended(self, number: int) -> tuple[int, bytes]:
        """Status and bytes of the bulk transfer that ends next."""
        kind, theirs, data = self.receive()
        assert (kind, theirs) == (messages.BULK, number)
        return data[1], data[10:]

    def write(self, address: int, value: int) -> None:
        """Write a register of 64 bits."""
        data = value.to_bytes(8, "little")
        status, _ = self.control(0x40, 0, address & 0xFFFF, address >> 16, data)
        assert status == messages.SUCCESS

    def close(self) -> None:
        """Go."""
        self._socket.close()

    def _received(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError
            data += part
        return data


@pytest.fixture
def plugged(tmp_path: Path) -> Iterator[tuple[Stick, Path]]:
    """A stick whose firmware runs, and the socket for QEMU."""
    book = ProgramBook()
    PROGRAM.add_to(book)
    path = tmp_path / "redirection"
    with (
        Stick.serve(book, StickOptions(firmware=True)) as stick,
        redirected(stick, path),
    ):
        yield stick, path


def test_a_call(plugged: tuple[Stick, Path]) -> None:
    """Registers, packets, an output and an event; what stalls; what is taken back."""
    _, path = plugged
    guest = Guest(path)
    assert guest.plugged() == FIRMWARE
    guest.send(messages.SET_CONFIGURATION, b"\1", 5)
    assert guest.receive() == (messages.CONFIGURATION, 5, b"\0\1")
    status, head = guest.control(0x80, 6, 1 << 8, 0, 18)
    assert status == messages.SUCCESS
    assert struct.unpack_from("<HH", head, 8) == FIRMWARE
    assert guest.control(0x80, 6, 99 << 8, 0, 18) == (messages.STALL, b"")
    for address in ENGINES:
        guest.write(address, 1)
    guest.write(0x4C148, 0xF0)
    packets = ((0, PROGRAM.caching), (2, PROGRAM.parameters))
    for tag, data in packets:
        guest.bulk(1, struct.pack("<IBxxx", len(data), tag) + data)
        assert guest.ended(1) == (messages.SUCCESS, b"")
    guest.bulk(0x82, 16, 2)
    assert guest.ended(2) == (messages.SUCCESS, EVENT)
    for tag, data in ((0, PROGRAM.executing), (1, DATA)):
        guest.bulk(1, struct.pack("<IBxxx", len(data), tag) + data)
        assert guest.ended(1) == (messages.SUCCESS, b"")
    guest.bulk(0x81, 100_000, 3)
    assert guest.ended(3) == (messages.SUCCESS, PROGRAM.output(DATA))
    assert len(PROGRAM.output(DATA)) == OUT_BYTES
    guest.bulk(0x81, 64, 4)
    time.sleep(QUIET_S)
    guest.send(messages.CANCEL, number=4)
    assert guest.ended(4) == (messages.CANCELLED, b"")
    guest.close()


def test_pulled_out(plugged: tuple[Stick, Path]) -> None:
    """The guest sees it go and come back in its boot loader."""
    stick, path = plugged
    guest = Guest(path)
    assert guest.plugged() == FIRMWARE
    guest.bulk(0x82, 16, 9)
    # An answer to what came after it: the transfer has begun.
    assert guest.control(0x80, 6, 1 << 8, 0, 18)[0] == messages.SUCCESS
    stick.unplug(0.05)
    seen = {guest.receive()[0] for _ in range(2)}
    assert seen == {messages.BULK, messages.DISCONNECT}
    guest.send(messages.DISCONNECTED)
    assert guest.plugged() == BOOT
    guest.close()


def test_one_guest_after_the_other(plugged: tuple[Stick, Path]) -> None:
    _, path = plugged
    for _ in range(2):
        guest = Guest(path)
        assert guest.plugged() == FIRMWARE
        guest.close()


def test_a_guest_that_lacks_something(plugged: tuple[Stick, Path]) -> None:
    stick, path = plugged
    guest = Guest(path, capabilities=0)
    with pytest.raises(ConnectionError):
        guest.receive()
    assert "refuses QEMU, whose capabilities are 0x0" in stick.lines


@pytest.mark.pi
@pytest.mark.parametrize("super_speed", [True, False])
def test_qemu(super_speed: bool, tmp_path: Path) -> None:
    """QEMU attaches the stick and notices when it is another device."""
    program = shutil.which("qemu-system-aarch64")
    assert program is not None
    path = tmp_path / "redirection"
    options = StickOptions(firmware=True, super_speed=super_speed)
    command = [
        *(program, "-M", "virt", "-cpu", "cortex-a53", "-nodefaults"),
        *("-display", "none", "-serial", "none", "-monitor", "none"),
        *("-device", "qemu-xhci", "-chardev", f"socket,id=stick,path={path}"),
        *("-device", "usb-redir,chardev=stick,debug=4"),
    ]
    seen = []
    with (
        Stick.serve(ProgramBook(), options) as stick,
        redirected(stick, path),
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as qemu,
    ):
        assert qemu.stderr is not None
        for line in qemu.stderr:
            found = re.search(r"attaching (\w+) speed device (\S+)", line)
            if found:
                seen.append(found.groups())
                if len(seen) == 2:
                    break
                stick.unplug(0.05)
        qemu.kill()
    speed = "super" if super_speed else "high"
    names = [f"{ids[0]:04x}:{ids[1]:04x}" for ids in (FIRMWARE, BOOT)]
    assert seen == [(speed, name) for name in names]
