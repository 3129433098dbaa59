"""Computes the crop of an object from a result, by the rule of a cascade.

The formula is that of MediaPipe's DetectionsToRects, AlignmentPointsToRects and
RectTransformation calculators (Lugaresi and others, "MediaPipe: A Framework for
Building Perception Pipelines", 2019). With the points p and q of `turn`, the direction
t of `angle`, and the box with the centre c and the sides w and h:

    a  = t - atan2(-(qy - py), qx - px)                         clockwise
    c' = c + (w sx cos a - h sy sin a, w sx sin a + h sy cos a)
    w' = h' = scale max(w, h)                                   side = "long"
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from ..vision.crop import Crop
from ..vision.tasks.base import Result, Size
from ..vision.tasks.instances import Boxes
from ..vision.tasks.points import Points
from .parameters import CropRule

Array = NDArray[np.float64]

SMALLEST = 2.0
"""Least side of a crop in pixels of the frame."""
LARGEST = 4.0
"""Largest side of a crop relative to the longer side of the frame."""


@dataclass(frozen=True)
class _Enclosing:
    """The box around an object, from which its crop follows.

    Attributes:
        x: x of its centre in pixels of the frame
        y: y of its centre
        width: length along the crop's upper side
        height: length along the crop's left side
    """

    x: float
    y: float
    width: float
    height: float


def crop_of(rule: CropRule, result: Result, frame: Size, image: Size) -> Optional[Crop]:
    """Return the crop for the object of a result; None if it would not be usable.

    Args:
        rule: the rule
        result: the result, a Boxes with one box or a Points
        frame: width and height of the frame
        image: width and height of the input that the crop fills
    """
    points = points_of(result)
    # A network that has lost its object may output anything.
    if not np.isfinite(points).all():
        return None
    angle = _angle(rule, points)
    box = _box(rule, result, points, angle)
    cosine = math.cos(angle)
    sine = math.sin(angle)

    # The shift is along the sides of the crop, which are turned.
    right = box.width * rule.shift_x
    down = box.height * rule.shift_y
    x = box.x + right * cosine - down * sine
    y = box.y + right * sine + down * cosine

    width, height = _shaped(rule.side, box, image)
    crop = Crop(
        x=x,
        y=y,
        width=width * rule.scale,
        height=height * rule.scale,
        angle=angle,
        mirrored=rule.mirrored,
    )
    return crop if _is_usable(crop, frame) else None


def points_of(result: Result) -> Array:
    """Return the points of a result in the frame, float64 [N, 2]."""
    if isinstance(result, Points):
        return np.asarray(result.points, np.float64)
    if isinstance(result, Boxes) and result.boxes:
        box = result.boxes[0]
        # A turned box has corners, the top left first, and may have no points.
        points = box.points or box.polygon
        # An empty list would have one axis only.
        return np.array(points, np.float64).reshape(-1, 2)
    return np.zeros((0, 2))


def _angle(rule: CropRule, points: Array) -> float:
    """Return the angle of a crop in radians, -pi to pi."""
    if not rule.turn:
        return 0.0
    first = points[rule.turn[0]]
    second = points[rule.turn[1]]
    x, y = second - first
    # In a picture y grows downwards, but the rule's angle is measured upwards.
    measured = math.atan2(-y, x)
    target = math.radians(rule.angle)
    return math.remainder(target - measured, 2 * math.pi)


def _box(rule: CropRule, result: Result, points: Array, angle: float) -> _Enclosing:
    """Return the box around an object, for a crop with an angle."""
    if rule.circle:
        middle = points[rule.points[0]]
        border = points[rule.points[1]]
        side = 2 * math.dist(middle, border)
        return _Enclosing(float(middle[0]), float(middle[1]), side, side)

    # A rule without points is about the detection's box, which is not turned.
    if not rule.points and isinstance(result, Boxes):
        x1, y1, x2, y2 = result.boxes[0].corners
        x = (x1 + x2) / 2
        y = (y1 + y2) / 2
        return _Enclosing(x, y, x2 - x1, y2 - y1)

    chosen = points[list(rule.points)] if rule.points else points
    turn = angle if rule.turned else 0.0
    return _enclosing(chosen, turn)


def _enclosing(points: Array, turn: float) -> _Enclosing:
    """Return the smallest box around points whose sides are turned, in radians."""
    cosine = math.cos(turn)
    sine = math.sin(turn)
    axes = np.array([[cosine, -sine], [sine, cosine]])

    # In these coordinates the box is upright.
    upright = points @ axes
    low = upright.min(axis=0)
    high = upright.max(axis=0)
    width, height = high - low

    # The centre is turned back: the inverse of a rotation is its transpose.
    x, y = (low + high) / 2 @ axes.T
    return _Enclosing(float(x), float(y), float(width), float(height))


def _shaped(side: str, box: _Enclosing, image: Size) -> Tuple[float, float]:
    """Return width and height of a crop around a box, by the shape in the rule."""
    if side == "long":
        longer = max(box.width, box.height)
        return longer, longer
    if side == "input":
        # This is the smallest rectangle around the box with the shape of the input.
        across = box.width / image[0]
        down = box.height / image[1]
        per_pixel = max(across, down)
        return per_pixel * image[0], per_pixel * image[1]
    return box.width, box.height


def _is_usable(crop: Crop, frame: Size) -> bool:
    """Return whether a crop has its centre in the frame, and a possible size."""
    # The comparisons also exclude infinity, which can come from large numbers.
    if not (0 <= crop.x <= frame[0] and 0 <= crop.y <= frame[1]):
        return False
    shorter = min(crop.width, crop.height)
    longer = max(crop.width, crop.height)
    return shorter >= SMALLEST and longer <= LARGEST * max(frame)
