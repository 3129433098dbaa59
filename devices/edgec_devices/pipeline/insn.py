"""What the model knows of an instruction: its kind, and the registers it reads and
writes.
"""

from __future__ import annotations

from typing import NamedTuple

SP = 31
VECTOR = 32
FLAGS = 64
"""Registers are numbers: x0-x30 are 0-30, the stack pointer 31, v0-v31 32-63, the
condition flags 64.

The zero register is none: it makes nobody wait.
"""

UNKNOWN = "unknown"


class Insn(NamedTuple):
    """One A64 instruction.

    kind: a name that cores/*.toml gives times for, with `_q` at its end if it works on
    128-bit vectors. late: the registers needed later than `reads`: the accumulator of a
    multiplication, the data of a store. base: the address register that a load or store
    also moves on, ready one cycle after the start; or None.
    """

    kind: str
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    base: int | None = None


def field(word: int, low: int, width: int) -> int:
    """`width` bits of the word from bit `low` on."""
    return word >> low & (1 << width) - 1


def bit(word: int, number: int) -> bool:
    """Return whether a bit of the word is 1."""
    return bool(word >> number & 1)


def general(*numbers: int) -> tuple[int, ...]:
    """These general registers, without the zero register."""
    return tuple(n for n in numbers if n != 31)


def vector(*numbers: int) -> tuple[int, ...]:
    """These vector registers."""
    return tuple(VECTOR + n for n in numbers)
