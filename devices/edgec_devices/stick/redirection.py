"""Plugs a stick into QEMU: the USB device `usb-redir`, whose socket is served here.

    with Stick.serve(book) as stick, redirected(stick, socket):
        qemu-system-aarch64 … -device qemu-xhci -chardev socket,id=stick,path=SOCKET
            -device usb-redir,chardev=stick

Where QEMU listens instead (`-chardev socket,id=stick,path=SOCKET,server=on,wait=off`),
`plug_in` plugs the stick in, at any time.

The messages are those of the USB redirection protocol 0.7
(docs/usb-redirection-protocol.md of spice/usbredir). Numbers are little-endian.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from edgec_devices.stick import descriptors, wire
from edgec_devices.stick.stick import BUSID, Stick
from edgec_devices.stick.usbip_client import GoneError, Imported, imported

HELLO, CONNECT, DISCONNECT, RESET, INTERFACES, ENDPOINTS = range(6)
SET_CONFIGURATION, GET_CONFIGURATION, CONFIGURATION = range(6, 9)
SET_SETTING, GET_SETTING, SETTING = range(9, 12)
START_INTERRUPTS, STOP_INTERRUPTS, INTERRUPTS = range(15, 18)
CANCEL, DISCONNECTED = 21, 24
CONTROL, BULK, INTERRUPT = 100, 101, 103

SUCCESS, CANCELLED, FAILED, STALL = 0, 1, 3, 4
_VERSION = b"edgec"
_CAPABILITIES = 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6
"""The device's release at CONNECT, answers to DISCONNECT, sizes of packets, numbers of 64
bits, lengths of 32 bits. QEMU has them all, and the stick asks for all."""
_HELLO_HEAD = struct.Struct("<III")
_HEAD = struct.Struct("<IIQ")
_CONTROL = struct.Struct("<BBBBHHH")
_BULK = struct.Struct("<BBHIH")
_INTERRUPT = struct.Struct("<BBH")
_SUPER_SPEED, _HIGH_SPEED = 3, 2
_ABSENT = 255
_PLACES = 32
_INTERRUPT_TYPE = 3
_INTERRUPT_BYTES = 64
_STEP_S = 0.02
"""Between two looks whether the stick has come back."""
_STATUS = {0: SUCCESS, wire.TAKEN_BACK: CANCELLED, -32: STALL}


@dataclass(frozen=True)
class Message:
    """A message of the protocol.

    Attributes:
        kind: its type
        number: of a request and its answer
        data: the header of its type, and the bytes after it
    """

    kind: int
    number: int
    data: bytes


@contextmanager
def redirected(stick: Stick, path: Path) -> Iterator[None]:
    """Let one QEMU after the other use the stick at a socket, until the end of the block."""
    loop = asyncio.new_event_loop()
    started = threading.Event()

    async def serve() -> None:
        await asyncio.start_unix_server(partial(_work_for, stick), path)
        started.set()

    def work() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(serve())
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    started.wait()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def plug_in(stick: Stick, path: Path, ready: Callable[[], None]) -> None:
    """Be the stick of a QEMU that listens at a socket, until QEMU ends.

    ready: called when QEMU has taken the connection
    """

    async def work() -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        ready()
        await _work_for(stick, reader, writer)

    asyncio.run(work())


async def _work_for(
    stick: Stick, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Be the stick of the QEMU at a connection, until it ends."""
    try:
        await _Guest(stick, reader, writer).work()
    except (asyncio.IncompleteReadError, ConnectionError):
        stick.log("QEMU has gone")
    finally:
        writer.close()


