"""The elements that an instruction adds up for an output, in its order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgec_runtime.edgetpu_file.flatbuffer import DamagedError

from edgec.edgetpu_file.stream import Instruction

LOOPS = 8
WORD_BYTES = 4
"""Bytes of a step of a reduction: four input channels."""
MOST_STEPS = 1 << 20
"""Steps of the longest reduction that is read."""


@dataclass(frozen=True)
class Tap:
    """Four input channels at a place of a kernel.

    Attributes:
        y, x: the place
        word: the channels 4 · word to 4 · word + 3
    """

    y: int
    x: int
    word: int


def counts_of(instruction: Instruction) -> tuple[int, ...]:
    """Return the iterations of the main loops, the innermost first."""
    return tuple(instruction.value(f"loop{level}") + 1 for level in range(LOOPS))


def reduced(instruction: Instruction) -> tuple[int, ...]:
    """Return the levels of the loops over which an output is a sum."""
    mask = instruction.value("sum_over")
    return tuple(level for level in range(LOOPS) if mask >> level & 1)


def addresses(instruction: Instruction) -> list[int]:
    """Return the addresses in narrow memory that the first output reads, in order,
    relative to the first.

    Raises:
        DamagedError: there are too many
    """
    return _addresses(instruction, reduced(instruction))


def origins(instruction: Instruction) -> list[int]:
    """Return the addresses that each output reads first, relative to the first of all.

    Raises:
        DamagedError: there are too many
    """
    sums = reduced(instruction)
    return _addresses(instruction, [k for k in range(LOOPS) if k not in sums])


def _addresses(instruction: Instruction, levels: Sequence[int]) -> list[int]:
    """Return the addresses of some of the loops, while the others do not move."""
    counts = counts_of(instruction)
    size = 1
    for level in levels:
        size *= counts[level]
    if size > MOST_STEPS:
        raise DamagedError(f"loops have {size} steps")
    strides = [1, *itertools.accumulate(counts, lambda a, b: a * b)]
    walk = _Walk.of(instruction)
    # The innermost loop changes fastest, so it is the last of a product.
    ranges = [range(counts[level]) for level in reversed(levels)]
    steps = (
        sum(
            i * strides[level]
            for i, level in zip(indexes, reversed(levels), strict=True)
        )
        for indexes in itertools.product(*ranges)
    )
    return [walk.address(step) for step in steps]


@dataclass(frozen=True)
class _Walk:
    """The loops through narrow memory: counts, and what each adds to the address."""

    counts: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, instruction: Instruction) -> _Walk:
        counts = list[int]()
        strides = list[int]()
        rewind = 0
        for level in range(LOOPS):
            more = instruction.value(f"in.more{level}")
            # A step also takes back what the inner loops have added.
            stride = instruction.value(f"in.step{level}") + rewind
            counts.append(more + 1)
            strides.append(stride)
            rewind += more * stride
        return cls(tuple(counts), tuple(strides))

    def address(self, step: int) -> int:
        """Return the address at a step, relative to the first."""
        at = 0
        for count, stride in zip(self.counts, self.strides, strict=True):
            step, index = divmod(step, count)
            at += index * stride
        return at


@dataclass(frozen=True)
class Kernel:
    """A kernel, as it lies in narrow memory.

    Attributes:
        height, width: places
        words: words of channels that an output reads at a place
        position: bytes from a place to the next in x, dilation included
    """

    height: int
    width: int
    words: int
    position: int

    def taps(self) -> Iterator[Tap]:
        """Yield all steps of the sum."""
        for y, x, word in itertools.product(
            range(self.height), range(self.width), range(self.words)
        ):
            yield Tap(y, x, word)


def taps(found: Sequence[int], kernel: Kernel) -> tuple[Tap, ...] | None:
    """Return the steps of a sum to which addresses belong; None if they are others.

    found: the addresses, relative to the first.
    """
    in_row = kernel.width * kernel.words
    if len(found) != kernel.height * in_row or len(set(found)) != len(found):
        return None
    # Only the distance of rows of the image is not known beforehand.
    row = sorted(found)[in_row] if kernel.height > 1 else 0
    by_address = {
        t.y * row + t.x * kernel.position + WORD_BYTES * t.word: t
        for t in kernel.taps()
    }
    if set(by_address) != set(found):
        return None
    return tuple(by_address[address] for address in found)
