"""Graph → TFLite flatbuffer, written for old compilers: the lowest operator versions
that hold, and separate opcode entries for int8 and for other uses of one operator.

A file stores one version per opcode entry, and the Edge TPU compiler refuses versions
that it does not know; a converter that shares entries raises the version of every int8
op to that of its one int64 sibling.
"""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edgec.errors import InternalError
from edgec.ir import Array, Builder, Graph, Op, Quant, TensorType, TfliteCode, Value
from edgec.ops.quantize import Quantize

_TENSOR_TYPES = {
    "float32": schema.TensorType.FLOAT32,
    "int8": schema.TensorType.INT8,
    "uint8": schema.TensorType.UINT8,
    "int16": schema.TensorType.INT16,
    "int32": schema.TensorType.INT32,
    "int64": schema.TensorType.INT64,
    "bool": schema.TensorType.BOOL,
}
_DEPRECATED_MAX = 127
"""Builtin codes up to here are also stored in the byte that old readers look at."""


def write_tflite(graph: Graph) -> bytes:
    """The bytes of a .tflite file with one subgraph whose inputs and outputs are the
    graph's, in order.

    A graph with asymmetric weights (from a uint8 model) is written in uint8, with a
    QUANTIZE at each int8 border: TFLite's int8 kernels take symmetric weights only. So
    is one with an op of which TFLite has the uint8 form only.
    """
    writer = _TfliteWriter(_as_uint8(graph) if _needs_uint8(graph) else graph)
    return writer.pack()


class _TfliteWriter:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.buffers: list[Any] = [schema.BufferT()]  # buffer 0 is empty by definition
        self.tensors: list[Any] = []
        self.opcodes: dict[tuple[int, int, bool], int] = {}
        self.index: dict[Value, int] = {}

    def pack(self) -> bytes:
        sub = schema.SubGraphT()
        sub.name = self.graph.name
        sub.inputs = [self._tensor(v) for v in self.graph.inputs]
        sub.operators = [self._operator(op) for op in self.graph.ops]
        sub.outputs = [self._tensor(v) for v in self.graph.outputs]
        sub.tensors = self.tensors
        model = schema.ModelT()
        model.version = 3
        model.description = "edgec"
        model.operatorCodes = [
            _opcode(code, version) for code, version, _ in self.opcodes
        ]
        model.subgraphs = [sub]
        model.buffers = self.buffers
        builder = flatbuffers.Builder(1 << 20)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def _operator(self, op: Op) -> Any:
        code = op.spec.to_tflite(op)
        if code is None:
            raise InternalError(f"{op!r} has no TFLite form")
        inputs = op.inputs if code.inputs is None else code.inputs
        out = schema.OperatorT()
        out.opcodeIndex = self._opcode_index(code, op)
        out.inputs = [self._input(v, op) for v in inputs]
        out.outputs = [self._tensor(v) for v in op.outputs]
        if code.options is not None:
            table, fields = code.options
            out.builtinOptionsType = getattr(schema.BuiltinOptions, table)
            out.builtinOptions = getattr(schema, table + "T")()
            for key, value in fields.items():
                if not hasattr(out.builtinOptions, key):
                    raise InternalError(f"{table} has no field {key}")
                setattr(out.builtinOptions, key, value)
        return out

    def _opcode_index(self, code: TfliteCode, op: Op) -> int:
        builtin = getattr(schema.BuiltinOperator, code.name)
        int8 = all(v.type.dtype in ("int8", "uint8") for v in op.outputs)
        return self.opcodes.setdefault((builtin, code.version, int8), len(self.opcodes))

    def _input(self, v: Value | Array | None, op: Op) -> int:
        if v is None:
            return -1
        if isinstance(v, Value):
            return self._tensor(v)
        name = f"{op.outputs[0].name}/const{len(self.tensors)}"
        return self._tensor(Value(name, TensorType(v.shape, str(v.dtype)), v))

    def _tensor(self, v: Value) -> int:
        if v not in self.index:
            t = schema.TensorT()
            t.name = v.name
            t.shape = list(v.type.shape)
            t.type = _TENSOR_TYPES[v.type.dtype]
            t.buffer = 0
            if v.const is not None:
                buffer = schema.BufferT()
                buffer.data = np.frombuffer(
                    np.ascontiguousarray(v.const).tobytes(), np.uint8
                )
                t.buffer = len(self.buffers)
                self.buffers.append(buffer)
            t.quantization = _quantization(v.type.quant)
            self.index[v] = len(self.tensors)
            self.tensors.append(t)
        return self.index[v]


def _opcode(builtin: int, version: int) -> Any:
    code = schema.OperatorCodeT()
    code.builtinCode = builtin
    code.version = version
    code.deprecatedBuiltinCode = min(builtin, _DEPRECATED_MAX)
    return code


def _quantization(quant: Quant | None) -> Any:
    if quant is None:
        return None
    q = schema.QuantizationParametersT()
    q.scale = np.array(quant.scale, np.float32)
    q.zeroPoint = np.array(quant.zero_point, np.int64)
    q.quantizedDimension = quant.axis or 0
    return q


def _needs_uint8(graph: Graph) -> bool:
    return any(
        has_asymmetric_weights(op) or op.spec.tflite_needs_uint8(op) for op in graph.ops
    )


def has_asymmetric_weights(op: Op) -> bool:
    """Whether TFLite has kernels for it in uint8 alone."""
    roles = [
        op.spec.roles[min(i, len(op.spec.roles) - 1)] for i in range(len(op.inputs))
    ]
    quants = [
        v.type.quant
        for v, role in zip(op.inputs, roles, strict=True)
        if role == "weight"
    ]
    return any(q is not None and any(q.zero_point) for q in quants)


def _as_uint8(graph: Graph) -> Graph:
    """The same integers shifted by 128 and stored as uint8 everywhere but at the
    border.
    """
    twin = graph.copy()
    border = [*twin.inputs, *twin.outputs]
    for v in twin.values():
        if v.type.dtype == "int8" and v.type.quant is not None:
            quant = Quant(
                v.type.quant.scale,
                tuple(z + 128 for z in v.type.quant.zero_point),
                v.type.quant.axis,
            )
            v.type = v.type.with_quant(quant, "uint8")
            if v.const is not None:
                v.const = v.const.view(np.uint8) ^ np.uint8(0x80)
    for op in twin.ops:
        if isinstance(op.spec, Quantize):
            op.spec = Quantize("uint8")
    originals = dict(zip(border, [*graph.inputs, *graph.outputs], strict=True))
    return _with_border(twin, originals)


def _with_border(twin: Graph, originals: dict[Value, Value]) -> Graph:
    """QUANTIZE between the int8 values outside and the uint8 values inside."""
    out = Builder(Graph(twin.name))
    for v in twin.inputs:
        original = originals[v]
        outer = out.input(original.name, original.type)
        v.name = out.name(f"{v.name}_inner")
        out.write(
            Quantize(v.type.dtype), [outer], [v]
        ) if original.type != v.type else twin.replace(v, outer)
    out.graph.ops += twin.ops
    for v in twin.outputs:
        original = originals[v]
        if original.type == v.type:
            out.graph.outputs.append(v)
            continue
        v.name = out.name(f"{v.name}_inner")
        outer = Value(original.name, original.type)
        out.write(Quantize(original.type.dtype), [v], [outer])
        out.graph.outputs.append(outer)
    return out.graph
