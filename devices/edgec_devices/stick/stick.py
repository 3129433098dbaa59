"""Serves one stick at a socket, by USB/IP.

    with Stick.serve(folder) as stick:
        ... a client of USB/IP at stick.path ...

The stick lives in a thread of its own; what it computes is computed beside it, so that
registers answer meanwhile.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from edgec_devices.stick import descriptors, wire
from edgec_devices.stick.descriptors import BOOT, FIRMWARE, Port
from edgec_devices.stick.device import Device, Urb, carry_out
from edgec_devices.stick.faults import Fault, FaultPlan, Phase
from edgec_devices.stick.programs import ProgramBook
from edgec_devices.stick.rates import Rates
from edgec_devices.stick.sources import read_folder

BUSID = "1-1"
"""The stick's name at its server: bus 1, port 1."""


@dataclass(frozen=True)
class StickOptions:
    """How a stick is.

    Attributes:
        super_speed: whether its port is one of USB 3
        rates: how fast bytes cross the USB; None for at once
        firmware: whether the firmware runs already, so that it is 18d1:9302 at once
        tcp: the port of a TCP socket on this machine at which it is served too, as USB/IP
            is by custom at 3240; 0 for any that is free, None for none
        enumeration_s: how long it is away at a reset that changes its numbers
        faults: what goes wrong
    """

    super_speed: bool = True
    rates: Rates | None = None
    firmware: bool = False
    tcp: int | None = None
    enumeration_s: float = 0.05
    faults: tuple[Fault, ...] = ()


@dataclass
class _State:
    """What changes while a stick is served."""

    device: Device | None = None
    address: int = 1
    client: _Client | None = None
    comeback: asyncio.TimerHandle | None = None
    lines: list[str] = field(default_factory=list)


