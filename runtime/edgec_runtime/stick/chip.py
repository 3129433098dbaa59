"""The Edge TPU's registers over USB, and the order in which it is switched on and off.

Addresses, fields and order are those of google-coral/libedgetpu
(driver/config/beagle/beagle_csr_offsets.h, beagle_csr_helper.h,
driver/beagle/beagle_top_level_handler.cc, driver/run_controller.cc). A register is read
and written by a control request to the device (driver/usb/usb_ml_commands.cc).
"""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass
from typing import Callable, Dict

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


@dataclass(frozen=True)
class _Field:
    """Some bits of a register."""

    low: int
    bits: int

    def of(self, value: int) -> int:
        """Return the field of a register's value."""
        return value >> self.low & (1 << self.bits) - 1

    def set(self, value: int, field: int) -> int:
        """Return a register's value with another field."""
        mask = (1 << self.bits) - 1 << self.low
        return value & ~mask | field << self.low


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

    def read32(self, register: int) -> int:
        """Return a register of 32 bits."""
        return self._read(register, 1, 4)

    def read64(self, register: int) -> int:
        """Return a register of 64 bits."""
        return self._read(register, 0, 8)

    def write32(self, register: int, value: int) -> None:
        """Write a register of 32 bits."""
        self._write(register, 1, value.to_bytes(4, "little"))

    def write64(self, register: int, value: int) -> None:
        """Write a register of 64 bits."""
        self._write(register, 0, value.to_bytes(8, "little"))

    def _read(self, register: int, request: int, size: int) -> int:
        setup = (0xC0, request, register & 0xFFFF, register >> 16)
        answer = self._handle.control_in(setup, size, TIMEOUT_S)
        if len(answer) != size:
            raise self.fault(f"register {register:#x} has {len(answer)} bytes")
        return int.from_bytes(answer, "little")

    def _write(self, register: int, request: int, data: bytes) -> None:
        setup = (0x40, request, register & 0xFFFF, register >> 16)
        self._handle.control_out(setup, data, TIMEOUT_S)

    def wait(self, read: Callable[[], int], value: int, what: str) -> None:
        """Read until a value comes; raise StalledError after TIMEOUT_S."""
        end = time.monotonic() + TIMEOUT_S
        while read() != value:
            if time.monotonic() > end:
                raise self.fault(what)

    def fault(self, what: str) -> StalledError:
        """Return the error for a chip that does not do its part."""
        return StalledError(
            f"the Edge TPU cannot be switched on: {what}",
            at=self._handle.device.node,
            hint="unplug the stick and plug it in again",
        )


def switch_on(registers: Registers, clock: Clock, high_speed: bool) -> None:
    """Reset the chip and make it ready for programs.

    Whatever it did before ends, and its memories are empty.

    Args:
        registers: its registers
        clock: its rates
        high_speed: whether the port is one of USB 2, 480 Mb/s
    """
    value = registers.read32(Register.SCU_CTRL_0)
    value = _USB_INACTIVE_PHY.set(_PCIE_INACTIVE_PHY.set(value, 0), 0)
    registers.write32(Register.SCU_CTRL_0, value)
    if _CLOCK_GATE.of(registers.read32(Register.SCU_CTRL_2)) == 1:
        _set_clock_gate(registers, 2)
    _sleep(registers)
    _wake(registers, clock)
    _set_clock_gate(registers, 1)
    _set_up_usb(registers, high_speed)
    _control_runs(registers, _RUN)
    _enable_interrupts(registers)


def switch_off(registers: Registers) -> None:
    """Stop the chip and let it sleep; it still watches its temperature."""
    for register in (*_INTERRUPTS[1:], _INTERRUPTS[0]):
        registers.write64(register, 0)
    _control_runs(registers, _HALT)
    _sleep(registers)


def clear_warning(registers: Registers) -> None:
    """Clear the interrupt that warns of heat."""
    value = registers.read32(Register.OMC0_DC)
    registers.write32(Register.OMC0_DC, _WARNING_CLEAR.set(value, 1))


def _set_clock_gate(registers: Registers, gate: int) -> None:
    value = registers.read32(Register.SCU_CTRL_2)
    registers.write32(Register.SCU_CTRL_2, _CLOCK_GATE.set(value, gate))


