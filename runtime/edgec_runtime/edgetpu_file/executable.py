"""The executables of a compiled file: instructions, parameters, layers, transfers.

Tables and fields are those of `executable/executable.fbs` in google-coral/libedgetpu.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Optional, Tuple, Type, TypeVar, Union

from .flatbuffer import DamagedError, Span, Table

_Member = TypeVar("_Member", bound=enum.Enum)

IDENTIFIER = b"DWN1"
"""The identifier of a package, at its bytes 4 to 7."""

DATA_TYPES = {
    0: "uint8",
    1: "uint16",
    2: "int32",
    3: "bfloat16",
    4: "float16",
    5: "float32",
    8: "int8",
    9: "int16",
}
"""Types of a layer's elements by number; the first two have a zero point."""
LARGEST = 1 << 28
"""Bytes of the largest buffer of a program: an input or output with its executions, or
the scratch memory."""
DATA_TYPE_BYTES = {0: 1, 1: 2, 2: 4, 3: 2, 4: 2, 5: 4, 8: 1, 9: 2}


class ExecutableType(enum.Enum):
    """What an executable is for."""

    STAND_ALONE = 0
    """One inference, parameters with it."""
    PARAMETER_CACHING = 1
    """It puts the parameters into the chip's memory, before the first inference."""
    EXECUTION_ONLY = 2
    """One inference with the parameters that the caching one has put there."""


class AddressOf(enum.Enum):
    """The buffer whose address the driver writes into the instructions."""

    OUTPUT = 0
    INPUT = 1
    PARAMETER = 2
    SCRATCH = 3


@dataclass(frozen=True)
class Address:
    """Half of the address of a buffer.

    Attributes:
        of: the kind of buffer
        batch: its index in the batch
        name: the layer, for an input or output
        upper: whether it is the upper 32 bits
    """

    of: AddressOf
    batch: int
    name: str
    upper: bool


@dataclass(frozen=True)
class Field:
    """32 bits of the instructions that the driver fills in.

    Attributes:
        address: the value
        bit: position of the lowest bit in the bit stream
    """

    address: Address
    bit: int


@dataclass(frozen=True)
class Instructions:
    """A chunk of instructions.

    Attributes:
        span: its bytes
        fields: what the driver fills in
    """

    span: Span
    fields: Tuple[Field, ...]


@dataclass(frozen=True)
class BufferTransfer:
    """A part of a buffer is sent or received.

    Attributes:
        address: the buffer
        offset: first byte in it
        size: number of bytes
    """

    address: Address
    offset: int
    size: int


@dataclass(frozen=True)
class InstructionTransfer:
    """A chunk of instructions is sent.

    Attributes:
        chunk: its index
    """

    chunk: int


@dataclass(frozen=True)
class Interrupt:
    """The chip raises an interrupt.

    Attributes:
        number: of the scalar core's interrupts, 0 to 3
    """

    number: int


@dataclass(frozen=True)
class Fence:
    """All transfers before it end before one after it begins."""


@dataclass(frozen=True)
class Transfer:
    """One entry of the DMA hints.

    Attributes:
        what: what happens
        outfeed: whether the chip sends to the host
    """

    what: Union[BufferTransfer, InstructionTransfer, Interrupt, Fence]
    outfeed: bool


@dataclass(frozen=True)
class TileLayout:
    """Where the elements of an output stand, by tile (OutputLayout).

    The byte of (y, x, z) is `tile_offset[y_tile[y] + x_tile[x]] +
    y_in_tile[y] · row_size[x] + x_offset[x] + z`, offsets in bytes.

    Attributes:
        y_tile: y → number of the first tile in its row of tiles
        x_tile: x → number of the tile within the row
        tile_offset: tile → its first byte
        x_offset: x → offset within a row of the tile
        y_in_tile: y → row within the tile
        row_size: x → bytes of a row of the tile
    """

    y_tile: Tuple[int, ...]
    x_tile: Tuple[int, ...]
    tile_offset: Tuple[int, ...]
    x_offset: Tuple[int, ...]
    y_in_tile: Tuple[int, ...]
    row_size: Tuple[int, ...]


