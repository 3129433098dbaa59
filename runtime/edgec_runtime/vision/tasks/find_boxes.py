"""Finds boxes in outputs that have a row for each anchor or grid cell.

`find_boxes` is the reference; a bundle's C for this machine (csrc/ek_boxes.h) computes
the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List

import numpy as np

from .base import Array, Size, activated
from .detection_parameters import ROW_COLUMNS, DetectionParameters
from .overlap import overlaps, turned_overlaps

_MAX_CLASS = 65535
"""The largest class that an output can have."""


@dataclass(frozen=True)
class _Candidates:
    """Rows of the outputs whose score reaches the threshold.

    Attributes:
        score: score of each [N]
        label: class of each [N]
        row: number of each row in the outputs [N]
    """

    score: Array
    label: Array
    row: Array


def find_boxes(
    task: DetectionParameters, boxes: Array, scores: Array, anchors: Array, image: Size
) -> Array:
    """Return the boxes of a frame, float32 [K, task.width], the best first.

    The columns are x1, y1, x2, y2 in pixels of the input, score, class, row of the
    output, and points. The corners of a turned box are those before it is turned.

    Args:
        task: the bound parameters
        boxes: the output with boxes
        scores: the output with scores
        anchors: float32 [N, 4]; empty for a task without
        image: width and height of the input
    """
    box_rows = table_rows(task, boxes)

    candidates = _candidates(task, table_rows(task, scores))
    if task.candidates:
        candidates = _best_of_each_class(candidates, task.candidates)
    best = _by_score(candidates)

    best_anchors = anchors[best.row] if len(anchors) else anchors
    best_rows = box_rows[best.row]
    numbers = best_rows[:, task.box_column : task.box_column + 4]
    corners = box_corners(task, numbers, best_anchors, image)
    if task.clipped:
        corners = np.clip(corners, 0, np.array(image * 2, np.float32))
    points = _points(task, best_rows, best_anchors, image)

    columns = np.stack([*corners.T, best.score, best.label, best.row], axis=1)
    rows = np.concatenate([columns, points], axis=1).astype(np.float32)
    return _suppressed(task, rows, box_rows)


def table_rows(task: DetectionParameters, array: Array) -> Array:
    """Return an output as [rows, columns]."""
    rows, columns = task.table(array.shape)
    if task.transposed:
        return array.reshape(columns, rows).T
    return array.reshape(rows, columns)


def _by_score(candidates: _Candidates) -> _Candidates:
    """Return candidates sorted by score, the best first."""
    # A stable sort keeps the order of equal scores, like C.
    order = np.argsort(-candidates.score, kind="stable")

    return _Candidates(
        candidates.score[order], candidates.label[order], candidates.row[order]
    )


def _best_of_each_class(candidates: _Candidates, most: int) -> _Candidates:
    """Return the `most` best candidates of each class, class by class."""
    order = np.lexsort((-candidates.score, candidates.label))
    label = candidates.label[order]
    rank = np.arange(len(label)) - np.searchsorted(label, label)

    best = order[rank < most]
    return _Candidates(
        candidates.score[best], candidates.label[best], candidates.row[best]
    )


def _candidates(task: DetectionParameters, scores: Array) -> _Candidates:
    """Return the rows whose score reaches the threshold, in their order."""
    probabilities = _probabilities(task, scores)
    threshold = np.float32(task.threshold)
    if task.several:
        row, label = np.nonzero(probabilities >= threshold)
        return _Candidates(probabilities[row, label], label, row)

    label = probabilities.argmax(axis=1)

    score = probabilities[np.arange(len(label)), label]

    # The time of suppression is quadratic, so that other rows have to be removed first.
    row = np.flatnonzero(score >= threshold)
    if task.class_column is not None:
        # NaN compares false, and so becomes class 0.
        numbers = scores[:, task.class_column]

        is_class = (numbers >= 0) & (numbers <= _MAX_CLASS)
        label = np.where(is_class, numbers, 0).astype(np.int64)
    return _Candidates(score[row], label[row], row)


def _probabilities(task: DetectionParameters, scores: Array) -> Array:
    """Return the probabilities [rows, classes], without the background."""
    end = task.score_column + task.score_columns(scores.shape[1])
    of_classes = scores[:, task.score_column : end]

    # Softmax needs the background's score as well.
    probabilities = activated(of_classes, task.activation)
    if task.background:
        probabilities = probabilities[:, 1:]

    if task.objectness is not None:
        objectness = activated(scores[:, task.objectness], task.activation)
        probabilities = probabilities * objectness[:, None]
    return probabilities


def box_corners(
    task: DetectionParameters, boxes: Array, anchors: Array, image: Size
) -> Array:
    """Return x1, y1, x2, y2 in pixels of the input, [K, 4].

    With anchors, x = anchor x + x / scale * anchor width, and the width is
    exp(w / scale) or w / scale times the anchor's.

    Args:
        task: the parameters
        boxes: the four numbers of each box [K, 4]
        anchors: the anchor of each box [K, 4]
        image: width and height of the input
    """
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
            factor = size / scales[2:]
            if task.exponential:
                factor = np.exp(factor)
            size = factor * anchors[:, 2:]
        low = middle - size / 2
        high = middle + size / 2

    corners = np.concatenate([low, high], axis=1)
    return np.asarray(corners * _pixels_per_unit(task, image, 2), np.float32)


def _points(
    task: DetectionParameters, rows: Array, anchors: Array, image: Size
) -> Array:
    """Return the points of boxes in pixels of the input, [K, 2 * points]."""
    if not task.points:
        return np.zeros((len(rows), 0), np.float32)

    end = task.point_column + task.point_columns
    numbers = rows[:, task.point_column : end]

    # A third number of a point is its score.
    by_point = numbers.reshape(len(rows), task.points, task.point_numbers)
    xy = by_point[..., :2]
    if task.anchors is not None:
        scales = np.array(task.scales[:2], np.float32)
        xy = anchors[:, None, :2] + xy / scales * anchors[:, None, 2:]

    flat = xy.reshape(len(rows), 2 * task.points)
    return np.asarray(flat * _pixels_per_unit(task, image, task.points), np.float32)


def _pixels_per_unit(task: DetectionParameters, image: Size, pairs: int) -> Array:
    """Return the factors that turn `pairs` pairs of x and y into pixels [2 * pairs]."""
    is_pixels = task.anchors is None and task.units == "pixels"

    unit = (1, 1) if is_pixels else image
    return np.array(unit * pairs, np.float32)


def _suppressed(task: DetectionParameters, rows: Array, boxes: Array) -> Array:
    """Return the rows that non-maximum suppression leaves.

    Args:
        task: the parameters
        rows: the boxes, the best first
        boxes: all rows of the output with boxes
    """
    if task.suppression == "none":
        return rows[: task.limit]

    survivors: List[Array] = []
    while len(rows) and len(survivors) < task.limit:
        first = rows[0]
        is_same = _overlaps_of_first(task, rows, boxes) > np.float32(task.iou)
        if task.suppression == "class":
            is_same &= rows[:, 5] == first[5]

        # A box without area overlaps nothing, not even itself.
        is_same[0] = True
        if task.suppression == "weighted":
            first = _weighted_mean(rows[is_same])

        survivors.append(first)
        rows = rows[~is_same]
    return np.array(survivors, np.float32).reshape(len(survivors), rows.shape[1])


def _overlaps_of_first(task: DetectionParameters, rows: Array, boxes: Array) -> Array:
    """Return the overlap of each box with the first."""
    if task.angle_column is None:
        return overlaps(rows[0], rows)

    # The rows have the corners before the turn; the angles are in the output itself.
    numbers = rows[:, 6].astype(np.int64)

    angles = boxes[numbers, task.angle_column]
    return turned_overlaps(rows[0], float(angles[0]), rows, angles)


def _weighted_mean(rows: Array) -> Array:
    """Return the mean of boxes and points, weighted by scores.

    Score, class and row are those of the first box (as in BlazeFace).
    """
    weights = rows[:, 4:5]

    mean = (rows * weights).sum(axis=0) / weights.sum()

    return np.concatenate([mean[:4], rows[0][4:ROW_COLUMNS], mean[ROW_COLUMNS:]])
