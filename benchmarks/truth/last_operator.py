"""Makes a .tflite file of the operator that ends TensorFlow Lite's detectors: it decodes
boxes, and leaves out those that overlap better ones.

It has no kernel in XNNPACK and runs on one thread.  Attributes are those that google/automl
writes for EfficientDet-Lite (efficientdet/tf2/postprocess.py): all boxes are compared, as
no score is below the threshold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers

NAME = "TFLite_Detection_PostProcess"
DETECTIONS = 100
ATTRIBUTES = {
    "max_detections": DETECTIONS,
    "max_classes_per_detection": 1,
    "use_regular_nms": False,
    "nms_score_threshold": float("-inf"),
    "nms_iou_threshold": 0.5,
    "y_scale": 1.0,
    "x_scale": 1.0,
    "h_scale": 1.0,
    "w_scale": 1.0,
}


def write(to: Path, anchors: int, classes: int) -> Path:
    """Write the operator for boxes [1, anchors, 4] and scores [1, anchors, classes].

    Anchors are random: centres all over the image, and sides of 5 to 30 % of its.
    """
    random = np.random.default_rng(0)
    centres = random.random((anchors, 2), np.float32)
    sides = random.uniform(0.05, 0.3, (anchors, 2)).astype(np.float32)
    data = np.concatenate([centres, sides], axis=1)

    graph = schema.SubGraphT()
    graph.tensors = [
        _tensor("boxes", 1, anchors, 4),
        _tensor("scores", 1, anchors, classes),
        _tensor("anchors", anchors, 4, buffer=1),
        _tensor("best", 1, DETECTIONS, 4),
        _tensor("best_classes", 1, DETECTIONS),
        _tensor("best_scores", 1, DETECTIONS),
        _tensor("number", 1),
    ]
    operator = schema.OperatorT()
    operator.inputs, operator.outputs = [0, 1, 2], [3, 4, 5, 6]
    attributes = flexbuffers.Dumps({**ATTRIBUTES, "num_classes": classes})
    operator.customOptions = np.frombuffer(bytes(attributes), np.uint8)
    graph.operators = [operator]
    graph.inputs, graph.outputs = [0, 1], operator.outputs

    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    code.customCode = NAME
    model = schema.ModelT()
    model.version = 3
    model.operatorCodes, model.subgraphs = [code], [graph]
    model.buffers = [schema.BufferT(), schema.BufferT()]
    model.buffers[1].data = np.frombuffer(data.tobytes(), np.uint8)
    builder = flatbuffers.Builder(data.nbytes + 4096)
    builder.Finish(model.Pack(builder), b"TFL3")
    to.write_bytes(builder.Output())
    return to


def _tensor(name: str, *shape: int, buffer: int = 0) -> Any:
    """A float32 tensor; buffer 0 is of what has no data."""
    tensor = schema.TensorT()
    tensor.name, tensor.shape = name, list(shape)
    tensor.type, tensor.buffer = schema.TensorType.FLOAT32, buffer
    return tensor
