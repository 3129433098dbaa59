"""The chip behind the firmware: packets come in, programs run, outputs and events go out.

A packet outwards has a header of 8 bytes (length and tag) and its bytes
(driver/usb/usb_ml_commands.cc in google-coral/libedgetpu). A program expects them in the
order of its DMA hints, and the chip waits for ever for one that does not come.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Protocol

from edgec_runtime.edgetpu_file.executable import (
    AddressOf,
    BufferTransfer,
    ExecutableType,
    Fence,
    InstructionTransfer,
    Interrupt,
)

from edgec_devices.stick.faults import Fault, FaultPlan, Phase, What
from edgec_devices.stick.programs import ProgramBook, sha256
from edgec_devices.stick.registers import DESCRIPTORS, OMC0_DC, WARNING, Registers
from edgec_devices.stick.run import Run

INSTRUCTIONS, INPUT, PARAMETERS, OUTPUT, INTERRUPT = range(5)
"""Tags; the scalar core's interrupts have 4 to 7."""
_HEADER = struct.Struct("<IBxxx")
_EVENT = struct.Struct("<QIB3x")
_MORE = b"\xee" * 8
"""Bytes of no output."""
_HOT = 1 << 4
"""Bit of the fourth top-level interrupt, the thermal warning; bit 0 is a fatal error."""
_OF_THE_STICK = frozenset((What.UNPLUG, What.HANG, What.BROWN_OUT))
_PHASES = {
    INSTRUCTIONS: Phase.INSTRUCTIONS,
    INPUT: Phase.INPUT,
    PARAMETERS: Phase.PARAMETERS,
}


class Surroundings(Protocol):
    """The calls of the chip to the stick that it is in."""

    def log(self, line: str) -> None:
        """Add a line to the stick's log."""

    def defer(self, work: Callable[[], object], then: Callable[[], None]) -> None:
        """Do work beside, and continue when it has ended."""

    def later(self, delay_s: float, then: Callable[[], None]) -> None:
        """Call a function after some seconds, and end the transfers that can end then."""

    def fault(self, fault: Fault) -> None:
        """Carry out a fault that concerns more than the chip."""


