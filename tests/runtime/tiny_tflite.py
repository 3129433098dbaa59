"""The tiny model's Edge TPU segment as a .tflite: one int8 RELU, from the schema."""

from __future__ import annotations

from functools import lru_cache

import flatbuffers
from ai_edge_litert import schema_py_generated as schema

from tests.runtime.tiny_model import SCALE, SHAPE, ZERO


def _tensor(name: str) -> schema.TensorT:
    t = schema.TensorT()
    t.name, t.shape, t.type, t.buffer = name, list(SHAPE), schema.TensorType.INT8, 0
    t.quantization = schema.QuantizationParametersT()
    t.quantization.scale, t.quantization.zeroPoint = [SCALE], [ZERO]
    return t


@lru_cache(maxsize=4)
def relu_tflite(input_name: str = "q", output_name: str = "r") -> bytes:
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.RELU
    code.version = 2
    op = schema.OperatorT()
    op.opcodeIndex, op.inputs, op.outputs = 0, [0], [1]
    graph = schema.SubGraphT()
    graph.tensors = [_tensor(input_name), _tensor(output_name)]
    graph.inputs, graph.outputs, graph.operators = [0], [1], [op]
    model = schema.ModelT()
    model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, [code], [graph], [schema.BufferT()]
    builder = flatbuffers.Builder(256)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
