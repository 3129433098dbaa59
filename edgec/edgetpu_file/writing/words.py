"""Makes instructions by their mnemonics and fields, and numbers those for tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgec_runtime.edgetpu_file.executable import AddressOf

from edgec.edgetpu_file.fields import OPCODE_BITS, WORD, Field, Kind, float_bits
from edgec.edgetpu_file.layouts import BY_NAME

Values = dict[str, int | float]
ALL_TILES = 0xFFFF
_IMMEDIATE = 70
"""The bit of a scalar word where the driver writes a half of an address."""
_ORDERED = range(0x01, 0x1B)
"""Opcodes of the instructions for tiles."""


@dataclass(frozen=True)
class AddressField:
    """A half of an address that the driver writes.

    Attributes:
        bit: its lowest bit in the program
        of: the kind of buffer
        upper: whether it is the upper half
    """

    bit: int
    of: AddressOf
    upper: bool


class Words:
    """A program that grows.

    Attributes:
        fields: what the driver writes
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._parts = list[bytes]()
        self._words = 0
        self._number = 0
        self.fields = list[AddressField]()

    @property
    def count(self) -> int:
        """Return the number of words."""
        return self._words

    def add(self, name: str, values: Values | None = None) -> None:
        """Append an instruction; fields that are not given are 0."""
        layout = BY_NAME[name]
        values = dict(values or {})
        if layout.opcode in _ORDERED:
            values["number"] = self._number
            self._number += 1
        bits = Field("opcode", *OPCODE_BITS).put(0, layout.opcode)
        for key, value in values.items():
            field = layout.field(key)
            number = float_bits(value) if field.kind is Kind.FLOAT else int(value)
            bits = field.put(bits, number)
        self._parts.append(bits.to_bytes(WORD * layout.words, "little"))
        self._words += layout.words

    def address(self, of: AddressOf, register: int, *, upper: bool) -> None:
        """Append a word that puts a half of an address into a register."""
        bit = 8 * WORD * self._words + _IMMEDIATE
        self.fields.append(AddressField(bit, of, upper))
        self.add("scalar", {"alu": 0x2F, "alu.to": register})

    def done(self) -> bytes:
        """Return the program between its first and last word, which have its length."""
        length = 8 * WORD * (self._words - 2)
        start = BY_NAME["start"]
        first = Field("opcode", *OPCODE_BITS).put(0, start.opcode)
        first = start.field("bits").put(first, length)
        return b"".join((first.to_bytes(WORD, "little"), *self._parts[1:]))


def loops(
    name: str, counts: Sequence[int], strides: Sequence[int], levels: int
) -> Values:
    """Return the fields of a walk.

    Args:
        name: of the walk
        counts, strides: of the loops, the innermost first; the others are iterated once,
            and go back to the beginning
        levels: how many loops the instruction has
    """
    values: Values = {}
    inner = 0
    for level in range(levels):
        count = counts[level] if level < len(counts) else 1
        stride = strides[level] if level < len(strides) else 0
        values[f"{name}.step{level}"] = stride - inner
        values[f"{name}.more{level}"] = count - 1
        inner += (count - 1) * stride
    return values


def flags(*bits: int) -> Values:
    """Return fields without a known meaning that are 1 in all programs of a kind."""
    return {f"?{bit}": 1 for bit in bits}
