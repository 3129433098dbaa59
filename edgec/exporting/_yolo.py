"""The raw heads of a YOLO network, and what Frigate's detectors read of them.

A head has a convolution for boxes and one for classes at each of three grids, with
cells of 8, 16 and 32 pixels. Boxes are distances (left, top, right, bottom) from the
centre of the cell, in cells: as logits of 16 bins each whose mean by softmax is the
distance (Distribution Focal Loss, Li et al. 2020; YOLOv8, v9, 11), or as they are
(YOLO26).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgec.errors import InputError
from edgec.ir import Array, Builder, Graph, Op, Quant, Value
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D
from edgec.ops.detection import Detections
from edgec.ops.quantize import Dequantize, Quantize
from edgec.ops.shape import Reshape
from edgec.ops.softmax import Softmax
from edgec.ops.unary import Log, Logistic

STRIDES = (8, 16, 32)
BINS = 16
SIDES = 4
FOUND = Detections(
    most=20, background=0, scale=(1.0, 1.0, 1.0, 1.0), score=0.4, overlap=0.4
)
"""What Frigate does with candidates itself: at most 20, and both thresholds 0.4."""

_LOGIT_LIMIT = 4.0
"""Frigate recommends logits of classes within ±4 (sigmoid 2 % to 98 %), and subtracts
their zero point in 8 bits: with a zero point of 0 that cannot overflow.
"""
_LEVELS = 127


@dataclass(frozen=True)
class RawHead:
    """The head at one grid.

    Attributes:
        stride: pixels of a cell's side
        boxes: int8 [1, rows, columns, 64], or [..., 4] for distances as they are
        classes: int8 logits [1, rows, columns, classes]
    """

    stride: int
    boxes: Value
    classes: Value

    @property
    def cells(self) -> int:
        """Rows times columns."""
        return int(np.prod(self.boxes.type.shape[1:3]))


def raw_heads(graph: Graph, size: tuple[int, int], classes: int) -> list[RawHead]:
    """Return the heads by their strides.

    They are the first convolutions of a head's shape on the way back from the outputs.

    Args:
        graph: of the whole model
        size: width and height of the picture
        classes: the number of classes

    Raises:
        InputError: the model has no such heads
    """
    # Grids tell levels apart, whatever the exporter called them.
    width, height = size
    stride_of = {(height // s, width // s): s for s in STRIDES}
    found: dict[int, list[Value]] = {s: [] for s in STRIDES}
    for op in _behind(graph, stride_of, classes):
        value = op.outputs[0]
        found[stride_of[_grid(value)]].append(value)
    heads: list[RawHead] = []
    for stride, values in found.items():
        if len(values) != 2:
            raise InputError(
                f"the network has no raw head at the grid of {stride} pixels",
                at=graph.name,
                hint="export a YOLO (v8, v9, 11, 26) for detection, without a merged "
                "head",
            )
        boxes, scores = _told_apart(graph, values, classes)
        heads.append(RawHead(stride, boxes, scores))
    return heads


def _grid(value: Value) -> tuple[int, int]:
    _, rows, columns, _ = value.type.shape
    return rows, columns


def _behind(
    graph: Graph, stride_of: dict[tuple[int, int], int], classes: int
) -> list[Op]:
    """Return the last convolutions with a head's shape before the outputs."""
    producers = graph.producers()
    stack = list(graph.outputs)
    visited: set[Value] = set()
    ops: list[Op] = []
    while stack:
        value = stack.pop()
        op = producers.get(value)
        if op is None or value in visited:
            continue
        visited.add(value)
        # The mean over bins is a convolution, too, of another shape.
        if op.spec.kind == "conv2d" and len(value.type.shape) == 4:
            channels = value.type.shape[3]
            is_head = channels in (SIDES * BINS, SIDES, classes)
            if is_head and _grid(value) in stride_of:
                ops.append(op)
                continue
        stack += op.inputs
    return ops


def _told_apart(graph: Graph, values: list[Value], classes: int) -> tuple[Value, Value]:
    """Return boxes and classes of a grid."""
    counts = [v.type.shape[3] for v in values]
    if counts[0] != counts[1]:
        # A network without bins has four numbers, often fewer than classes.
        boxes = 1 if counts[0] == classes else 0
        return values[boxes], values[1 - boxes]
    # As many classes as numbers of a box: the box comes first where both are joined.
    for op in graph.ops:
        joined = [v for v in op.inputs if v in values]
        if len(joined) == 2:
            return joined[0], joined[1]
    raise InputError(
        f"the network's {classes} classes cannot be told from its boxes",
        at=graph.name,
        hint="train it with another number of classes",
    )


