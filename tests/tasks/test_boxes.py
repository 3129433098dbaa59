"""Boxes found by generated C: the same as tasks.find_boxes, which is compared with
a plain loop.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import InputError, TensorInfo
from edgec_runtime.vision.tasks.anchors import Anchors
from edgec_runtime.vision.tasks.detection import Detection
from edgec_runtime.vision.tasks.find_boxes import find_boxes

from edgec.ir import Array
from tests.tasks.vision import found_boxes

IMAGE = (64, 48)
GRID = Anchors(strides=(8, 16), offset=0.0)  # 48 + 12 cells
ROWS: list[tuple[dict[str, Any], dict[str, tuple[int, ...]]]] = [
    ({"threshold": 0.3}, {"b": (1, 300, 4), "s": (1, 300, 5)}),
    (
        {"order": "xyxy", "background": True, "suppression": "all"},
        {"b": (1, 200, 4), "s": (1, 200, 2)},
    ),
    (
        {"order": "yxyx", "units": "pixels", "activation": "sigmoid"},
        {"b": (1, 200, 4), "s": (1, 200, 3)},
    ),
    (
        {"anchors": GRID, "objectness": 4, "score_column": 5, "threshold": 0.2},
        {"o": (1, 60, 11)},
    ),
    (
        {
            "anchors": GRID,
            "exponential": False,
            "points": 2,
            "suppression": "weighted",
            "scales": (4.0, 4.0, 2.0, 2.0),
        },
        {"b": (1, 60, 8), "s": (1, 60, 1)},
    ),
    (
        {"transposed": True, "units": "pixels", "score_column": 4, "threshold": 0.4},
        {"o": (1, 9, 250)},
    ),
    (
        {"activation": "softmax", "background": True, "threshold": 0.1},
        {"b": (1, 150, 4), "s": (1, 150, 6)},
    ),
    (
        {"suppression": "none", "limit": 7, "order": "yxhw"},
        {"b": (1, 99, 4), "s": (1, 99, 1)},
    ),
    ({"limit": 3, "iou": 0.0}, {"b": (150, 4), "s": (150,)}),
    ({"several": True, "threshold": 0.7}, {"b": (1, 80, 4), "s": (1, 80, 3)}),
    (
        {
            "several": True,
            "activation": "softmax",
            "background": True,
            "threshold": 0.2,
        },
        {"b": (90, 4), "s": (90, 5)},
    ),
    (
        {
            "several": True,
            "activation": "softmax",
            "background": True,
            "threshold": 0.05,
            "candidates": 9,
            "clipped": True,
        },
        {"b": (1, 90, 4), "s": (1, 90, 5)},
    ),
    (
        {"candidates": 20, "units": "pixels", "order": "xyxy", "clipped": True},
        {"b": (1, 300, 4), "s": (1, 300, 3)},
    ),
    (
        {
            "class_column": -1,
            "score_column": 4,
            "suppression": "none",
            "threshold": 0.2,
        },
        {"o": (1, 60, 6)},
    ),
    (
        {
            "score_column": 4,
            "points": 2,
            "point_numbers": 3,
            "point_column": -6,
            "threshold": 0.4,
        },
        {"o": (1, 99, 13)},
    ),
    (
        {"transposed": True, "score_column": 4, "angle_column": -1, "threshold": 0.3},
        {"o": (1, 8, 120)},
    ),
    (
        {
            "score_column": 4,
            "angle_column": 6,
            "iou": 0.2,
            "threshold": 0.2,
            "suppression": "all",
        },
        {"o": (1, 120, 7)},
    ),
]


def _bound(
    how: dict[str, Any], shapes: dict[str, tuple[int, ...]]
) -> tuple[Detection, dict[str, TensorInfo]]:
    outputs = {n: TensorInfo(n, shape, "<f4") for n, shape in shapes.items()}
    return Detection(**{"boxes": "b" if "b" in shapes else None, **how}).bind(
        outputs, IMAGE
    ), outputs


def _arrays(
    task: Detection, outputs: dict[str, TensorInfo], seed: int
) -> tuple[Array, Array, Array]:
    """Boxes that overlap, and probabilities or what becomes some."""
    rng = np.random.default_rng(seed)
    made = {n: rng.random(o.shape).astype(np.float32) for n, o in outputs.items()}
    boxes = made[str(task.boxes)]
    if task.anchors is None:
        boxes = boxes * np.float32(0.5)
        if task.order in ("xyxy", "yxyx"):
            boxes[..., 2:] += boxes[..., :2]
        if task.units == "pixels" and not task.transposed:
            boxes = boxes * np.float32(48)
        else:
            boxes = boxes
    made[str(task.boxes)] = boxes
    scores = made[str(task.scores)] * (8 if task.activation != "none" else 1) - (
        4 if task.activation != "none" else 0
    )
    if task.anchors is None:
        anchors = np.zeros((0, 4), np.float32)
    else:
        anchors = task.anchors.made(IMAGE, {})
    return boxes, np.asarray(scores, np.float32), anchors


@pytest.mark.cc
def test_c_finds_what_numpy_finds(tmp_path: Path) -> None:
    bound = [_bound(how, shapes) for how, shapes in ROWS]
    calls = found_boxes([(task, outputs, IMAGE) for task, outputs in bound], tmp_path)
    for (task, outputs), call in zip(bound, calls, strict=True):
        for seed in range(20):
            arrays = _arrays(task, outputs, seed)
            expected = find_boxes(task, *arrays, IMAGE)
            got = call(*arrays)
            assert 0 < len(expected) == len(got), (task, seed)
            np.testing.assert_allclose(
                got, expected, rtol=2e-5, atol=2e-5, err_msg=str(task)
            )


@pytest.mark.cc
def test_nothing_and_nan_are_found_nowhere(tmp_path: Path) -> None:
    task, outputs = _bound(*ROWS[3])
    (call,) = found_boxes([(task, outputs, IMAGE)], tmp_path)
    boxes, _, anchors = _arrays(task, outputs, 0)
    for value in (0.0, np.nan):
        nothing = np.full_like(boxes, value)
        assert (
            len(call(nothing, nothing, anchors))
            == len(find_boxes(task, nothing, nothing, anchors, IMAGE))
            == 0
        )


def _spread(task: Detection, boxes: Array) -> Array:
    """The same boxes, many of them beyond the borders of the input."""
    middle = 24 if task.units == "pixels" else 0.5
    return np.asarray(3 * (boxes - middle) + middle, np.float32)


@pytest.mark.cc
def test_c_cuts_boxes_off_where_numpy_does(tmp_path: Path) -> None:
    bound = [_bound(how, shapes) for how, shapes in ROWS if "clipped" in how]
    calls = found_boxes([(task, outputs, IMAGE) for task, outputs in bound], tmp_path)
    for (task, outputs), call in zip(bound, calls, strict=True):
        for seed in range(20):
            boxes, scores, anchors = _arrays(task, outputs, seed)
            boxes = _spread(task, boxes)
            expected = find_boxes(task, boxes, scores, anchors, IMAGE)
            got = call(boxes, scores, anchors)
            np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)
            corners = got[:, :4]
            assert (corners.min(axis=0) == 0).any()
            assert (corners >= 0).all()
            assert (corners[:, 2:] <= IMAGE).all()


def test_only_the_best_of_a_class_are_compared() -> None:
    """Nine of each class go into a suppression that leaves all of them."""
    how = {"several": True, "threshold": 0.1, "candidates": 9, "suppression": "none"}
    task, outputs = _bound(how, {"b": (1, 80, 4), "s": (1, 80, 3)})
    boxes, scores, anchors = _arrays(task, outputs, 0)
    rows = find_boxes(task, boxes, scores, anchors, IMAGE)
    for label in range(3):
        best = np.sort(scores[0, :, label])[::-1][:9]
        np.testing.assert_array_equal(rows[rows[:, 5] == label, 4], best)


@pytest.mark.cc
@pytest.mark.parametrize("candidates", [0, 9])
def test_equal_scores_come_row_by_row_or_class_by_class(
    candidates: int, tmp_path: Path
) -> None:
    """Where classes have candidates of their own, these come class by class."""
    how = {"several": True, "suppression": "none", "candidates": candidates}
    task, outputs = _bound(how, {"b": (1, 12, 4), "s": (1, 12, 3)})
    (call,) = found_boxes([(task, outputs, IMAGE)], tmp_path)
    boxes, scores, anchors = _arrays(task, outputs, 0)
    equal = np.full_like(scores, 0.75)
    expected = [(row, label) for row in range(12) for label in range(3)]
    if candidates:
        expected = [(row, label) for label in range(3) for row in range(candidates)]
    for rows in (
        find_boxes(task, boxes, equal, anchors, IMAGE),
        call(boxes, equal, anchors),
    ):
        assert [(row[6], row[5]) for row in rows] == expected


def _iou(a: Array, b: Array) -> float:
    w, h = (max(0.0, float(min(a[2 + i], b[2 + i]) - max(a[i], b[i]))) for i in (0, 1))
    areas = [float((c[2] - c[0]) * (c[3] - c[1])) for c in (a, b)]
    return w * h / (sum(areas) - w * h)


@pytest.mark.parametrize("seed", range(5))
def test_suppression_is_greedy(seed: int) -> None:
    task, outputs = _bound(*ROWS[0])
    boxes, scores, anchors = _arrays(task, outputs, seed)
    rows = find_boxes(task, boxes, scores, anchors, IMAGE)
    every = []
    for box, own in zip(boxes[0], scores[0], strict=True):
        x, y, w, h = box * np.array([64, 48, 64, 48])
        every.append(
            (
                float(own.max()),
                int(own.argmax()),
                np.array([x - w / 2, y - h / 2, x + w / 2, y + h / 2]),
            )
        )
    every.sort(key=lambda e: -e[0])
    kept: list[tuple[float, int, Array]] = []
    for score, label, corners in every:
        if score >= 0.3 and not any(
            k[1] == label and _iou(k[2], corners) > 0.5 for k in kept
        ):
            kept.append((score, label, corners))
    kept = kept[: task.limit]
    np.testing.assert_allclose(rows[:, 4], [k[0] for k in kept], rtol=1e-6)
    np.testing.assert_allclose(rows[:, :4], [k[2] for k in kept], rtol=1e-4, atol=1e-4)
    assert rows[:, 5].tolist() == [k[1] for k in kept]


def test_anchors_that_do_not_fit_the_output_are_refused() -> None:
    with pytest.raises(InputError, match="60 anchors are not for 61 boxes"):
        _bound(
            {"anchors": GRID, "objectness": 4, "score_column": 5}, {"o": (1, 61, 11)}
        )
    with pytest.raises(InputError, match="as many sizes"):
        Anchors(strides=(8, 16), sizes=(((4.0, 4.0),),)).made(IMAGE, {})
