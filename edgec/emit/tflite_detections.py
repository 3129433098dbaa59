"""Appends TFLite_Detection_PostProcess to a .tflite file of boxes and scores.

The operator is a custom one: TFLite's runtimes have its kernel, the Edge TPU's compiler
leaves it to the CPU. Source: tensorflow/lite/kernels/detection_postprocess.cc.
"""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers

from edgec.emit.tflite import INITIAL_BUFFER_BYTES, MAX_DEPRECATED_CODE
from edgec.ir import Array
from edgec.ops.detection import Detections

NAME = "TFLite_Detection_PostProcess"
"""Of the operator, and of its first output; the others have ":1" to ":3" behind it."""


def with_detections(
    model: bytes, spec: Detections, anchors: Array, classes: int
) -> bytes:
    """Return the file with detections as its outputs.

    Args:
        model: the bytes of a file with two outputs: boxes [1, N, 4], and scores
            [1, N, background + classes]. Integers among them are dequantized first: the
            operator's kernel takes float32.
        spec: the suppression
        anchors: centre y, x and height, width, float32 [N, 4]
        classes: without background
    """
    loaded = schema.ModelT.InitFromPackedBuf(model)
    writer = _Appender(loaded)
    boxes, scores = (writer.as_float(int(i)) for i in writer.graph.outputs)
    anchor = writer.constant("anchors", anchors.astype(np.float32))

    # Exporters leave these shapes open; here they are known.
    shapes = ((1, spec.most, 4), (1, spec.most), (1, spec.most), (1,))
    outputs: list[int] = []
    for i, shape in enumerate(shapes):
        name = f"{NAME}:{i}" if i else NAME
        outputs.append(writer.tensor(name, shape))

    op = writer.operator(writer.custom_code(NAME), [boxes, scores, anchor], outputs)
    # The kernel reads its options from a flexbuffer, the schema-less kind.
    options = flexbuffers.Dumps(_options(spec, classes))
    op.customOptions = list(options)
    writer.graph.outputs = outputs

    builder = flatbuffers.Builder(INITIAL_BUFFER_BYTES)
    builder.Finish(loaded.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _options(spec: Detections, classes: int) -> dict[str, Any]:
    """Return the operator's options, by the names of its kernel."""
    y_scale, x_scale, h_scale, w_scale = spec.scale
    return {
        "max_detections": spec.most,
        "max_classes_per_detection": 1,
        "use_regular_nms": False,
        "nms_score_threshold": spec.score,
        "nms_iou_threshold": spec.overlap,
        "num_classes": classes,
        "y_scale": y_scale,
        "x_scale": x_scale,
        "h_scale": h_scale,
        "w_scale": w_scale,
    }


class _Appender:
    """Appends tensors and operators to the main subgraph of a file."""

    def __init__(self, model: Any) -> None:
        """Append to a parsed file."""
        self.model = model
        self.graph = model.subgraphs[0]

    def tensor(self, name: str, shape: tuple[int, ...], buffer: int = 0) -> int:
        """Return the index of a new float32 tensor. buffer 0 is the one without data."""
        tensor_table = schema.TensorT()
        tensor_table.name = name
        tensor_table.shape = list(shape)
        tensor_table.type = schema.TensorType.FLOAT32
        tensor_table.buffer = buffer
        self.graph.tensors.append(tensor_table)
        return len(self.graph.tensors) - 1

    def constant(self, name: str, array: Array) -> int:
        """Return the index of a new constant."""
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(array.tobytes(), np.uint8)
        self.model.buffers.append(buffer)
        return self.tensor(name, array.shape, len(self.model.buffers) - 1)

    def as_float(self, index: int) -> int:
        """Return a tensor in float32: itself, or the result of a DEQUANTIZE."""
        # Names come back from the parser as bytes.
        tensor = self.graph.tensors[index]
        if tensor.type == schema.TensorType.FLOAT32:
            return index
        name = tensor.name.decode() if isinstance(tensor.name, bytes) else tensor.name
        real = self.tensor(f"{name}_float32", tuple(tensor.shape))
        # Version 2 takes int8, version 1 uint8 alone.
        code = self._code(schema.BuiltinOperator.DEQUANTIZE, 2)
        self.operator(code, [index], [real])
        return real

    def _code(self, builtin: int, version: int) -> int:
        """Return the index of a new opcode entry."""
        code = schema.OperatorCodeT()
        code.builtinCode = builtin
        code.deprecatedBuiltinCode = min(builtin, MAX_DEPRECATED_CODE)
        code.version = version
        self.model.operatorCodes.append(code)
        return len(self.model.operatorCodes) - 1

    def custom_code(self, name: str) -> int:
        """Return the index of a new opcode entry for a custom operator."""
        index = self._code(schema.BuiltinOperator.CUSTOM, 1)
        self.model.operatorCodes[index].customCode = name
        return index

    def operator(self, code: int, inputs: list[int], outputs: list[int]) -> Any:
        """Append an operator and return it."""
        operator_table = schema.OperatorT()
        operator_table.opcodeIndex = code
        operator_table.inputs = inputs
        operator_table.outputs = outputs
        self.graph.operators.append(operator_table)
        return operator_table
