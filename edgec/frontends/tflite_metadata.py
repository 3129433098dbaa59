"""The flatbuffer that TFLite Metadata adds to a .tflite file.

Only the fields about preprocessing, labels and the kind of outputs are read.

Source: metadata_schema.fbs of TFLite Support, 1.5, whose field numbers stand here; it
has no generated reader among our dependencies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import encode, number_types
from flatbuffers.table import Table

ENTRY = "TFLITE_METADATA"
"""The name of its buffer among the model's."""

IDENTIFIER = b"M001"
SUBGRAPHS = 3
LICENSE = 5  # of ModelMetadata
INPUTS = 2
OUTPUTS = 3  # of SubGraphMetadata
CONTENT = 3
PROCESS_UNITS = 4
FILES = 6  # of TensorMetadata
FILE_NAME = 0
FILE_TYPE = 2  # of AssociatedFile
LABELS = (2, 3)  # its types: labels of an axis, and of values
KIND = 0
VALUE = 1  # of Content and of ProcessUnit: a union's type and table
FEATURES = 1
IMAGE = 2
BOXES = 3
NORMALIZATION = 1  # types of these unions
COLOR_SPACE = 0  # of ImageProperties
MEAN = 0
STD = 1  # of NormalizationOptions

COLORS = {1: "rgb", 2: "gray"}


@dataclass(frozen=True)
class InputMetadata:
    """The metadata of one input.

    It is fed (pixel - mean) / std for pixels of 0…255. Mean and std have one number or
    one per channel; they are empty if absent.
    """

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    color: str | None = None


@dataclass(frozen=True)
class OutputMetadata:
    """The metadata of one output.

    Attributes:
        boxes: whether it is stated to be boxes.
        features: whether it is stated to be features.
        labels: the name of a file of labels within the model's.
    """

    boxes: bool = False
    features: bool = False
    labels: str | None = None


def read_metadata(model: bytes) -> list[InputMetadata]:
    """Return the metadata of each input, in order, or nothing if there is none.

    Raises ValueError, struct.error and others if it is damaged.
    """
    return [_input(t) for t in _of_tensors(model, INPUTS)]


def read_outputs(model: bytes) -> list[OutputMetadata]:
    """Return the metadata of each output, as `read_metadata` does for inputs."""
    return [_output(t) for t in _of_tensors(model, OUTPUTS)]


def read_license(model: bytes) -> str:
    """Return the licence that the metadata states, as `read_metadata` does; "" if it
    states none.
    """
    root = _root(model)
    return "" if root is None else _string(root, LICENSE)


def _of_tensors(model: bytes, which: int) -> list[Table]:
    """Return the metadata tables of the inputs or the outputs."""
    root = _root(model)
    if root is None:
        return []
    for subgraph in _tables(root, SUBGRAPHS):
        return [*_tables(subgraph, which)]
    return []


def _root(model: bytes) -> Table | None:
    """Return the metadata table of the model; None if there is none."""
    data = _buffer(model)
    if data is None:
        return None
    if data[4:8] != IDENTIFIER:
        raise ValueError(f"its identifier is {data[4:8]!r}")
    # A flatbuffer begins with the offset of its root table.
    start = encode.Get(number_types.UOffsetTFlags.packer_type, data, 0)
    return Table(data, start)


def _output(t: Table) -> OutputMetadata:
    """Return the metadata in the table of an output."""
    content = _table(t, CONTENT)
    kind = 0 if content is None else _byte(content, KIND)
    names: list[str] = []
    for file in _tables(t, FILES):
        if _byte(file, FILE_TYPE) in LABELS:
            names.append(_string(file, FILE_NAME))
    labels = next((name for name in names if name), None)
    return OutputMetadata(kind == BOXES, kind == FEATURES, labels)


def _buffer(model: bytes) -> bytes | None:
    """Return the flatbuffer of a model file's metadata.

    None if it has none.
    """
    root = schema.Model.GetRootAs(model, 0)
    for i in range(root.MetadataLength()):
        entry = root.Metadata(i)
        if entry.Name() != ENTRY.encode():
            continue
        data = root.Buffers(entry.Buffer()).DataAsNumpy()
        # The generated reader returns 0 for an empty buffer.
        return b"" if isinstance(data, int) else bytes(data)
    return None


def _input(t: Table) -> InputMetadata:
    """Return the metadata in the table of an input."""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    for unit in _tables(t, PROCESS_UNITS):
        options = _union(unit, NORMALIZATION)
        if options is not None:
            mean = _floats(options, MEAN)
            std = _floats(options, STD)

    color: str | None = None
    content = _table(t, CONTENT)
    image = None if content is None else _union(content, IMAGE)
    if image is not None:
        color = COLORS.get(_byte(image, COLOR_SPACE))
    return InputMetadata(mean, std, color)


def _union(t: Table, kind: int) -> Table | None:
    """Return the table of a union, if it is of this type."""
    return _table(t, VALUE) if _byte(t, KIND) == kind else None


def _at(t: Table, field: int) -> int:
    """Return the position of a field in the buffer, 0 if it is absent.

    Raises ValueError if the vtable is outside of the buffer.
    """
    # The library does not check bounds, and the file may be damaged.
    vtable = t.Pos - t.Get(number_types.SOffsetTFlags, t.Pos)
    if not 0 <= vtable <= len(t.Bytes) - 4:
        raise ValueError("a table is outside of it")
    offset = int(t.Offset(4 + 2 * field))
    return t.Pos + offset if offset else 0


def _table(t: Table, field: int) -> Table | None:
    at = _at(t, field)
    return Table(t.Bytes, t.Indirect(at)) if at else None


def _byte(t: Table, field: int) -> int:
    at = _at(t, field)
    return int(t.Get(number_types.Uint8Flags, at)) if at else 0


def _string(t: Table, field: int) -> str:
    """Return the text of a field, empty if it is absent."""
    at = _at(t, field)
    if not at:
        return ""
    start = t.Indirect(at)
    length = int(t.Get(number_types.UOffsetTFlags, start))
    first = start + 4
    if length > len(t.Bytes) - first:
        raise ValueError(f"a string of {length} bytes is longer than the file")
    return bytes(t.Bytes[first : first + length]).decode()


def _vector(t: Table, field: int) -> tuple[int, int]:
    """Return the position and the length of a vector of elements of 4 bytes.

    Both are 0 if it is absent.
    """
    at = _at(t, field)
    if not at:
        return 0, 0
    start = t.Indirect(at)
    length = int(t.Get(number_types.UOffsetTFlags, start))
    if length > (len(t.Bytes) - start - 4) // 4:
        raise ValueError(f"a vector of {length} elements is longer than the file")
    return start + 4, length


def _tables(t: Table, field: int) -> Iterator[Table]:
    start, length = _vector(t, field)
    return (Table(t.Bytes, t.Indirect(start + 4 * i)) for i in range(length))


def _floats(t: Table, field: int) -> tuple[float, ...]:
    """Return the finite floats of a field.

    They are as short as float32 can be written: 0.485, not 0.48500001430511475.
    """
    start, length = _vector(t, field)
    if not length:
        return ()
    numbers = np.frombuffer(t.Bytes, "<f4", length, start)
    floats = tuple(float(str(n)) for n in numbers)
    if not all(map(math.isfinite, floats)):
        raise ValueError(f"mean or std is {floats}")
    return floats
