"""Splits a chunk of instructions, and counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from edgec.edgetpu_file.fields import OPCODE_BITS, WORD, Field, Layout
from edgec.edgetpu_file.layouts import LAYOUTS

_OPCODE = Field("opcode", *OPCODE_BITS)


@dataclass(frozen=True)
class Instruction:
    """An instruction of a chunk.

    Attributes:
        word: index of its first word in the chunk
        bits: the instruction as one number
        layout: what its bits mean; None for a word with an unknown opcode, or one that
            begins an instruction which the chunk's end cuts short
    """

    word: int
    bits: int
    layout: Layout | None

    @property
    def words(self) -> int:
        """Return its length."""
        return 1 if self.layout is None else self.layout.words

    @property
    def opcode(self) -> int:
        """Return the opcode."""
        return _OPCODE.of(self.bits)

    @property
    def name(self) -> str:
        """Return the mnemonic; that of an unknown opcode is its number."""
        return f"{self.opcode:#04x}" if self.layout is None else self.layout.name

    def value(self, name: str) -> int:
        """Return the value of a field of a known instruction."""
        assert self.layout is not None
        return self.layout.value(self.bits, name)

    @property
    def to_bytes(self) -> bytes:
        """Return the bytes."""
        return self.bits.to_bytes(WORD * self.words, "little")


def split(chunk: bytes) -> Iterator[Instruction]:
    """Yield the instructions of a chunk; bytes after the last whole word are left out."""
    word, end = 0, len(chunk) // WORD
    while word < end:
        first = int.from_bytes(chunk[WORD * word : WORD * (word + 1)], "little")
        layout = LAYOUTS.get(_OPCODE.of(first))
        if layout is not None and word + layout.words > end:
            layout = None
        words = 1 if layout is None else layout.words
        bits = int.from_bytes(chunk[WORD * word : WORD * (word + words)], "little")
        yield Instruction(word, bits, layout)
        word += words


def kinds(instructions: Iterable[Instruction]) -> dict[str, int]:
    """Return how many instructions there are of each kind, the most frequent first."""
    return dict(Counter(i.name for i in instructions).most_common())
