"""A .tflite file of one operation with TFLite Metadata, built field by field in the
schema's order.
"""

from __future__ import annotations

from collections.abc import Sequence

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edgec.emit.tflite import write_tflite
from edgec.ir import Builder, Quant, TensorType
from edgec.ops.unary import Relu


def model(
    dtype: str = "float32", scale: float = 0.0078125, zero: int = 0, channels: int = 3
) -> bytes:
    """relu(image [1,8,8,channels])."""
    b = Builder("m")
    quant = None if dtype == "float32" else Quant.per_tensor(scale, zero)
    t = TensorType((1, 8, 8, channels), dtype, quant)
    b.graph.outputs = [b.add(Relu(), [b.input("image", t)], "y", quant)]
    return write_tflite(b.graph)


def with_metadata(file: bytes, metadata: bytes) -> bytes:
    """The file with one more buffer, under the name that readers look for."""
    packed = schema.ModelT.InitFromPackedBuf(file)
    packed.buffers.append(schema.BufferT())
    packed.buffers[-1].data = np.frombuffer(metadata, np.uint8)
    entry = schema.MetadataT()
    entry.name = "TFLITE_METADATA"
    entry.buffer = len(packed.buffers) - 1
    packed.metadata = [*(packed.metadata or []), entry]
    b = flatbuffers.Builder(1024)
    b.Finish(packed.Pack(b), b"TFL3")
    return bytes(b.Output())


def metadata(
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    color: int | None = 1,
    identifier: bytes = b"M001",
) -> bytes:
    """ModelMetadata { subgraph_metadata: [{ input_tensor_metadata: [{ content,
    process_units }] }] }.
    """
    b = flatbuffers.Builder(256)
    if mean is None and std is None:
        units = []
    else:
        units = [_union(b, 1, _normalization(b, mean, std))]
    content = None if color is None else _union(b, 2, _table(b, 2, {}, {0: color}))
    tensor = _table(b, 7, {3: content, 4: _vector(b, units)})
    subgraph = _table(b, 7, {2: _vector(b, [tensor])})
    name = b.CreateString("a model with metadata")
    root = _table(b, 8, {0: name, 3: _vector(b, [subgraph])})
    b.Finish(root, identifier)
    return bytes(b.Output())


def _normalization(
    b: flatbuffers.Builder, mean: Sequence[float] | None, std: Sequence[float] | None
) -> int:
    vectors = [
        None if v is None else b.CreateNumpyVector(np.array(v, np.float32))
        for v in (mean, std)
    ]
    return _table(b, 2, dict(enumerate(vectors)))


def _union(b: flatbuffers.Builder, kind: int, table: int) -> int:
    return _table(b, 3, {1: table}, {0: kind})


def _vector(b: flatbuffers.Builder, tables: Sequence[int]) -> int:
    b.StartVector(4, len(tables), 4)
    for t in reversed(tables):
        b.PrependUOffsetTRelative(t)
    return int(b.EndVector())


def _table(
    b: flatbuffers.Builder,
    size: int,
    offsets: dict[int, int | None],
    octets: dict[int, int] | None = None,
) -> int:
    b.StartObject(size)
    for field, offset in offsets.items():
        if offset is not None:
            b.PrependUOffsetTRelativeSlot(field, offset, 0)
    for field, octet in (octets or {}).items():
        b.PrependInt8Slot(field, octet, 0)
    return int(b.EndObject())