class Stick:
    """A stick that is being served.

    Attributes:
        path: the socket
        port: that of TCP; 0 without
    """

    def __init__(self, path: Path, book: ProgramBook, options: StickOptions) -> None:
        """Prepare a stick; `serve` starts it."""
        self.path = path
        self.port = 0
        self._book = book
        self._options = options
        self._port = Port(options.super_speed, options.rates)
        self._faults = FaultPlan(options.faults, self.log)
        self._state = _State()
        self._workers = ThreadPoolExecutor(1)
        self._loop = asyncio.new_event_loop()

    @classmethod
    @contextmanager
    def serve(
        cls,
        folder: Path | ProgramBook,
        options: StickOptions | None = None,
    ) -> Iterator[Stick]:
        """Serve a stick until the end of the block.

        folder: of compiled files with their index (sources.read_folder), or the programs
        that the stick knows
        """
        book = folder if isinstance(folder, ProgramBook) else read_folder(folder)
        with tempfile.TemporaryDirectory(prefix="edgec-stick-") as name:
            stick = cls(Path(name) / "usb", book, options or StickOptions())
            started = threading.Event()
            thread = threading.Thread(target=stick._work, args=(started,), daemon=True)
            thread.start()
            started.wait()
            try:
                yield stick
            finally:
                stick._loop.call_soon_threadsafe(stick._loop.stop)
                thread.join()
                stick._workers.shutdown()

    @property
    def lines(self) -> list[str]:
        """Return the log so far: registers, packets, events, and what went wrong."""
        return list(self._state.lines)

    def plan(self, faults: Iterable[Fault]) -> None:
        """Let more go wrong from now."""
        for fault in faults:
            self._faults.add(fault)

    def unplug(self, absence_s: float | None = 0.2) -> None:
        """Pull the stick out now, and put it in again; None: leave it out."""
        self._loop.call_soon_threadsafe(self.enumerate_as, BOOT, absence_s)

    def replug(self) -> None:
        """Put a stick in that is out, or out and in again."""
        self._loop.call_soon_threadsafe(self.enumerate_as, BOOT, 0.0)

    def log(self, line: str) -> None:
        """Add a line to the stick's log."""
        self._state.lines.append(line)

    def defer(self, work: Callable[[], object], then: Callable[[], None]) -> None:
        """Do work in another thread, and continue in the stick's when it has ended."""

        def both() -> None:
            try:
                work()
            except Exception as e:
                # Without an answer the host waits for ever, which nobody could explain.
                self.log(f"cannot compute: {type(e).__name__}: {e}")
                raise
            self._loop.call_soon_threadsafe(self._went_on, then)

        self._workers.submit(both)

    def later(self, delay_s: float, then: Callable[[], None]) -> None:
        """Call a function after some seconds, and end the transfers that can end then."""
        self._loop.call_later(delay_s, self._went_on, then)

    def _went_on(self, then: Callable[[], None]) -> None:
        """Call a function, and end the transfers that can end after it."""
        then()
        if self._state.device is not None:
            self._state.device.pump()

    def fault(self, fault: Fault) -> None:
        """Carry out a fault of the whole stick."""
        if self._state.device is not None:
            carry_out(self._state.device, self, fault)

    def enumerate_as(self, ids: tuple[int, int], absence_s: float | None) -> None:
        """Let the device go, and come back under these numbers after some seconds."""
        state = self._state
        state.device = None
        if state.client is not None:
            state.client.close()
        if state.comeback is not None:
            state.comeback.cancel()
            state.comeback = None
        self.log("gone")
        if absence_s is not None:
            delay = absence_s or self._options.enumeration_s
            state.comeback = self._loop.call_later(delay, self._appear, ids)

    def description(self) -> wire.Description | None:
        """Return what a host learns before an import; None while the stick is away."""
        device = self._state.device
        if device is None:
            return None
        head = descriptors.device(self._port, device.ids)
        return wire.Description(
            busid=BUSID,
            bus=1,
            address=self._state.address,
            speed=self._port.speed,
            vendor=device.ids[0],
            product=device.ids[1],
            release=0x0100,
            device_class=(head[4], head[5], head[6]),
            configuration=1,
            interfaces=descriptors.interfaces(device.ids),
        )

    def take(self, client: _Client) -> tuple[Device | None, int]:
        """Give the device to a client; return it, or None and the status of a refusal."""
        state = self._state
        fault = self._faults.due(Phase.IMPORT)
        if fault is not None:
            self.fault(fault)
        if state.device is None:
            return None, wire.NOT_THERE
        if state.client is not None:
            self.log("refuses a second client")
            return None, wire.BUSY
        state.client = client
        return state.device, 0

    def release(self, client: _Client) -> None:
        """Take the device back from a client."""
        if self._state.client is client:
            self._state.client = None

    def _work(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._appear(FIRMWARE if self._options.firmware else BOOT)
        servers = self._loop.run_until_complete(self._listen())
        started.set()
        self._loop.run_forever()
        if self._state.client is not None:
            self._state.client.close()
        for server in servers:
            server.close()
            self._loop.run_until_complete(server.wait_closed())
        self._loop.close()

    async def _listen(self) -> list[asyncio.Server]:
        """Return the servers at the sockets."""
        loop, tcp = self._loop, self._options.tcp
        servers = [await loop.create_unix_server(lambda: _Client(self), str(self.path))]
        if tcp is not None:
            server = await loop.create_server(lambda: _Client(self), "127.0.0.1", tcp)
            self.port = server.sockets[0].getsockname()[1]
            servers.append(server)
        return servers

    def _appear(self, ids: tuple[int, int]) -> None:
        self._state.address += 1
        self.log(f"appears as {ids[0]:04x}:{ids[1]:04x}")
        self._state.device = Device(ids, self._port, self._book, self._faults, self)


class _Client(asyncio.Protocol):
    """One connection: a list of devices, or an import and the transfers after it."""

    def __init__(self, stick: Stick) -> None:
        self._stick = stick
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._device: Device | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._stick.release(self)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while self._transport is not None and self._message():
            pass

    def close(self) -> None:
        """End the connection: the device is gone."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        self._device = None
        self._stick.release(self)

    def _message(self) -> bool:
        """Handle the first message of the received bytes; return whether it is complete."""
        return self._operation() if self._device is None else self._transfer()

    def _operation(self) -> bool:
        if len(self._data) < wire.OP_BYTES:
            return False
        _, code = wire.read_op(self._data[: wire.OP_BYTES])
        if code == wire.DEVLIST_REQUEST:
            self._cut(wire.OP_BYTES)
            here = self._stick.description()
            self._write(wire.devlist_reply([] if here is None else [here]))
            return True
        if code != wire.IMPORT_REQUEST:
            self.close()
            return False
        if len(self._data) < wire.OP_BYTES + wire.BUSID_BYTES:
            return False
        busid = self._cut(wire.OP_BYTES + wire.BUSID_BYTES)[wire.OP_BYTES :]
        known = busid.rstrip(b"\0").decode(errors="replace") == BUSID
        device, status = self._stick.take(self) if known else (None, wire.NOT_THERE)
        self._device = device
        self._write(wire.import_reply(self._stick.description(), status))
        return True

    def _transfer(self) -> bool:
        device = self._device
        if device is None or len(self._data) < wire.URB_BYTES:
            return False
        try:
            message = wire.read_message(bytes(self._data[: wire.URB_BYTES]))
        except ValueError as e:
            self._stick.log(f"refuses a client: {e}")
            self.close()
            return False
        if isinstance(message, wire.Unlink):
            self._cut(wire.URB_BYTES)
            status = wire.TAKEN_BACK if device.unlink(message.submit) else 0
            self._write(wire.unlink_reply(message.number, status))
            return True
        size = wire.URB_BYTES + (0 if message.inwards else message.length)
        if len(self._data) < size:
            return False
        data = self._cut(size)[wire.URB_BYTES :]

        def reply(status: int, actual: int, inwards: bytes) -> None:
            self._write(wire.submit_reply(message.number, status, actual, inwards))

        device.submit(Urb(message, data, reply))
        return True

    def _cut(self, size: int) -> bytes:
        data = bytes(self._data[:size])
        del self._data[:size]
        return data

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
