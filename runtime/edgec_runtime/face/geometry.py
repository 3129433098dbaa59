"""Small functions on points and colours for the modules of faces."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

TINY = 1e-6
"""A length below which there is no direction."""


def length(vector: Array) -> float:
    """Return the length of a vector, at least TINY, so that it can be a divisor.

    Args:
        vector: numbers of any dimension
    """
    squares = vector * vector
    root = np.sqrt(squares.sum())
    return max(float(root), TINY)


def lengths(vectors: Array) -> Array:
    """Return the length of each vector.

    Args:
        vectors: [..., D]

    Returns:
        [...]
    """
    squares = vectors * vectors
    sums = squares.sum(axis=-1)
    return np.asarray(np.sqrt(sums))


def downward(across: Array) -> Array:
    """Return a vector that points to the right, turned to point down, with length 1.

    Args:
        across: the vector, x and y, with y downwards as in pictures [2]
    """
    turned = np.array([-across[1], across[0]])
    return np.asarray(turned / length(across))


def smooth_step(x: Array, low: Any, high: Any) -> Array:
    """Return 0 below `low`, 1 above `high`, and 3 t² - 2 t³ between.

    Args:
        x: any numbers
        low: where the rise begins
        high: where it ends
    """
    share = (x - low) / (high - low)
    t = np.clip(share, 0, 1)
    return np.asarray(t * t * (3 - 2 * t))


def mixed(a: Array, b: Array, share: Array) -> Array:
    """Return colours between two.

    Args:
        a: the colour where the share is 0 [..., 3]
        b: the colour where it is 1 [..., 3]
        share: 0…1 [...]
    """
    part = np.asarray(share)[..., None]
    rest = 1 - part
    return np.asarray(a * rest + b * part)


def limited(value: Any, most: float) -> Array:
    """Return most * tanh(value / most), which never exceeds the limit.

    Values that are small compared to it hardly change.

    Args:
        value: any numbers
        most: the limit of their absolute values
    """
    relative = np.asarray(value) / most
    return np.asarray(most * np.tanh(relative))


def middle_of(points: Array, numbers: Sequence[int]) -> Array:
    """Return the mean of some of the points.

    Args:
        points: [N, D]
        numbers: the numbers of those points
    """
    return np.asarray(points[list(numbers)].mean(axis=0))


def bilinear(picture: Array, places: Array) -> Array:
    """Return colours of a picture at any positions, interpolated, float64 [..., C].

    Outside the picture they are those of its border.

    Args:
        picture: uint8 [H, W, C]
        places: x and y; the middle of the first pixel is at 0.5 [..., 2]
    """
    height, width = picture.shape[:2]
    x = np.clip(places[..., 0] - 0.5, 0, width - 1)
    y = np.clip(places[..., 1] - 0.5, 0, height - 1)
    # The last pixel has no neighbour: it is itself the neighbour, with all the weight.
    column = np.minimum(x.astype(np.int64), max(width - 2, 0))
    row = np.minimum(y.astype(np.int64), max(height - 2, 0))
    next_column = np.minimum(column + 1, width - 1)
    next_row = np.minimum(row + 1, height - 1)

    right = x - column
    low = y - row
    upper = mixed(picture[row, column], picture[row, next_column], right)
    under = mixed(picture[next_row, column], picture[next_row, next_column], right)
    return mixed(upper, under, low)