class _Guest:
    """The stick's end of the connection to one QEMU, by QEMU's usb-redir protocol."""

    def __init__(
        self,
        stick: Stick,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._stick = stick
        self._reader = reader
        self._writer = writer
        self._device: Imported | None = None
        self._begun: dict[int, int] = {}
        self._listeners: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._answered = asyncio.Event()

    async def work(self) -> None:
        """Greet QEMU, and handle its messages until it closes the connection."""
        hello = _VERSION.ljust(64, b"\0") + struct.pack("<I", _CAPABILITIES)
        self._writer.write(_HELLO_HEAD.pack(HELLO, len(hello), 0) + hello)
        kind, length, _ = _HELLO_HEAD.unpack(
            await self._reader.readexactly(_HELLO_HEAD.size)
        )
        theirs = await self._reader.readexactly(length)
        capabilities = int.from_bytes(theirs[64:68], "little")
        if kind != HELLO or _CAPABILITIES & ~capabilities:
            self._stick.log(f"refuses QEMU, whose capabilities are {capabilities:#x}")
            return
        self._spawn(self._plug_in())
        try:
            while True:
                head = await self._reader.readexactly(_HEAD.size)
                kind, length, number = _HEAD.unpack(head)
                data = await self._reader.readexactly(length)
                self._handle(Message(kind, number, data))
        finally:
            for task in (*self._tasks, *self._listeners.values()):
                task.cancel()
            if self._device is not None:
                self._device.close()

    def _spawn(self, work: Coroutine[object, object, object]) -> None:
        """Do work beside, and keep it from being forgotten."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send(self, kind: int, data: bytes = b"", number: int = 0) -> None:
        self._writer.write(_HEAD.pack(kind, len(data), number) + data)

    async def _plug_in(self) -> None:
        """Connect the stick whenever it is there, and disconnect it when it goes.

        When nobody serves the stick any more, QEMU's connection is free for another.
        """
        while True:
            try:
                device = await imported(self._stick.path, BUSID)
            except OSError:
                self._writer.close()
                return
            if device is None:
                await asyncio.sleep(_STEP_S)
                continue
            try:
                await self._connect(device)
                await device.work
            except GoneError:
                pass
            self._device = None
            device.close()
            self._answered.clear()
            self._send(DISCONNECT)
            await self._answered.wait()

    async def _connect(self, device: Imported) -> None:
        head = await device.read(0x80, 6, descriptors.DEVICE << 8, 18)
        config = await device.read(0x80, 6, descriptors.CONFIGURATION << 8, 512)
        self._device = device
        self._tell_interfaces(config)
        super_speed = int.from_bytes(head[2:4], "little") >= 0x300
        speed = _SUPER_SPEED if super_speed else _HIGH_SPEED
        self._send(CONNECT, bytes((speed, *head[4:7])) + head[8:14])

    def _tell_interfaces(self, config: bytes) -> None:
        """Send the interfaces and endpoints of a configuration."""
        classes: list[bytes] = []
        kinds, intervals = bytearray([_ABSENT] * _PLACES), bytearray(_PLACES)
        packets = [0] * _PLACES
        kinds[0] = kinds[16] = 0
        at = 0
        while at < len(config):
            if config[at + 1] == descriptors.INTERFACE:
                classes.append(config[at + 5 : at + 8])
            elif config[at + 1] == descriptors.ENDPOINT:
                address = config[at + 2]
                place = (address & 15) + (16 if address & 0x80 else 0)
                kinds[place], intervals[place] = config[at + 3], config[at + 6]
                packets[place] = int.from_bytes(config[at + 4 : at + 6], "little")
            at += config[at]
        columns = [bytes(c[i] for c in classes).ljust(_PLACES, b"\0") for i in range(3)]
        numbers = bytes(range(len(classes))).ljust(_PLACES, b"\0")
        head = struct.pack("<I", len(classes))
        self._send(INTERFACES, head + numbers + b"".join(columns))
        sizes = struct.pack(f"<{_PLACES}H", *packets)
        self._send(ENDPOINTS, bytes(kinds + intervals) + bytes(_PLACES) + sizes)

    def _handle(self, message: Message) -> None:
        """Begin what the guest wants."""
        kind, number, data = message.kind, message.number, message.data
        if kind == DISCONNECTED:
            self._answered.set()
        elif kind == RESET:
            self._spawn(self._end(0, struct.pack("<BBHHH", 0x23, 3, 4, 1, 0)))
        elif kind == SET_CONFIGURATION:
            self._spawn(self._configure(number, data[0]))
        elif kind == GET_CONFIGURATION:
            self._send(CONFIGURATION, bytes((SUCCESS, 1)), number)
        elif kind in (SET_SETTING, GET_SETTING):
            self._send(SETTING, bytes((SUCCESS, data[0], 0)), number)
        elif kind == CANCEL:
            if self._device is not None and number in self._begun:
                self._device.take_back(self._begun[number])
        elif kind in (START_INTERRUPTS, STOP_INTERRUPTS):
            self._listen(kind == START_INTERRUPTS, data[0], number)
        elif kind == CONTROL:
            self._spawn(self._control(number, data))
        elif kind == BULK:
            self._spawn(self._bulk(number, data))

    async def _end(
        self, endpoint: int, setup: bytes, data: bytes | int = b"", number: int = -1
    ) -> tuple[int, bytes]:
        """Return the protocol's status of a transfer, and its bytes inwards."""
        if self._device is None:
            return FAILED, b""
        mine, ending = self._device.begin(endpoint, data, setup)
        self._begun[number] = mine
        try:
            status, made = await ending
        except GoneError:
            return FAILED, b""
        finally:
            self._begun.pop(number, None)
        return _STATUS.get(status, FAILED), made

    async def _configure(self, number: int, value: int) -> None:
        setup = struct.pack("<BBHHH", 0, 9, value, 0, 0)
        status, _ = await self._end(0, setup)
        self._send(CONFIGURATION, bytes((status, value)), number)

    async def _control(self, number: int, data: bytes) -> None:
        fields = _CONTROL.unpack_from(data)
        endpoint, request, kind, _, value, index, length = fields
        setup = struct.pack("<BBHHH", kind, request, value, index, length)
        inwards = bool(endpoint & 0x80)
        given = length if inwards else data[_CONTROL.size :]
        status, made = await self._end(endpoint & 0x80, setup, given, number)
        length = len(made) if inwards else length
        head = _CONTROL.pack(endpoint, request, kind, status, value, index, length)
        self._send(CONTROL, head + made, number)

    async def _bulk(self, number: int, data: bytes) -> None:
        endpoint, _, low, stream, high = _BULK.unpack_from(data)
        inwards = bool(endpoint & 0x80)
        length = high << 16 | low
        given = length if inwards else data[_BULK.size :]
        status, made = await self._end(endpoint, bytes(8), given, number)
        length = len(made) if inwards else length
        low, high = length & 0xFFFF, length >> 16
        self._send(BULK, _BULK.pack(endpoint, status, low, stream, high) + made, number)

    def _listen(self, start: bool, endpoint: int, number: int) -> None:
        """Begin or end to send what an interrupt endpoint gives."""
        task = self._listeners.pop(endpoint, None)
        if task is not None:
            task.cancel()
        if start:
            self._listeners[endpoint] = asyncio.create_task(self._interrupts(endpoint))
        self._send(INTERRUPTS, bytes((SUCCESS, endpoint)), number)

    async def _interrupts(self, endpoint: int) -> None:
        number = 0
        while self._device is not None:
            device = self._device
            mine, ending = device.begin(endpoint, _INTERRUPT_BYTES)
            try:
                status, made = await ending
            except GoneError:
                return
            except asyncio.CancelledError:
                device.take_back(mine)
                raise
            head = _INTERRUPT.pack(endpoint, _STATUS.get(status, FAILED), len(made))
            self._send(INTERRUPT, head + made, number)
            number += 1