@dataclass(frozen=True)
class Slice:
    """A part of an output that is one block with strides (TensorLayout).

    Attributes:
        ranges: first and last index of each dimension
        strides: distance of neighbours in each dimension, in elements
        offset: byte of its first element
    """

    ranges: Tuple[Tuple[int, int], ...]
    strides: Tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Layer:
    """An input or output.

    Attributes:
        name: the tensor's name in the model
        size: bytes of one execution, padding included
        y, x, z: dimensions
        data_type: number of the type of its elements, a key of DATA_TYPES
        zero_point, scale: how its integers stand for real numbers
        executions: how often it is transferred in one inference
        ranges: first and last index of each dimension of its shape
        layout: of an output with more than one y or x
        slices: of an output that is given as blocks
    """

    name: str
    size: int
    y: int
    x: int
    z: int
    data_type: int
    zero_point: int
    scale: float
    executions: int
    ranges: Tuple[Tuple[int, int], ...]
    layout: Optional[TileLayout]
    slices: Tuple[Slice, ...]


@dataclass(frozen=True)
class Executable:
    """A program of the chip.

    Attributes:
        span: its bytes in the file
        type: what it is for
        name: the model's name
        chip: the chip's name
        batch: number of inputs at a time
        scratch: bytes of the scratch buffer
        instructions: its chunks of instructions
        parameters: its parameters
        transfers: the DMA hints in order
        deterministic: whether the hints have all transfers
        inputs, outputs: its layers
        narrow_bytes: the narrow memory that it uses, per tile
        token: executables with the same token can have their parameters in the chip together
        cycles: the compiler's estimate
    """

    span: Span
    type: ExecutableType
    name: str
    chip: str
    batch: int
    scratch: int
    instructions: Tuple[Instructions, ...]
    parameters: Span
    transfers: Tuple[Transfer, ...]
    deterministic: bool
    inputs: Tuple[Layer, ...]
    outputs: Tuple[Layer, ...]
    narrow_bytes: int
    token: int
    cycles: int


@dataclass(frozen=True)
class Package:
    """What stands in one operator of a compiled file.

    Attributes:
        span: its bytes in the file
        runtime_version: the least version of the driver
        compiler: the compiler's version
        identifier: the name that a user gave the model
        executables: its programs
    """

    span: Span
    runtime_version: int
    compiler: str
    identifier: str
    executables: Tuple[Executable, ...]

    def of_type(self, kind: ExecutableType) -> Optional[Executable]:
        """Return the executable of a type, if there is one."""
        return next((e for e in self.executables if e.type is kind), None)


def read_package(data: bytes, span: Span) -> Package:
    """Return a package.

    Args:
        data: the whole file
        span: the package in it

    Raises:
        DamagedError: it is not a package, or damaged
    """
    if data[span.start + 4 : span.start + 8] != IDENTIFIER:
        raise DamagedError(f"no package of the Edge TPU stands at byte {span.start}")
    table = Table.root(data, span.start)
    several = table.span(1)
    if several is None:
        raise DamagedError("the package has no executables")
    places = Table.root(data, several.start).spans(0)
    return Package(
        span,
        table.integer(0),
        table.text(4),
        table.text(7),
        tuple(_executable(data, place) for place in places),
    )


def _executable(data: bytes, span: Span) -> Executable:
    table = Table.root(data, span.start)
    hints = table.table(7)
    scratch = table.integer(4)
    if not 0 <= scratch <= LARGEST:
        raise DamagedError(f"a program has {scratch} bytes of scratch memory")
    return Executable(
        span=span,
        type=_member(ExecutableType, table.integer(13, 2)),
        name=table.text(1),
        chip=table.text(10),
        batch=table.integer(3),
        scratch=scratch,
        instructions=tuple(_instructions(t) for t in table.tables(5)),
        parameters=table.span(6) or Span(span.start, 0),
        transfers=() if hints is None else tuple(map(_transfer, hints.tables(0))),
        deterministic=hints is not None and bool(hints.integer(1, 1)),
        inputs=tuple(map(_layer, table.tables(8))),
        outputs=tuple(map(_layer, table.tables(9))),
        narrow_bytes=table.integer(12),
        token=table.integer(14, 8, signed=False),
        cycles=table.integer(16, 8) or table.integer(11),
    )


