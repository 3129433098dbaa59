"""Detection: boxes, with labels and perhaps points, angles and masks, out of what a
network says of anchors or of grid cells.

`found` is the law; where the bundle has C for this machine (csrc/ek_boxes.h), that
computes the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Callable, ClassVar, Dict, List, Mapping, Optional, Tuple

import numpy as np

from ...errors import InputError
from ...rows import said
from ...tensors import TensorInfo
from .anchors import MAX_BOXES, Anchors
from .base import (
    ACTIVATIONS,
    Array,
    Decode,
    DecoderSetting,
    Outputs,
    Size,
    View,
    activated,
    named,
    output_for,
)
from .instances import Box, Boxes, Mask
from .overlap import overlaps, turned_overlaps

ORDERS = ("xywh", "xyxy", "yxyx", "yxhw")
SUPPRESSIONS = ("class", "all", "weighted", "none")
_ROW_COLUMNS = 7
"""Of a found box: x1, y1, x2, y2, score, class and the row that it was found in; behind
them its points.
"""

_MAX_CLASS = 65535
_FIRST = -4096
_LAST = 4095
"""Of columns; those below 0 count from the last one, -1."""


def _of_size(size: int) -> Callable[[Tuple[int, ...]], bool]:
    """Whether an output has so many numbers."""
    return lambda shape: math.prod(shape) == size


@dataclass(frozen=True)
class Detection:
    """The parameters of the task."""

    kind: ClassVar[str] = "detection"
    boxes: Optional[str] = said(
        "the output with boxes [1,N,columns]; default: the only one that can be", None
    )
    scores: Optional[str] = said(
        "the output with scores [1,N,columns]; default: the one with the boxes", None
    )
    classes: Optional[str] = said("an output with the class of each box", None)
    count: Optional[str] = said("an output with the number of boxes", None)
    transposed: bool = said("outputs are [1,columns,N]", False)
    order: str = said(
        "of a box's numbers; x and y of a centre where a w or h follows",
        "xywh",
        choices=ORDERS,
    )
    units: str = said(
        "of boxes without anchors: 0…1 of the input, or its pixels",
        "relative",
        choices=("relative", "pixels"),
    )
    anchors: Optional[Anchors] = said(
        "what boxes are counted from: x = anchor x + x / scale * anchor width", None
    )
    scales: Tuple[float, ...] = said(
        "by which x, y, width and height are divided", (1.0, 1.0, 1.0, 1.0), low=1e-6
    )
    exponential: bool = said(
        "width = exp(width / scale) * anchor width, not only width / scale * anchor width",
        True,
    )
    box_column: int = said("the first of the four numbers", 0, low=_FIRST, high=_LAST)
    score_column: int = said(
        "the first of the classes' scores, which end where another column of the same "
        "output is named",
        0,
        low=_FIRST,
        high=_LAST,
    )
    class_column: Optional[int] = said(
        "the class of the box, whose only score is in the column of scores",
        None,
        low=_FIRST,
        high=_LAST,
    )
    several: bool = said(
        "a row is a box of each class whose score is high enough, not only of the best",
        False,
    )
    objectness: Optional[int] = said(
        "a column by which all scores are multiplied", None, low=_FIRST, high=_LAST
    )
    background: bool = said("the first class is that there is nothing", False)
    activation: str = said(
        "what makes probabilities of scores", "none", choices=ACTIVATIONS
    )
    points: int = said("how many points a box has", 0, low=0, high=64)
    point_column: int = said("the first of their x and y", 4, low=_FIRST, high=_LAST)
    point_numbers: int = said(
        "2, or 3 where a number behind x and y says whether it is seen",
        2,
        low=2,
        high=3,
    )
    point_threshold: float = said(
        "points that are less surely seen are not drawn", 0.0, low=0, high=1
    )
    point_names: Tuple[str, ...] = said("of the points", ())
    lines: Tuple[Tuple[int, ...], ...] = said(
        "pairs of points that are joined in pictures", (), low=0, high=_LAST
    )
    angle_column: Optional[int] = said(
        "by how much a box is turned about its centre, in radians",
        None,
        low=_FIRST,
        high=_LAST,
    )
    mask_column: Optional[int] = said(
        "the first of the factors, to the last column, by which planes are added up to "
        "the mask of a box",
        None,
        low=_FIRST,
        high=_LAST,
    )
    masks: Optional[str] = said(
        "the output with those planes [1,planes,H,W]; default: the only one that can be",
        None,
    )
    threshold: float = said("the least score of a box", 0.5, low=0, high=1)
    iou: float = said("boxes that overlap more are one", 0.5, low=0, high=1)
    suppression: str = said(
        "of such boxes the best is left: of its class, of all, "
        "or the mean weighted by scores; or all are left",
        "class",
        choices=SUPPRESSIONS,
    )
    limit: int = said("how many boxes are told at most", 100, low=1, high=4096)

    def bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> Detection:
        """See Task."""
        boxes = named(self.boxes, outputs)
        scores = named(self.scores, outputs)
        classes = named(self.classes, outputs)
        count = named(self.count, outputs)
        task = replace(
            self,
            boxes=boxes,
            scores=scores,
            classes=classes,
            count=count,
            masks=named(self.masks, outputs),
        )
        return task._bind(outputs, image)._bind_columns(outputs)

    def _bind_columns(self, outputs: Mapping[str, TensorInfo]) -> Detection:
        """With columns that count from the first one, and the output of masks."""
        of_boxes, of_scores = (
            self.table(outputs[str(n)].shape)[1] for n in (self.boxes, self.scores)
        )
        counted: Dict[str, Any] = {}
        for name, columns, numbers in (
            ("box_column", of_boxes, 4),
            ("point_column", of_boxes, self.point_numbers * self.points),
            ("angle_column", of_boxes, 1),
            ("mask_column", of_boxes, 1),
            ("score_column", of_scores, 1),
            ("class_column", of_scores, 1),
            ("objectness", of_scores, 1),
        ):
            given = getattr(self, name)
            if given is None or numbers == 0:
                continue
            counted[name] = given + columns if given < 0 else given
            if not 0 <= counted[name] <= columns - numbers:
                raise InputError(
                    f"{name} is {given}, and there are {columns} columns", at=name
                )
        task = replace(self, **counted)
        if task.several and task.class_column is not None:
            raise InputError(
                "a row that says its class is of one alone",
                at="several",
                hint="leave it out",
            )
        if task.score_columns(of_scores) < (2 if task.background else 1):
            raise InputError(
                "no column is left for scores", "score_column", "see docs/tasks.md"
            )
        if any(len(pair) != 2 for pair in task.lines):
            raise InputError(
                "a line joins two points",
                at="lines",
                hint="for example [[0, 1], [1, 2]]",
            )
        if task.mask_column is None:
            return replace(task, masks=None)
        planes = of_boxes - task.mask_column
        return replace(
            task,
            masks=output_for(
                task.masks, "masks", outputs, lambda s: _grid(s, planes) is not None
            ),
        )

    def score_columns(self, columns: int) -> int:
        """How many columns of a bound task's output, of `columns`, have scores of
        classes.
        """
        if self.class_column is not None:
            return 1
        ends = [
            self.angle_column,
            self.mask_column,
            self.point_column if self.points else None,
        ]
        if self.scores == self.boxes:
            behind = [c for c in ends if c is not None and c > self.score_column]
        else:
            behind = []
        return min([columns, *behind]) - self.score_column

    def _bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> Detection:
        taken = {self.scores, self.classes, self.count, self.masks}
        least = max(
            self.box_column + 4,
            self.point_column + self.point_numbers * self.points if self.points else 0,
        )
        rest = {n: o for n, o in outputs.items() if n not in taken or n == self.boxes}
        boxes = output_for(
            self.boxes, "boxes", rest, lambda shape: self.table(shape)[1] >= least
        )
        rows = self.table(outputs[boxes].shape)[0]
        more = max(
            self.score_column + (2 if self.background else 1),
            (self.objectness or 0) + 1,
        )

        def of_rows(shape: Tuple[int, ...]) -> bool:
            return self.table(shape)[0] == rows and self.table(shape)[1] >= more

        scores = self.scores
        if (
            scores is None
            and more <= self.table(outputs[boxes].shape)[1]
            and self.score_column > 0
        ):
            scores = boxes
        rest = {
            n: o
            for n, o in outputs.items()
            if n not in (boxes, self.classes, self.count) or n == scores
        }
        scores = output_for(scores, "scores", rest, of_rows)
        for name, size in ((self.classes, rows), (self.count, 1)):
            if name is not None:
                output_for(name, "classes or count of boxes", outputs, _of_size(size))
        if self.anchors is not None:
            if len(self.scales) != 4:
                raise InputError(
                    f"four scales are wanted, not {len(self.scales)}",
                    "scales",
                    "of x, y, w and h",
                )
            if self.order not in ("xywh", "yxhw"):
                raise InputError(
                    f"boxes with anchors are not {self.order}", "order", "xywh or yxhw"
                )
            if self.anchors.file is None:
                self._check_anchors(self.anchors.made(image, {}), rows)
        return replace(self, boxes=boxes, scores=scores)

    def _check_anchors(self, anchors: Array, rows: int) -> None:
        if len(anchors) != rows:
            raise InputError(
                f"{len(anchors)} anchors are not for {rows} boxes",
                "anchors",
                "check strides and sizes",
            )

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
        if self.anchors is not None and self.anchors.file is not None:
            return (self.anchors.file,)
        return ()

    def most(self, outputs: Mapping[str, TensorInfo]) -> int:
        """How many boxes a bound task can find, before those that overlap are left out."""
        rows, columns = self.table(outputs[str(self.scores)].shape)
        return rows * (self.score_columns(columns) if self.several else 1)

    @property
    def width(self) -> int:
        """How many numbers a found box has."""
        return _ROW_COLUMNS + 2 * self.points

    @property
    def one_pass(self) -> bool:
        """Whether boxes are to be sought among rows; not where the network has done
        that itself.
        """
        return self.classes is None

    def decoder(self, setting: DecoderSetting) -> Decode:
        """See Task."""
        anchors = np.zeros((0, 4), np.float32)
        if self.anchors is not None:
            anchors = self.anchors.made(setting.image, setting.files)
            self._check_anchors(
                anchors, self.table(setting.outputs[str(self.boxes)].shape)[0]
            )

        def decode(outputs: Outputs, view: View) -> Boxes:
            boxes = outputs[str(self.boxes)]
            scores = outputs[str(self.scores)]
            if not self.one_pass:
                rows = self._done(boxes, scores, outputs, setting.image)
            elif setting.detect is not None:
                rows = setting.detect(boxes, scores, anchors)
            else:
                rows = found(self, boxes, scores, anchors, setting.image)
            return self._result(rows, outputs, view, setting)

        return decode

    def _done(
        self, boxes: Array, scores: Array, outputs: Outputs, image: Size
    ) -> Array:
        """The rows of a network that has a class for each box, the best first."""
        corners = _corners(
            self, boxes.reshape(-1, 4), np.zeros((0, 4), np.float32), image
        )
        score = scores.reshape(-1)
        classes = outputs[str(self.classes)].reshape(-1)
        if self.count is None:
            count = len(score)
        else:
            count = int(outputs[self.count].reshape(-1)[0])
        numbers = np.arange(len(score))
        rows = np.stack([*corners.T, score, classes, numbers], -1)[: max(0, count)]
        return rows[rows[:, 4] >= self.threshold][: self.limit].astype(np.float32)

    def _result(
        self, rows: Array, outputs: Outputs, view: View, setting: DecoderSetting
    ) -> Boxes:
        """Found boxes in the frame, cut off at its borders."""
        read = _rows(self, outputs[str(self.boxes)])[rows[:, 6].astype(np.int64)]
        points = view.to_frame(
            rows[:, _ROW_COLUMNS:].reshape(len(rows), self.points, 2)
        )
        if self.point_numbers == 3:
            seen = read[:, self.point_column + 2 :: 3][:, : self.points]
        else:
            seen = read[:, :0]
        angles = None if self.angle_column is None else read[:, self.angle_column]
        upright = rows[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
        quads = view.to_frame(upright if angles is None else _turned(upright, angles))
        low, high = (
            np.clip(f(quads, axis=1), 0, np.array(view.frame)) for f in (np.min, np.max)
        )
        found = []
        for i, row in enumerate(rows):
            corners = (
                float(low[i, 0]),
                float(low[i, 1]),
                float(high[i, 0]),
                float(high[i, 1]),
            )
            label = setting.label(int(row[5]))
            box = Box(
                corners,
                float(row[4]),
                int(row[5]),
                label,
                _pairs(points[i]),
                tuple(map(float, seen[i])),
            )
            if angles is not None:
                box = replace(box, angle=float(angles[i]), polygon=_pairs(quads[i]))
            if self.mask_column is not None:
                planes = outputs[str(self.masks)]
                box = replace(
                    box, mask=_mask(read[i, self.mask_column :], planes, row[:4], view)
                )
            found.append(box)
        return Boxes(tuple(found), self.point_names, self.lines, self.point_threshold)


def found(
    task: Detection, boxes: Array, scores: Array, anchors: Array, image: Size
) -> Array:
    """float32 [K, width]: x1, y1, x2, y2 in pixels of the input, score, class, row,
    points; the best first.

    Of a box that is turned, the corners are those that it had upright.
    """
    boxes, scores = (_rows(task, a) for a in (boxes, scores))
    score, label, row = _candidates(task, scores)
    order = np.argsort(-score, kind="stable")
    score = score[order]
    label = label[order]
    row = row[order]
    own = anchors[row] if len(anchors) else anchors
    corners = _corners(
        task, boxes[row, task.box_column : task.box_column + 4], own, image
    )
    points = _points(task, boxes[row], own, image)
    rows = np.concatenate(
        [np.stack([*corners.T, score, label, row], axis=1), points], axis=1
    ).astype(np.float32)
    return _suppressed(task, rows, boxes)


def _candidates(task: Detection, scores: Array) -> Tuple[Array, Array, Array]:
    """Score, class and row of what is sure enough, row by row."""
    end = task.score_column + task.score_columns(scores.shape[1])
    of_class = activated(scores[:, task.score_column : end], task.activation)[
        :, 1 if task.background else 0 :
    ]
    if task.objectness is not None:
        of_class = (
            of_class * activated(scores[:, task.objectness], task.activation)[:, None]
        )
    if task.several:
        row, label = np.nonzero(of_class >= np.float32(task.threshold))
        return of_class[row, label], label, row
    best = of_class.argmax(axis=1)
    score = of_class[np.arange(len(best)), best]
    row = np.flatnonzero(score >= np.float32(task.threshold))
    if task.class_column is not None:
        given = scores[:, task.class_column]
        best = np.where((given >= 0) & (given <= _MAX_CLASS), given, 0).astype(np.int64)
    return score[row], best[row], row


def _rows(task: Detection, array: Array) -> Array:
    rows, columns = task.table(array.shape)
    if task.transposed:
        return array.reshape(columns, rows).T
    return array.reshape(rows, columns)


def _corners(task: Detection, boxes: Array, anchors: Array, image: Size) -> Array:
    """[K,4]: x1, y1, x2, y2 in pixels of the input."""
    if task.order in ("yxyx", "yxhw"):
        boxes = boxes[:, [1, 0, 3, 2]]
    if task.order in ("xyxy", "yxyx"):
        low = boxes[:, :2]
        high = boxes[:, 2:]
    else:
        middle = boxes[:, :2]
        size = boxes[:, 2:]
        if task.anchors is not None:
            scales = np.array(task.scales, np.float32)
            middle = anchors[:, :2] + middle / scales[:2] * anchors[:, 2:]
            size = (
                np.exp(size / scales[2:]) if task.exponential else size / scales[2:]
            ) * anchors[:, 2:]
        low = middle - size / 2
        high = middle + size / 2
    return np.asarray(
        np.concatenate([low, high], axis=1) * _per_unit(task, image, 2), np.float32
    )


def _points(task: Detection, rows: Array, anchors: Array, image: Size) -> Array:
    """[K, 2 * points] in pixels of the input."""
    if not task.points:
        return np.zeros((len(rows), 0), np.float32)
    columns = slice(
        task.point_column, task.point_column + task.point_numbers * task.points
    )
    xy = rows[:, columns].reshape(len(rows), task.points, task.point_numbers)[..., :2]
    if task.anchors is not None:
        xy = (
            anchors[:, None, :2]
            + xy / np.array(task.scales[:2], np.float32) * anchors[:, None, 2:]
        )
    return np.asarray(
        xy.reshape(len(rows), 2 * task.points) * _per_unit(task, image, task.points),
        np.float32,
    )


def _per_unit(task: Detection, image: Size, pairs: int) -> Array:
    pixels = task.anchors is None and task.units == "pixels"
    return np.array((1, 1) * pairs if pixels else image * pairs, np.float32)


def _suppressed(task: Detection, rows: Array, boxes: Array) -> Array:
    """Of rows, the best first, those that are left.  boxes: what they were found in."""
    if task.suppression == "none":
        return rows[: task.limit]
    left: List[Array] = []
    while len(rows) and len(left) < task.limit:
        first = rows[0]
        if task.angle_column is None:
            common = overlaps(first, rows)
        else:
            angles = boxes[rows[:, 6].astype(np.int64), task.angle_column]
            common = turned_overlaps(first, float(angles[0]), rows, angles)
        same = common > np.float32(task.iou)
        if task.suppression == "class":
            same &= rows[:, 5] == first[5]
        same[0] = True
        if task.suppression == "weighted":
            weights = rows[same, 4:5]
            mean = (rows[same] * weights).sum(axis=0) / weights.sum()
            first = np.concatenate(
                [mean[:4], first[4:_ROW_COLUMNS], mean[_ROW_COLUMNS:]]
            )
        left.append(first)
        rows = rows[~same]
    return np.array(left, np.float32).reshape(len(left), rows.shape[1])


def _turned(corners: Array, angles: Array) -> Array:
    """Corners [N,4,2] after each box is turned about its centre."""
    middle = corners.mean(axis=1, keepdims=True)
    cosine = np.cos(angles)
    sine = np.sin(angles)
    turn = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], 1)
    return np.asarray(middle + (corners - middle) @ turn, np.float32)


def _grid(shape: Tuple[int, ...], planes: int) -> Optional[Size]:
    """Width and height of an output with so many planes, None if it has not:
    [1,planes,H,W] or [1,H,W,planes].
    """
    if len(shape) != 4 or shape[0] != 1 or planes not in (shape[1], shape[3]):
        return None
    return (shape[3], shape[2]) if shape[1] == planes else (shape[2], shape[1])


def _mask(factors: Array, planes: Array, corners: Array, view: View) -> Mask:
    """The sum of planes by their factors, where a box is; corners: in pixels of the
    input.
    """
    grid = _grid(planes.shape, len(factors))
    assert grid is not None
    first = planes.shape[1] == len(factors)
    per = np.array(grid * 2) / np.array(view.image * 2)
    # an element more on each side, so that what lies between two of them is the same as
    # in the whole
    low = np.clip(np.floor(corners[:2] * per[:2]) - 1, 0, np.array(grid) - 1).astype(
        np.int64
    )
    high = np.clip(np.ceil(corners[2:] * per[2:]) + 1, low + 1, grid).astype(np.int64)
    rows = slice(low[1], high[1])
    columns = slice(low[0], high[0])
    if first:
        part = planes[0, :, rows, columns]
    else:
        part = np.moveaxis(planes[0, rows, columns], -1, 0)
    return Mask(
        np.tensordot(factors, part, 1).astype(np.float32),
        (int(low[0]), int(low[1])),
        grid,
        view,
    )


def _pairs(points: Array) -> Tuple[Tuple[float, float], ...]:
    return tuple((float(x), float(y)) for x, y in points)
