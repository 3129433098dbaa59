"""Writes a graph as a TFLite flatbuffer that old compilers can read.

It has the lowest operator versions that hold, and separate opcode entries for int8 and
for other uses of one operator. A file stores one version per opcode entry, and the Edge
TPU compiler refuses versions that it does not know: a converter that shares entries
raises the version of every int8 op to that of its only int64 sibling.
"""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edgec.errors import InternalError, UnsupportedError
from edgec.ir import Array, Builder, Graph, Op, Quant, TensorType, TfliteCode, Value
from edgec.ops.quantize import Quantize
from edgec.ops.uint8 import needs_uint8

_TENSOR_TYPES = {
    "float32": schema.TensorType.FLOAT32,
    "int8": schema.TensorType.INT8,
    "uint8": schema.TensorType.UINT8,
    "int16": schema.TensorType.INT16,
    "int32": schema.TensorType.INT32,
    "int64": schema.TensorType.INT64,
    "bool": schema.TensorType.BOOL,
}

MAX_DEPRECATED_CODE = 127
"""Builtin codes up to here are also stored in the byte that old readers look at."""

INITIAL_BUFFER_BYTES = 1 << 20
"""Size with which the flatbuffer begins to grow."""

UINT8_SHIFT = 128
"""Difference between a uint8 and the int8 of the same real value."""

_SYMMETRIC = "quantize its weights with zero points of 0, which int8 needs"

MODEL_TFLITE = "model.tflite"
"""The path of the whole model in a bundle that has it (`compile --keep-tflite`)."""


def write_tflite(graph: Graph) -> bytes:
    """Return the bytes of a .tflite file with the graph as its only subgraph.

    A graph with asymmetric weights (from a uint8 model) is written in uint8, with a
    QUANTIZE at each int8 border: TFLite's int8 kernels take symmetric weights only. So
    is one with an op for which TFLite has only a uint8 kernel. Raises UnsupportedError
    for an op that TFLite does not have in uint8 then.
    """
    if needs_uint8(graph):
        graph = _as_uint8(graph)
        for op in graph.ops:
            # An op that has a form in int8 may have none beside those of uint8.
            if op.spec.to_tflite(op) is None:
                name = op.outputs[0].name
                message = f"TFLite has no uint8 form of {op.kind} {name}"
                raise UnsupportedError(message, graph.name, _SYMMETRIC)
    return _TfliteWriter(graph).pack()


class _TfliteWriter:
    """Collects the tables of a flatbuffer."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        # Buffer 0 is empty by definition: tensors without elements refer to it.
        self.buffers: list[Any] = [schema.BufferT()]
        self.tensors: list[Any] = []
        self.opcodes: dict[tuple[int, int, bool], int] = {}
        """Indices of opcode entries by code, version, and whether outputs are bytes."""
        self.index: dict[Value, int] = {}

    def pack(self) -> bytes:
        """Return the bytes of the file."""
        sub = schema.SubGraphT()
        sub.name = self.graph.name
        sub.inputs = [self._tensor(v) for v in self.graph.inputs]
        sub.operators = [self._operator(op) for op in self.graph.ops]
        sub.outputs = [self._tensor(v) for v in self.graph.outputs]
        sub.tensors = self.tensors

        model = schema.ModelT()
        model.version = 3
        model.description = "edgec"

        # Known only now that all operators are written.
        codes: list[Any] = []
        for code, version, _ in self.opcodes:
            codes.append(_opcode(code, version))
        model.operatorCodes = codes
        model.subgraphs = [sub]
        model.buffers = self.buffers

        builder = flatbuffers.Builder(INITIAL_BUFFER_BYTES)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def _operator(self, op: Op) -> Any:
        """Return the table of an op."""
        code = op.spec.to_tflite(op)
        if code is None:
            raise InternalError(f"{op!r} has no TFLite form")
        inputs = op.inputs if code.inputs is None else code.inputs
        out = schema.OperatorT()
        out.opcodeIndex = self._opcode_index(code, op)
        out.inputs = [self._input(v, op) for v in inputs]
        out.outputs = [self._tensor(v) for v in op.outputs]
        if code.options is None:
            return out

        table, fields = code.options
        options = getattr(schema, table + "T")()
        for key, value in fields.items():
            # Python would accept a misspelt field silently.
            if not hasattr(options, key):
                raise InternalError(f"{table} has no field {key}")
            setattr(options, key, value)
        out.builtinOptionsType = getattr(schema.BuiltinOptions, table)
        out.builtinOptions = options
        return out

    def _opcode_index(self, code: TfliteCode, op: Op) -> int:
        """Return the index of an op's opcode entry."""
        builtin = getattr(schema.BuiltinOperator, code.name)

        # One entry for int8 and others would have the higher version of both.
        dtypes = {v.type.dtype for v in op.outputs}
        is_int8 = dtypes <= {"int8", "uint8"}
        key = (builtin, code.version, is_int8)

        return self.opcodes.setdefault(key, len(self.opcodes))

    def _input(self, v: Value | Array | None, op: Op) -> int:
        """Return the index of an input's tensor, -1 for an optional one left out."""
        if v is None:
            return -1
        if isinstance(v, Value):
            return self._tensor(v)

        # An array that is an attribute in edgec, such as a shape, is a tensor in TFLite.
        name = f"{op.outputs[0].name}/const{len(self.tensors)}"
        type_ = TensorType(v.shape, str(v.dtype))
        return self._tensor(Value(name, type_, v))

    def _tensor(self, v: Value) -> int:
        """Return the index of a value's tensor."""
        if v in self.index:
            return self.index[v]

        tensor = schema.TensorT()
        tensor.name = v.name
        tensor.shape = list(v.type.shape)
        tensor.type = _TENSOR_TYPES[v.type.dtype]
        tensor.buffer = 0 if v.const is None else self._buffer(v.const)

        tensor.quantization = _quantization(v.type.quant)

        self.index[v] = len(self.tensors)
        self.tensors.append(tensor)
        return self.index[v]

    def _buffer(self, elements: Array) -> int:
        """Return the index of a new buffer."""
        # As an array it is written at once, not byte by byte.
        data = np.ascontiguousarray(elements).tobytes()
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(data, np.uint8)

        index = len(self.buffers)
        self.buffers.append(buffer)
        return index


