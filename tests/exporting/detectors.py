"""Small networks with raw heads at three grids, as Ultralytics' exporter writes YOLO11
(distances as 16 bins) and YOLO26 (distances as they are, boxes picked by the network).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.tasks import yolo
from tests.tasks.yolo import Nodes

SIDE = 64
STRIDES = (8, 16, 32)
CELLS = [(SIDE // s) ** 2 for s in STRIDES]
CHANNELS = 16


def anchors() -> tuple[Any, Any]:
    """Middles of cells [2, N] in cells, and strides [N]; the smallest cells first."""
    middles = []
    for stride in STRIDES:
        y, x = np.divmod(np.arange((SIDE // stride) ** 2), SIDE // stride)
        middles.append(np.stack([x + 0.5, y + 0.5]))
    strides = np.repeat(np.array(STRIDES), CELLS)
    return np.concatenate(middles, 1).astype(np.float32), strides.astype(np.float32)


def _backbone(g: Nodes) -> list[str]:
    """Features of each grid."""
    x = g.add("Relu", [g.convolution("images", 3, CHANNELS, STRIDES[0])])
    found = [x]
    for _ in STRIDES[1:]:
        x = g.add("Relu", [g.convolution(x, CHANNELS, CHANNELS, 2)])
        found.append(x)
    return found


def _rows(g: Nodes, bins: int, classes: int) -> tuple[str, str]:
    """Numbers of boxes [1, 4 * bins, N] and logits [1, classes, N]."""
    both = []
    for features, cells in zip(_backbone(g), CELLS, strict=True):
        # Distances of about two cells.
        bias = 0.0 if bins > 1 else 2.0
        box = g.convolution(features, CHANNELS, 4 * bins, 1, bias=bias)
        scores = g.convolution(features, CHANNELS, classes, 1, bias=-0.5)
        joined = g.add("Concat", [box, scores], axis=1)
        shape = g.constant([1, 4 * bins + classes, cells], np.int64)
        both.append(g.add("Reshape", [joined, shape]))
    rows = g.add("Concat", both, axis=2)
    parts = g.constant([4 * bins, classes], np.int64)
    boxes, logits = g.add("Split", [rows, parts], 2, axis=1)
    return boxes, logits


def _distances(g: Nodes, boxes: str, bins: int) -> str:
    if bins == 1:
        return boxes
    total = sum(CELLS)
    shaped = g.add("Reshape", [boxes, g.constant([1, 4, bins, total], np.int64)])
    turned = g.add("Transpose", [shaped], perm=[0, 2, 1, 3])
    chances = g.add("Softmax", [turned], axis=1)
    weights = g.constant(np.arange(bins).reshape(1, bins, 1, 1))
    means = g.add("Conv", [chances, weights])
    return str(g.add("Reshape", [means, g.constant([1, 4, total], np.int64)]))


def detector(path: Path, bins: int = 16, classes: int = 3, picks: bool = False) -> Path:
    """Write a network; with `picks` it picks 20 boxes itself, like YOLO26."""
    g = Nodes()
    boxes, logits = _rows(g, bins, classes)
    low, high = g.add("Split", [_distances(g, boxes, bins)], 2, axis=1)
    middles, strides = anchors()
    one = g.add("Sub", [g.constant(middles[None]), low])
    two = g.add("Add", [g.constant(middles[None]), high])
    size = g.add("Sub", [two, one])
    middle = g.add("Mul", [g.add("Add", [one, two]), g.constant(0.5)])
    pair = [one, two] if picks else [middle, size]
    cells = g.add("Concat", pair, axis=1)
    pixels = g.add("Mul", [cells, g.constant(strides[None, None])])
    out = g.add("Concat", [pixels, g.add("Sigmoid", [logits])], axis=1)
    shape = [1, 4 + classes, sum(CELLS)]
    if picks:
        assert classes == yolo.CLASSES
        out = yolo._end_to_end(g, out, 0, 20, False)
        shape = [1, 20, 6]
    g.nodes.append(helper.make_node("Identity", [out], ["output0"]))
    given = helper.make_tensor_value_info(
        "images", TensorProto.FLOAT, [1, 3, SIDE, SIDE]
    )
    made = helper.make_tensor_value_info("output0", TensorProto.FLOAT, shape)
    graph = helper.make_graph(g.nodes, "main_graph", [given], [made], g.constants)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    said = {
        "author": "Ultralytics",
        "task": "detect",
        "stride": "32",
        "batch": "1",
        "imgsz": f"[{SIDE}, {SIDE}]",
        "names": str({i: f"thing {i}" for i in range(classes)}),
        "channels": "3",
        "end2end": str(picks),
    }
    for key, value in said.items():
        property_ = model.metadata_props.add()
        property_.key = key
        property_.value = value
    onnx.save(model, path)
    return path
