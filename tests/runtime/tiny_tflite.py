"""The tiny model's Edge TPU segment as a .tflite: one int8 RELU, from the schema."""

from __future__ import annotations

from functools import lru_cache

import flatbuffers
from ai_edge_litert import schema_py_generated as schema

from tests.runtime.tiny_model import SCALE, SHAPE, ZERO


def _tensor(name: str) -> schema.TensorT:
    t = schema.TensorT()
    t.name = name
    t.shape = list(SHAPE)
    t.type = schema.TensorType.INT8
    t.buffer = 0
    t.quantization = schema.QuantizationParametersT()
    t.quantization.scale = [SCALE]
    t.quantization.zeroPoint = [ZERO]
    return t


@lru_cache(maxsize=4)
def relu_tflite(input_name: str = "q", output_name: str = "r") -> bytes:
    code = schema.OperatorCodeT()
    code.deprecatedBuiltinCode = schema.BuiltinOperator.RELU
    code.builtinCode = code.deprecatedBuiltinCode
    code.version = 2
    op = schema.OperatorT()
    op.opcodeIndex = 0
    op.inputs = [0]
    op.outputs = [1]
    graph = schema.SubGraphT()
    graph.tensors = [_tensor(input_name), _tensor(output_name)]
    graph.inputs = [0]
    graph.outputs = [1]
    graph.operators = [op]
    model = schema.ModelT()
    model.version = 3
    model.operatorCodes = [code]
    model.subgraphs = [graph]
    model.buffers = [schema.BufferT()]
    builder = flatbuffers.Builder(256)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