class Chip:
    """The chip's state.

    Attributes:
        registers: its registers
        events: of 16 bytes each, to be read at the endpoint of events
        interrupts: of 4 bytes each
        stalled: whether the program makes no progress any more
    """

    def __init__(
        self, book: ProgramBook, faults: FaultPlan, around: Surroundings
    ) -> None:
        """Begin as after power-on."""
        self.registers = Registers(self.empty)
        self._resets = 0
        self.events: deque[bytes] = deque()
        self.interrupts: deque[bytes] = deque()
        self.stalled = False
        self._book = book
        self._faults = faults
        self._around = around
        self._packet: _Packet | None = None
        self._run: Run | None = None
        self._outputs: deque[tuple[bytes, bool]] = deque()
        """What can be read, in parts, and after which of them the program goes on."""
        self._delivers = False  # the program waits until its output is read
        self._endless = False  # the first part comes again and again
        self._token = 0
        self._cached: set[bytes] = set()

    def empty(self) -> None:
        """Forget programs, transfers and parameters: the core is held in reset."""
        self._resets += 1
        self.events.clear()
        self.interrupts.clear()
        self.stalled = False
        self._packet = self._run = None
        self._outputs.clear()
        self._delivers = self._endless = False
        self._token = 0
        self._cached.clear()

    @property
    def accepts(self) -> bool:
        """Return whether a bulk transfer outwards would be taken now."""
        return self.registers.runs and not self.stalled

    @property
    def sends(self) -> bool:
        """Return whether the program has come to an output that the host has not taken.

        A bulk transfer outwards that begins now is a deadlock where one endpoint serves
        instructions, inputs and parameters.
        """
        run = self._run
        return run is not None and run.sends

    def take(self, data: bytes) -> None:
        """Take the bytes of one bulk transfer outwards."""
        if self._packet is None:
            if len(data) < _HEADER.size:
                return self._stall(f"a header has {len(data)} bytes")
            length, tag = _HEADER.unpack_from(data)
            self._packet = _Packet(length, tag & 15)
            data = data[_HEADER.size :]
        packet = self._packet
        packet.data += data
        if len(packet.data) > packet.length:
            return self._stall(
                f"a packet of tag {packet.tag} has {len(packet.data)} bytes; its "
                f"header says {packet.length}"
            )
        if len(packet.data) == packet.length:
            self._packet = None
            self._whole(packet.tag, bytes(packet.data))
        return None

    @property
    def output_bytes(self) -> int | None:
        """Return how much of the part of an output that is ready has not been read."""
        return len(self._outputs[0][0]) if self._outputs else None

    def read_output(self, most: int) -> bytes | None:
        """Return at most so many bytes of the part of an output that is ready."""
        if not self._outputs:
            return None
        whole, last = self._outputs[0]
        if self._endless:
            return whole
        self._outputs.popleft()
        data, rest = whole[:most], whole[most:]
        self._around.log(f"output {len(data)}")
        if rest:
            self._outputs.appendleft((rest, last))
        elif last:
            self._delivered()
        return data

    def _delivered(self) -> None:
        """Go on after an output."""
        self._delivers = False
        if self._run is not None:
            self._run.passed()
            self._advance()

    def _whole(self, tag: int, data: bytes) -> None:
        """Handle a packet that has arrived whole."""
        phase = _PHASES.get(tag)
        if phase is None:
            return self._stall(f"a packet has the tag {tag}, which is not outwards")
        self._around.log(f"packet {phase.value} {len(data)} {sha256(data).hex()[:16]}")
        fault = self._faults.due(phase)
        if fault is not None and self._faulty(fault):
            return None
        if tag == INSTRUCTIONS and self._run is None:
            self._begin(data)
        elif self._run is None:
            return self._stall(f"{len(data)} bytes of tag {tag} come without a program")
        else:
            problem = self._run.take(tag, data)
            if problem:
                return self._stall(problem)
        return self._advance()

    def _begin(self, instructions: bytes) -> None:
        """Begin the program of these instructions."""
        programs = self._book.find(instructions)
        if not programs:
            self._stall(
                f"{len(instructions)} bytes of instructions are of a program that the "
                "stick does not know, nor how much it sends"
            )
            return
        self._run = Run(programs, self._cached, self._around.log)
        self._run.take(INSTRUCTIONS, instructions)

    def _advance(self) -> None:
        """Go on to the next transfer that needs the host."""
        run = self._run
        while run is not None and not self.stalled:
            transfer = run.transfer
            if transfer is None:
                self._end(run)
                return
            what = transfer.what
            described = run.descriptor()
            if described is not None:
                self._event(*described)
            if isinstance(what, Fence):
                run.passed()
            elif isinstance(what, Interrupt):
                run.passed()
                self._event(0, 0, INTERRUPT + what.number)
            elif isinstance(what, InstructionTransfer) or not transfer.outfeed:
                return
            else:
                self._send(run, what)
                return

    def _send(self, run: Run, what: BufferTransfer) -> None:
        """Make a part of an output ready, after the computation that gives it."""
        if self._delivers:
            return
        if what.address.of is AddressOf.SCRATCH:
            data = bytes(what.size)
        elif run.outputs is None:
            self._compute(run)
            return
        else:
            whole = run.outputs[what.address.name]
            data = whole[what.offset : what.offset + what.size]
        self._delivers = True
        fault = self._faults.due(Phase.OUTPUT)
        if fault is not None and self._faulty(fault):
            return
        self._endless = fault is not None and fault.what is What.ENDLESS
        answer, stray = _parts(fault, data, _MORE)

        def deliver() -> None:
            ends = [False] * (len(answer) - 1) + [True]
            self._outputs += zip(answer, ends, strict=False)
            self._outputs += [(part, False) for part in stray]
            if not answer:
                self._delivered()

        self._answer(fault, deliver)

    def _answer(self, fault: Fault | None, send: Callable[[], None]) -> None:
        """Let the host have an answer, at once or late, but not after a reset."""
        if fault is None or fault.what is not What.LATE:
            send()
            return
        resets = self._resets

        def late() -> None:
            if self._resets == resets:
                send()

        self._around.later(fault.absence_s or 0.0, late)

    def _compute(self, run: Run) -> None:
        """Compute beside the stick's own work, once."""
        if run.computes:
            return
        run.computes = True

        def then() -> None:
            if self._run is run:
                self._advance()

        self._around.defer(run.compute, then)

    def _end(self, run: Run) -> None:
        """End a program; parameters that it has brought stay."""
        self._run = None
        executable = run.program.executable
        if executable.type is ExecutableType.PARAMETER_CACHING:
            if self._token != executable.token:
                self._token = executable.token
                self._cached.clear()
            self._cached.add(run.parameters_hash())

    def _event(self, address: int, length: int, tag: int) -> None:
        """Send an event: a part of a buffer is wanted or sent, or an interrupt."""
        if not self.registers[DESCRIPTORS] >> tag & 1:
            return
        event = _EVENT.pack(address, length, tag)
        self._around.log(f"event {tag}")
        fault = self._faults.due(Phase.EVENT)
        if fault is not None and self._faulty(fault):
            return
        answer, stray = _parts(fault, event, _EVENT.pack(address, length, tag ^ 2))
        self._answer(fault, lambda: self.events.extend(answer + stray))

    def _faulty(self, fault: Fault) -> bool:
        """Carry out a fault; return whether it is the end of what was going on."""
        if fault.what is What.STALL:
            self._stall("the fault is planned")
            return True
        if fault.what is What.HEAT:
            self.registers[OMC0_DC] |= WARNING
            self.interrupts.append(_HOT.to_bytes(4, "little"))
            return False
        if fault.what is What.INTERRUPT:
            self.interrupts.append(fault.data)
            return False
        if fault.what in _OF_THE_STICK:
            self._around.fault(fault)
            return True
        return False

    def _stall(self, why: str) -> None:
        self.stalled = True
        self._around.log(f"stalls: {why}")


def _parts(
    fault: Fault | None, answer: bytes, other: bytes
) -> tuple[list[bytes], list[bytes]]:
    """Return an answer to the host as packets, and those that no program has.

    fault: what goes wrong with it
    other: an answer of no program
    """
    what = None if fault is None else fault.what
    parts: dict[What | None, list[bytes]] = {
        What.SHORT: [answer[:-8]] if len(answer) > 8 else [],
        What.LONG: [answer + _MORE],
        What.EMPTY: [b"", answer],
        What.ENDLESS: [b""],
        What.LOSE: [],
    }
    stray = [other] if what is What.STRAY else []
    return parts.get(what, [answer]), stray


class _Packet:
    """A packet outwards that has not arrived whole."""

    def __init__(self, length: int, tag: int) -> None:
        self.length = length
        self.tag = tag
        self.data = bytearray()
