"""The state of the chip, and what goes on in it at the same time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgec.edgetpu_file.layouts import TILE_COUNTERS
from edgec.edgetpu_file.programs import NARROW_BYTES, TILES, WIDE_BYTES
from edgec.edgetpu_file.stream import Instruction

Array = NDArray[Any]
Condition = Callable[[], bool]
Work = Iterator[Condition]
"""A unit at work: what it yields must be true before it goes on."""

ROW = 256
"""Bytes of a row of wide memory, and of a packet on the ring."""
COUNTERS = {name: k for k, name in enumerate(TILE_COUNTERS)}


class NotUnderstoodError(Exception):
    """An instruction, or a value in it, whose meaning is not known."""

    def __init__(self, instruction: Instruction, why: str) -> None:
        """Name the instruction."""
        at = f"instruction {instruction.name} at word {instruction.word}"
        super().__init__(f"{at} (opcode {instruction.opcode:#04x}): {why}")


class StuckError(Exception):
    """All units wait for each other, or data are left over at the end."""


class Curve(Protocol):
    """A function that a computing instruction applies to its results."""

    def of(self, i: Instruction, x: Array) -> Array:
        """Return the function of numbers."""


@dataclass
class Unit:
    """A unit that executes its instructions in order.

    Attributes:
        name: for messages
        queue: what it has to do, the first is begun; with the instruction
    """

    name: str
    queue: deque[tuple[Instruction, Work]] = field(default_factory=deque)
    _waits: Condition | None = None

    @property
    def idle(self) -> bool:
        """Return whether it has nothing to do."""
        return not self.queue

    def advance(self) -> bool:
        """Work until it waits once; return whether it did anything."""
        if not self.queue or not (self._waits is None or self._waits()):
            return False
        self._waits = next(self.queue[0][1], None)
        if self._waits is None:
            self.queue.popleft()
        return True


UNITS = (
    *("compute", "wide_to_narrow", "narrow_to_wide", "receive_a", "receive_b", "send"),
    *("mesh_south", "mesh_west", "mesh_north", "mesh_east"),
)
"""The units of a tile, by the bits of a fence."""


class Chip:
    """All state of the chip.

    Attributes:
        narrow: narrow memory, bytes [tile, 192 KiB]
        wide: wide memory, bytes [tile, 520 KiB]
        scaling: the rows of biases or multipliers that the next outputs get, bytes [tile,
            entry 0 or 1, 256]
        counters: the tiles' counters [tile, counter]
        curves: the curves that the tiles have loaded, by the tile
        packets: what has come on the ring for a tile's unit: 256 bytes or fewer each
        links: the words that have come from a neighbour, by the direction they go in and
            the tile
        packets_to_scalar_core: what has come on the ring for the scalar core
        sends: how many instructions have sent to receive_a and to the scalar core, and
            how many packets have gone to receive_b
        units: the units of the tiles, by tile and name
    """

    def __init__(self) -> None:
        """Begin with zeros everywhere."""
        self.narrow = np.zeros((TILES, NARROW_BYTES), np.uint8)
        self.wide = np.zeros((TILES, WIDE_BYTES), np.uint8)
        self.scaling = np.zeros((TILES, 2, ROW), np.uint8)
        self.counters = np.zeros((TILES, len(TILE_COUNTERS)), np.int64)
        self.curves = dict[int, Curve]()
        self.packets = {
            (tile, unit): deque[bytes]()
            for tile in range(TILES)
            for unit in ("receive_a", "receive_b")
        }
        self.packets_to_scalar_core = deque[bytes]()
        self.sends = [0, 0]
        self.links: dict[tuple[str, int], deque[int]] = {
            (unit, tile): deque() for unit in UNITS[6:] for tile in range(TILES)
        }
        self.units = {
            (tile, name): Unit(f"{name} of tile {tile}")
            for tile in range(TILES)
            for name in UNITS
        }

    def count(self, tile: int, counter: str, by: int = 1) -> None:
        """Add to a counter of a tile."""
        self.counters[tile, COUNTERS[counter]] += by

    def reached(self, tile: int, needs: Sequence[tuple[int, int]]) -> Condition:
        """Return whether counters have reached values, as a condition."""
        values = self.counters[tile]
        return lambda: all(values[counter] >= value for counter, value in needs)

    def run(self) -> bool:
        """Let each unit work until it waits once; return whether any did anything.

        So a packet is read before the next one arrives, if its reader waits for nothing
        else: programs that gather an activation rely on it.
        """
        moved = False
        for unit in self.units.values():
            if unit.queue:
                moved |= unit.advance()
        return moved
