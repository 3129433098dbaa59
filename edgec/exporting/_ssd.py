"""An SSD network up to its suppression, which TFLite has as an operator."""

from __future__ import annotations

import io

import numpy as np
from edgec_runtime import Bundle

from edgec.emit.anchors_file import ANCHORS_FILE
from edgec.emit.tflite import write_tflite
from edgec.emit.tflite_detections import with_detections
from edgec.errors import BundleError
from edgec.ir import Graph, Op
from edgec.ops.detection import Detections


def suppression(graph: Graph) -> Op | None:
    """Return the operation that picks boxes; None in a network without one."""
    for op in graph.ops:
        if isinstance(op.spec, Detections):
            return op
    return None


def up_to(graph: Graph, op: Op) -> Graph:
    """Return the graph with the boxes and scores that the suppression reads."""
    # The third input is the table of anchors.
    graph.outputs = op.inputs[:2]
    graph.drop_unused()
    return graph


def with_suppression(bundle: Bundle, graph: Graph, op: Op) -> bytes:
    """Return the .tflite of boxes and scores, followed by the suppression.

    Raises:
        BundleError: the bundle has no anchors
    """
    if ANCHORS_FILE not in bundle.names:
        raise BundleError(
            f"the bundle has no {ANCHORS_FILE}",
            str(bundle.path),
            "compile the model again with this version of edgec",
        )
    found = np.load(io.BytesIO(bundle.read(ANCHORS_FILE)), allow_pickle=False)
    spec = op.spec
    assert isinstance(spec, Detections)
    # The operator counts classes without background, which comes first.
    classes = op.inputs[1].type.shape[2] - spec.background
    return with_detections(write_tflite(graph), spec, found, classes)
