"""Smoothed results: what rests is calm, what moves is late by what is stated."""

from __future__ import annotations

import numpy as np
import pytest
from edgec_runtime.vision.preprocess import Fit
from edgec_runtime.vision.smoothing import OneEuro, Smoother, Strength
from edgec_runtime.vision.tasks.base import View
from edgec_runtime.vision.tasks.classification import Classes
from edgec_runtime.vision.tasks.instances import Box, Boxes
from edgec_runtime.vision.tasks.points import Points
from edgec_runtime.vision.tasks.segmentation import Segments

from edgec.ir import Array

FPS = 30.0
VIEW = View.of((640, 480), (64, 48), Fit())


def _points(xy: Array) -> Points:
    xy = np.asarray(xy, np.float32)
    return Points(xy, np.ones(len(xy)), np.ones(len(xy), bool), 1.0, None)


def test_points_at_rest_are_calm() -> None:
    rng = np.random.default_rng(0)
    smoother = Smoother()
    made = []
    base = np.array([[100, 100], [300, 260]])
    for i in range(150):
        result = smoother(_points(base + rng.normal(0, 2, base.shape)), i / FPS)
        assert isinstance(result, Points)
        made.append(result.points)
    assert np.std(made[30:], axis=0).max() < 1.2  # of 2
    assert np.abs(np.mean(made[30:], axis=0) - base).max() < 1


@pytest.mark.parametrize("speed", [0.02, 0.2, 1.0])
def test_what_moves_is_late_by_what_is_stated(speed: float) -> None:
    """Sampled finely, a ramp is late by the filter's time constant at that speed."""
    strength = Strength()
    step = 1 / 1000
    side = 200.0
    one = OneEuro(strength, side)
    velocity = speed * side
    for i in range(6000):
        value = float(one(np.array([velocity * i * step]), i * step)[0])
    late = 5999 * step - value / velocity
    assert late == pytest.approx(strength.lag(speed), rel=0.05)
    assert strength.lag(speed) < strength.lag() <= 0.14


def test_a_mask_is_late_by_its_time_constant() -> None:
    smoother = Smoother()
    small = Segments(np.zeros((4, 4), np.float32), None, VIEW, 0.5, ((0, "person"),))
    smoother(small, 0.0)
    on = Segments(np.ones((4, 4), np.float32), None, VIEW, 0.5, ((0, "person"),))
    for i in range(1, 61):
        made = smoother(on, i / 1000)
    assert isinstance(made, Segments)
    assert made.probability.max() == pytest.approx(1 - np.exp(-1), abs=1e-3)
    assert smoother.lag(made) == 0.06


def _box(x: float, index: int = 0, y: float = 50.0) -> Box:
    return Box((x, y, x + 100, y + 100), 0.9, index, "face", ((x + 50, y + 50),))


def test_boxes_keep_to_their_own_tracks() -> None:
    rng = np.random.default_rng(1)
    smoother = Smoother()
    made = []
    for i in range(120):
        jitter = rng.normal(0, 1, 2)
        boxes = [_box(100 + jitter[0]), _box(400 + jitter[1])]
        result = smoother(Boxes(tuple(boxes[:: 1 if i % 2 else -1])), i / FPS)
        assert isinstance(result, Boxes)
        made.append(sorted(b.corners[0] for b in result.boxes))
        assert all(abs(b.points[0][0] - b.corners[0] - 50) < 1e-3 for b in result.boxes)
    assert np.std(made[30:], axis=0).max() < 0.5
    jumped = smoother(Boxes((_box(250), _box(100, index=1))), 121 / FPS)
    assert isinstance(jumped, Boxes)
    # what is new is where it is at once
    assert [b.corners[0] for b in jumped.boxes] == [250, 100]


def test_time_that_stands_still_or_a_result_without_a_rule_changes_nothing() -> None:
    smoother = Smoother()
    first = smoother(_points(np.array([[1, 1], [5, 5]])), 1.0)
    again = smoother(_points(np.array([[9, 9], [5, 5]])), 1.0)
    assert isinstance(first, Points)
    assert isinstance(again, Points)
    np.testing.assert_array_equal(again.points, first.points)
    classes = Classes(())
    assert smoother(classes, 2.0) is classes
    assert smoother.lag(classes) == 0
