"""The operators of a ground-truth record as a model in memory: types, shapes, options
and small constants are recorded, larger constants are zeros. Each operator stands
alone, since a record does not say who reads what.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edgec.frontends.tflite_file import TfliteFile

_OPTIONS = {
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "ARG_MAX": "ArgMaxOptions",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "MEAN": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTMOptions",
    "TOPK_V2": "TopKV2Options",
}
"""Options tables that are not named after the operator."""


def file_of(record: dict[str, Any]) -> TfliteFile:
    """All operators of a record, in order."""
    model = schema.ModelT()
    sub = schema.SubGraphT()
    model.buffers = [schema.BufferT()]
    model.operatorCodes = []
    model.subgraphs = [sub]
    sub.tensors = []
    sub.operators = []
    sub.inputs = []
    sub.outputs = []
    for row in record["ops"]:
        _add(model, sub, row)
    return TfliteFile(Path(record["model"]), model, sub, any_type=True)


def _add(model: Any, sub: Any, row: dict[str, Any]) -> None:
    name, _, custom = row["opcode"].partition(":")
    code = schema.OperatorCodeT()
    code.builtinCode = getattr(schema.BuiltinOperator, name)
    code.version = row["version"]
    code.customCode = custom
    model.operatorCodes.append(code)
    op = schema.OperatorT()
    op.opcodeIndex = len(model.operatorCodes) - 1
    op.builtinOptions = None if custom else _options(name, row["options"])
    known = row["options"].get("const_inputs", {})
    op.inputs = [
        _tensor(model, sub, row, "in", i, known.get(str(i)), row["const_in"][i])
        for i in range(len(row["in_shapes"]))
    ]
    op.outputs = [
        _tensor(model, sub, row, "out", i, None, False)
        for i in range(len(row["out_shapes"]))
    ]
    sub.operators.append(op)


def _options(name: str, given: dict[str, Any]) -> Any:
    """The schema's options, or None where an operator has none."""
    table = _OPTIONS.get(name, name.title().replace("_", "") + "Options")
    make = getattr(schema, f"{table}T", None)
    if make is None:
        return None
    options = make()
    for key, value in given.items():
        if key != "const_inputs":
            enum = {
                "Padding": schema.Padding,
                "FusedActivationFunction": schema.ActivationFunctionType,
            }.get(key)
            setattr(
                options,
                key[0].lower() + key[1:],
                getattr(enum, value) if enum else value,
            )
    return options


def _tensor(
    model: Any,
    sub: Any,
    row: dict[str, Any],
    side: str,
    i: int,
    data: list[int] | None,
    is_const: bool,
) -> int:
    shape = row[f"{side}_shapes"][i]
    dtype = row["dtypes"][side][i]
    quant = row["quant"][side][i]
    if dtype is None:
        return -1
    t = schema.TensorT()
    t.name = f"op{row['index']}_{side}{i}"
    t.shape = shape
    t.type = getattr(schema.TensorType, dtype)
    t.buffer = 0
    # its states
    t.isVariable = (
        row["opcode"].endswith("LSTM") and side == "in" and i > 0 and not is_const
    )
    if quant is not None or (is_const and dtype in ("INT8", "UINT8")):
        t.quantization = schema.QuantizationParametersT()
        t.quantization.scale, t.quantization.zeroPoint = (
            [v] for v in quant or (0.01, 0)
        )
    if is_const:
        buffer = schema.BufferT()
        if data is None:
            numbers = np.zeros(shape, dtype.lower())
        else:
            numbers = np.array(data, dtype.lower())
        buffer.data = np.frombuffer(numbers.tobytes(), np.uint8)
        model.buffers.append(buffer)
        t.buffer = len(model.buffers) - 1
    sub.tensors.append(t)
    return len(sub.tensors) - 1
