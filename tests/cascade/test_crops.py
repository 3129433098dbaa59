"""The crop that follows from a result, against the formula of MediaPipe's calculators
written out for each case.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from edgec_runtime.cascade.crops import crop_of
from edgec_runtime.cascade.parameters import CropRule
from edgec_runtime.vision.crop import Crop, CropView
from edgec_runtime.vision.tasks.instances import Box, Boxes
from edgec_runtime.vision.tasks.points import Points

FRAME = (640, 480)
IMAGE = (192, 192)
FACE = Boxes((Box((100, 100, 180, 160), 0.9, 0, "face", ((120, 120), (160, 130))),), ())


def points(*xy: tuple[float, float]) -> Points:
    array = np.array(xy, np.float32)
    shown = np.ones(len(array), bool)
    return Points(array, np.ones(len(array), np.float32), shown, 1.0, None)


def made(rule: CropRule, result: Boxes | Points = FACE) -> Crop:
    crop = crop_of(rule, result, FRAME, IMAGE)
    assert crop is not None
    return crop


def test_a_box_becomes_a_square_of_its_longer_side() -> None:
    crop = made(CropRule(scale=1.5))
    assert (crop.x, crop.y, crop.width, crop.height) == (140, 130, 120, 120)
    assert crop.angle == 0


def test_it_is_turned_by_two_points() -> None:
    # The right eye is 10 pixels lower: the crop is turned clockwise with the face.
    crop = made(CropRule(turn=(0, 1)))
    assert crop.angle == pytest.approx(math.atan2(10, 40))


def test_the_corners_of_a_turned_box_stand_for_points() -> None:
    """Those of a line of text, 100 x 20 and turned by 30 degrees."""
    turn = math.radians(30)
    along = np.array([math.cos(turn), math.sin(turn)])
    down = np.array([-along[1], along[0]])
    corners = [
        np.array([300, 200]) + a * 50 * along + b * 10 * down
        for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))
    ]
    polygon = tuple((float(x), float(y)) for x, y in corners)
    line = Boxes((Box((0, 0, 640, 480), 0.9, 0, "text", angle=turn, polygon=polygon),))
    rule = CropRule(points=(0, 1, 2, 3), turn=(0, 1), turned=True, side="box")
    crop = made(rule, line)
    assert (crop.x, crop.y, crop.width, crop.height) == pytest.approx(
        (300, 200, 100, 20)
    )
    assert crop.angle == pytest.approx(turn)


def test_a_hand_points_up() -> None:
    # From the wrist to the middle finger, to the right in the frame.
    hand = points((100, 200), (150, 200))
    crop = made(CropRule(turn=(0, 1), angle=90), hand)
    # Up in the crop is right in the frame: a quarter clockwise.
    assert crop.angle == pytest.approx(math.pi / 2)


def test_the_shift_is_along_the_turned_sides() -> None:
    hand = points((100, 200), (150, 200), (125, 220), (125, 180))
    rule = CropRule(turn=(0, 1), angle=90, shift_y=-0.5)
    crop = made(rule, hand)
    # The crop's up is the frame's right; half of the box's height of 40.
    assert (crop.x, crop.y) == pytest.approx((145, 200))


def test_a_circle_has_its_centre_and_a_point_on_it() -> None:
    crop = made(CropRule(points=(1, 0), circle=True), points((300, 200), (330, 240)))
    assert (crop.x, crop.y, crop.width, crop.height) == (330, 240, 100, 100)


def test_a_turned_box_is_the_smallest_in_its_direction() -> None:
    # Two points on a diagonal: along it the box has their distance and no height.
    crop = made(
        CropRule(turn=(0, 1), turned=True, side="free", scale=4),
        points((100, 100), (200, 200), (145, 155)),
    )
    assert crop.width == pytest.approx(4 * math.hypot(100, 100))
    assert crop.height == pytest.approx(4 * math.hypot(5, 5), rel=1e-5)


def test_the_shape_of_the_input_around_a_box() -> None:
    crop = crop_of(CropRule(side="input"), FACE, FRAME, (200, 50))
    assert crop is not None
    assert (crop.width, crop.height) == (240, 60)


@pytest.mark.parametrize(
    "spoiled",
    [
        (math.nan, 10.0),
        (math.inf, 10.0),
        (1e30, 10.0),
        (-300.0, 10.0),
        (10.0, 10.0),
    ],
    ids=["nan", "infinite", "huge", "outside", "no size"],
)
def test_what_no_object_can_have_is_no_crop(spoiled: tuple[float, float]) -> None:
    lost = points(spoiled, (spoiled[0], spoiled[1]))
    assert crop_of(CropRule(), lost, FRAME, IMAGE) is None


@pytest.mark.parametrize("mirrored", [False, True])
def test_points_of_the_input_are_where_they_were_sampled(mirrored: bool) -> None:
    crop = Crop(300, 200, 90, 60, 0.4, mirrored)
    view = CropView.of_crop(crop, FRAME, IMAGE)
    middle = view.to_frame(np.array([96.0, 96.0]))
    assert middle == pytest.approx([300, 200])
    # The input's right edge: half the width along the crop's horizontal.
    right = view.to_frame(np.array([192.0, 96.0]))
    sign = -1 if mirrored else 1
    along = sign * 45 * np.array([math.cos(0.4), math.sin(0.4)])
    assert right == pytest.approx(np.array([300, 200]) + along)
    assert replace(crop, mirrored=False).to_frame(
        np.array([0.5, 0.5])
    ) == pytest.approx([300, 200])
