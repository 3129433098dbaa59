"""What goes wrong with a stick on demand, so that drivers can be tried on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum


class Phase(Enum):
    """A point that a stick passes in its work."""

    IMPORT = "import"
    """A host takes the device."""
    FIRMWARE = "firmware"
    """A block of firmware arrives."""
    RESET = "reset"
    """The port is reset."""
    REGISTER = "register"
    """A register is read or written."""
    INSTRUCTIONS = "instructions"
    """A packet of instructions has arrived."""
    INPUT = "input"
    """A packet of an input has arrived."""
    PARAMETERS = "parameters"
    """A packet of parameters has arrived."""
    OUTPUT = "output"
    """A part of an output is ready."""
    EVENT = "event"
    """An event is ready."""


class What(Enum):
    """The kind of a fault."""

    UNPLUG = "unplug"
    """The stick is gone, and comes back in the boot loader after `absence_s`."""
    STALL = "stall"
    """The program makes no progress any more; registers still answer."""
    HANG = "hang"
    """Nothing answers any more until the stick is unplugged."""
    SHORT = "short"
    """Eight bytes are missing at the end: of an output, of an event, or of a block; of a
    register's value, half of it."""
    LONG = "long"
    """Eight bytes more come at the end: of an output, or of an event."""
    EMPTY = "empty"
    """A packet of no bytes comes before the output or the event."""
    ENDLESS = "endless"
    """Packets of no bytes come without end instead of the output."""
    STRAY = "stray"
    """Another one follows that no program has: an output of eight bytes, or an event."""
    LATE = "late"
    """The event or the part of an output comes after `absence_s`, unless the chip is reset
    meanwhile."""
    LOSE = "lose"
    """The event or the part of an output does not come."""
    REFUSE = "refuse"
    """The boot loader refuses the firmware, or a register its request."""
    BROWN_OUT = "brown-out"
    """The supply breaks down: as UNPLUG, and it comes back at once."""
    HEAT = "heat"
    """The chip reports by an interrupt that it is too hot, and goes on."""
    INTERRUPT = "interrupt"
    """An interrupt of the bytes `data` comes, and the chip goes on."""


_IN_THE_CHIP = frozenset(
    (Phase.INSTRUCTIONS, Phase.INPUT, Phase.PARAMETERS, Phase.OUTPUT, Phase.EVENT)
)
_ANSWERS = frozenset((Phase.OUTPUT, Phase.EVENT))
PHASES = {
    What.UNPLUG: frozenset(Phase),
    What.STALL: _IN_THE_CHIP,
    What.HANG: frozenset(Phase),
    What.SHORT: _ANSWERS | {Phase.FIRMWARE, Phase.REGISTER},
    What.LONG: _ANSWERS,
    What.EMPTY: _ANSWERS,
    What.ENDLESS: frozenset((Phase.OUTPUT,)),
    What.STRAY: _ANSWERS,
    What.LATE: _ANSWERS,
    What.LOSE: _ANSWERS,
    What.REFUSE: frozenset((Phase.FIRMWARE, Phase.REGISTER)),
    What.BROWN_OUT: frozenset(Phase),
    What.HEAT: _IN_THE_CHIP,
    What.INTERRUPT: _IN_THE_CHIP,
}
"""When each fault can happen."""


@dataclass(frozen=True)
class Fault:
    """A planned fault; ValueError for a phase in which it cannot happen.

    Attributes:
        what: what happens
        phase: when
        number: at which passing of the phase, from 1
        absence_s: how long an unplugged stick is away, None for ever; how late an answer
            comes
        data: of an interrupt
    """

    what: What
    phase: Phase
    number: int = 1
    absence_s: float | None = 0.2
    data: bytes = b""

    def __post_init__(self) -> None:
        """Check the phase."""
        if self.phase not in PHASES[self.what]:
            raise ValueError(f"no {self.what.value} happens at {self.phase.value}")


class FaultPlan:
    """Planned faults, each of which happens once."""

    def __init__(self, faults: Iterable[Fault], log: Callable[[str], None]) -> None:
        """Begin with all of them to come.

        log: told what happens
        """
        self._faults = list(faults)
        self._passed: Counter[Phase] = Counter()
        self._log = log

    def add(self, fault: Fault) -> None:
        """Plan one more; its number counts from now."""
        number = self._passed[fault.phase] + fault.number
        self._faults.append(replace(fault, number=number))

    def due(self, phase: Phase) -> Fault | None:
        """Return the fault that happens now that a phase is passed, if there is one."""
        self._passed[phase] += 1
        for fault in self._faults:
            if fault.phase is phase and fault.number == self._passed[phase]:
                self._faults.remove(fault)
                self._log(f"fault: {fault.what.value} at {phase.value} {fault.number}")
                return fault
        return None
