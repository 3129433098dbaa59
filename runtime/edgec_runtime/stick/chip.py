"""The Edge TPU's registers over USB, and the order in which it is switched on and off.

The order is a list of accesses, which the driver in C goes through too: a compile writes
it into the bundle (edgec/emit/edgetpu_programs.py).
Addresses, fields and order are those of google-coral/libedgetpu
(driver/config/beagle/beagle_csr_offsets.h, beagle_csr_helper.h,
driver/beagle/beagle_top_level_handler.cc, driver/run_controller.cc). A register is read
and written by a control request to the device (driver/usb/usb_ml_commands.cc).
"""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass
from typing import Dict, Tuple

from .usbfs import StalledError, UsbHandle

TIMEOUT_S = 1.0
"""Longest time of an access, and of a wait for a value."""


class Register(enum.IntEnum):
    """The registers that a driver needs, by their names in libedgetpu."""

    # The top of the chip, with 32 bits: power, clocks, reset, interrupts
    GCBB_CREDIT0 = 0x1907C
    OMC0_00 = 0x1A000
    OMC0_D4 = 0x1A0D4
    OMC0_D8 = 0x1A0D8
    OMC0_DC = 0x1A0DC
    SCU_CTRL_0 = 0x1A30C
    SCU_CTRL_2 = 0x1A314
    SCU_CTRL_3 = 0x1A318
    SCU_CTRL_7 = 0x1A33C
    SLV_ABM_EN = 0x1A500
    SLV_ERR_RESP_ISR_MASK = 0x1A558
    MST_ABM_EN = 0x1A600
    MST_ERR_RESP_ISR_MASK = 0x1A658
    RAMBIST_CTRL_1 = 0x1A704
    # The tiles that TILE_CONFIG_0 names, with 64 bits, as all below
    DEEP_SLEEP = 0x40020
    OP_RUN = 0x400C0
    WIDE_TO_NARROW_RUN = 0x40110
    NARROW_TO_WIDE_RUN = 0x40150
    RING_BUS_CONSUMER_0_RUN = 0x40190
    RING_BUS_CONSUMER_1_RUN = 0x401D0
    RING_BUS_PRODUCER_RUN = 0x40210
    MESH_BUS_0_RUN = 0x40250
    MESH_BUS_1_RUN = 0x40298
    MESH_BUS_2_RUN = 0x402E0
    MESH_BUS_3_RUN = 0x40328
    # The scalar core and its queues
    SCALAR_CORE_RUN = 0x44018
    AV_DATA_POP_RUN = 0x44158
    PARAMETER_POP_RUN = 0x44198
    INFEED_RUN = 0x441D8
    OUTFEED_RUN = 0x44218
    # The host's interface
    HIB_ERROR_STATUS = 0x486F0
    HIB_FIRST_ERROR_STATUS = 0x48700
    TILE_CONFIG_0 = 0x48788
    IDLE = 0x4A000
    OUTFEED_CHUNK_LENGTH = 0x4C058
    FATAL_ERROR_INTERRUPT = 0x4C060
    FATAL_ERROR_STATUS = 0x4C068
    TOP_LEVEL_INTERRUPT_0 = 0x4C070
    TOP_LEVEL_INTERRUPT_1 = 0x4C080
    TOP_LEVEL_INTERRUPT_2 = 0x4C090
    TOP_LEVEL_INTERRUPT_3 = 0x4C0A0
    DESCRIPTORS = 0x4C148
    MULTIPLE_BULK_OUT = 0x4C160


