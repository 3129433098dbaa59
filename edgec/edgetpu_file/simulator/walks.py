"""Nested loops over addresses, and the waits that cut them into parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgec.edgetpu_file.simulator.chip import NotUnderstoodError
from edgec.edgetpu_file.stream import Instruction

Array = NDArray[Any]
LARGEST = 1 << 20
"""Steps of the longest walk; those of programs seen have far fewer."""


@dataclass(frozen=True)
class Walk:
    """A walk through memory. All tuples are in order of the loops, the innermost first.

    Attributes:
        base: the first address
        counts: iterations of each loop
        strides: what each loop adds to the address
        entry: size of an entry of a ring of two entries; 0 without a ring
        ring_level: the loop whose iterations, with those above it, are the entries
        last_level: the loop in whose last iteration the innermost one has `last_count`
            iterations; 0 where there is none
        last_count: iterations
    """

    base: int
    counts: tuple[int, ...]
    strides: tuple[int, ...]
    entry: int = 0
    ring_level: int = 0
    last_level: int = 0
    last_count: int = 0

    @classmethod
    def read(
        cls, instruction: Instruction, name: str, levels: int, ring: tuple[int, int]
    ) -> Walk:
        """Return the walk of an instruction.

        The steps in an instruction go from the last address of the inner loops to the
        next one; strides are from first to first.

        Args:
            instruction: it
            name: of the walk's fields
            levels: number of its loops
            ring: size of an entry, and the loop of the entries

        Raises:
            NotUnderstoodError: it is too long, or has an end in a loop that is not there
        """
        strides, counts, inner = list[int](), list[int](), 0
        for level in range(levels):
            count = instruction.value(f"{name}.more{level}") + 1
            stride = instruction.value(f"{name}.step{level}") + inner
            inner += (count - 1) * stride
            counts.append(count)
            strides.append(stride)
        if math.prod(counts) > LARGEST:
            raise NotUnderstoodError(
                instruction, f"{name} has {math.prod(counts)} steps"
            )
        last_level = _optional(instruction, f"{name}.last_level")
        if last_level >= levels:
            raise NotUnderstoodError(instruction, f"{name} has no loop {last_level}")
        last_count = _optional(instruction, f"{name}.last_more") + 1
        base = instruction.value(name)
        made = tuple(counts), tuple(strides)
        return cls(base, *made, *ring, last_level, last_count)

    def iterations(self, level: int) -> int:
        """Return how often the loops from one on are iterated, all together."""
        return math.prod(self.counts[level:])

    def within(self, level: int) -> int:
        """Return the steps within one iteration of a loop."""
        return math.prod(self.counts[:level])

    def addresses(self) -> Array:
        """Return the addresses in order, those that a last iteration has not left out.

        Each is in the units of the walk [steps].
        """
        at = np.array([self.base], np.int64)
        for level in range(len(self.counts) - 1, -1, -1):
            steps = self.strides[level] * np.arange(self.counts[level])
            at = (at[:, None] + steps).reshape(-1)
            if level == self.ring_level and self.entry:
                at = at + np.arange(len(at)) % 2 * self.entry
        return at

    def kept(self) -> Array:
        """Return which steps are done, as booleans [steps]."""
        kept = np.ones(math.prod(self.counts), bool)
        if self.last_level:
            shape = (
                -1,
                self.counts[self.last_level],
                self.within(self.last_level) // self.counts[0],
                self.counts[0],
            )
            kept.reshape(shape)[:, -1, :, self.last_count :] = False
        return kept


def within(i: Instruction, name: str, addresses: Array, size: int, end: int) -> Array:
    """Return addresses, if `size` bytes at each of them are before the memory's end.

    Raises:
        NotUnderstoodError: they are not
    """
    if addresses.size and not 0 <= addresses.min() <= addresses.max() <= end - size:
        raise NotUnderstoodError(i, f"{name} leaves the memory of {end} bytes")
    return addresses


def _optional(instruction: Instruction, name: str) -> int:
    assert instruction.layout is not None
    names = {f.name for f in instruction.layout.fields}
    return instruction.value(name) if name in names else 0


@dataclass(frozen=True)
class Wait:
    """What a unit waits for.

    Attributes:
        counter: of the tile, its number in TILE_COUNTERS
        level: the loop
        value, step: iteration k of the loop, and those above it, begins when the counter
            is at least value + k * step
    """

    counter: int
    level: int
    value: int
    step: int

    @classmethod
    def read(cls, instruction: Instruction, name: str) -> Wait | None:
        """Return the wait of an instruction, if it has this one."""
        if not instruction.value(f"{name}.on"):
            return None
        fields = ("counter", "level", "value", "step")
        return cls(*(instruction.value(f"{name}.{field}") for field in fields))

    def needs(self, iteration: int) -> tuple[int, int]:
        """Return the counter, and what it must have reached."""
        return self.counter, self.value + iteration * self.step


def waits_of(instruction: Instruction, names: Sequence[str]) -> list[Wait]:
    """Return the waits that an instruction has."""
    found = (Wait.read(instruction, name) for name in names)
    return [wait for wait in found if wait is not None]


def needs_at(waits: Sequence[Wait], walk: Walk, step: int) -> list[tuple[int, int]]:
    """Return the counters, and what they must have reached, before a step of a walk."""
    found = list[tuple[int, int]]()
    for wait in waits:
        size = walk.within(wait.level)
        if step % size == 0:
            found.append(wait.needs(step // size))
    return found
