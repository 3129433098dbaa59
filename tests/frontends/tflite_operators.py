"""A .tflite file of one operator, and what LiteRT's reference kernels make of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from edgec.ir import Array


@dataclass(frozen=True)
class Given:
    """An input: its elements, whether they are a constant of the file, and a scale and
    zero point of int8 ones.

    stored: the bytes of the file where they are not the elements, with the type and
    other fields of the tensor.
    """

    data: Array
    const: bool = False
    quant: tuple[Sequence[float], Sequence[int], int] | None = None
    stored: bytes | None = None
    fields: Mapping[str, Any] | None = None


def const(data: Any, dtype: Any = np.int32) -> Given:
    """A constant."""
    return Given(np.array(data, dtype), True)


def _tensor(model: Any, name: str, shape: Sequence[int], dtype: Any) -> Any:
    tensor = schema.TensorT()
    tensor.name = name.encode()
    tensor.shape = np.array(shape, np.int32)
    tensor.type = getattr(schema.TensorType, np.dtype(dtype).name.upper())
    tensor.buffer = len(model.buffers)
    model.buffers.append(schema.BufferT())
    model.subgraphs[0].tensors.append(tensor)
    return tensor


def quantized(tensor: Any, quant: tuple[Sequence[float], Sequence[int], int]) -> None:
    """Give a tensor scales, zero points and the axis that they run along."""
    tensor.quantization = schema.QuantizationParametersT()
    q = tensor.quantization
    q.scale = np.array(quant[0], np.float32)
    q.zeroPoint = np.array(quant[1], np.int64)
    q.quantizedDimension = quant[2]


def model_of(
    name: str,
    options: tuple[str, Mapping[str, Any]] | bytes | None,
    inputs: Sequence[Given | None],
    outputs: Sequence[tuple[Sequence[int], Any]],
    version: int = 1,
) -> Any:
    """The file's object. options: table and fields, or the bytes of a custom operator;
    outputs: shape and type.
    """
    model = schema.ModelT()
    sub = schema.SubGraphT()
    model.version = 3
    model.subgraphs = [sub]
    model.buffers = [schema.BufferT()]
    sub.tensors = []
    op = schema.OperatorT()
    code = schema.OperatorCodeT()
    indices = []
    fed = []
    for i, given in enumerate(inputs):
        if given is None:
            indices.append(-1)
            continue
        indices.append(len(sub.tensors))
        tensor = _tensor(model, f"x{i}", given.data.shape, given.data.dtype)
        if given.quant is not None:
            quantized(tensor, given.quant)
        for field, value in (given.fields or {}).items():
            setattr(tensor, field, value)
        if given.const:
            data = given.stored if given.stored is not None else given.data.tobytes()
            model.buffers[tensor.buffer].data = np.frombuffer(data, np.uint8)
        elif not tensor.isVariable:
            fed.append(indices[-1])
    made = [len(sub.tensors) + i for i in range(len(outputs))]
    for i, (shape, dtype) in enumerate(outputs):
        _tensor(model, f"y{i}", shape, dtype)
    builtin = getattr(schema.BuiltinOperator, name, schema.BuiltinOperator.CUSTOM)
    code.builtinCode = builtin
    code.deprecatedBuiltinCode = min(builtin, 127)
    code.version = version
    code.customCode = name if builtin == schema.BuiltinOperator.CUSTOM else None
    if isinstance(options, bytes):
        op.customOptions = np.frombuffer(options, np.uint8)
    elif options is not None:
        op.builtinOptionsType = getattr(schema.BuiltinOptions, options[0])
        op.builtinOptions = getattr(schema, f"{options[0]}T")()
        for field, value in options[1].items():
            assert hasattr(op.builtinOptions, field)
            setattr(op.builtinOptions, field, value)
    op.inputs = np.array(indices, np.int32)
    op.outputs = np.array(made, np.int32)
    op.opcodeIndex = 0
    sub.inputs = np.array(fed, np.int32)
    sub.outputs = np.array(made, np.int32)
    sub.operators = [op]
    model.operatorCodes = [code]
    return model


def packed(model: Any) -> bytes:
    """The file."""
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def reference(
    data: bytes, inputs: Mapping[str, Array], builtin: bool = False
) -> dict[str, Array]:
    """What LiteRT makes of a file: by its reference kernels, or by the usual ones where
    it has no others.
    """
    if builtin:
        kind = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    else:
        kind = OpResolverType.BUILTIN_REF
    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], inputs[detail["name"]])
    interpreter.invoke()
    return {
        d["name"]: interpreter.get_tensor(d["index"])
        for d in interpreter.get_output_details()
    }
