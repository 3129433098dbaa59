"""Writes the package of an operator for the Edge TPU, in the format that libedgetpu reads
(executable/executable.fbs and tflite/custom_op_data.cc in google-coral/libedgetpu).

Its instructions are bytes without a meaning: no chip runs them. An emulated stick that
has been given the file and its source recognises them, and computes what the source does.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np

INSTRUCTION_BYTES = 1024
_ALIGNMENT = 64
_DATA_TYPES = {"uint8": 0, "int32": 2, "float32": 5, "int8": 8, "int16": 9}
_RUNTIME_VERSION = 13
_CACHING, _EXECUTION = 1, 2
_OUTPUT, _INPUT, _PARAMETER = range(3)
_OUTPUT_LAYER, _INPUT_LAYER = 1, 2
_FLEX_INT, _FLEX_STRING, _FLEX_MAP = 1, 5, 9
_DESCRIPTOR, _INSTRUCTION, _INTERRUPT = 1, 2, 3


@dataclass(frozen=True)
class PackageTensor:
    """An input or output.

    Attributes:
        name: of the tensor
        shape: its dimensions
        dtype: numpy's name of its type
        scale, zero_point: how its integers stand for real numbers
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: float
    zero_point: int

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.dtype).itemsize

    @property
    def dimensions(self) -> tuple[int, int, int]:
        """y, x and z: the last two as they are, the others in one."""
        shape = (1, 1, *self.shape)
        return int(np.prod(shape[:-2])), shape[-2], shape[-1]

    @property
    def pixel(self) -> int:
        """Elements from one x to the next in an output: the chip writes whole words."""
        return -(-self.dimensions[2] // 4) * 4

    @property
    def size(self) -> int:
        """Bytes as an output with its padding."""
        y, x, _ = self.dimensions
        return -(-y * x * self.pixel * self.width // 8) * 8

    @property
    def input_size(self) -> int:
        """Bytes as an input, padded to a multiple of 8."""
        return -(-int(np.prod(self.shape)) * self.width // 8) * 8


@dataclass(frozen=True)
class PackageFacts:
    """What a package is made of.

    Attributes:
        identity: bytes that no other network has
        inputs, outputs: in the operator's order
        parameters: of the network
        token: of all networks that are compiled together
        compiler: version
    """

    identity: bytes
    inputs: Sequence[PackageTensor]
    outputs: Sequence[PackageTensor]
    parameters: bytes
    token: int
    compiler: str


def operator_data(facts: PackageFacts) -> bytes:
    """The operator's data: a flexbuffer's map of a version and the package.

    Every number and offset has four bytes; offsets count backwards from themselves.
    Python's flexbuffers cannot write a string that is not text.
    """
    keys, package = b"1\0" + b"4\0", _package(facts)
    data = keys + struct.pack("<I", len(package)) + package + b"\0"
    data += bytes(-len(data) % 4)
    vector = len(data) + 4
    data += struct.pack("<III", 2, vector, vector + 4 - 2)
    values = len(data) + 12
    data += struct.pack("<III", len(data) - vector, 4, 2)
    data += struct.pack("<II", 1, values + 4 - (len(keys) + 4))
    data += bytes((_FLEX_INT << 2 | 2, _FLEX_STRING << 2 | 2))
    data += bytes(-len(data) % 4)
    return data + struct.pack("<IBB", len(data) - values, _FLEX_MAP << 2 | 2, 4)


def _package(facts: PackageFacts) -> bytes:
    several = _Writer()
    programs = [_executable(facts, kind) for kind in (_EXECUTION, _CACHING)]
    strings = [several.builder.CreateString(p) for p in programs]
    several.finish({0: ("UOffsetTRelative", several.vector(strings))})
    writer = _Writer()
    inner = writer.builder.CreateByteVector(several.data)
    return writer.finish(
        {
            0: ("Int32", _RUNTIME_VERSION),
            1: ("UOffsetTRelative", inner),
            4: ("UOffsetTRelative", writer.builder.CreateString(facts.compiler)),
        },
        b"DWN1",
    )


def _executable(facts: PackageFacts, kind: int) -> bytes:
    writer = _Writer()
    runs = kind == _EXECUTION
    parameters = facts.parameters + bytes(-len(facts.parameters) % _ALIGNMENT)
    parameters = parameters or bytes(_ALIGNMENT)
    inputs, outputs = (facts.inputs, facts.outputs) if runs else ((), ())
    buffers = [(_INPUT, t.name, t.input_size) for t in inputs]
    buffers += [(_OUTPUT, t.name, t.size) for t in outputs]
    if not runs:
        buffers = [(_PARAMETER, "", len(parameters))]
    seed = facts.identity + bytes((kind,))
    fields = {
        5: writer.vector([_instructions(writer, seed, buffers)]),
        7: _hints(writer, buffers),
        8: writer.vector([_layer(writer, t, _INPUT_LAYER) for t in inputs]),
        9: writer.vector([_layer(writer, t, _OUTPUT_LAYER) for t in outputs]),
        1: writer.builder.CreateString("model"),
        10: writer.builder.CreateString("beagle"),
    }
    if not runs:
        fields[6] = writer.builder.CreateByteVector(parameters)
    numbers = {3: ("Int32", 1), 13: ("Int16", kind), 14: ("Uint64", facts.token)}
    offsets = {n: ("UOffsetTRelative", at) for n, at in fields.items()}
    return writer.finish({**offsets, **numbers})


def _instructions(
    writer: _Writer, seed: bytes, buffers: Sequence[tuple[int, str, int]]
) -> int:
    """Bytes that depend on the seed, with a place for both halves of each address."""
    places = []
    for i, (what, name, _) in enumerate(buffers):
        for upper in (False, True):
            bit = 128 * (2 * i + upper) + 20
            meta = _meta(writer, what, name, upper)
            values = {0: ("UOffsetTRelative", meta), 1: ("Int32", bit)}
            places.append(writer.table(values))
    size = INSTRUCTION_BYTES + 32 * len(buffers)
    data = writer.builder.CreateByteVector(hashlib.shake_256(seed).digest(size))
    vector = writer.vector(places)
    pair = {0: ("UOffsetTRelative", data), 1: ("UOffsetTRelative", vector)}
    return writer.table(pair)


def _meta(writer: _Writer, what: int, name: str, upper: bool) -> int:
    text = writer.builder.CreateString(name)
    fields: dict[int, tuple[str, Any]] = {0: ("Int16", what), 3: ("Int16", int(upper))}
    return writer.table({**fields, 2: ("UOffsetTRelative", text)})


def _hints(writer: _Writer, buffers: Sequence[tuple[int, str, int]]) -> int:
    """Instructions, all buffers whole, the interrupt."""
    hints = [_hint(writer, _INSTRUCTION, writer.table({0: ("Int32", 0)}), 0)]
    for what, name, size in buffers:
        meta = _meta(writer, what, name, upper=False)
        inner = writer.table({0: ("UOffsetTRelative", meta), 2: ("Int32", size)})
        hints.append(_hint(writer, _DESCRIPTOR, inner, int(what == _OUTPUT)))
    hints.append(_hint(writer, _INTERRUPT, writer.table({0: ("Int16", 0)}), 1))
    vector = writer.vector(hints)
    return writer.table({0: ("UOffsetTRelative", vector), 1: ("Bool", True)})


def _hint(writer: _Writer, kind: int, inner: int, direction: int) -> int:
    return writer.table(
        {
            0: ("Uint8", kind),
            1: ("UOffsetTRelative", inner),
            2: ("Int16", direction),
        }
    )


def _layer(writer: _Writer, tensor: PackageTensor, kind: int) -> int:
    y, x, z = tensor.dimensions
    inner = {0: ("UOffsetTRelative", _layout(writer, tensor))}
    of_kind = writer.table(inner if kind == _OUTPUT_LAYER else {})
    numerics = writer.table(
        {0: ("Int32", tensor.zero_point), 1: ("Float32", tensor.scale)}
    )
    size = tensor.size if kind == _OUTPUT_LAYER else tensor.input_size
    return writer.table(
        {
            0: ("UOffsetTRelative", writer.builder.CreateString(tensor.name)),
            1: ("Int32", size),
            2: ("Int32", y),
            3: ("Int32", x),
            4: ("Int32", z),
            5: ("UOffsetTRelative", numerics),
            6: ("Int16", _DATA_TYPES[tensor.dtype]),
            7: ("Uint8", kind),
            8: ("UOffsetTRelative", of_kind),
        }
    )


def _layout(writer: _Writer, tensor: PackageTensor) -> int:
    """The lower half of the rows in one tile, the upper half in another."""
    y, x, _ = tensor.dimensions
    row = x * tensor.pixel
    half = (y + 1) // 2
    rows = np.arange(y)
    maps = (
        rows // half,
        np.zeros(x),
        [0, half * row],
        np.arange(x) * tensor.pixel,
        rows % half,
        np.full(x, row),
    )
    vectors = [writer.builder.CreateNumpyVector(np.asarray(m, np.int32)) for m in maps]
    return writer.table({i: ("UOffsetTRelative", v) for i, v in enumerate(vectors)})


class _Writer:
    """A flatbuffer of tables whose fields are given by number."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(1 << 12)
        self.data = b""

    def table(self, fields: Mapping[int, tuple[str, Any]]) -> int:
        """A table; fields of 8 bytes first, so that all are aligned."""
        self.builder.StartObject(max(fields, default=-1) + 1)
        for number, (kind, value) in fields.items():
            # Another default than the value, so that every field is written.
            default = 0 if kind == "UOffsetTRelative" else not value
            getattr(self.builder, f"Prepend{kind}Slot")(number, value, default)
        return int(self.builder.EndObject())

    def vector(self, places: Sequence[int]) -> int:
        """A vector of strings or tables."""
        self.builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            self.builder.PrependUOffsetTRelative(place)
        return int(self.builder.EndVector())

    def finish(
        self, fields: Mapping[int, tuple[str, Any]], identifier: bytes | None = None
    ) -> bytes:
        """The whole buffer, with this root table."""
        self.builder.Finish(self.table(fields), identifier)
        self.data = bytes(self.builder.Output())
        return self.data