_SCALAR_RUN_CONTROLS = (
    Register.SCALAR_CORE_RUN,
    Register.AV_DATA_POP_RUN,
    Register.PARAMETER_POP_RUN,
    Register.INFEED_RUN,
    Register.OUTFEED_RUN,
)
_TILE_RUN_CONTROLS = (
    Register.OP_RUN,
    Register.NARROW_TO_WIDE_RUN,
    Register.WIDE_TO_NARROW_RUN,
    Register.MESH_BUS_0_RUN,
    Register.MESH_BUS_1_RUN,
    Register.MESH_BUS_2_RUN,
    Register.MESH_BUS_3_RUN,
    Register.RING_BUS_CONSUMER_0_RUN,
    Register.RING_BUS_CONSUMER_1_RUN,
    Register.RING_BUS_PRODUCER_RUN,
)
_INTERRUPTS = (
    Register.FATAL_ERROR_INTERRUPT,
    Register.TOP_LEVEL_INTERRUPT_0,
    Register.TOP_LEVEL_INTERRUPT_1,
    Register.TOP_LEVEL_INTERRUPT_2,
    Register.TOP_LEVEL_INTERRUPT_3,
)
_RUN, _HALT = 1, 2


class What(enum.IntEnum):
    """What an access does with the bits of its mask."""

    READ = 0
    """Read the register; the accesses that follow refer to this value."""
    WRITE = 1
    """Write the value that was read last, with other bits within the mask."""
    WAIT = 2
    """Read the register until its bits are these."""
    SKIP_IF = 3
    """Leave out the next accesses if the bits that were read last are these."""
    SKIP_UNLESS = 4
    """Leave out the next accesses if they are others."""


_ALL = (1 << 64) - 1


@dataclass(frozen=True)
class Access:
    """An access to a register, or a decision by the value that was read last.

    Attributes:
        what: what happens
        register: the address; not used by a decision
        mask: the bits that it is about
        value: their value
        skipped: number of accesses that a decision leaves out
        fault: what is wrong if a wait lasts too long
    """

    what: What
    register: int = 0
    mask: int = _ALL
    value: int = 0
    skipped: int = 0
    fault: str = ""

    @property
    def size(self) -> int:
        """Bytes of the register."""
        return 4 if self.register < _FIRST_OF_64_BITS else 8


Accesses = Tuple[Access, ...]
_FIRST_OF_64_BITS = 0x40000


@dataclass(frozen=True)
class _Field:
    """Some bits of a register."""

    low: int
    bits: int

    @property
    def mask(self) -> int:
        """The bits."""
        return (1 << self.bits) - 1 << self.low


_PCIE_INACTIVE_PHY = _Field(8, 3)  # of SCU_CTRL_0
_USB_INACTIVE_PHY = _Field(11, 3)
_CLOCK_GATE = _Field(18, 2)  # of SCU_CTRL_2: 1 by hardware, 2 never
_POWER_STATE = _Field(8, 2)  # of SCU_CTRL_3: 0 on, 2 asleep
_FORCE_SLEEP = _Field(22, 2)  # 2 off, 3 on
_CORE_DIVIDER = _Field(28, 2)
_BUS_AT_125_MHZ = _Field(30, 1)
_CONTROLLER_AT_250_MHZ = _Field(31, 1)
_BOOT_FAILURES = _Field(16, 4)  # of SCU_CTRL_7: two that 1 clears, two masks
_MEMORY_TEST = _Field(16, 3)  # of RAMBIST_CTRL_1: 1 clears a bit
_MEMORY_TEST_MASK = _Field(20, 3)
_HEAT_ENABLE = _Field(31, 1)  # of OMC0_D4 a warning, of OMC0_D8 the shutdown
_WARNING_CLEAR = _Field(29, 1)  # of OMC0_DC
_ALL_TILES = 0x7F
_NO_DATA_DESCRIPTORS = 0xF0  # events for the scalar core's interrupts alone
# to sleep after 2 cycles, to wake within 30
_SLEEP_DELAYS = 30 << 8 | 2
_IDLE_COUNTER = 1


@dataclass(frozen=True)
class Clock:
    """The rates of one of libedgetpu's performance settings on USB.

    Attributes:
        core_divider: of 500 MHz, as a power of 2: 0 is 500 MHz, 3 is 62.5 MHz
        slow_bus: whether the AXI bus has 125 MHz, not 250
        slow_controller: whether the USB controller's 8051 has 250 MHz, not 500
    """

    core_divider: int
    slow_bus: bool
    slow_controller: bool


