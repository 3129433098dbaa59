"""How much boxes overlap.  csrc/ek_boxes.h computes the same."""

from __future__ import annotations

from typing import Tuple

import numpy as np

from .base import Array

_TINY = np.float32(1e-7)


def overlaps(one: Array, rows: Array) -> Array:
    """Intersection over union of a box x1, y1, x2, y2 with each of [N, 4 or more]."""
    sides = np.minimum(one[2:4], rows[:, 2:4]) - np.maximum(one[:2], rows[:, :2])
    inside = np.maximum(sides, 0).prod(axis=1)
    areas = (rows[:, 2] - rows[:, 0]) * (rows[:, 3] - rows[:, 1])
    union = areas + (one[2] - one[0]) * (one[3] - one[1]) - inside
    return np.asarray(
        np.where(union > 0, inside / np.where(union > 0, union, 1), 0), np.float32
    )


def turned_overlaps(one: Array, angle: float, rows: Array, angles: Array) -> Array:
    """The same of boxes that are turned about their centres: 1 less the Hellinger
    distance of two normal distributions.

    Each has its box's centre as its mean and, turned with it, variances of a twelfth of
    the squared sides (Llerena and others, "Gaussian Bounding Boxes and Probabilistic
    Intersection-over-Union for Object Detection", 2021).
    """
    (x1, y1), (a1, b1, c1) = _normal(one[None], np.array([angle], np.float32))
    (x2, y2), (a2, b2, c2) = _normal(rows, angles)
    a = a1 + a2
    b = b1 + b2
    c = c1 + c2
    determinant = a * b - c * c
    apart = (a * (y1 - y2) ** 2 + b * (x1 - x2) ** 2) / (determinant + _TINY) / 4
    apart += c * (x2 - x1) * (y1 - y2) / (determinant + _TINY) / 2
    own = np.maximum(a1 * b1 - c1 * c1, 0) * np.maximum(a2 * b2 - c2 * c2, 0)
    shape = np.log(determinant / (4 * np.sqrt(own) + _TINY) + _TINY) / 2
    bhattacharyya = np.clip(apart + shape, _TINY, 100)
    return np.asarray(1 - np.sqrt(1 - np.exp(-bhattacharyya) + _TINY), np.float32)


def _normal(
    rows: Array, angles: Array
) -> Tuple[Tuple[Array, Array], Tuple[Array, Array, Array]]:
    """Means of x and y; variances of x and of y, and their covariance."""
    wide = (rows[:, 2] - rows[:, 0]) ** 2 / 12
    high = (rows[:, 3] - rows[:, 1]) ** 2 / 12
    cosine = np.cos(angles)
    sine = np.sin(angles)
    middle = (rows[:, 0] + rows[:, 2]) / 2, (rows[:, 1] + rows[:, 3]) / 2
    x = wide * cosine**2 + high * sine**2
    y = wide * sine**2 + high * cosine**2
    return middle, (x, y, (wide - high) * cosine * sine)