def _instructions(table: Table) -> Instructions:
    span = table.span(0)
    if span is None:
        raise DamagedError(f"the instructions at byte {table.at} are missing")
    fields = tuple(Field(_address(t.table(0)), t.integer(1)) for t in table.tables(1))
    for field in fields:
        if not 0 <= field.bit <= 8 * span.size - 32:
            raise DamagedError(f"an address at bit {field.bit} is out of its chunk")
    return Instructions(span, fields)


def _address(table: Optional[Table]) -> Address:
    if table is None:
        raise DamagedError("an address has no description")
    kind = _member(AddressOf, table.integer(0, 2))
    return Address(kind, table.integer(1), table.text(2), table.integer(3, 2) == 1)


def _transfer(table: Table) -> Transfer:
    kind, hint = table.integer(0, 1, signed=False), table.table(1)
    outfeed = table.integer(2, 2) == 1
    what: Union[BufferTransfer, InstructionTransfer, Interrupt, Fence]
    if hint is None:
        raise DamagedError(f"the transfer at byte {table.at} is empty")
    if kind == 1:
        what = BufferTransfer(_address(hint.table(0)), hint.integer(1), hint.integer(2))
    elif kind == 2:
        what = InstructionTransfer(hint.integer(0))
    elif kind == 3:
        what = Interrupt(hint.integer(0, 2))
    elif kind == 4:
        what = Fence()
    else:
        raise DamagedError(f"a transfer of kind {kind} is not in the format")
    return Transfer(what, outfeed)


def _layer(table: Table) -> Layer:
    numerics = table.table(5)
    kind = table.integer(7, 1, signed=False)
    output = table.table(8) if kind == 1 else None
    tiles = None if output is None else output.table(0)
    shape = None if output is None else output.table(2)
    data_type = table.integer(6, 2)
    if data_type not in DATA_TYPES:
        raise DamagedError(f"a layer has elements of the unknown type {data_type}")
    layer = Layer(
        name=table.text(0),
        size=table.integer(1),
        y=table.integer(2),
        x=table.integer(3),
        z=table.integer(4),
        data_type=data_type,
        zero_point=0 if numerics is None else numerics.integer(0),
        scale=0.0 if numerics is None else numerics.float32(1),
        executions=table.integer(9, default=1),
        ranges=_ranges(table.table(11)),
        layout=None
        if tiles is None
        else TileLayout(*(tiles.integers(field) for field in range(6))),
        slices=() if shape is None else _slices(shape),
    )
    numbers = (layer.y, layer.x, layer.z, layer.size, layer.executions)
    if min(numbers) < 1 or layer.size * layer.executions > LARGEST:
        raise DamagedError(f"a layer has the sizes {', '.join(map(str, numbers))}")
    return layer


def _slices(table: Table) -> Tuple[Slice, ...]:
    layouts, offsets = table.tables(0), table.integers(1)
    if len(layouts) != len(offsets):
        raise DamagedError("the slices of an output have other offsets")
    return tuple(
        Slice(_ranges(layout.table(0)), layout.integers(1), offset)
        for layout, offset in zip(layouts, offsets)
    )


def _ranges(table: Optional[Table]) -> Tuple[Tuple[int, int], ...]:
    """Return the first and last index of each dimension; a range has 8 bytes."""
    if table is None:
        return ()
    span = table.span(0, 8)
    if span is None:
        return ()
    values = [
        int.from_bytes(table.data[at : at + 4], "little", signed=True)
        for at in range(span.start, span.end, 4)
    ]
    return tuple(zip(values[::2], values[1::2]))


def _member(kind: Type[_Member], value: int) -> _Member:
    try:
        return kind(value)
    except ValueError:
        raise DamagedError(f"{value} is not a {kind.__name__}") from None
