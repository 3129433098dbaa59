"""The instructions of a program that compute, by the numbers they scale with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from edgec_runtime.edgetpu_file.executable import Executable

from edgec.edgetpu_file.fields import WORD, bits_float, float_bits
from edgec.edgetpu_file.layouts import COMPUTE, CURVE
from edgec.edgetpu_file.programs import tiles_of
from edgec.edgetpu_file.reuse.window import LOOPS, counts_of, reduced
from edgec.edgetpu_file.stream import Instruction, split


@dataclass(frozen=True)
class Numbers:
    """The numbers of a computing instruction that depend on scales and zero points."""

    multiplier: float
    most: float
    least: float
    in_zero: int
    weight_zero: int
    out_zero: int
    offset: int

    @classmethod
    def of(cls, instruction: Instruction) -> Numbers:
        """Return those of an instruction."""
        value = instruction.value
        return cls(
            bits_float(value("multiplier")),
            bits_float(value("most")),
            bits_float(value("least")),
            value("in_zero"),
            value("weight_zero"),
            value("out_zero"),
            value("offset"),
        )

    @property
    def copies(self) -> bool:
        """Return whether values pass as they are."""
        return self.multiplier == 1.0 and math.isinf(self.most) and not self.offset

    def fields(self) -> dict[str, int]:
        """Return the values of the fields."""
        return {
            "multiplier": float_bits(self.multiplier),
            "most": float_bits(self.most),
            "least": float_bits(self.least),
            "in_zero": self.in_zero,
            "weight_zero": self.weight_zero,
            "out_zero": self.out_zero,
            "offset": self.offset,
        }


@dataclass(frozen=True)
class Place:
    """An instruction in the list of a program.

    Attributes:
        index: its place in the list
        at: its first byte in the file
        instruction: the instruction
    """

    index: int
    at: int
    instruction: Instruction

    @property
    def tiles(self) -> int:
        """Return the number of tiles that execute it."""
        return len([*tiles_of(self.instruction.value("tiles"))])

    def sums(self) -> int:
        """Return the number of steps of the sum of an output."""
        counts = counts_of(self.instruction)
        return math.prod(counts[level] for level in reduced(self.instruction))

    def outputs(self) -> int:
        """Return how many groups of outputs it computes on a tile."""
        counts, sums = counts_of(self.instruction), reduced(self.instruction)
        return math.prod(counts[k] for k in range(LOOPS) if k not in sums)


@dataclass(frozen=True)
class Step:
    """Consecutive computing instructions with the same numbers.

    Attributes:
        numbers: these
        places: the instructions
        curve: whether a curve is loaded before it
    """

    numbers: Numbers
    places: tuple[Place, ...]
    curve: bool

    @property
    def first(self) -> Instruction:
        """Return the first instruction."""
        return self.places[0].instruction


@dataclass
class Edits:
    """New instructions, by their places in a file.

    Attributes:
        changed: the instructions by their first bytes
    """

    changed: dict[int, Instruction] = field(default_factory=dict)

    def put(self, place: Place, values: dict[str, int]) -> None:
        """Change fields of an instruction."""
        instruction = self.changed.get(place.at, place.instruction)
        assert instruction.layout is not None
        bits = instruction.bits
        for name, value in values.items():
            bits = instruction.layout.field(name).put(bits, value)
        self.changed[place.at] = Instruction(instruction.word, bits, instruction.layout)

    def apply(self, content: bytearray) -> None:
        """Write the instructions into a file."""
        for at, instruction in self.changed.items():
            data = instruction.to_bytes
            content[at : at + len(data)] = data


def places_of(data: bytes, executable: Executable) -> tuple[Place, ...]:
    """Return all instructions of a program whose opcode is known."""
    places = list[Place]()
    for chunk in executable.instructions:
        for instruction in split(chunk.span.of(data)):
            at = chunk.span.start + WORD * instruction.word
            places.append(Place(len(places), at, instruction))
    return tuple(places)


def steps_of(places: Sequence[Place]) -> tuple[Step, ...]:
    """Return the computing instructions, neighbours with the same numbers together,
    without those that copy."""
    steps = list[Step]()
    curve = False
    for place in places:
        opcode = place.instruction.opcode
        curve = curve or opcode == CURVE
        if opcode not in COMPUTE or place.instruction.layout is None:
            continue
        numbers = Numbers.of(place.instruction)
        if numbers.copies:
            continue
        if steps and steps[-1].numbers == numbers and not curve:
            last = steps.pop()
            steps.append(Step(numbers, (*last.places, place), last.curve))
        else:
            steps.append(Step(numbers, (place,), curve))
        curve = False
    return tuple(steps)
