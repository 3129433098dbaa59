"""A .tflite file as a Graph. uint8 tensors are converted to int8 (zero point - 128), which changes no value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.errors import InputError, UnsupportedError
from edgec.ir import Array, Builder, Graph, Op, OpDef, Quant, TensorType, TfliteOp, Value, fold
from edgec.ir.opdef import by_name
from edgec.ops.quantize import Quantize

_DTYPES = {
    schema.TensorType.FLOAT32: "float32",
    schema.TensorType.FLOAT16: "float16",
    schema.TensorType.INT8: "int8",
    schema.TensorType.UINT8: "uint8",
    schema.TensorType.INT16: "int16",
    schema.TensorType.INT32: "int32",
    schema.TensorType.INT64: "int64",
    schema.TensorType.BOOL: "bool",
}
_OPCODES = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}


def read_tflite(path: Path, input_shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    """Read the main subgraph. Raises InputError for a damaged file and UnsupportedError for an unknown operator."""
    data = path.read_bytes()
    if data[4:8] != b"TFL3":
        hint = "give a .tflite file, whole"
        raise InputError(f"{path.name} is not a TFLite file: its identifier is {data[4:8]!r}", str(path), hint)
    try:
        model = schema.ModelT.InitFromPackedBuf(data)
        if not model.subgraphs:
            raise ValueError("it holds no subgraph")
        reader = _Reader(model, model.subgraphs[0], _TfliteBuilder(path.stem), path)
        reader.check_shapes(input_shapes)
        return reader.read()
    except (InputError, UnsupportedError):
        raise
    except Exception as e:  # a damaged flatbuffer can fail anywhere in the generated reader
        hint = "the file is damaged or cut short: copy or export it again"
        raise InputError(f"{path.name} cannot be read as TFLite ({type(e).__name__}: {e})", str(path), hint) from e


class _TfliteBuilder(Builder):
    """Follows the inputs where a file leaves dimensions open (-1 in its shape signatures), whatever shape it declares.

    TFLite too computes these shapes when it loads the file.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.open: dict[Value, list[bool]] = {}

    def write(self, spec: OpDef, inputs: Sequence[Value], outputs: Sequence[Value]) -> Op:
        """As Builder's, but an open dimension is what the op infers."""
        for v, t in zip(outputs, spec.infer(*(v.type for v in inputs)), strict=True):
            if v in self.open and v.type.rank == t.rank:
                dims = zip(v.type.shape, t.shape, self.open[v], strict=True)
                v.type = v.type.with_shape(tuple(new if is_open else old for old, new, is_open in dims))
        return super().write(spec, inputs, outputs)


