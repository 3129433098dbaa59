"""The task of detection: boxes with labels, and perhaps points, angles and masks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Callable, ClassVar, Dict, List, Mapping, Optional, Tuple

import numpy as np

from ...errors import InputError
from ...tensors import TensorInfo
from .base import (
    Array,
    Decode,
    DecoderSetting,
    Outputs,
    Size,
    View,
    output_for,
    output_name,
)
from .detection_parameters import (
    ORDERS,
    ROW_COLUMNS,
    SUPPRESSIONS,
    DetectionParameters,
)
from .find_boxes import box_corners, find_boxes, table_rows
from .instances import Box, Boxes, Mask

__all__ = ["ORDERS", "SUPPRESSIONS", "Detection"]

_NO_ANCHORS: Array = np.zeros((0, 4), np.float32)


@dataclass(frozen=True)
class Detection(DetectionParameters):
    """The task of detection, whose parameters decode a model's outputs once bound to it."""

    kind: ClassVar[str] = "detection"

    def bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> Detection:
        """Return the task for a model, with defaults replaced by the model's outputs."""
        task = replace(
            self,
            boxes=output_name(self.boxes, outputs),
            scores=output_name(self.scores, outputs),
            classes=output_name(self.classes, outputs),
            count=output_name(self.count, outputs),
            masks=output_name(self.masks, outputs),
        )

        task = task._bind_outputs(outputs)
        task._check_anchor_parameters(outputs, image)
        return task._bind_columns(outputs)

    def _bind_outputs(self, outputs: Mapping[str, TensorInfo]) -> Detection:
        """Return the task with the names of the outputs of boxes and scores."""
        boxes = self._boxes_output(outputs)
        rows = self.table(outputs[boxes].shape)[0]
        scores = self._scores_output(outputs, boxes)

        # These two have one number for each box, and a single number.
        for name, size in ((self.classes, rows), (self.count, 1)):
            if name is not None:
                output_for(name, "classes or count of boxes", outputs, _has_size(size))
        return replace(self, boxes=boxes, scores=scores)

    def _boxes_output(self, outputs: Mapping[str, TensorInfo]) -> str:
        """Return the name of the output with boxes."""
        others = {self.scores, self.classes, self.count, self.masks}
        candidates: Dict[str, TensorInfo] = {}
        for name, output in outputs.items():
            # An output may have boxes and something else in different columns.
            if name not in others or name == self.boxes:
                candidates[name] = output

        def has_boxes(shape: Tuple[int, ...]) -> bool:
            return self.table(shape)[1] >= self.box_columns

        return output_for(self.boxes, "boxes", candidates, has_boxes)

    def _scores_output(self, outputs: Mapping[str, TensorInfo], boxes: str) -> str:
        """Return the name of the output with scores.

        Args:
            outputs: the model's outputs
            boxes: the output with boxes
        """
        rows, columns = self.table(outputs[boxes].shape)
        objectness_columns = (self.objectness or 0) + 1

        least = max(self.score_column + self.least_classes, objectness_columns)

        def has_scores(shape: Tuple[int, ...]) -> bool:
            table = self.table(shape)
            return table[0] == rows and table[1] >= least

        # If there are columns before the scores, these are in the same output.
        scores = self.scores
        if scores is None and self.score_column > 0 and columns >= least:
            scores = boxes

        others = (boxes, self.classes, self.count)
        candidates: Dict[str, TensorInfo] = {}
        for name, output in outputs.items():
            if name not in others or name == scores:
                candidates[name] = output

        return output_for(scores, "scores", candidates, has_scores)

    def _check_anchor_parameters(
        self, outputs: Mapping[str, TensorInfo], image: Size
    ) -> None:
        """Raise InputError for parameters that do not suit anchors."""
        if self.anchors is None:
            return
        if len(self.scales) != 4:
            raise InputError(
                f"{len(self.scales)} scales are given, and anchors have four",
                "scales",
                "give those of x, y, w and h: [10, 10, 5, 5]",
            )
        if self.order not in ("xywh", "yxhw"):
            raise InputError(
                f"boxes with anchors are not {self.order}", "order", "give xywh or yxhw"
            )
        # Anchors of a file are checked when the bundle is read.
        if self.anchors.file is None:
            rows = self.table(outputs[str(self.boxes)].shape)[0]
            _check_anchors(self.anchors.made(image, {}), rows)

    def _bind_columns(self, outputs: Mapping[str, TensorInfo]) -> Detection:
        """Return the task with columns counted from the first, and the masks' output."""
        box_columns = self.table(outputs[str(self.boxes)].shape)[1]
        score_columns = self.table(outputs[str(self.scores)].shape)[1]
        task = self._with_positive_columns(box_columns, score_columns)

        if task.several and task.class_column is not None:
            raise InputError(
                "a row cannot have several classes where a column has its class",
                at="several",
                hint="leave it out",
            )
        if task.score_columns(score_columns) < task.least_classes:
            raise InputError(
                "no column is left for scores", "score_column", "see docs/tasks.md"
            )

        wrong = [list(line) for line in task.lines if len(line) != 2]
        if wrong:
            raise InputError(
                f"the line {wrong[0]} does not join two points",
                at="lines",
                hint="for example [[0, 1], [1, 2]]",
            )
        if task.mask_column is None:
            return replace(task, masks=None)

        # The factors end with the last column; there is one for each plane.
        planes = box_columns - task.mask_column

        def has_planes(shape: Tuple[int, ...]) -> bool:
            return _grid(shape, planes) is not None

        masks = output_for(task.masks, "masks", outputs, has_planes)
        return replace(task, masks=masks)

    def _with_positive_columns(self, box_columns: int, score_columns: int) -> Detection:
        """Return the task with columns counted from the first one.

        Args:
            box_columns: columns of the output with boxes
            score_columns: columns of the output with scores
        """
        positive: Dict[str, Any] = {}
        for name, columns, numbers in (
            ("box_column", box_columns, 4),
            ("point_column", box_columns, self.point_columns),
            ("angle_column", box_columns, 1),
            ("mask_column", box_columns, 1),
            ("score_column", score_columns, 1),
            ("class_column", score_columns, 1),
            ("objectness", score_columns, 1),
        ):
            value = getattr(self, name)
            # The default of the points' column may not exist in a model without points.
            if value is None or numbers == 0:
                continue
            column = value + columns if value < 0 else value

            if not 0 <= column <= columns - numbers:
                raise InputError(
                    f"{name} is {value}, and there are {columns} columns",
                    at=name,
                    hint=f"give 0 to {columns - numbers}",
                )
            positive[name] = column
        return replace(self, **positive)

    def files(self) -> Tuple[str, ...]:
        """Return the path of the anchors' file, if there is one."""

        if self.anchors is not None and self.anchors.file is not None:
            return (self.anchors.file,)
        return ()

    def decoder(self, setting: DecoderSetting) -> Decode:
        """Return the function that decodes the outputs, for a bound task."""
        anchors = _NO_ANCHORS
        if self.anchors is not None:
            anchors = self.anchors.made(setting.image, setting.files)
            rows = self.table(setting.outputs[str(self.boxes)].shape)[0]
            _check_anchors(anchors, rows)

        def decode(outputs: Outputs, view: View) -> Boxes:
            boxes = outputs[str(self.boxes)]
            scores = outputs[str(self.scores)]

            if not self.one_pass:
                rows = self._network_rows(boxes, scores, outputs, setting.image)
            elif setting.detect is not None:
                rows = setting.detect(boxes, scores, anchors)
            else:
                rows = find_boxes(self, boxes, scores, anchors, setting.image)
            return self._result(rows, outputs, view, setting)

        return decode

    def _network_rows(
        self, boxes: Array, scores: Array, outputs: Outputs, image: Size
    ) -> Array:
        """Return the rows of a network that includes the suppression.

        Its outputs have a class for each box, and the best box first.
        """
        corners = box_corners(self, boxes.reshape(-1, 4), _NO_ANCHORS, image)

        score = scores.reshape(-1)

        classes = outputs[str(self.classes)].reshape(-1)
        numbers = np.arange(len(score))
        rows = np.stack([*corners.T, score, classes, numbers], -1)

        if self.count is not None:
            # Rows after the count are not initialized.
            count = int(outputs[self.count].reshape(-1)[0])
            rows = rows[: max(0, count)]

        is_sure = rows[:, 4] >= self.threshold
        return rows[is_sure][: self.limit].astype(np.float32)

    def _result(
        self, rows: Array, outputs: Outputs, view: View, setting: DecoderSetting
    ) -> Boxes:
        """Return boxes in pixels of the frame, clipped at its borders.

        Args:
            rows: the boxes in pixels of the input, see `find_boxes`
            outputs: the model's outputs
            view: the place of the frame in the input
            setting: the model's labels
        """
        numbers = rows[:, 6].astype(np.int64)
        output_rows = table_rows(self, outputs[str(self.boxes)])[numbers]
        xy = rows[:, ROW_COLUMNS:].reshape(len(rows), self.points, 2)

        points = view.to_frame(xy)
        point_scores = self._point_scores(output_rows)

        angles: Optional[Array] = None
        quads = rows[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
        if self.angle_column is not None:
            angles = output_rows[:, self.angle_column]
            quads = _turned(quads, angles)
        quads = view.to_frame(quads)

        frame = np.array(view.frame)

        # An object at the border may reach beyond the frame, but not its box.
        low = np.clip(np.min(quads, axis=1), 0, frame)
        high = np.clip(np.max(quads, axis=1), 0, frame)
        boxes: List[Box] = []
        for i, row in enumerate(rows):
            index = int(row[5])
            box = Box(
                (*_pair(low[i]), *_pair(high[i])),
                float(row[4]),
                index,
                setting.label(index),
                _pairs(points[i]),
                tuple(map(float, point_scores[i])),
            )
            if angles is not None:
                # Its corners are already those of the upright box around it.
                box = replace(box, angle=float(angles[i]), polygon=_pairs(quads[i]))
            if self.mask_column is not None:
                planes = outputs[str(self.masks)]
                factors = output_rows[i, self.mask_column :]
                box = replace(box, mask=_mask(factors, planes, row[:4], view))
            boxes.append(box)
        return Boxes(tuple(boxes), self.point_names, self.lines, self.point_threshold)

    def _point_scores(self, rows: Array) -> Array:
        """Return the score of each point [K, points], or [K, 0] if there are none.

        Args:
            rows: the output's row of each box [K, columns]
        """
        if self.point_numbers != 3:
            return rows[:, :0]
        third_numbers = rows[:, self.point_column + 2 :: 3]
        return third_numbers[:, : self.points]


def _has_size(size: int) -> Callable[[Tuple[int, ...]], bool]:
    """Return a predicate: an output of that shape has `size` elements."""
    return lambda shape: math.prod(shape) == size


def _check_anchors(anchors: Array, rows: int) -> None:
    """Raise InputError unless there is one anchor for each box."""
    if len(anchors) != rows:
        raise InputError(
            f"{len(anchors)} anchors are not for {rows} boxes",
            "anchors",
            "check strides and sizes",
        )


def _turned(corners: Array, angles: Array) -> Array:
    """Return corners [N, 4, 2] of boxes that are turned about their centres."""
    middle = corners.mean(axis=1, keepdims=True)
    cosine = np.cos(angles)
    sine = np.sin(angles)

    # The matrix is transposed, since rows of coordinates are multiplied by it.
    first_row = np.stack([cosine, sine], -1)

    second_row = np.stack([-sine, cosine], -1)
    turn = np.stack([first_row, second_row], 1)
    return np.asarray(middle + (corners - middle) @ turn, np.float32)


def _grid(shape: Tuple[int, ...], planes: int) -> Optional[Size]:
    """Return width and height of an output [1, planes, H, W] or [1, H, W, planes].

    None for another shape.
    """
    if len(shape) != 4 or shape[0] != 1:
        return None
    if shape[1] == planes:
        return shape[3], shape[2]
    if shape[3] == planes:
        return shape[2], shape[1]
    return None


def _mask(factors: Array, planes: Array, corners: Array, view: View) -> Mask:
    """Return the mask of a box: the sum of planes, weighted by its factors.

    Args:
        factors: a factor for each plane
        planes: the output with planes
        corners: x1, y1, x2, y2 of the box in pixels of the input
        view: the place of the frame in the input
    """
    grid = _grid(planes.shape, len(factors))
    assert grid is not None

    size = np.array(grid)
    per_pixel = np.array(grid * 2) / np.array(view.image * 2)
    elements = corners * per_pixel

    # One more element on each side makes interpolated values the same as those of the
    # whole planes.
    low = np.clip(np.floor(elements[:2]) - 1, 0, size - 1).astype(np.int64)
    high = np.clip(np.ceil(elements[2:]) + 1, low + 1, grid).astype(np.int64)

    rows = slice(low[1], high[1])
    columns = slice(low[0], high[0])

    if planes.shape[1] == len(factors):
        part = planes[0, :, rows, columns]
    else:
        part = np.moveaxis(planes[0, rows, columns], -1, 0)

    logits = np.tensordot(factors, part, 1).astype(np.float32)
    return Mask(logits, (int(low[0]), int(low[1])), grid, view)


def _pair(point: Array) -> Tuple[float, float]:
    """Return x and y as floats of Python."""
    return float(point[0]), float(point[1])


def _pairs(points: Array) -> Tuple[Tuple[float, float], ...]:
    """Return points [N, 2] as pairs of floats of Python."""
    return tuple(_pair(point) for point in points)
