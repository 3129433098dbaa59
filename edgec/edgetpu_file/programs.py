"""The facts about a program: its instructions, its parameters and the memory it uses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgec_runtime.edgetpu_file.executable import Executable, Field
from edgec_runtime.edgetpu_file.flatbuffer import DamagedError

from edgec.edgetpu_file.fields import WORD
from edgec.edgetpu_file.layouts import COMPUTE
from edgec.edgetpu_file.stream import Instruction, kinds, split

TILES = 16
NARROW_BYTES = 192 << 10
"""Narrow memory of a tile, for activations (docs/ARCHITECTURE.md in
FrederikRogalski/tinycoral)."""
WIDE_BYTES = 520 << 10
"""Wide memory of a tile, for parameters and the program's buffers: files seen use
addresses up to here, 8 KiB above the 512 that is said of it."""
WIDE_UNIT = 64
"""Bytes of a unit of addresses in wide memory."""
_ROW = 256
"""Bytes of a row of wide memory."""
_BUFFER_UNITS = 1024
"""Units of parameters that the buffer of an infeed has."""


@dataclass(frozen=True)
class Piece:
    """A part of the parameters that is written to wide memory.

    Attributes:
        tiles: the tiles that get it, a bit each
        start: its first byte in their wide memory
        size: its bytes
        offset: its first byte in the parameters
        lanes: bytes of a row as they are sent: 64, 128, 192 or 256
    """

    tiles: int
    start: int
    size: int
    offset: int
    lanes: int

    @property
    def memory(self) -> int:
        """Return the bytes of wide memory: each row takes a whole one of 256 bytes."""
        return self.size * _ROW // self.lanes


@dataclass(frozen=True)
class Program:
    """The facts about the instructions of an executable.

    Attributes:
        bytes: their size
        chunks: how many parts the driver sends
        kinds: how many there are of each kind, the most frequent first
        tiles: the tiles that compute, a bit each
        steps: for each tile, the cycles of its computing instructions: in one, it
            computes up to 64 outputs from 4 inputs of 8 bits
        buffers: the first byte of wide memory that the program writes while it
            computes; None if it writes none
        driver_fields: the halves of addresses that the driver fills in
    """

    bytes: int
    chunks: int
    kinds: dict[str, int]
    tiles: int
    steps: tuple[int, ...]
    buffers: int | None
    driver_fields: tuple[Field, ...]

    @property
    def words(self) -> int:
        """Return the number of words."""
        return self.bytes // WORD


def instructions_of(data: bytes, executable: Executable) -> Iterator[Instruction]:
    """Yield the instructions of all chunks."""
    for chunk in executable.instructions:
        yield from split(chunk.span.of(data))


def program_of(data: bytes, executable: Executable) -> Program:
    """Return the facts about an executable of a file."""
    instructions = [*instructions_of(data, executable)]
    steps = [0] * TILES
    tiles = 0
    buffers = list[int]()
    for i in instructions:
        if i.layout is None:
            continue
        if i.opcode in COMPUTE:
            tiles |= i.value("tiles")
            count = math.prod(i.value(f"loop{level}") + 1 for level in range(8))
            for tile in tiles_of(i.value("tiles")):
                steps[tile] += count
        elif i.layout.name == "narrow_to_wide":
            buffers.append(WIDE_UNIT * i.value("wide"))
        elif i.layout.name in ("receive_a", "receive_b"):
            buffers.append(WIDE_UNIT * i.value("to"))
    # A buffer at 0 would overwrite parameters: there it is an address of another kind.
    above = [at for at in buffers if at]
    return Program(
        bytes=sum(chunk.span.size for chunk in executable.instructions),
        chunks=len(executable.instructions),
        kinds=kinds(instructions),
        tiles=tiles,
        steps=tuple(steps),
        buffers=min(above, default=None),
        driver_fields=tuple(
            f for chunk in executable.instructions for f in chunk.fields
        ),
    )


def tiles_of(mask: int) -> Iterator[int]:
    """Yield the numbers of the tiles in a mask."""
    return (tile for tile in range(TILES) if mask >> tile & 1)


def pieces_of(data: bytes, executable: Executable) -> tuple[Piece, ...]:
    """Return where a program that caches parameters writes them, in their order.

    Raises:
        DamagedError: the instructions do not write all parameters once
    """
    receives = list[Instruction]()
    infeeds = list[Instruction]()
    for i in instructions_of(data, executable):
        if i.layout is None:
            continue
        if i.layout.name == "receive_a":
            receives.append(i)
        elif i.layout.name == "infeed" and not i.value("activations"):
            infeeds.append(i)
    pieces = tuple(_pieces(receives, infeeds))
    size = sum(piece.size for piece in pieces)
    if size != executable.parameters.size:
        raise DamagedError(
            f"the instructions cache {size} bytes of {executable.parameters.size}"
        )
    return pieces


def _pieces(
    receives: Sequence[Instruction], infeeds: Sequence[Instruction]
) -> Iterator[Piece]:
    """Yield the pieces of a caching program; each is sent and received once, in order."""
    if len(receives) != len(infeeds):
        raise DamagedError(
            f"parameters are sent {len(infeeds)} times and received {len(receives)} times"
        )
    offset = 0
    for receive, infeed in zip(receives, infeeds, strict=True):
        tiles = receive.value("tiles")
        if tiles != infeed.value("to_tiles"):
            raise DamagedError("parameters are sent to tiles that do not receive them")
        size = WIDE_UNIT * _units(infeed)
        # The rows of weights begin 2 units before this address; those of biases and
        # scales stand before them where they have an address of their own.
        start = receive.value("to") - 2
        if receive.value("ahead"):
            rows = receive.value("ahead.last") - receive.value("ahead.first") + 1
            start -= rows * _ROW // WIDE_UNIT
        if start < 0:
            raise DamagedError("parameters are written before the memory's start")
        lanes = WIDE_UNIT * (infeed.value("lanes_more") + 1)
        yield Piece(tiles, WIDE_UNIT * start, size, offset, lanes)
        offset += size


def _units(infeed: Instruction) -> int:
    """Return the units of 64 bytes that an infeed of parameters sends."""
    # A single unit is written without loops.
    if not infeed.value("buffer.more0"):
        return 1
    whole = _BUFFER_UNITS * infeed.value("buffer.more1")
    partly = infeed.value("?203")
    return whole + (infeed.value("last_more") + 1 if partly else _BUFFER_UNITS)
