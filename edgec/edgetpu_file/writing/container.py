"""Writes the file around programs: executables, package, and the .tflite file.

Tables and their numbers are those of `executable/executable.fbs` in
google-coral/libedgetpu and of TFLite's schema; which of them stand in which order was
compared with files of edgetpu_compiler 16.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from edgec_runtime.edgetpu_file.executable import (
    IDENTIFIER,
    AddressOf,
    ExecutableType,
)

from edgec.edgetpu_file.reuse.packing import GROUP, groups
from edgec.edgetpu_file.reuse.source import INT8
from edgec.edgetpu_file.writing.tables import (
    PAGE,
    Slot,
    Writer,
    byte,
    integer,
    offset,
    short,
)
from edgec.edgetpu_file.writing.words import AddressField, Words

_CHIP = "beagle"
_RUNTIME_VERSION = 14
"""The least version of the driver: the one that files of edgetpu_compiler 16 ask for."""
_TILES = 16
_OPTIONS_ALIGNMENT = 32
_TYPES = {INT8: 8}
"""Numbers of elements' types of a layer, by those of TFLite; the rest is uint8, 0."""
_DESCRIPTOR, _INSTRUCTIONS, _INTERRUPT = 1, 2, 3
"""Kinds of transfers."""
_OUTPUT_LAYER, _INPUT_LAYER = 1, 2


@dataclass(frozen=True)
class Border:
    """An input or output of the network.

    Attributes:
        name: of the tensor
        shape: its dimensions
        type: its type's number in TFLite's schema
        scale, zero_point: of unsigned integers
        size: bytes that are transferred
    """

    name: str
    shape: tuple[int, ...]
    type: int
    scale: float
    zero_point: int
    size: int

    @property
    def count(self) -> int:
        """Return the number of elements."""
        return self.shape[-1]


@dataclass(frozen=True)
class Borders:
    """The input and the output of a network."""

    input: Border
    output: Border

    def name(self, of: AddressOf) -> str:
        """Return the name of a buffer; parameters and scratch have none."""
        named = {AddressOf.INPUT: self.input, AddressOf.OUTPUT: self.output}
        return named[of].name if of in named else ""


def caching_executable(
    words: Words, parameters: bytes, token: int, borders: Borders
) -> bytes:
    """Return the executable that caches parameters."""
    writer = _Executable(borders)
    program = writer.program(words)
    blob = writer.blob(parameters, PAGE)
    name = writer.text("Unknown")
    chunks = writer.offsets([program])
    hints = writer.hints([(AddressOf.PARAMETER, len(parameters))])
    chip = writer.text(_CHIP)
    return writer.done(
        writer.table(
            [
                offset(1, name),
                integer(3, 1),
                offset(5, chunks),
                offset(6, blob),
                offset(7, hints),
                offset(10, chip),
                short(13, ExecutableType.PARAMETER_CACHING.value),
                Slot(14, "uint64", token),
            ]
        )
    )


def executing_executable(
    words: Words, narrow_bytes: int, token: int, borders: Borders
) -> bytes:
    """Return the executable of one inference."""
    writer = _Executable(borders)
    program = writer.program(words)
    source = writer.input(borders.input)
    result = writer.output(borders.output)
    blob = writer.blob(b"", PAGE)
    name = writer.text("model")
    nothing = writer.blob(b"")
    chunks = writer.offsets([program])
    sizes = borders.input.size, borders.output.size
    hints = writer.hints([(AddressOf.INPUT, sizes[0]), (AddressOf.OUTPUT, sizes[1])])
    inputs, outputs = writer.offsets([source]), writer.offsets([result])
    chip = writer.text(_CHIP)
    return writer.done(
        writer.table(
            [
                offset(1, name),
                offset(2, nothing),
                integer(3, 1),
                offset(5, chunks),
                offset(6, blob),
                offset(7, hints),
                offset(8, inputs),
                offset(9, outputs),
                offset(10, chip),
                integer(12, narrow_bytes),
                short(13, ExecutableType.EXECUTION_ONLY.value),
                Slot(14, "uint64", token),
            ]
        )
    )


class _Executable(Writer):
    """Writes the tables of an executable."""

    def __init__(self, borders: Borders) -> None:
        super().__init__()
        self._borders = borders

    def program(self, words: Words) -> int:
        """Write the instructions, and where the driver writes addresses."""
        bits = self.blob(words.done(), 16)
        fields = [self._field(field) for field in words.fields]
        places = self.offsets(fields)
        return self.table([offset(0, bits), offset(1, places)])

    def _field(self, field: AddressField) -> int:
        description = self._address(field.of, upper=field.upper)
        return self.table([offset(0, description), integer(1, field.bit)])

    def _address(self, of: AddressOf, *, upper: bool = False) -> int:
        name = self.text(self._borders.name(of))
        return self.table([short(0, of.value), offset(2, name), short(3, int(upper))])

    def hints(self, buffers: Sequence[tuple[AddressOf, int]]) -> int:
        """Write the transfers: instructions, buffers with their sizes, an interrupt."""
        made = [self._hint(_INSTRUCTIONS, self.table([]))]
        for of, size in buffers:
            address = self._address(of)
            what = self.table([offset(0, address), integer(2, size)])
            made.append(self._hint(_DESCRIPTOR, what, of is AddressOf.OUTPUT))
        made.append(self._hint(_INTERRUPT, self.table([]), outfeed=True))
        places = self.offsets(made)
        return self.table([offset(0, places), byte(1, 1)])

    def _hint(self, kind: int, what: int, outfeed: bool = False) -> int:
        return self.table([byte(0, kind), offset(1, what), short(2, int(outfeed))])

    def input(self, border: Border) -> int:
        """Write an input."""
        name, numbers = self.text(border.name), self._numbers(border)
        kind = self.table([])
        return self.table(
            [*_layer(border, name, numbers), byte(7, _INPUT_LAYER), offset(8, kind)]
        )

    def output(self, border: Border) -> int:
        """Write an output, whose elements are on tiles, 64 on each."""
        name, numbers = self.text(border.name), self._numbers(border)
        count = groups(border.count)
        starts = [GROUP * tile for tile in range(count)]
        starts += [border.size] * (_TILES - count)
        row = min(GROUP, border.size)
        vectors = ([0], [0], starts, [0], [0], [row])
        places = [self.integers(v) for v in vectors]
        layout = self.table([offset(k, place) for k, place in enumerate(places)])
        kind = self.table([offset(0, layout)])
        limits = [n for size in border.shape for n in (0, size - 1)]
        shape = self.table([offset(0, self.integers(limits, element=8))])
        return self.table(
            [
                *_layer(border, name, numbers),
                byte(7, _OUTPUT_LAYER),
                offset(8, kind),
                offset(11, shape),
            ]
        )

    def _numbers(self, border: Border) -> int:
        return self.table(
            [integer(0, border.zero_point), Slot(1, "float32", border.scale)]
        )


