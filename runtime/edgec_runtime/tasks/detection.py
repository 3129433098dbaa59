"""Detection: boxes, with labels and perhaps points in them, out of what a network says of anchors or of grid cells.

`found` is the law; where the bundle has C for this machine (csrc/ek_boxes.h), that computes the same.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Tuple

import numpy as np

from ..arrays import read_array
from ..drawing import PALETTE, box_into, points_into
from ..errors import InputError
from ..rows import said
from ..tensors import TensorInfo
from .base import ACTIVATIONS, Array, Decode, Outputs, Setting, Size, View, activated, named, output_for

ORDERS = ("xywh", "xyxy", "yxyx", "yxhw")
SUPPRESSIONS = ("class", "all", "weighted", "none")
MAX_BOXES = 1 << 20
"""Rows of an output, and anchors."""


@dataclass(frozen=True)
class Anchors:
    """Where boxes are counted from: x and y of a centre, width and height, each 0…1 of the input."""

    file: Optional[str] = said("a file with float32 [N,4]; instead of the rest", None)
    strides: Tuple[int, ...] = said(
        "pixels of the input from cell to cell, for each grid in turn", (), low=1, high=4096
    )
    sizes: Tuple[Tuple[Tuple[float, ...], ...], ...] = said(
        "for each grid the [width, height] in pixels of a cell's anchors; default: one of the cell's size",
        (),
        low=0,
        high=65536,
    )
    offset: float = said("where in its cell a centre is: 0.5 the middle, 0 its top left", 0.5, low=0, high=1)

    def made(self, image: Size, files: Mapping[str, bytes]) -> Array:
        """float32 [N,4].  Raises InputError for a file or sizes that cannot be."""
        if self.file is not None:
            return _read(files[self.file], self.file)
        if not self.strides or len(self.sizes) not in (0, len(self.strides)):
            raise InputError("anchors want a file, or strides and as many sizes", "anchors", "see docs/tasks.md")
        grids = []
        for i, stride in enumerate(self.strides):
            sizes = self.sizes[i] if self.sizes else ((stride, stride),)
            if not sizes or any(len(size) != 2 for size in sizes):
                raise InputError(f"anchors of stride {stride} have no [width, height]", "anchors.sizes")
            columns, rows = -(-image[0] // stride), -(-image[1] // stride)
            y, x = np.meshgrid(np.arange(rows) + self.offset, np.arange(columns) + self.offset, indexing="ij")
            centres = np.stack([x * stride / image[0], y * stride / image[1]], -1).reshape(-1, 1, 2)
            own = np.array(sizes, np.float64) / np.array(image)
            pairs = [np.broadcast_to(a, (len(centres), len(own), 2)) for a in (centres, own)]
            grids.append(np.concatenate(pairs, -1).reshape(-1, 4))
        return np.concatenate(grids).astype(np.float32)


def _read(data: bytes, name: str) -> Array:
    try:
        array = read_array(io.BytesIO(data))
    except ValueError as e:
        raise InputError(f"the anchors cannot be read: {e}", at=name, hint="compile the model again") from e
    if array.ndim != 2 or array.shape[1] != 4 or array.dtype != np.float32 or len(array) > MAX_BOXES:
        what = f"anchors are float32 [N,4], not {array.dtype} {list(array.shape)}"
        raise InputError(what, at=name, hint="x and y of a centre, width and height, each 0…1 of the input")
    if not np.isfinite(array).all():
        raise InputError("the anchors have numbers that are not finite", at=name)
    return np.asarray(array)


@dataclass(frozen=True)
class Detection:
    """The parameters of the task."""

    kind: ClassVar[str] = "detection"
    boxes: Optional[str] = said("the output with boxes [1,N,columns]; default: the only one that can be", None)
    scores: Optional[str] = said("the output with scores [1,N,columns]; default: the one with the boxes", None)
    classes: Optional[str] = said("an output with the class of each box", None)
    count: Optional[str] = said("an output with the number of boxes", None)
    transposed: bool = said("outputs are [1,columns,N]", False)
    order: str = said("of a box's numbers; x and y of a centre where a w or h follows", "xywh", choices=ORDERS)
    units: str = said(
        "of boxes without anchors: 0…1 of the input, or its pixels", "relative", choices=("relative", "pixels")
    )
    anchors: Optional[Anchors] = said("what boxes are counted from: x = anchor x + x / scale * anchor width", None)
    scales: Tuple[float, ...] = said("by which x, y, width and height are divided", (1.0, 1.0, 1.0, 1.0), low=1e-6)
    exponential: bool = said("width = exp(width / scale) * anchor width, not only width / scale * anchor width", True)
    box_column: int = said("the first of the four numbers", 0, low=0, high=4095)
    score_column: int = said("the first of the classes' scores", 0, low=0, high=4095)
    objectness: Optional[int] = said("a column by which all scores are multiplied", None, low=0, high=4095)
    background: bool = said("the first class is that there is nothing", False)
    activation: str = said("what makes probabilities of scores", "none", choices=ACTIVATIONS)
    points: int = said("how many points a box has", 0, low=0, high=64)
    point_column: int = said("the first of their x and y", 4, low=0, high=4095)
    threshold: float = said("the least score of a box", 0.5, low=0, high=1)
    iou: float = said("boxes that overlap more are one", 0.5, low=0, high=1)
    suppression: str = said(
        "of such boxes the best is left: of its class, of all, or the mean weighted by scores; or all are left",
        "class",
        choices=SUPPRESSIONS,
    )
    limit: int = said("how many boxes are told at most", 100, low=1, high=4096)

    def bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> Detection:
        """See Task."""
        boxes, scores = named(self.boxes, outputs), named(self.scores, outputs)
        classes, count = named(self.classes, outputs), named(self.count, outputs)
        return replace(self, boxes=boxes, scores=scores, classes=classes, count=count)._bind(outputs, image)

    def _bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> Detection:
        taken = {self.scores, self.classes, self.count}
        least = max(self.box_column + 4, self.point_column + 2 * self.points if self.points else 0)
        rest = {n: o for n, o in outputs.items() if n not in taken or n == self.boxes}
        boxes = output_for(self.boxes, "boxes", rest, lambda shape: self.table(shape)[1] >= least)
        rows = self.table(outputs[boxes].shape)[0]
        more = max(self.score_column + (2 if self.background else 1), (self.objectness or 0) + 1)

        def of_rows(shape: Tuple[int, ...]) -> bool:
            return self.table(shape)[0] == rows and self.table(shape)[1] >= more

        scores = self.scores
        if scores is None and more <= self.table(outputs[boxes].shape)[1] and self.score_column > 0:
            scores = boxes
        rest = {n: o for n, o in outputs.items() if n not in (boxes, self.classes, self.count) or n == scores}
        scores = output_for(scores, "scores", rest, of_rows)
        for name, size in ((self.classes, rows), (self.count, 1)):
            if name is not None:
                output_for(name, "classes or count of boxes", outputs, lambda shape: math.prod(shape) == size)  # noqa: B023
        if self.anchors is not None:
            if len(self.scales) != 4:
                raise InputError(f"four scales are wanted, not {len(self.scales)}", "scales", "of x, y, w and h")
            if self.order not in ("xywh", "yxhw"):
                raise InputError(f"boxes with anchors are not {self.order}", "order", "xywh or yxhw")
            if self.anchors.file is None:
                self._check_anchors(self.anchors.made(image, {}), rows)
        return replace(self, boxes=boxes, scores=scores)

    def _check_anchors(self, anchors: Array, rows: int) -> None:
        if len(anchors) != rows:
            raise InputError(f"{len(anchors)} anchors are not for {rows} boxes", "anchors", "check strides and sizes")

    def table(self, shape: Tuple[int, ...]) -> Tuple[int, int]:
        """Rows and columns of an output, however many axes of one element it has."""
        inner = shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
        if len(inner) == 1:
            return inner[0], 1
        if len(inner) != 2 or max(inner) > MAX_BOXES:
            return 0, 0
        return (inner[1], inner[0]) if self.transposed else (inner[0], inner[1])

    def files(self) -> Tuple[str, ...]:
        """That of the anchors."""
        return (self.anchors.file,) if self.anchors is not None and self.anchors.file is not None else ()

    def rows(self, outputs: Mapping[str, TensorInfo]) -> int:
        """How many rows of boxes a bound task has."""
        return self.table(outputs[str(self.boxes)].shape)[0]

    @property
    def one_pass(self) -> bool:
        """Whether boxes are to be sought among rows; not where the network has done that itself."""
        return self.classes is None

    def decoder(self, setting: Setting) -> Decode:
        """See Task."""
        anchors = np.zeros((0, 4), np.float32)
        if self.anchors is not None:
            anchors = self.anchors.made(setting.image, setting.files)
            self._check_anchors(anchors, self.table(setting.outputs[str(self.boxes)].shape)[0])

        def decode(outputs: Outputs, view: View) -> Boxes:
            boxes, scores = outputs[str(self.boxes)], outputs[str(self.scores)]
            if not self.one_pass:
                rows = self._done(boxes, scores, outputs, setting.image)
            elif setting.detect is not None:
                rows = setting.detect(boxes, scores, anchors)
            else:
                rows = found(self, boxes, scores, anchors, setting.image)
            return _boxes(rows, view, setting)

        return decode

    def _done(self, boxes: Array, scores: Array, outputs: Outputs, image: Size) -> Array:
        """The rows of a network that has a class for each box, the best first."""
        corners = _corners(self, boxes.reshape(-1, 4), np.zeros((0, 4), np.float32), image)
        score, classes = scores.reshape(-1), outputs[str(self.classes)].reshape(-1)
        count = len(score) if self.count is None else int(outputs[self.count].reshape(-1)[0])
        rows = np.concatenate([corners, score[:, None], classes[:, None]], -1)[: max(0, count)]
        return rows[rows[:, 4] >= self.threshold][: self.limit].astype(np.float32)


def found(task: Detection, boxes: Array, scores: Array, anchors: Array, image: Size) -> Array:
    """float32 [K, 6 + 2 * points]: x1, y1, x2, y2 in pixels of the input, score, class, points; the best first."""
    boxes, scores = (_rows(task, a) for a in (boxes, scores))
    of_class = activated(scores[:, task.score_column :], task.activation)[:, 1 if task.background else 0 :]
    best = of_class.argmax(axis=1)
    score = of_class[np.arange(len(best)), best]
    if task.objectness is not None:
        score = score * activated(scores[:, task.objectness], task.activation)
    kept = np.flatnonzero(score >= np.float32(task.threshold))
    kept = kept[np.argsort(-score[kept], kind="stable")]
    own = anchors[kept] if len(anchors) else anchors
    corners = _corners(task, boxes[kept, task.box_column : task.box_column + 4], own, image)
    points = _points(task, boxes[kept], own, image)
    rows = np.concatenate([corners, score[kept, None], best[kept, None], points], axis=1).astype(np.float32)
    return _suppressed(task, rows)


def _rows(task: Detection, array: Array) -> Array:
    rows, columns = task.table(array.shape)
    return array.reshape(columns, rows).T if task.transposed else array.reshape(rows, columns)


def _corners(task: Detection, boxes: Array, anchors: Array, image: Size) -> Array:
    """[K,4]: x1, y1, x2, y2 in pixels of the input."""
    if task.order in ("yxyx", "yxhw"):
        boxes = boxes[:, [1, 0, 3, 2]]
    if task.order in ("xyxy", "yxyx"):
        low, high = boxes[:, :2], boxes[:, 2:]
    else:
        middle, size = boxes[:, :2], boxes[:, 2:]
        if task.anchors is not None:
            scales = np.array(task.scales, np.float32)
            middle = anchors[:, :2] + middle / scales[:2] * anchors[:, 2:]
            size = (np.exp(size / scales[2:]) if task.exponential else size / scales[2:]) * anchors[:, 2:]
        low, high = middle - size / 2, middle + size / 2
    return np.asarray(np.concatenate([low, high], axis=1) * _per_unit(task, image, 2), np.float32)


def _points(task: Detection, rows: Array, anchors: Array, image: Size) -> Array:
    """[K, 2 * points] in pixels of the input."""
    if not task.points:
        return np.zeros((len(rows), 0), np.float32)
    xy = rows[:, task.point_column : task.point_column + 2 * task.points].reshape(len(rows), task.points, 2)
    if task.anchors is not None:
        xy = anchors[:, None, :2] + xy / np.array(task.scales[:2], np.float32) * anchors[:, None, 2:]
    return np.asarray(xy.reshape(len(rows), 2 * task.points) * _per_unit(task, image, task.points), np.float32)


def _per_unit(task: Detection, image: Size, pairs: int) -> Array:
    pixels = task.anchors is None and task.units == "pixels"
    return np.array((1, 1) * pairs if pixels else image * pairs, np.float32)


def _suppressed(task: Detection, rows: Array) -> Array:
    """Of rows, the best first, those that are left."""
    if task.suppression == "none":
        return rows[: task.limit]
    left: List[Array] = []
    while len(rows) and len(left) < task.limit:
        first = rows[0]
        same = _overlaps(first, rows) > np.float32(task.iou)
        if task.suppression == "class":
            same &= rows[:, 5] == first[5]
        same[0] = True
        if task.suppression == "weighted":
            weights = rows[same, 4:5]
            mean = (rows[same] * weights).sum(axis=0) / weights.sum()
            first = np.concatenate([mean[:4], first[4:6], mean[6:]])
        left.append(first)
        rows = rows[~same]
    return np.array(left, np.float32).reshape(len(left), rows.shape[1])


def _overlaps(one: Array, rows: Array) -> Array:
    """Intersection over union of a box with others."""
    sides = np.minimum(one[2:4], rows[:, 2:4]) - np.maximum(one[:2], rows[:, :2])
    inside = np.maximum(sides, 0).prod(axis=1)
    areas = (rows[:, 2] - rows[:, 0]) * (rows[:, 3] - rows[:, 1])
    union = areas + (one[2] - one[0]) * (one[3] - one[1]) - inside
    return np.asarray(np.where(union > 0, inside / np.where(union > 0, union, 1), 0), np.float32)


def _boxes(rows: Array, view: View, setting: Setting) -> Boxes:
    """In the frame, cut off at its borders."""
    corners = view.to_frame(rows[:, :4].reshape(-1, 2, 2))
    corners = np.clip(corners, 0, np.array(view.frame)).reshape(-1, 4)
    points = view.to_frame(rows[:, 6:].reshape(len(rows), rows.shape[1] // 2 - 3, 2))
    return Boxes(
        tuple(
            Box(
                (float(c[0]), float(c[1]), float(c[2]), float(c[3])), float(row[4]), int(row[5]),
                setting.label(int(row[5])), tuple((float(x), float(y)) for x, y in p),
            )
            for row, c, p in zip(rows, corners, points)
        )
    )  # fmt: skip


@dataclass(frozen=True)
class Box:
    """corners: x1, y1, x2, y2 in the frame."""

    corners: Tuple[float, float, float, float]
    score: float
    index: int
    label: str
    points: Tuple[Tuple[float, float], ...] = ()

    def line(self) -> str:
        """For a table."""
        x1, y1, x2, y2 = self.corners
        return f"{self.score:7.1%}  {self.label:20} x {x1:.0f}…{x2:.0f}, y {y1:.0f}…{y2:.0f}"


@dataclass(frozen=True)
class Boxes:
    """The most certain first."""

    boxes: Tuple[Box, ...]

    def to_json(self) -> Dict[str, Any]:
        """See Result."""
        return {
            "boxes": [
                {
                    "label": b.label, "class": b.index, "score": round(b.score, 4),
                    "box": [round(v, 2) for v in b.corners],
                    **({"points": [[round(x, 2), round(y, 2)] for x, y in b.points]} if b.points else {}),
                }
                for b in self.boxes
            ]
        }  # fmt: skip

    def lines(self) -> List[str]:
        """See Result."""
        return [b.line() for b in self.boxes] or ["nothing"]

    def draw(self, frame: Array) -> Array:
        """Boxes with their labels, the best on top."""
        picture = frame.copy()
        for b in reversed(self.boxes):
            color = PALETTE[b.index % len(PALETTE)]
            box_into(picture, b.corners, color, f"{b.label} {b.score:.0%}")
            if b.points:
                points_into(picture, np.array(b.points), color)
        return picture
