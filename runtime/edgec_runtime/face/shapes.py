"""Fills outlines with smooth edges, in numpy.

Each pixel is sampled several times. In a row of samples each crossing of the outline
changes between outside and inside, so that a running "exclusive or" of the crossings
tells which samples are inside (the even-odd rule).
"""

from __future__ import annotations

from typing import Any, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Color = Tuple[int, int, int]

SAMPLES = 4
"""Samples per pixel in each direction."""


def fill(picture: Array, outline: Array, color: Color) -> None:
    """Fill the part of an outline that is in the picture.

    Args:
        picture: the picture, which is changed, uint8 [H, W, 3]
        outline: its corners, x and y in pixels [N, 2]
        color: the colour, red first
    """
    size = np.array([picture.shape[1], picture.shape[0]])
    low = np.clip(np.floor(outline.min(axis=0)), 0, size).astype(int)
    high = np.clip(np.ceil(outline.max(axis=0)), 0, size).astype(int)
    width, height = (high - low).tolist()
    if width == 0 or height == 0:
        return

    share = _covered((outline - low) * SAMPLES, width, height)[..., None]
    part = picture[low[1] : high[1], low[0] : high[0]]
    levels = part * (1 - share) + np.array(color) * share
    part[...] = np.asarray(levels + 0.5, np.uint8)


def _covered(outline: Array, width: int, height: int) -> Array:
    """Return the share of each pixel that is inside an outline, 0…1 [height, width].

    Args:
        outline: its corners, x and y in samples [N, 2]
        width: width of the part in pixels
        height: height of the part in pixels
    """
    columns = width * SAMPLES
    changes = np.zeros((height * SAMPLES, columns + 1), bool)
    middles = np.arange(height * SAMPLES) + 0.5
    for a, b in zip(outline, np.roll(outline, -1, axis=0)):
        is_crossed = (a[1] > middles) != (b[1] > middles)
        rows = np.flatnonzero(is_crossed)
        if not len(rows):
            continue
        slope = (b[0] - a[0]) / (b[1] - a[1])
        x = a[0] + (middles[rows] - a[1]) * slope
        first = np.clip(np.ceil(x - 0.5), 0, columns).astype(int)
        # An edge crosses a row once, so that no index occurs twice.
        changes[rows, first] ^= True
    is_inside = np.logical_xor.accumulate(changes, axis=1)[:, :-1]
    samples = is_inside.reshape(height, SAMPLES, width, SAMPLES)
    return np.asarray(samples.mean(axis=(1, 3)))


def rounded(points: Array, steps: int = 8) -> Array:
    """Return a closed line without corners through points [N * steps, 2].

    It is the spline of Catmull and Rom.

    Args:
        points: the points [N, 2]
        steps: number of points of the line for each of these
    """
    t = np.arange(steps)[:, None] / steps
    before = np.roll(points, 1, axis=0)
    after = np.roll(points, -1, axis=0)
    beyond = np.roll(points, -2, axis=0)
    pieces = []
    for p0, p1, p2, p3 in zip(before, points, after, beyond):
        linear = (p2 - p0) * t
        square = (2 * p0 - 5 * p1 + 4 * p2 - p3) * t**2
        cubic = (3 * p1 - p0 - 3 * p2 + p3) * t**3
        pieces.append(p1 + (linear + square + cubic) / 2)
    return np.concatenate(pieces)


def ellipse(middle: Sequence[float], radii: Sequence[float]) -> Array:
    """Return the outline of an ellipse [64, 2].

    Args:
        middle: x and y
        radii: across and down
    """
    angle = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    return np.asarray(np.array(middle) + circle * np.array(radii))
