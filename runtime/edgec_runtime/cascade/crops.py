"""The crop that follows from a result, by the rule of a cascade.

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
"""Pixels of the frame that the side of a crop must have."""
LARGEST = 4.0
"""The longest side of a crop, in longer sides of the frame."""


def crop_of(rule: CropRule, result: Result, frame: Size, image: Size) -> Optional[Crop]:
    """Return the crop for the object of a result; None where there is no usable one.

    Args:
        rule: the rule
        result: the result, a Boxes with one box or a Points
        frame: width and height of the frame
        image: width and height of the input that the crop is for
    """
    points = points_of(result)
    angle = _angle(rule, points)
    center, sides = _box(rule, result, points, angle)

    cosine = math.cos(angle)
    sine = math.sin(angle)
    right = sides[0] * rule.shift_x
    down = sides[1] * rule.shift_y
    x = center[0] + right * cosine - down * sine
    y = center[1] + right * sine + down * cosine

    width, height = _shaped(rule.side, sides, image)
    crop = Crop(
        x, y, width * rule.scale, height * rule.scale, angle, mirrored=rule.mirrored
    )
    return crop if _is_usable(crop, frame) else None


def points_of(result: Result) -> Array:
    """Return the points of a result in the frame, float64 [N, 2]."""
    if isinstance(result, Points):
        return np.asarray(result.points, np.float64)
    if isinstance(result, Boxes) and result.boxes:
        return np.array(result.boxes[0].points, np.float64).reshape(-1, 2)
    return np.zeros((0, 2))


def _angle(rule: CropRule, points: Array) -> float:
    """Return the angle of a crop in radians, -pi to pi."""
    if not rule.turn:
        return 0.0
    first, second = (points[i] for i in rule.turn)
    x, y = second - first
    # The picture's y goes down, an angle's goes up.
    angle = math.radians(rule.angle) - math.atan2(-y, x)
    return math.remainder(angle, 2 * math.pi)


def _box(
    rule: CropRule, result: Result, points: Array, angle: float
) -> Tuple[Tuple[float, float], Tuple[float, float]]:
    """Return the centre and the sides of the box that a crop encloses."""
    if rule.circle:
        middle, border = (points[i] for i in rule.points)
        side = 2 * math.hypot(*(border - middle))
        return (float(middle[0]), float(middle[1])), (side, side)

    if not rule.points and isinstance(result, Boxes):
        x1, y1, x2, y2 = result.boxes[0].corners
        return ((x1 + x2) / 2, (y1 + y2) / 2), (x2 - x1, y2 - y1)

    chosen = points[list(rule.points)] if rule.points else points
    # Turned back by the angle of the crop, its box is upright.
    turn = angle if rule.turned else 0.0
    cosine = math.cos(turn)
    sine = math.sin(turn)
    axes = np.array([[cosine, -sine], [sine, cosine]])
    upright = chosen @ axes
    low = upright.min(axis=0)
    high = upright.max(axis=0)
    x, y = (low + high) / 2 @ axes.T
    width, height = high - low
    return (float(x), float(y)), (float(width), float(height))


def _shaped(side: str, sides: Tuple[float, float], image: Size) -> Tuple[float, float]:
    """Return the sides of a box in the shape that a crop has."""
    width, height = sides
    if side == "long":
        longer = max(width, height)
        return longer, longer
    if side == "input":
        # The smallest one around the box.
        per_pixel = max(width / image[0], height / image[1])
        return per_pixel * image[0], per_pixel * image[1]
    return width, height


def _is_usable(crop: Crop, frame: Size) -> bool:
    """Return whether a crop shows a part of the frame, at a size that can be."""
    numbers = (crop.x, crop.y, crop.width, crop.height, crop.angle)
    if not all(map(math.isfinite, numbers)):
        return False
    is_inside = 0 <= crop.x <= frame[0] and 0 <= crop.y <= frame[1]
    most = LARGEST * max(frame)
    has_size = min(crop.width, crop.height) >= SMALLEST
    return is_inside and has_size and max(crop.width, crop.height) <= most
