"""The chip's registers that a host reads and writes by control transfers.

Addresses and fields: driver/config/beagle/beagle_csr_offsets.h and
driver/config/beagle_csr_helper.h in google-coral/libedgetpu. A register that has no
rule here keeps what was written, and reads 0 before.
"""

from __future__ import annotations

from collections.abc import Callable

OMC0_DC = 0x1A0DC
SCU_CTRL_3 = 0x1A318
SCALAR_RUN = 0x44018
HIB_ERROR = 0x486F0
TILE_CONFIG = 0x48788
OUTFEED_CHUNK = 0x4C058
"""Length of a chunk that the chip sends, in units of 8 bytes."""
DESCRIPTORS = 0x4C148
"""Which events it sends: bits 0 to 3 for transfers of tag 0 to 3, 4 to 7 for the scalar
core's interrupts."""

_CORE = range(0x40000, 0x50000)
"""What does not answer while the chip sleeps."""
_SLEEP_SHIFT = 22
_POWER_SHIFT = 8
_ASLEEP = 2
_RUN_CONTROLS = (
    SCALAR_RUN,
    0x44158,
    0x44198,
    0x441D8,
    0x44218,
    0x400C0,
    0x40110,
    0x40150,
    0x40190,
    0x401D0,
    0x40210,
    0x40250,
    0x40298,
    0x402E0,
    0x40328,
)
"""Run controls of the scalar core with its four engines, and of the ten engines of the
tiles; 1 is running."""
WARNING = 1 << 31
"""OMC0_DC: the chip is too hot."""
_WARNING_CLEAR = 1 << 29


class AsleepError(Exception):
    """A register of the core is read or written while the chip sleeps."""


class Registers:
    """Values by address."""

    def __init__(self, asleep: Callable[[], None]) -> None:
        """Begin as after power-on.

        asleep: called when the host puts the chip to sleep, which empties it
        """
        self._values: dict[int, int] = {}
        self._asleep = asleep

    def __getitem__(self, address: int) -> int:
        """Return a value as the chip itself has it."""
        return self._values.get(address, 0)

    def __setitem__(self, address: int, value: int) -> None:
        """Change a value from inside."""
        self._values[address] = value

    def read(self, address: int, size: int) -> bytes:
        """Return what the host reads: 4 or 8 bytes.

        Raises:
            AsleepError: the register is the core's, which sleeps
        """
        self._check(address)
        value: int = self[address] & ((1 << 8 * size) - 1)
        return value.to_bytes(size, "little")

    def write(self, address: int, data: bytes) -> None:
        """Take what the host writes.

        Raises:
            AsleepError: the register is the core's, which sleeps
        """
        self._check(address)
        value = int.from_bytes(data, "little")
        if address == SCU_CTRL_3:
            self._set_power(value)
        elif address == OMC0_DC:
            clear = WARNING if value & _WARNING_CLEAR else 0
            self[address] = value & ~_WARNING_CLEAR & ~clear
        else:
            self[address] = value

    @property
    def sleeps(self) -> bool:
        """Return whether the core is held in reset."""
        return (self[SCU_CTRL_3] >> _POWER_SHIFT) & 3 == _ASLEEP

    @property
    def runs(self) -> bool:
        """Return whether all engines run, so that instructions are executed."""
        return not self.sleeps and all(self[a] == 1 for a in _RUN_CONTROLS)

    def _check(self, address: int) -> None:
        if self.sleeps and address in _CORE:
            raise AsleepError(f"register {address:#x} while the chip sleeps")

    def _set_power(self, value: int) -> None:
        """Follow rg_force_sleep (bits 22 and 23): 3 puts the chip to sleep, which its
        state in bits 8 and 9 then says; 2 wakes it.
        """
        before = self.sleeps
        state = _ASLEEP if (value >> _SLEEP_SHIFT) & 3 == 3 else 0
        self[SCU_CTRL_3] = value & ~(3 << _POWER_SHIFT) | state << _POWER_SHIFT
        if self.sleeps and not before:
            for address in [a for a in self._values if a in _CORE]:
                del self._values[address]
            self._asleep()