class HeadWriter:
    """Appends to a graph what a detector reads of its heads."""

    def __init__(self, graph: Graph, heads: Sequence[RawHead]) -> None:
        """Write to a copy of the graph."""
        self._graph = graph.copy()
        by_name = {v.name: v for op in self._graph.ops for v in op.outputs}
        self._boxes = [by_name[head.boxes.name] for head in heads]
        self._classes = [by_name[head.classes.name] for head in heads]
        self._build = Builder(self._graph)
        self._total = sum(head.cells for head in heads)

    def rows(self) -> Graph:
        """Return the graph with the outputs for Frigate's YOLO on the Edge TPU.

        They are int8: logits of boxes [1, N, 64], and of classes [1, N, classes], row
        by row, the smallest cells first. All of it can run on the Edge TPU.
        """
        limit = Quant((_LOGIT_LIMIT / _LEVELS,), (0,))
        boxes = self._joined(self._boxes, "boxes", _common(self._boxes))
        classes = self._joined(self._classes, "class_logits", limit)
        return self._done(boxes, classes)

    def codes(self) -> Graph:
        """Return the graph with the inputs of TFLite_Detection_PostProcess.

        They are float32: (y, x, log height, log width) [1, N, 4], in cells, for anchors
        of one cell; and probabilities [1, N, classes].
        """
        boxes = self._joined(self._boxes, "boxes", _common(self._boxes))
        logits = self._joined(self._classes, "class_logits", _common(self._classes))
        real = self._add(Dequantize(), boxes, "boxes_real")
        distances = self._distances(real)

        # left, top, right, bottom -> centre y, x; height, width
        centre = np.array([[0, -0.5, 0, 0.5], [-0.5, 0, 0.5, 0]], np.float32)
        extent = np.array([[0, 1, 0, 1], [1, 0, 1, 0]], np.float32)
        middle = self._linear(distances, centre, "none")
        # A box turned inside out gets the size 0, whose logarithm is -inf.
        sizes = self._linear(distances, extent, "relu")
        logarithms = self._add(Log(), sizes, "log_size")
        joined = self._build.add(Concat(3), [middle, logarithms], "codes_by_cell")
        codes = self._add(Reshape((1, self._total, SIDES)), joined, "codes")
        scores = self._add(Dequantize(), logits, "logits_real")
        return self._done(codes, self._add(Logistic(), scores, "scores"))

    def _distances(self, boxes: Value) -> Value:
        """Return distances [1, N, 1, 4] in cells of float32 boxes [1, N, 64 or 4]."""
        # Each cell is a pixel, so that a convolution of 1 x 1 sees one cell.
        by_cell = (1, self._total, 1, SIDES)
        if boxes.type.shape[2] == SIDES:
            return self._add(Reshape(by_cell), boxes, "distances")
        bins = self._add(Reshape((1, self._total, SIDES, BINS)), boxes, "bins")
        chances = self._add(Softmax(), bins, "chances")
        means = self._linear(chances, np.arange(BINS, dtype=np.float32)[None], "none")
        return self._add(Reshape(by_cell), means, "distances")

    def _linear(self, x: Value, matrix: Array, act: str) -> Value:
        """Return matrix · x over the last axis, as a convolution of 1 x 1."""
        rows, columns = matrix.shape
        weights = self._build.const(matrix.reshape(rows, 1, 1, columns))
        bias = self._build.const(np.zeros(rows, np.float32))
        return self._build.add(Conv2D(act=act), [x, weights, bias], "linear")

    def _joined(self, values: Sequence[Value], name: str, quant: Quant) -> Value:
        """Return int8 values of all grids as rows [1, N, channels] of one scale."""
        rows: list[Value] = []
        for value in values:
            cells = int(np.prod(value.type.shape[1:3]))
            row = self._add(Reshape((1, cells, value.type.shape[3])), value, name)
            # CONCATENATION of int8 has one scale for all, and QUANTIZE clamps.
            if row.type.quant != quant:
                row = self._build.add(Quantize("int8"), [row], name, quant)
            rows.append(row)
        return self._build.add(Concat(1), rows, name, quant)

    def _add(self, spec: object, x: Value, name: str) -> Value:
        return self._build.add(spec, [x], name)  # type: ignore[arg-type]

    def _done(self, *outputs: Value) -> Graph:
        self._graph.outputs = list(outputs)
        self._graph.drop_unused()
        return self._graph


def _common(values: Sequence[Value]) -> Quant:
    """Return one scale for int8 values of several: the range of all of them."""
    quants = [v.type.quant for v in values if v.type.quant is not None]
    if all(quant == quants[0] for quant in quants):
        return quants[0]
    # Saturation would cost more than a coarser step.
    lows = [q.scale[0] * (-128 - q.zero_point[0]) for q in quants]
    highs = [q.scale[0] * (127 - q.zero_point[0]) for q in quants]
    scale = (max(highs) - min(lows)) / 255
    zero_point = round(-128 - min(lows) / scale)
    return Quant((float(scale),), (zero_point,))


def anchors(heads: Sequence[RawHead]) -> Array:
    """Return centre y, x and height, width of each cell, in parts of the picture.

    float32 [N, 4], in the order of the rows.
    """
    found: list[Array] = []
    for head in heads:
        rows, columns = head.boxes.type.shape[1:3]
        # Row by row, as a reshape of NHWC lists cells.
        y, x = np.divmod(np.arange(head.cells), columns)
        cell = np.ones(head.cells)
        parts = ((y + 0.5) / rows, (x + 0.5) / columns, cell / rows, cell / columns)
        found.append(np.stack(parts, axis=1))
    return np.concatenate(found).astype(np.float32)