CLOCKS: Dict[str, Clock] = {
    "low": Clock(3, True, True),
    "medium": Clock(2, True, False),
    "high": Clock(1, True, False),
    "max": Clock(0, False, False),
}
"""libedgetpu1-std has "high", libedgetpu1-max "max", with which the stick gets hot."""


class Registers:
    """Reads and writes registers.

    The methods raise DeviceError if the device does not answer.
    """

    def __init__(self, handle: UsbHandle) -> None:
        self._handle = handle

    def go_through(self, accesses: Accesses) -> None:
        """Do some accesses in order."""
        last = 0
        skipped = 0
        for access in accesses:
            if skipped:
                skipped -= 1
                continue
            what = access.what
            if what is What.READ:
                last = self.read(access.register)
            elif what is What.WRITE:
                value = last & ~access.mask | access.value
                self._write(access.register, value.to_bytes(access.size, "little"))
            elif what is What.WAIT:
                self._wait(access)
            elif (last & access.mask == access.value) is (what is What.SKIP_IF):
                skipped = access.skipped

    def read(self, register: int) -> int:
        """Return a register's value."""
        size = Access(What.READ, register).size
        setup = (0xC0, size == 4, register & 0xFFFF, register >> 16)
        answer = self._handle.control_in(setup, size, TIMEOUT_S)
        if len(answer) != size:
            raise self._fault(f"register {register:#x} has {len(answer)} bytes")
        return int.from_bytes(answer, "little")

    def _write(self, register: int, data: bytes) -> None:
        setup = (0x40, len(data) == 4, register & 0xFFFF, register >> 16)
        self._handle.control_out(setup, data, TIMEOUT_S)

    def _wait(self, access: Access) -> None:
        end = time.monotonic() + TIMEOUT_S
        while self.read(access.register) & access.mask != access.value:
            if time.monotonic() > end:
                raise self._fault(access.fault)

    def _fault(self, what: str) -> StalledError:
        """Return the error for a chip that does not do its part."""
        return StalledError(
            f"the Edge TPU cannot be switched on: {what}",
            at=self._handle.device.node,
            hint="unplug the stick and plug it in again",
        )


def switching_on(clock: Clock, high_speed: bool) -> Accesses:
    """Return what resets the chip and makes it ready for programs.

    Whatever it did before ends, and its memories are empty.

    Args:
        clock: its rates
        high_speed: whether the port is one of USB 2, 480 Mb/s
    """
    return (
        *_changed(Register.SCU_CTRL_0, (_PCIE_INACTIVE_PHY, 0), (_USB_INACTIVE_PHY, 0)),
        _read(Register.SCU_CTRL_2),
        *_unless(_CLOCK_GATE, 1, _changed(Register.SCU_CTRL_2, (_CLOCK_GATE, 2))),
        *_SLEEP,
        *_wake(clock),
        *_changed(Register.SCU_CTRL_2, (_CLOCK_GATE, 1)),
        *_set_up_usb(high_speed),
        *_runs(_RUN),
        *_interrupts_on(),
    )


def switching_off() -> Accesses:
    """Return what stops the chip and lets it sleep; it still watches its temperature."""
    return (
        *(_write(register, 0) for register in (*_INTERRUPTS[1:], _INTERRUPTS[0])),
        *_runs(_HALT),
        *_SLEEP,
    )


def clearing_warning() -> Accesses:
    """Return what clears the interrupt that warns of heat."""
    return _changed(Register.OMC0_DC, (_WARNING_CLEAR, 1))


def _read(register: Register) -> Access:
    return Access(What.READ, register)


def _write(register: Register, value: int) -> Access:
    return Access(What.WRITE, register, _ALL, value)


def _wait(register: Register, mask: int, value: int, fault: str) -> Access:
    return Access(What.WAIT, register, mask, value, fault=fault)


def _changed(register: Register, *fields: Tuple[_Field, int]) -> Accesses:
    """Return what gives fields of a register other values."""
    return _read(register), _with(register, *fields)


def _with(register: Register, *fields: Tuple[_Field, int]) -> Access:
    """Return the writing of the value that was read last, with other fields."""
    mask = value = 0
    for field, number in fields:
        mask |= field.mask
        value |= number << field.low
    return Access(What.WRITE, register, mask, value)


