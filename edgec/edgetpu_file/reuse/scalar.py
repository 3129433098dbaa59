"""The words of the scalar core that depend on the scale and zero point of a SOFTMAX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgec.edgetpu_file.fields import float_bits
from edgec.edgetpu_file.reuse.program import Place
from edgec.edgetpu_file.stream import Instruction

_SUBTRACT, _TO_FLOAT, _MULTIPLY = 0x22, 0x10, 0x34
"""Operations of the scalar core: minus an immediate number, integer to float32, times an
immediate float32 (coral/isa/scalar_core.py in FrederikRogalski/tinycoral)."""
_LOOPS = 3
"""It goes over the numbers for the largest, for the sum and for the shares."""


@dataclass(frozen=True)
class SoftmaxWords:
    """The words of a SOFTMAX.

    Attributes:
        zero_points: those that subtract the zero point
        scales: those that multiply by the scale
        zero_point: the number that they subtract
        length: how many numbers there are
    """

    zero_points: tuple[Place, ...]
    scales: tuple[Place, ...]
    zero_point: int
    length: int

    def edits(
        self, zero_point: int, scale: float
    ) -> Iterator[tuple[Place, dict[str, int]]]:
        """Yield the new values of the words."""
        for place in self.zero_points:
            yield place, {"immediate": zero_point}
        for place in self.scales:
            yield place, {"immediate": float_bits(scale)}


def softmax_words(places: Sequence[Place]) -> SoftmaxWords | None:
    """Return the words of the only SOFTMAX of a program; None without it."""
    found = list[tuple[Place, Place]]()
    for first, second, third in zip(places, places[1:], places[2:], strict=False):
        kinds = tuple(_alu(p.instruction) for p in (first, second, third))
        if kinds == (_SUBTRACT, _TO_FLOAT, _MULTIPLY):
            found.append((first, third))
    values = {
        (a.instruction.value("immediate"), b.instruction.value("immediate"))
        for a, b in found
    }
    lengths = {
        p.instruction.value("times") for p in places if p.instruction.name == "repeat"
    }
    # The last part is moved in loops of their own, which are shorter.
    if len(found) != _LOOPS or len(values) != 1 or not lengths:
        return None
    return SoftmaxWords(
        tuple(a for a, _ in found),
        tuple(b for _, b in found),
        values.pop()[0],
        max(lengths),
    )


def _alu(instruction: Instruction) -> int | None:
    if instruction.layout is None or instruction.name != "scalar":
        return None
    return instruction.value("alu")