def _opcode(builtin: int, version: int) -> Any:
    """Return an opcode entry."""
    code = schema.OperatorCodeT()
    code.builtinCode = builtin
    code.version = version

    code.deprecatedBuiltinCode = min(builtin, MAX_DEPRECATED_CODE)
    return code


def _quantization(quant: Quant | None) -> Any:
    """Return the quantization of a tensor; None for one without."""
    if quant is None:
        return None

    q = schema.QuantizationParametersT()
    q.scale = np.array(quant.scale, np.float32)
    q.zeroPoint = np.array(quant.zero_point, np.int64)
    q.quantizedDimension = quant.axis or 0
    return q


def _as_uint8(graph: Graph) -> Graph:
    """Return the graph with int8 stored as uint8 everywhere but at its border.

    All integers and zero points are larger by 128.
    """
    twin = graph.copy()
    border = [*twin.inputs, *twin.outputs]
    for v in twin.values():
        quant = v.type.quant
        if v.type.dtype != "int8" or quant is None:
            continue

        zero_point = tuple(z + UINT8_SHIFT for z in quant.zero_point)
        shifted = Quant(quant.scale, zero_point, quant.axis)
        v.type = v.type.with_quant(shifted, "uint8")
        if v.const is not None:
            # Flipping the top bit adds 128 modulo 256.
            v.const = v.const.view(np.uint8) ^ np.uint8(0x80)

    # Inside, all quantized values are uint8 now.
    for op in twin.ops:
        if isinstance(op.spec, Quantize):
            op.spec = Quantize("uint8")

    # The border keeps its types: callers of the segment give and take int8.
    originals = dict(zip(border, [*graph.inputs, *graph.outputs], strict=True))
    return _with_border(twin, originals)


def _with_border(twin: Graph, originals: dict[Value, Value]) -> Graph:
    """Return the graph with a QUANTIZE between int8 values outside and uint8 inside.

    Args:
        twin: the graph in uint8
        originals: for its inputs and outputs those of the int8 graph
    """
    out = Builder(Graph(twin.name))
    ends = [*twin.outputs]
    outside: dict[Value, Value] = {}
    for v in twin.inputs:
        original = originals[v]
        outer = out.input(original.name, original.type)
        outside[v] = outer
        # The outer value has the model's name, so the inner one needs another.
        v.name = out.name(f"{v.name}_inner")
        if original.type == v.type:
            twin.replace(v, outer)
        else:
            out.write(Quantize(v.type.dtype), [outer], [v])

    out.graph.ops += twin.ops
    # An output may be an input as it came, and may be listed again.
    for v in ends:
        if v not in outside:
            outside[v] = _outside(out, v, originals[v])
        out.graph.outputs.append(outside[v])
    return out.graph


def _outside(out: Builder, v: Value, original: Value) -> Value:
    """Return an output of the uint8 graph in the type of the int8 graph's."""
    if original.type == v.type:
        return v

    v.name = out.name(f"{v.name}_inner")
    outer = Value(original.name, original.type)
    out.write(Quantize(original.type.dtype), [v], [outer])
    return outer
