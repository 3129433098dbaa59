"""Computes the overlap of boxes; csrc/ek_boxes.h computes the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .base import Array

_TINY = np.float32(1e-7)
"""A number that avoids divisions and logarithms of zero, as in the published code."""

MAX_DISTANCE = 100
"""The largest Bhattacharyya distance: exp(-100) is 0 in float32."""


def overlaps(box: Array, rows: Array) -> Array:
    """Return the intersection over union of a box with each of several.

    Args:
        box: x1, y1, x2, y2 of the box
        rows: x1, y1, x2, y2 of the others, [N, 4 or more]
    """
    low = np.maximum(box[:2], rows[:, :2])
    high = np.minimum(box[2:4], rows[:, 2:4])

    # The sides are negative for boxes that do not meet.
    intersection = np.maximum(high - low, 0).prod(axis=1)
    areas = (rows[:, 2] - rows[:, 0]) * (rows[:, 3] - rows[:, 1])

    box_area = (box[2] - box[0]) * (box[3] - box[1])
    union = areas + box_area - intersection

    divisor = np.where(union > 0, union, 1)
    ratio = np.where(union > 0, intersection / divisor, 0)
    return np.asarray(ratio, np.float32)


def turned_overlaps(box: Array, angle: float, rows: Array, angles: Array) -> Array:
    """Return the overlap of a box with each of several, all turned about their centres.

    A box stands for a normal distribution with its centre as mean and, along its sides,
    variances of a twelfth of the squared lengths. The overlap is 1 minus the Hellinger
    distance sqrt(1 - exp(-B)), where the Bhattacharyya distance with S = S1 + S2 is

        B = d' S^-1 d / 4 + ln(det S / (4 sqrt(det S1 det S2))) / 2

    (Llerena and others, "Gaussian Bounding Boxes and Probabilistic
    Intersection-over-Union for Object Detection", 2021).

    Args:
        box: x1, y1, x2, y2 of the box before it is turned
        angle: its angle in radians
        rows: x1, y1, x2, y2 of the others before they are turned, [N, 4 or more]
        angles: their angles [N]
    """
    first = _Normal.of(box[None], np.array([angle], np.float32))
    second = _Normal.of(rows, angles)
    xx = first.xx + second.xx
    yy = first.yy + second.yy
    xy = first.xy + second.xy
    determinant = xx * yy - xy * xy

    # This is the formula of the inverse of a 2 x 2 matrix.
    squares = xx * (first.y - second.y) ** 2 + yy * (first.x - second.x) ** 2
    means = squares / (determinant + _TINY) / 4
    product = xy * (second.x - first.x) * (first.y - second.y)
    means += product / (determinant + _TINY) / 2

    # Rounding can make a determinant negative, whose square root would be NaN.
    determinants = np.maximum(first.determinant, 0) * np.maximum(second.determinant, 0)
    ratio = determinant / (4 * np.sqrt(determinants) + _TINY)
    shapes = np.log(ratio + _TINY) / 2

    distance = np.clip(means + shapes, _TINY, MAX_DISTANCE)
    hellinger = np.sqrt(1 - np.exp(-distance) + _TINY)
    return np.asarray(1 - hellinger, np.float32)


@dataclass(frozen=True)
class _Normal:
    """Normal distributions of two variables.

    Attributes:
        x: means of x
        y: means of y
        xx: variances of x
        yy: variances of y
        xy: covariances
    """

    x: Array
    y: Array
    xx: Array
    yy: Array
    xy: Array

    @classmethod
    def of(cls, rows: Array, angles: Array) -> _Normal:
        """Return the distributions of boxes [N, 4 or more] with angles [N]."""
        # A twelfth of the squared side is the variance of a uniform distribution.
        wide = (rows[:, 2] - rows[:, 0]) ** 2 / 12
        high = (rows[:, 3] - rows[:, 1]) ** 2 / 12

        # The covariance is R diag(wide, high) R' for the rotation R.
        cosine = np.cos(angles)
        sine = np.sin(angles)
        return cls(
            x=(rows[:, 0] + rows[:, 2]) / 2,
            y=(rows[:, 1] + rows[:, 3]) / 2,
            xx=wide * cosine**2 + high * sine**2,
            yy=wide * sine**2 + high * cosine**2,
            xy=(wide - high) * cosine * sine,
        )

    @property
    def determinant(self) -> Array:
        """The determinants of the covariance matrices."""
        return np.asarray(self.xx * self.yy - self.xy * self.xy)
