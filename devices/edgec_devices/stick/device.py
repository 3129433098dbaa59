"""The stick as a USB device: control requests, the queues of its endpoints, its states."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from edgec_devices.stick import boot_loader, descriptors
from edgec_devices.stick.boot_loader import BootLoader
from edgec_devices.stick.chip import Chip, Surroundings
from edgec_devices.stick.descriptors import BOOT, FIRMWARE, Port
from edgec_devices.stick.faults import Fault, FaultPlan, Phase, What
from edgec_devices.stick.programs import ProgramBook
from edgec_devices.stick.rates import Line
from edgec_devices.stick.registers import OUTFEED_CHUNK, AsleepError
from edgec_devices.stick.wire import Submit

STALLED = -32
"""EPIPE: the endpoint does not take the transfer."""
OVERFLOW = -75
"""EOVERFLOW: the device sends more than the host takes."""
_SETUP = struct.Struct("<BBHHH")
_RESET = (0x23, 3)
"""The request to a hub by which USB/IP carries a reset of the port."""
_DFU = (0x21, 0xA1)
_VENDOR_IN, _VENDOR_OUT = 0xC0, 0x40
_REGISTER_BYTES = {0: 8, 1: 4}
"""Bytes of a register by the request's number."""


class Plug(Surroundings, Protocol):
    """The calls of the device to the program that serves it."""

    def enumerate_as(self, ids: tuple[int, int], absence_s: float | None) -> None:
        """Let the device go, and come back under these numbers."""


@dataclass(frozen=True)
class Urb:
    """A transfer that has begun.

    Attributes:
        submit: what the host said
        data: the bytes outwards
        reply: ends it with a status, the number of bytes, and the bytes inwards
    """

    submit: Submit
    data: bytes
    reply: Callable[[int, int, bytes], None]