def _unless(field: _Field, value: int, accesses: Accesses) -> Accesses:
    """Return accesses that are left out unless a field, which was read, has a value."""
    decision = Access(
        What.SKIP_UNLESS,
        mask=field.mask,
        value=value << field.low,
        skipped=len(accesses),
    )
    return decision, *accesses


def _wait_for_power(state: int, fault: str) -> Access:
    return _wait(
        Register.SCU_CTRL_3, _POWER_STATE.mask, state << _POWER_STATE.low, fault
    )


_OFF = (
    _with(Register.SCU_CTRL_3, (_FORCE_SLEEP, 3)),
    _wait_for_power(2, "its core does not go to sleep"),
    # A pulse discards what was sent to it and not taken.
    _write(Register.GCBB_CREDIT0, 0xF),
    _write(Register.GCBB_CREDIT0, 0),
)
_SLEEP = (
    _read(Register.SCU_CTRL_3),
    Access(
        What.SKIP_IF,
        mask=_FORCE_SLEEP.mask,
        value=3 << _FORCE_SLEEP.low,
        skipped=len(_OFF),
    ),
    *_OFF,
)
"""The core is switched off, which resets it, unless it is off."""

_ADDRESS_ALL_TILES = (
    _write(Register.TILE_CONFIG_0, _ALL_TILES),
    # The chip does not promise that later writes come after this one.
    _wait(Register.TILE_CONFIG_0, _ALL, _ALL_TILES, "its tiles do not answer"),
)
"""The next writes go to all tiles."""


def _wake(clock: Clock) -> Accesses:
    return (
        *_changed(
            Register.SCU_CTRL_3,
            (_FORCE_SLEEP, 2),
            (_CORE_DIVIDER, clock.core_divider),
            (_BUS_AT_125_MHZ, clock.slow_bus),
            (_CONTROLLER_AT_250_MHZ, clock.slow_controller),
        ),
        _wait_for_power(0, "its core does not wake up"),
        _wait(Register.SCALAR_CORE_RUN, _ALL, 0, "its core is not reset"),
        _write(Register.IDLE, _IDLE_COUNTER),
        *_ADDRESS_ALL_TILES,
        _write(Register.DEEP_SLEEP, _SLEEP_DELAYS),
    )


def _set_up_usb(high_speed: bool) -> Accesses:
    return (
        _read(Register.OMC0_00),  # the revision of its fuses; libedgetpu reads it
        _write(Register.DESCRIPTORS, _NO_DATA_DESCRIPTORS),
        _write(Register.MULTIPLE_BULK_OUT, 0),
        # In units of 8 bytes: packets of 1 KB, and of 256 bytes at 480 Mb/s, where longer
        # ones fail (libedgetpu's b/73181174).
        _write(Register.OUTFEED_CHUNK_LENGTH, 0x20 if high_speed else 0x80),
    )


def _runs(control: int) -> Accesses:
    return (
        *(_write(register, control) for register in _SCALAR_RUN_CONTROLS),
        *_ADDRESS_ALL_TILES,
        *(_write(register, control) for register in _TILE_RUN_CONTROLS),
    )


def _interrupts_on() -> Accesses:
    """Return what enables the interrupts of faults, heat and the memories' test."""
    return (
        *(_write(register, 1) for register in _INTERRUPTS),
        *_changed(Register.OMC0_D4, (_HEAT_ENABLE, 1)),
        *_changed(Register.RAMBIST_CTRL_1, (_MEMORY_TEST, 0), (_MEMORY_TEST_MASK, 0)),
        *_changed(Register.SCU_CTRL_7, (_BOOT_FAILURES, 0)),
        _write(Register.SLV_ABM_EN, 1),
        _write(Register.MST_ABM_EN, 1),
        _write(Register.SLV_ERR_RESP_ISR_MASK, 3),
        _write(Register.MST_ERR_RESP_ISR_MASK, 3),
        *_changed(Register.OMC0_D8, (_HEAT_ENABLE, 1)),
    )