@dataclass
class _Reader:
    model: Any
    subgraph: Any
    build: _TfliteBuilder
    path: Path

    def check_shapes(self, given: Mapping[str, tuple[int, ...]]) -> None:
        """TFLite shapes are static: --input-shape may only repeat them."""
        names = {_text(self.subgraph.tensors[i].name): i for i in self.subgraph.inputs}
        for name, shape in given.items():
            if name not in names:
                raise InputError(f"the model has no input {name}", str(self.path), f"its inputs: {', '.join(names)}")
            have = tuple(int(d) for d in self.subgraph.tensors[names[name]].shape)
            if have != shape:
                what = f"input {name} is {list(have)} in the file, not {list(shape)}"
                raise UnsupportedError(what, str(self.path), "convert the model again with this shape")

    def read(self) -> Graph:
        """All inputs, operators in order, all outputs."""
        values: dict[int, Value] = {}
        for i in self.subgraph.inputs:
            values[int(i)] = self._border_in(int(i))
        for number, operator in enumerate(self.subgraph.operators):
            self._operator(number, operator, values)
        graph = self.build.graph
        graph.outputs = [self._border_out(int(i), values) for i in self.subgraph.outputs]
        return graph

    def _border_in(self, i: int) -> Value:
        name, file_type = self._type(i)
        value = self.build.input(name, file_type)
        inner = _as_int8(file_type)
        if inner == file_type:
            return value
        return self.build.add(Quantize(), [value], f"{name}_int8", inner.quant)

    def _border_out(self, i: int, values: dict[int, Value]) -> Value:
        value = self._value(i, values)
        name, file_type = self._type(i)
        file_type = file_type.with_shape(value.type.shape)
        if file_type == value.type:
            return value
        value.name = self.build.name(f"{name}_int8")  # the file's name belongs to what the caller gets
        outer = Value(name, file_type)
        self.build.source = name
        self.build.write(Quantize(file_type.dtype), [value], [outer])
        return outer

    def _operator(self, number: int, operator: Any, values: dict[int, Value]) -> None:
        code = self.model.operatorCodes[operator.opcodeIndex]
        builtin = max(int(code.builtinCode), int(code.deprecatedBuiltinCode))
        name = _OPCODES.get(builtin, f"number {builtin}")
        if name == "CUSTOM":
            name = f"custom {_text(code.customCode)}"
        at = f"operator {number} ({name}), {self.path}"
        definition = by_name("tflite", name)
        if definition is None:
            raise UnsupportedError(f"edgec does not know the TFLite operator {name}", at, "see docs/supported-ops.md")
        inputs = [None if int(i) < 0 else self._value(int(i), values) for i in operator.inputs]
        outputs = [self._result(int(i), values) for i in operator.outputs]
        self.build.source = outputs[0].name if outputs else name
        uint8 = any(self._is_uint8(int(i)) for i in (*operator.inputs, *operator.outputs))
        options = operator.builtinOptions if name in _OPCODES.values() else operator.customOptions
        op = TfliteOp(name, options, int(code.version or 1), inputs, outputs, self.build, uint8)
        mark = len(self.build.graph.ops)
        try:
            definition.from_tflite(op)
        except (ValueError, AttributeError, IndexError, TypeError) as e:
            raise UnsupportedError(f"{name}: {e}", at, "report the operator if other tools read this file") from e
        ops = self.build.graph.ops
        ops[mark:] = [op for op in ops[mark:] if not fold(op)]

    def _result(self, i: int, values: dict[int, Value]) -> Value:
        name, file_type = self._type(i)
        value = values.setdefault(i, self.build.value(name, _as_int8(file_type)))
        signature = self.subgraph.tensors[i].shapeSignature
        if signature is not None and len(signature) == value.type.rank:
            self.build.open[value] = [int(d) < 0 for d in signature]
        return value

    def _value(self, i: int, values: dict[int, Value]) -> Value:
        if i not in values:
            name, file_type = self._type(i)
            data = self._data(i, file_type)
            if data is None:
                raise InputError(f"tensor {name} is read before anything writes it", str(self.path))
            inner = _as_int8(file_type)
            if inner != file_type:
                data = (data ^ 0x80).view(np.int8)
            values[i] = self.build.const(data, name, inner.quant)
        return values[i]

    def _type(self, i: int) -> tuple[str, TensorType]:
        tensor = self.subgraph.tensors[i]
        name = _text(tensor.name) or f"tensor{i}"
        if tensor.type not in _DTYPES:
            what = f"tensor {name} has the unsupported element type {tensor.type}"
            raise UnsupportedError(what, str(self.path), "edgec reads float32, float16 weights, int8 and uint8")
        shape = tuple(int(d) for d in tensor.shape) if tensor.shape is not None else ()
        return name, TensorType(shape, _DTYPES[tensor.type], _quant(tensor.quantization, shape))

    def _is_uint8(self, i: int) -> bool:
        return i >= 0 and self._type(i)[1] != _as_int8(self._type(i)[1])

    def _data(self, i: int, t: TensorType) -> Array | None:
        data = self.model.buffers[self.subgraph.tensors[i].buffer].data
        if data is None or (len(data) == 0 and t.size > 0):
            return None
        return np.frombuffer(np.asarray(data, np.uint8).tobytes(), t.np_dtype).reshape(t.shape)


def _as_int8(t: TensorType) -> TensorType:
    """A quantized uint8 type as the int8 type of the same reals."""
    if t.dtype != "uint8" or t.quant is None:
        return t
    zeros = tuple(z - 128 for z in t.quant.zero_point)
    return t.with_quant(Quant(t.quant.scale, zeros, t.quant.axis), "int8")


def _quant(q: Any, shape: tuple[int, ...]) -> Quant | None:
    if q is None or q.scale is None or len(q.scale) == 0:
        return None
    scale = tuple(float(np.float32(s)) for s in q.scale)
    zero = tuple(int(z) for z in q.zeroPoint) if q.zeroPoint is not None and len(q.zeroPoint) else (0,) * len(scale)
    if len(scale) == 1:
        return Quant(scale, zero)
    axis = int(q.quantizedDimension)  # old converters gave a depthwise bias the dimension of its weights, 3
    return Quant(scale, zero, axis if axis < len(shape) else len(shape) - 1)


def _text(name: bytes | str | None) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name or ""
