"""Lets runs of programs follow each other over the stick's endpoints.

What is sent, received and waited for is queued as early as the chip allows. With one
endpoint for all packets, a packet that is sent while the chip has an output to deliver
can block both for ever (the comments in driver/usb/usb_driver.cc of
google-coral/libedgetpu; measured on a stick: NOTES.md of FrederikRogalski/tinycoral). So
no packet begins before all outputs ahead of it have come; the next run begins without
waiting for the event of the last one.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from typing import Callable, Deque, Dict, List, Tuple

from ..edgetpu_file.executable import Fence
from .program import Event, Receiving, Run, Sending, Step
from .usbfs import IN, StalledError, Urb, UsbHandle, transfer_error

PACKETS, OUTPUTS, EVENTS, INTERRUPTS = 1, IN | 1, IN | 2, IN | 3
_EVENT_BYTES = 16
_INTERRUPT_BYTES = 4
_EVENT = struct.Struct("<QIB3x")  # address, length, tag
_WINDOW = 4 << 20
"""Most bytes on the way to the chip. usbfs lends 16 MB to all programs together."""
_READERS = 32
"""Most transfers that wait for outputs; libedgetpu has as many."""
_DRAIN_S = 0.02


class Transfers:
    """The transfers of one stick."""

    def __init__(
        self,
        handle: UsbHandle,
        chunk: int,
        packet: int,
        on_interrupt: Callable[[int], None],
    ) -> None:
        """Begin to listen to the interrupts.

        Args:
            handle: the stick
            chunk: most bytes of a transfer from it
            packet: bytes of its longest packet, of which a transfer has a multiple
            on_interrupt: is called with the bits of an interrupt
        """
        self._handle = handle
        self._chunk = chunk
        self._packet = packet
        self._on_interrupt = on_interrupt
        self._todo: Deque[Tuple[Run, Step]] = deque()
        self._on_the_way = 0
        self._owners: Dict[int, Run] = {}
        self._outputs: Deque[Tuple[Run, memoryview]] = deque()
        self._wanted = 0  # bytes of the outputs that have not come
        self._asked = 0  # of these, bytes for which there are transfers
        self._readers = 0
        self._free: Dict[int, List[Urb]] = {}
        self._events: Deque[Tuple[Run, int]] = deque()
        self._event = Urb(EVENTS, bytearray(_EVENT_BYTES))
        self._listening = False
        handle.submit(Urb.interrupt(INTERRUPTS, bytearray(_INTERRUPT_BYTES)))

    def start(self, run: Run) -> None:
        """Queue a run behind those that have not ended.

        Raises:
            DeviceError: a transfer cannot begin
        """
        run.left = run.work
        self._todo.extend([(run, step) for step in run.steps])
        self._advance()

    def wait(self, run: Run, patience: float) -> None:
        """Wait for the end of a run.

        Args:
            run: the run
            patience: longest time in seconds in which no transfer of the program ends

        Raises:
            DeviceError: a transfer fails, or none ends within that time
        """
        end = time.monotonic() + patience
        while run.left:
            urb = self._handle.reap(patience)
            went_on = False
            while urb is not None:
                went_on |= urb.endpoint != INTERRUPTS and urb.received > 0
                self._end(urb)
                urb = self._handle.reap_now() if run.left else None
            now = time.monotonic()
            if went_on:
                end = now + patience
            elif now >= end:
                raise self._stalled(f"its program has not gone on for {patience:.3g} s")
            if run.left or self._todo:
                self._advance()

    def _advance(self) -> None:
        """Begin the steps that may begin."""
        todo, submit = self._todo, self._handle.submit
        while todo and self._may_begin(todo[0][1]):
            run, step = todo.popleft()
            if isinstance(step, Sending):
                for urb in step.urbs:
                    self._on_the_way += urb.length
                    self._owners[urb.address] = run
                    submit(urb)
            elif isinstance(step, Receiving):
                self._outputs.append((run, step.memory))
                self._wanted += len(step.memory)
            elif isinstance(step, Event):
                self._events.append((run, step.tag))
        self._listen()

    def _may_begin(self, step: Step) -> bool:
        if isinstance(step, Sending):
            room = self._on_the_way == 0 or self._on_the_way + step.size <= _WINDOW
            return room and not self._outputs
        if isinstance(step, Fence):
            return not (self._owners or self._outputs or self._events)
        return True

    def _listen(self) -> None:
        """Have transfers for what is to come from the chip."""
        while self._asked < self._wanted and self._readers < _READERS:
            length = min(self._chunk, self._until_end_of_output(self._asked))
            size = -(-length // self._packet) * self._packet
            free = self._free.setdefault(size, [])
            urb = free.pop() if free else Urb(OUTPUTS, bytearray(size))
            urb.note = length
            self._asked += length
            self._readers += 1
            self._handle.submit(urb)
        if self._events and not self._listening:
            self._listening = True
            self._handle.submit(self._event)

    def _until_end_of_output(self, position: int) -> int:
        """Return the bytes from a position in all that is to come to its output's end."""
        # An output that ends with a full packet may come without an empty one after it,
        # so that a transfer must not be longer than its output.
        for _, memory in self._outputs:
            if position < len(memory):
                return len(memory) - position
            position -= len(memory)
        raise AssertionError("more is asked for than is wanted")

    def _end(self, urb: Urb) -> None:
        """Take the end of a transfer into account."""
        if urb.status:
            raise transfer_error(self._handle.device, urb.status)
        if urb.endpoint == PACKETS:
            if urb.received != urb.length:
                raise self._stalled(f"it took {urb.received} of {urb.length} bytes")
            self._owners.pop(urb.address).left -= 1
            self._on_the_way -= urb.length
        elif urb.endpoint == OUTPUTS:
            self._take_output(urb)
        elif urb.endpoint == EVENTS:
            self._take_event(urb)
        elif urb.received != _INTERRUPT_BYTES:
            raise self._stalled(f"an interrupt has {urb.received} bytes")
        else:
            bits = int.from_bytes(urb.bytes(), "little")
            self._handle.submit(urb)
            self._on_interrupt(bits)

    def _take_output(self, urb: Urb) -> None:
        data = urb.bytes()
        self._asked -= urb.note
        self._readers -= 1
        if len(data) > self._wanted:
            raise self._stalled(
                f"its outputs have {len(data) - self._wanted} bytes more"
            )
        self._wanted -= len(data)
        while data:
            run, memory = self._outputs.popleft()
            count = min(len(data), len(memory))
            memory[:count] = data[:count]
            data = data[count:]
            if count < len(memory):
                self._outputs.appendleft((run, memory[count:]))
            else:
                run.left -= 1
        self._free[urb.length].append(urb)

    def _take_event(self, urb: Urb) -> None:
        self._listening = False
        if urb.received != _EVENT_BYTES:
            raise self._stalled(f"an event has {urb.received} bytes")
        tag = _EVENT.unpack(urb.bytes())[2] & 0xF
        run, expected = self._events.popleft()
        if tag != expected:
            raise self._stalled(f"event {tag} came and not {expected}")
        run.left -= 1

    def _stalled(self, why: str) -> StalledError:
        return StalledError(
            f"the Edge TPU does not answer as it should: {why}",
            at=self._handle.device.node,
            hint="unplug the stick and plug it in again",
        )


def drain(handle: UsbHandle, packet: int) -> None:
    """Throw away outputs and events that nobody took.

    Args:
        handle: the stick, without transfers
        packet: bytes of its longest packet

    Raises:
        DeviceError: the stick is gone
    """
    for size, endpoint in ((64 * packet, OUTPUTS), (_EVENT_BYTES, EVENTS)):
        handle.submit(Urb(endpoint, bytearray(size)))
    # A stick with an endless output is stopped by the reset that follows.
    end = time.monotonic() + 50 * _DRAIN_S
    while time.monotonic() < end:
        urb = handle.reap(_DRAIN_S)
        if urb is None:
            break
        if urb.status:
            handle.clear_halt(urb.endpoint)
        handle.submit(urb)
    handle.cancel_all(1.0)