def _layer(border: Border, name: int, numbers: int) -> list[Slot]:
    return [
        offset(0, name),
        integer(1, border.size),
        integer(2, 1),
        integer(3, 1),
        integer(4, border.count),
        offset(5, numbers),
        short(6, _TYPES.get(border.type, 0)),
    ]


def package(executables: Sequence[bytes], compiler: str) -> bytes:
    """Return the package of executables."""
    several = Writer()
    places = [several.blob_string(executable) for executable in executables]
    inner = several.done(several.table([offset(0, several.offsets(places))]))
    writer = Writer()
    content = writer.blob(inner, PAGE)
    signature = writer.blob(b"")
    version, identifier = writer.text(compiler), writer.text("")
    # These versions have another default than 0.
    root = writer.table(
        [
            integer(0, _RUNTIME_VERSION),
            offset(1, content),
            offset(2, signature),
            integer(3, 0, default=-1),
            offset(4, version),
            integer(5, 0, default=-1),
            offset(7, identifier),
        ]
    )
    return writer.done(root, IDENTIFIER)


def file(content: bytes, borders: Borders) -> bytes:
    """Return the .tflite file whose only operator runs a package."""
    writer = Writer()
    tensors = writer.offsets(
        [_tensor(writer, border) for border in (borders.input, borders.output)]
    )
    inputs, outputs = writer.integers([0]), writer.integers([1])
    options = writer.blob(_map(content), _OPTIONS_ALIGNMENT)
    taken, given = writer.integers([0]), writer.integers([1])
    operator = writer.table([offset(1, taken), offset(2, given), offset(5, options)])
    operators = writer.offsets([operator])
    name = writer.text("main")
    graph = writer.table(
        [
            offset(0, tensors),
            offset(1, inputs),
            offset(2, outputs),
            offset(3, operators),
            offset(4, name),
        ]
    )
    buffers = writer.offsets([writer.table([offset(0, writer.blob(b""))])])
    description = writer.text("Exported from Subgraph.")
    custom = writer.text("edgetpu-custom-op")
    codes = writer.offsets(
        [writer.table([Slot(0, "int8", 32), offset(1, custom), integer(3, 32)])]
    )
    graphs = writer.offsets([graph])
    model = writer.table(
        [
            integer(0, 3),
            offset(1, codes),
            offset(2, graphs),
            offset(3, description),
            offset(4, buffers),
        ]
    )
    return writer.done(model, b"TFL3")


def _tensor(writer: Writer, border: Border) -> int:
    sign = 128 if border.type == INT8 else 0
    scales = writer.floats([border.scale])
    zeros = writer.integers([border.zero_point - sign], width=8, element=8)
    quantization = writer.table([offset(2, scales), offset(3, zeros)])
    name = writer.text(border.name)
    shape = writer.integers(border.shape)
    return writer.table(
        [
            offset(0, shape),
            byte(1, border.type),
            offset(3, name),
            offset(4, quantization),
        ]
    )


def _map(content: bytes) -> bytes:
    """Return the operator's data, a map of FlexBuffers.

    Its keys are "1", "4", "5", "6" and "7": 0, the package, -1, the list of 18 and an
    empty list. Only the package has a known meaning; the rest is the same in the files
    of edgetpu_compiler 16.
    """
    head = b"1\0" + b"4\0" + struct.pack("<I", len(content))
    package_at = len(head)
    data = bytearray(head + content + b"\0")
    keys = [0, 2]
    for name in (b"5", b"6"):
        keys.append(len(data))
        data += name + b"\0"
    list_at = len(data) + 1
    # A list: its length, its elements in a byte each, their types.
    data += bytes((1, 18, 1 << 2))
    keys.append(len(data))
    data += b"7\0"
    empty_at = len(data) + 1
    data += b"\0"
    data += bytes(-len(data) % 4)
    data += struct.pack("<I", len(keys))
    keys_at = len(data)
    for key in keys:
        data += struct.pack("<I", len(data) - key)
    data += struct.pack("<III", len(data) - keys_at, 4, len(keys))
    values_at = len(data)
    data += struct.pack("<I", 0)
    data += struct.pack("<I", len(data) - package_at)
    data += struct.pack("<i", -1)
    data += struct.pack("<I", len(data) - list_at)
    data += struct.pack("<I", len(data) - empty_at)
    # Types with their widths: integer, string, integer, list, list; then the root.
    data += bytes((0x06, 0x16, 0x06, 0x28, 0x28))
    data += bytes((len(data) - values_at, 0x26, 1))
    return bytes(data)
