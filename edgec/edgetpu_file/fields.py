"""Fields of an instruction, and layouts that are lists of them.

Bit 0 is the lowest bit of the first byte; an instruction is one little-endian number.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

WORD = 16
"""Bytes of a word: instructions are whole words."""
OPCODE_BITS = (6, 6)
"""First bit and width of an opcode, in the first word of an instruction."""


class Kind(enum.Enum):
    """How a field is written in text."""

    NUMBER = "a decimal number"
    SIGNED = "a decimal number in two's complement"
    MASK = "a hexadecimal number, whose bits have their own meanings"
    FLOAT = "the bits of a float32"
    UNKNOWN = "a hexadecimal number: what its bits mean is not known"


@dataclass(frozen=True)
class Field:
    """Bits of an instruction.

    Attributes:
        name: its name; that of unknown bits is "?" with the position of the first
        start: position of its lowest bit
        width: number of bits
        kind: how it is written
    """

    name: str
    start: int
    width: int
    kind: Kind = Kind.NUMBER

    def of(self, instruction: int) -> int:
        """Return the value; that of a signed field may be negative."""
        value = (instruction >> self.start) & ((1 << self.width) - 1)
        if self.kind is Kind.SIGNED and value >> (self.width - 1):
            value -= 1 << self.width
        return value

    def put(self, instruction: int, value: int) -> int:
        """Return an instruction with another value in the field.

        Raises ValueError: the value does not fit.
        """
        least = -(1 << (self.width - 1)) if self.kind is Kind.SIGNED else 0
        if not least <= value < least + (1 << self.width):
            raise ValueError(
                f"{value} does not fit the {self.width} bits of {self.name}"
            )
        mask = ((1 << self.width) - 1) << self.start
        return instruction & ~mask | (value << self.start) & mask


@dataclass(frozen=True)
class Layout:
    """What the bits of one kind of instruction mean.

    Attributes:
        name: the mnemonic
        opcode: bits 6 to 11
        words: its length
        fields: all bits in order, the unknown ones too
    """

    name: str
    opcode: int
    words: int
    fields: tuple[Field, ...]

    @classmethod
    def new(cls, name: str, opcode: int, words: int, known: Iterable[Field]) -> Layout:
        """Return a layout; bits that are in no known field become unknown ones."""
        head = (
            Field("if", 0, 1),
            Field("predicate", 1, 3),
            Field("is", 4, 1),
            Field("opcode", *OPCODE_BITS),
        )
        fields = list[Field]()
        position = 0
        for field in sorted((*head, *known), key=lambda f: f.start):
            assert field.start >= position, (
                f"{name}: {field.name} overlaps another field"
            )
            fields += unknown(position, field.start)
            fields.append(field)
            position = field.start + field.width
        fields += unknown(position, 8 * WORD * words)
        return cls(name, opcode, words, tuple(fields))

    def field(self, name: str) -> Field:
        """Return a field by its name.

        Raises KeyError: the layout has no such field.
        """
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Field]:
        return {field.name: field for field in self.fields}

    def value(self, instruction: int, name: str) -> int:
        """Return the value of a field by its name."""
        return self.field(name).of(instruction)


def unknown(start: int, end: int) -> Iterator[Field]:
    """Yield the bits from `start` to before `end` as a field without a meaning."""
    if end > start:
        yield Field(f"?{start}", start, end - start, Kind.UNKNOWN)


def unknowns(*places: tuple[int, int]) -> tuple[Field, ...]:
    """Return bits whose limits alone are known, from starts and widths."""
    return tuple(f for start, width in places for f in unknown(start, start + width))


def float_bits(value: float) -> int:
    """Return the bits of the nearest float32."""
    bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return bits


def bits_float(bits: int) -> float:
    """Return the float32 with these bits."""
    value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return value