class Device:
    """One enumeration of the stick, from plugging in or a reset to the next.

    Attributes:
        ids: vendor and product
        hung: whether nothing answers any more
    """

    def __init__(
        self,
        ids: tuple[int, int],
        port: Port,
        book: ProgramBook,
        faults: FaultPlan,
        plug: Plug,
    ) -> None:
        """Begin without transfers."""
        self.ids = ids
        self.hung = False
        self._port = port
        self._faults = faults
        self._plug = plug
        self._loader = BootLoader(plug.log)
        self._chip = Chip(book, faults, plug)
        self._detached = False
        self._configuration = 0
        self._out: deque[Urb] = deque()
        self._in: dict[int, deque[Urb]] = {
            descriptors.BULK_IN: deque(),
            descriptors.EVENT_IN: deque(),
            descriptors.INTERRUPT_IN: deque(),
        }
        self._stuck: list[Urb] = []
        rates = port.rates
        self._line_out = Line(rates.outwards if rates else None, plug.later)
        self._line_in = Line(rates.inwards if rates else None, plug.later)

    def submit(self, urb: Urb) -> None:
        """Take a transfer."""
        address = urb.submit.endpoint | (0x80 if urb.submit.inwards else 0)
        if self.hung:
            self._stuck.append(urb)
            if _is_reset(urb.submit.setup) and urb.submit.endpoint == 0:
                self._plug.log(
                    "reset of a hung stick: it is gone until it is replugged"
                )
                self._plug.enumerate_as(BOOT, None)
        elif urb.submit.endpoint == 0:
            self._control(urb)
        elif self.ids != FIRMWARE:
            urb.reply(STALLED, 0, b"")
        elif address == descriptors.BULK_OUT:
            self._out.append(urb)
            self.pump()
        elif address in self._in:
            self._in[address].append(urb)
            self.pump()
        else:
            urb.reply(STALLED, 0, b"")

    def unlink(self, number: int) -> bool:
        """Take a transfer back; return whether it had not ended."""
        for queue in (self._out, *self._in.values(), self._stuck):
            for urb in queue:
                if urb.submit.number == number:
                    queue.remove(urb)
                    return True
        return False

    def hang(self, why: str) -> None:
        """Answer nothing any more."""
        self._plug.log(f"hangs: {why}")
        self.hung = True

    def pump(self) -> None:
        """End all transfers that can end."""
        while not self.hung and (self._serve_out() or self._serve_in()):
            pass

    def _serve_out(self) -> bool:
        if not self._out or self._line_out.busy or not self._chip.accepts:
            return False
        if self._chip.sends:
            self.hang(
                "a bulk transfer outwards begins before the host has taken an output"
            )
            return False
        urb = self._out[0]
        self._line_out.carry(len(urb.data), lambda: self._arrived(urb))
        return not self._line_out.busy

    def _arrived(self, urb: Urb) -> None:
        """End a transfer outwards, unless the host has taken it back on its way."""
        if urb in self._out and not self.hung:
            self._out.remove(urb)
            urb.reply(0, len(urb.data), b"")
            self._chip.take(urb.data)

    def _serve_in(self) -> bool:
        for address, queue in self._in.items():
            if address == descriptors.BULK_IN:
                if self._serve_output(queue):
                    return True
            elif queue:
                events = address == descriptors.EVENT_IN
                ready = self._chip.events if events else self._chip.interrupts
                if ready:
                    self._send(queue.popleft(), ready.popleft())
                    return True
        return False

    def _serve_output(self, queue: deque[Urb]) -> bool:
        ready = self._chip.output_bytes
        if not queue or self._line_in.busy or ready is None:
            return False
        urb = queue[0]
        most = self._longest(urb.submit.length)

        def end() -> None:
            if urb in queue and not self.hung:
                data = self._chip.read_output(most)
                if data is not None:
                    queue.remove(urb)
                    self._send(urb, data)

        self._line_in.carry(min(most, ready), end)
        return not self._line_in.busy

    def _longest(self, length: int) -> int:
        """Return the most bytes of an output that one transfer brings: a chunk that is
        shorter than a packet ends it.
        """
        chunk = 8 * self._chip.registers[OUTFEED_CHUNK]
        return min(length, chunk) if 0 < chunk < self._port.packet else length

    def _send(self, urb: Urb, data: bytes) -> None:
        if len(data) <= urb.submit.length:
            urb.reply(0, len(data), data)
        else:
            urb.reply(OVERFLOW, 0, b"")

    def _control(self, urb: Urb) -> None:
        kind, request, value, index, length = _SETUP.unpack(urb.submit.setup)
        if _is_reset(urb.submit.setup):
            urb.reply(0, 0, b"")
            self._reset()
            return
        if kind in _DFU:
            answer = self._dfu(request, value, length, urb.data)
        elif kind in (_VENDOR_IN, _VENDOR_OUT):
            answer = self._register(kind, request, value | index << 16, urb.data)
        else:
            answer = self._standard(kind, request, value)
        if self.hung:
            self._stuck.append(urb)
        elif answer is None:
            urb.reply(STALLED, 0, b"")
        elif urb.submit.inwards:
            urb.reply(0, len(answer[:length]), answer[:length])
        else:
            urb.reply(0, len(urb.data), b"")
        self.pump()

    def _standard(self, kind: int, request: int, value: int) -> bytes | None:
        """Answer a request that every device knows (USB 3.2, 9.4)."""
        if (kind, request) == (0x80, 6):
            return descriptors.descriptor(
                self._port, self.ids, value >> 8, value & 0xFF
            )
        if (kind, request) == (0, 9):
            self._configuration = value
        answers = {
            (0x80, 0): b"\0\0",
            (0x81, 0): b"\0\0",
            (0x82, 0): b"\0\0",
            (0x80, 8): bytes((self._configuration,)),
            (0x81, 10): b"\0",
        }
        if kind & 0x80:
            return answers.get((kind, request))
        # Addresses, features, interfaces and exit latencies change nothing here.
        return b"" if request in (1, 3, 5, 9, 11, 0x30, 0x31) else None

    def _dfu(self, request: int, value: int, length: int, data: bytes) -> bytes | None:
        if self.ids == FIRMWARE:
            self._detached = request == boot_loader.DETACH
            return b"" if self._detached else None
        if request == boot_loader.DOWNLOAD:
            fault = self._faults.due(Phase.FIRMWARE)
            if fault is not None:
                if fault.what is What.REFUSE:
                    self._loader.refuses = True
                elif fault.what is What.SHORT:
                    data = data[:-8]
                else:
                    self._plug.fault(fault)
        return self._loader.request(request, value, length, data)

    def _register(
        self, kind: int, request: int, address: int, data: bytes
    ) -> bytes | None:
        size = _REGISTER_BYTES.get(request)
        if self.ids != FIRMWARE or size is None:
            return None
        fault = self._faults.due(Phase.REGISTER)
        if fault is not None:
            if fault.what is What.REFUSE:
                return None
            self._plug.fault(fault)
        registers = self._chip.registers
        try:
            if kind == _VENDOR_IN:
                data = registers.read(address, size)
            else:
                registers.write(address, data)
        except AsleepError as e:
            self._plug.log(f"refuses: {e}")
            return None
        number = int.from_bytes(data, "little")
        verb = "read" if kind == _VENDOR_IN else "write"
        self._plug.log(f"{verb}{8 * size} {address:#07x} = {number:#x}")
        if kind == _VENDOR_OUT:
            return b""
        return data[: size // 2] if fault and fault.what is What.SHORT else data

    def _reset(self) -> None:
        self._plug.log("reset of the port")
        fault = self._faults.due(Phase.RESET)
        if fault is not None:
            self._plug.fault(fault)
        elif self.ids == BOOT and self._loader.complete:
            self._plug.enumerate_as(FIRMWARE, 0.0)
        elif self.ids == FIRMWARE and self._detached:
            self._plug.enumerate_as(BOOT, 0.0)
        elif self.ids == BOOT:
            self._loader = BootLoader(self._plug.log)


def _is_reset(setup: bytes) -> bool:
    kind, request, value, _, _ = _SETUP.unpack(setup)
    return (kind, request, value) == (*_RESET, 4)


def carry_out(device: Device, plug: Plug, fault: Fault) -> None:
    """Carry out a fault of the whole stick."""
    if fault.what is What.UNPLUG:
        plug.enumerate_as(BOOT, fault.absence_s)
    elif fault.what is What.BROWN_OUT:
        plug.enumerate_as(BOOT, 0.0)
    elif fault.what is What.HANG:
        device.hang("the fault is planned")
