"""A small single-shot detector with the nodes that torch.onnx writes for torchvision's.

Weights are of a fixed seed. The order of the nodes is that of torchvision's source
(models/detection/ssd.py, transform.py, anchor_utils.py, _utils.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.tasks.yolo import Nodes

SIDE = 64
STRIDE = 8
CELLS = SIDE // STRIDE
CLASSES = 4
"""With the background."""
SIZES = ((0.3, 0.2), (0.15, 0.4))
"""Width and height of the anchors of a cell, in parts of the picture."""
FAR = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Numbers:
    """What differs between such detectors."""

    threshold: float = 0.2
    candidates: int = 8
    iou: float = 0.45
    limit: int = 40
    scales: tuple[float, float, float, float] = (10.0, 10.0, 5.0, 5.0)
    largest: float = 1000 / 16
    last_threshold: float | None = None
    """Of the last class, in place of `threshold`."""
    folded: float | None = None
    """The part of a width that exponentials multiply at once, as simplifiers leave it."""


def detector(
    path: Path,
    numbers: Numbers = Numbers(),
    sides: tuple[int | str, int | str] = (SIDE, SIDE),
    resized: bool = True,
) -> Path:
    """Write such a network. sides: height and width of its input. resized: whether its
    picture is resized to SIDE x SIDE.
    """
    g = Nodes()
    features = _features(g, resized)
    regression = _head(g, features, 4)
    logits = _head(g, features, CLASSES)
    anchors = _anchors(g, features)
    probabilities = _whole(g, g.add("Softmax", [logits], axis=-1))
    boxes = _decoded(g, _whole(g, regression), anchors, numbers)
    outputs = _picked(g, _clipped(g, boxes), probabilities, numbers)
    for name, own in outputs.items():
        _rename(g, own, name)
    graph = helper.make_graph(
        g.nodes,
        "main_graph",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, *sides])],
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, ["n", 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n"]),
            helper.make_tensor_value_info("labels", TensorProto.INT64, ["n"]),
        ],
        g.constants,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path


def _rename(g: Nodes, own: str, name: str) -> None:
    """Let the node that writes `own` write `name`, as the exporter does at the end."""
    for node in g.nodes:
        for i, output in enumerate(node.output):
            if output == own:
                node.output[i] = name


def _integers(g: Nodes, *numbers: int) -> str:
    return g.constant(numbers, np.int64)


def _scalar(g: Nodes, number: int) -> str:
    return g.constant(number, np.int64)


def _wider(g: Nodes, x: str, axis: int) -> str:
    return str(g.add("Unsqueeze", [x, _integers(g, axis)]))


def _whole(g: Nodes, batch: str) -> str:
    """The only element of a batch."""
    part = g.add("Split", [batch, _integers(g, 1)], axis=0)
    return str(g.add("Squeeze", [part, _integers(g, 0)]))


def _features(g: Nodes, resized: bool) -> str:
    """Layers behind the normalization of the pictures, [1, 16, CELLS, CELLS]."""
    picture = _whole(g, "images")
    x = g.add("Sub", [picture, g.constant(np.full((3, 1, 1), 0.5))])
    x = g.add("Div", [x, g.constant(np.full((3, 1, 1), 0.25))])
    x = _wider(g, x, 0)
    if resized:
        sizes = _integers(g, 1, 3, SIDE, SIDE)
        x = g.add(
            "Resize",
            [x, "", "", sizes],
            mode="linear",
            coordinate_transformation_mode="half_pixel",
        )
    return str(g.add("Relu", [g.convolution(x, 3, 16, STRIDE)]))


def _head(g: Nodes, features: str, columns: int) -> str:
    """[1, N, columns], the anchors of a cell side by side."""
    each = len(SIZES)
    x = g.convolution(features, 16, each * columns, 1)
    x = g.add("Reshape", [x, _integers(g, 1, each, columns, CELLS, CELLS)])
    x = g.add("Transpose", [x], perm=[0, 3, 4, 1, 2])
    x = g.add("Reshape", [x, _integers(g, 1, -1, columns)])
    return str(g.add("Concat", [x], axis=1))


def _anchors(g: Nodes, features: str) -> str:
    """[N, 4], x1, y1, x2, y2 in pixels: computed from the shape of the features."""
    shape = g.add("Shape", [features])
    places: list[str] = []
    for axis in (2, 3):
        count = g.add("Gather", [shape, _scalar(g, axis)], axis=0)
        cells = g.add("Range", [_scalar(g, 0), count, _scalar(g, 1)])
        middle = g.add(
            "Add", [g.add("Cast", [cells], to=TensorProto.FLOAT), g.constant(0.5)]
        )
        every = g.add("Cast", [count], to=TensorProto.FLOAT)
        places.append(g.add("Div", [middle, every]))
    y = g.add(
        "Expand", [_wider(g, _wider(g, places[0], 1), 2), _integers(g, 1, CELLS, 2)]
    )
    x = g.add(
        "Expand", [_wider(g, _wider(g, places[1], 0), 2), _integers(g, CELLS, 1, 2)]
    )
    flat = _integers(g, -1)
    columns = [_wider(g, g.add("Reshape", [p, flat]), 1) for p in (x, y)]
    centre = g.add("Concat", columns, axis=1)
    size = g.add("Tile", [g.constant(SIZES), _integers(g, CELLS * CELLS, 1)])
    half = g.add("Mul", [size, g.constant(0.5)])
    pixels = g.constant([SIDE, SIDE])
    low = g.add("Mul", [g.add("Sub", [centre, half]), pixels])
    high = g.add("Mul", [g.add("Add", [centre, half]), pixels])
    return str(g.add("Concat", [low, high], axis=-1))


def _columns(g: Nodes, x: str, first: int, step: int) -> str:
    bounds = [_integers(g, n) for n in (first, FAR, 1, step)]
    return str(g.add("Slice", [x, *bounds]))


def _decoded(g: Nodes, regression: str, anchors: str, numbers: Numbers) -> str:
    """[N, 4], x1, y1, x2, y2: `BoxCoder.decode_single`."""
    exact = g.add("Cast", [anchors], to=TensorProto.FLOAT)
    column = [g.add("Gather", [exact, _scalar(g, i)], axis=1) for i in range(4)]
    half = g.constant(0.5)
    extents = [g.add("Sub", [column[i + 2], column[i]]) for i in (0, 1)]
    centres: list[str] = []
    for i in (0, 1):
        centres.append(g.add("Add", [column[i], g.add("Mul", [extents[i], half])]))
    low: list[str] = []
    high: list[str] = []
    for i in (0, 1):
        scale = g.constant(numbers.scales[i])
        offset = g.add("Div", [_columns(g, regression, i, 4), scale])
        scale = g.constant(numbers.scales[i + 2])
        log = g.add("Div", [_columns(g, regression, i + 2, 4), scale])
        log = g.add("Clip", [log, "", g.constant(np.log(numbers.largest))])
        extent = _wider(g, extents[i], 1)
        shift = g.add("Mul", [offset, extent])
        middle = g.add("Add", [shift, _wider(g, centres[i], 1)])
        growth = g.add("Exp", [log])
        if numbers.folded is None:
            side = g.add("Mul", [half, g.add("Mul", [growth, extent])])
        else:
            part = g.add("Mul", [extent, g.constant(numbers.folded)])
            side = g.add("Mul", [growth, part])
        low.append(_wider(g, g.add("Sub", [middle, side]), 2))
        high.append(_wider(g, g.add("Add", [middle, side]), 2))
    corners = g.add("Concat", [*low, *high], axis=2)
    return str(g.add("Flatten", [corners], axis=1))


def _clipped(g: Nodes, boxes: str) -> str:
    parts: list[str] = []
    for axis in (0, 1):
        least = g.add("Max", [_columns(g, boxes, axis, 2), g.constant(0.0)])
        most = g.add("Min", [least, g.constant(float(SIDE))])
        parts.append(_wider(g, most, 2))
    stacked = g.add("Concat", parts, axis=2)
    return str(g.add("Reshape", [stacked, g.add("Shape", [boxes])]))


def _picked(
    g: Nodes, boxes: str, probabilities: str, numbers: Numbers
) -> dict[str, str]:
    """The outputs by name: the selection by class, and the suppression of all."""
    every: list[list[str]] = []
    for label in range(1, CLASSES):
        threshold = numbers.threshold
        if label == CLASSES - 1 and numbers.last_threshold is not None:
            threshold = numbers.last_threshold
        scores = g.add("Gather", [probabilities, _scalar(g, label)], axis=1)
        sure = g.add("Greater", [scores, g.constant(threshold)])
        one, two = (
            g.add("Transpose", [g.add("NonZero", [sure])], perm=[1, 0])
            for _ in range(2)
        )
        scores = g.add("GatherND", [scores, one])
        own = g.add("GatherND", [boxes, two])
        count = g.add("Gather", [g.add("Shape", [scores]), _scalar(g, 0)], axis=0)
        limits = [_integers(g, numbers.candidates), _wider(g, count, 0)]
        least = g.add("ReduceMin", [g.add("Concat", limits, axis=0)], keepdims=0)
        most = g.add("Reshape", [least, _integers(g, 1)])
        best, places = g.add("TopK", [scores, most], 2, axis=-1)
        value = helper.make_tensor("value", TensorProto.INT64, [1], [label])
        labels = g.add("ConstantOfShape", [g.add("Shape", [best])], value=value)
        every.append([g.add("Gather", [own, places], axis=0), best, labels])
    tables = [g.add("Concat", [*parts], axis=0) for parts in zip(*every, strict=True)]
    size = g.add("ReduceProd", [g.add("Shape", [tables[0]])], keepdims=0)
    empty = g.add("Equal", [size, _scalar(g, 0)])
    kept = g.add("If", [empty], **_suppression(tables, numbers.iou))
    bounds = [_integers(g, n) for n in (0, numbers.limit, 0, 1)]
    first = g.add("Slice", [kept, *bounds])
    picked = [g.add("Gather", [table, first], axis=0) for table in tables]
    # Boxes go back to the size of the picture before it was resized.
    ratio = _ratios(g)
    columns = g.add("Split", [picked[0], _integers(g, 1, 1, 1, 1)], 4, axis=1)
    scaled: list[str] = []
    for i, column in enumerate(columns):
        flat = g.add("Squeeze", [column, _integers(g, 1)])
        scaled.append(_wider(g, g.add("Mul", [flat, ratio[i % 2]]), 1))
    corners = g.add("Concat", scaled, axis=1)
    return {"boxes": corners, "scores": picked[1], "labels": picked[2]}


def _ratios(g: Nodes) -> list[str]:
    """Width and height of the input over SIDE."""
    shape = g.add("Shape", ["images"])
    found: list[str] = []
    for axis in (3, 2):
        side = g.add("Gather", [shape, _scalar(g, axis)], axis=0)
        number = g.add("Cast", [side], to=TensorProto.FLOAT)
        found.append(g.add("Div", [number, g.constant(float(SIDE))]))
    return found


def _suppression(tables: Sequence[str], iou: float) -> dict[str, Any]:
    """The branches: no box, and `_batched_nms_coordinate_trick`."""
    boxes, scores, labels = tables
    none = Nodes()
    _number(none, [], np.int64)
    g = Nodes()
    top = g.add("ReduceMax", [boxes], keepdims=0)
    far = g.add("Add", [top, _number(g, 1.0, np.float32)])
    number = g.add("Cast", [labels], to=TensorProto.FLOAT)
    offsets = g.add("Mul", [number, far])
    apart = g.add("Unsqueeze", [offsets, _number(g, [1], np.int64)])
    shifted = g.add("Add", [boxes, apart])
    batch = g.add("Unsqueeze", [shifted, _number(g, [0], np.int64)])
    row = g.add("Unsqueeze", [scores, _number(g, [0], np.int64)])
    rows = g.add("Unsqueeze", [row, _number(g, [0], np.int64)])
    limits = [_number(g, [FAR], np.int64), _number(g, [iou], np.float32)]
    kept = g.add("NonMaxSuppression", [batch, rows, *limits])
    column = g.add("Gather", [kept, _number(g, [2], np.int64)], axis=1)
    g.add("Squeeze", [column, _number(g, [1], np.int64)])
    return {
        "then_branch": _branch(none, "then"),
        "else_branch": _branch(g, "else"),
    }


def _number(g: Nodes, value: Any, dtype: Any) -> str:
    """A constant as a node, as branches have it."""
    tensor = onnx.numpy_helper.from_array(np.asarray(value, dtype))
    return str(g.add("Constant", [], value=tensor))


def _branch(g: Nodes, prefix: str) -> onnx.GraphProto:
    """The graph of a branch with names of its own, which returns its last tensor."""
    own = {name for node in g.nodes for name in node.output}
    for node in g.nodes:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name in own:
                    names[i] = f"{prefix}/{name}"
    last = g.nodes[-1].output[0]
    info = helper.make_tensor_value_info(last, TensorProto.INT64, None)
    return helper.make_graph(g.nodes, prefix, [], [info])