def _sleep(registers: Registers) -> None:
    """Switch the core off, which resets it."""
    value = registers.read32(Register.SCU_CTRL_3)
    if _FORCE_SLEEP.of(value) == 3:
        return
    registers.write32(Register.SCU_CTRL_3, _FORCE_SLEEP.set(value, 3))
    _wait_for_power(registers, 2, "its core does not go to sleep")
    # A pulse discards what was sent to it and not taken.
    registers.write32(Register.GCBB_CREDIT0, 0xF)
    registers.write32(Register.GCBB_CREDIT0, 0)


def _wake(registers: Registers, clock: Clock) -> None:
    value = _FORCE_SLEEP.set(registers.read32(Register.SCU_CTRL_3), 2)
    value = _CORE_DIVIDER.set(value, clock.core_divider)
    value = _BUS_AT_125_MHZ.set(value, clock.slow_bus)
    value = _CONTROLLER_AT_250_MHZ.set(value, clock.slow_controller)
    registers.write32(Register.SCU_CTRL_3, value)
    _wait_for_power(registers, 0, "its core does not wake up")
    registers.wait(
        lambda: registers.read64(Register.SCALAR_CORE_RUN), 0, "its core is not reset"
    )
    registers.write64(Register.IDLE, _IDLE_COUNTER)
    _address_all_tiles(registers)
    registers.write64(Register.DEEP_SLEEP, _SLEEP_DELAYS)


def _wait_for_power(registers: Registers, state: int, what: str) -> None:
    registers.wait(
        lambda: _POWER_STATE.of(registers.read32(Register.SCU_CTRL_3)), state, what
    )


def _address_all_tiles(registers: Registers) -> None:
    """Let the next writes go to all tiles."""
    registers.write64(Register.TILE_CONFIG_0, _ALL_TILES)
    # The chip does not promise that later writes come after this one.
    registers.wait(
        lambda: registers.read64(Register.TILE_CONFIG_0),
        _ALL_TILES,
        "its tiles do not answer",
    )


def _set_up_usb(registers: Registers, high_speed: bool) -> None:
    registers.read32(Register.OMC0_00)  # the revision of its fuses; libedgetpu reads it
    registers.write64(Register.DESCRIPTORS, _NO_DATA_DESCRIPTORS)
    registers.write64(Register.MULTIPLE_BULK_OUT, 0)
    # In units of 8 bytes: packets of 1 KB, and of 256 bytes at 480 Mb/s, where longer
    # ones fail (libedgetpu's b/73181174).
    registers.write64(Register.OUTFEED_CHUNK_LENGTH, 0x20 if high_speed else 0x80)


def _control_runs(registers: Registers, control: int) -> None:
    for register in _SCALAR_RUN_CONTROLS:
        registers.write64(register, control)
    _address_all_tiles(registers)
    for register in _TILE_RUN_CONTROLS:
        registers.write64(register, control)


def _enable_interrupts(registers: Registers) -> None:
    """Enable the interrupts of faults, heat and the memories' test."""
    for register in _INTERRUPTS:
        registers.write64(register, 1)
    value = registers.read32(Register.OMC0_D4)
    registers.write32(Register.OMC0_D4, _HEAT_ENABLE.set(value, 1))
    value = _MEMORY_TEST.set(registers.read32(Register.RAMBIST_CTRL_1), 0)
    registers.write32(Register.RAMBIST_CTRL_1, _MEMORY_TEST_MASK.set(value, 0))
    value = registers.read32(Register.SCU_CTRL_7)
    registers.write32(Register.SCU_CTRL_7, _BOOT_FAILURES.set(value, 0))
    registers.write32(Register.SLV_ABM_EN, 1)
    registers.write32(Register.MST_ABM_EN, 1)
    registers.write32(Register.SLV_ERR_RESP_ISR_MASK, 3)
    registers.write32(Register.MST_ERR_RESP_ISR_MASK, 3)
    value = registers.read32(Register.OMC0_D8)
    registers.write32(Register.OMC0_D8, _HEAT_ENABLE.set(value, 1))
