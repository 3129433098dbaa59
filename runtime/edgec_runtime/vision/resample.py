"""Resizes photos in numpy, with antialiasing, to the same bits on every machine.

The filter is separable: in a first pass each row of the result is a weighted sum of
rows, rounded to 1/64 of a level, in a second pass each column is a weighted sum of
columns. Weights are integers in units of 1 / `ONE`. So all sums are integers that
float32 (first pass, below 2^24) and float64 (second pass, below 2^53) represent exactly,
and neither the order of additions nor a fused multiply-add changes them.
csrc/ek_frame.h computes the same with integers of 16 and 32 bits.
"""

from __future__ import annotations

import functools
from typing import Any, List, Tuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ONE = 1 << 14
"""A weight of 1.

255 * ONE * 1.3, the largest intermediate bicubic sum, is below 2^24.
"""

_PARTS = 64
"""Parts of a level between the passes: 255 * 64 * 1.3 fits into 16 bits."""

Taps = List[Tuple[int, Array]]
"""For each result the index of its first element, and the weights (integers in float64)
of that element and the following ones.
"""


def whole(pixels: Array, size: Tuple[int, int], how: str) -> Array:
    """Return a whole picture at another width and height, uint8 [size[1], size[0], C].

    Args:
        pixels: the picture, uint8 [H, W, C]
        size: width and height of the result
        how: the filter, as for `resize`
    """
    height, width = pixels.shape[:2]
    return resize(pixels, (0.0, 0.0, float(width), float(height)), size, how)


def resize(
    pixels: Array,
    box: Tuple[float, float, float, float],
    size: Tuple[int, int],
    how: str,
) -> Array:
    """Return a part of a photo in another size, uint8 [size[1], size[0], C].

    Args:
        pixels: the photo, uint8 [H, W, C]
        box: left, top, width and height of the part, in pixels
        size: width and height of the result
        how: the filter: "bilinear" or "bicubic" (Catmull and Rom), which a reduction
            widens; "area", the mean over the area of a resulting pixel; or "nearest".
            The first three also read pixels of the photo beyond the box.
    """
    height, width, channels = pixels.shape
    is_same = (*box, *size) == (0.0, 0.0, float(width), float(height), width, height)
    if is_same:
        return pixels
    if how == "nearest":
        rows = _nearest(height, box[1], box[3], size[1])

        columns = _nearest(width, box[0], box[2], size[0])
        return pixels[rows][:, columns]

    down = _taps(how, height, box[1], box[3], size[1])
    across = _taps(how, width, box[0], box[2], size[0])

    # The first pass leaves out columns that no result needs.
    left = across[0][0]
    right = max(first + len(weights) for first, weights in across)
    n_columns = right - left
    used = np.ascontiguousarray(pixels[:, left:right])
    row_sums = _sums(used.reshape(height, n_columns * channels), down, np.float32)
    half = ONE // _PARTS // 2
    parts = np.floor((row_sums + half) * np.float32(_PARTS / ONE))

    # The second pass is the same for the transposed picture.
    by_row = parts.reshape(size[1], n_columns, channels)
    turned = by_row.transpose(1, 0, 2).reshape(n_columns, size[1] * channels)
    shifted = [(first - left, weights) for first, weights in across]
    sums = _sums(turned, shifted, np.float64)
    rounded = np.floor(sums * (1.0 / (ONE * _PARTS)) + 0.5)
    levels = np.clip(rounded, 0, 255).astype(np.uint8)

    by_column = levels.reshape(size[0], size[1], channels)
    return np.ascontiguousarray(by_column.transpose(1, 0, 2))


def _nearest(length: int, start: float, extent: float, count: int) -> Array:
    """Return the element in which the middle of each of `count` results lies.

    Args:
        length: number of elements
        start: where the results begin, in elements
        extent: the length of all results, in elements
        count: number of results
    """
    middles = start + (np.arange(count) + 0.5) * (extent / count)
    return np.clip(middles.astype(np.int64), 0, length - 1)


def padded(
    how: str, length: int, start: float, extent: float, count: int
) -> Tuple[Array, Array]:
    """Return the taps of `count` results as arrays of one length, for C.

    Args:
        how: the filter
        length: number of elements
        start: where the results begin, in elements
        extent: the length of all results, in elements
        count: number of results

    Returns:
        the first element of each result, int32 [count], and its weights, int16
        [count, most]
    """
    if how == "nearest":
        nearest = _nearest(length, start, extent, count)
        return nearest.astype(np.int32), np.full((count, 1), ONE, np.int16)

    taps = _taps(how, length, start, extent, count)
    most = max(len(weights) for _, weights in taps)

    # Padded taps may not reach beyond the last element, so some begin earlier.
    first = np.array([min(begin, length - most) for begin, _ in taps], np.int32)
    padded_weights = np.zeros((count, most), np.int16)
    for i, (begin, weights) in enumerate(taps):
        offset = begin - first[i]
        padded_weights[i, offset : offset + len(weights)] = weights
    return first, padded_weights


def _sums(rows: Array, taps: Taps, dtype: Any) -> Array:
    """Return the weighted sums of rows [N, M] for each tap, [len(taps), M]."""
    sums = np.empty((len(taps), rows.shape[1]), dtype)
    for i, (first, weights) in enumerate(taps):
        part = rows[first : first + len(weights)]

        # A product of a row with a matrix is faster than a sum of scaled rows.
        sums[i] = np.dot(weights.astype(dtype), part.astype(dtype))
    return sums


@functools.lru_cache(maxsize=64)
def _taps(how: str, length: int, start: float, extent: float, count: int) -> Taps:
    """Return the taps of `count` results.

    Args:
        how: the filter
        length: number of elements
        start: where the results begin, in elements
        extent: the length of all results, in elements
        count: number of results
    """
    step = extent / count
    # A reduction widens the filter, so that each result includes all elements it covers.
    reach = max(1.0, step)
    radius = {"bilinear": reach, "bicubic": 2 * reach, "area": step / 2 + 1}[how]
    taps: Taps = []
    for i in range(count):
        low = start + i * step
        centre = start + (i + 0.5) * step

        # At the photo's border the taps are fewer, and their sum is still ONE.
        first = max(0, int(centre - radius + 0.5))
        end = min(length, int(centre + radius + 0.5))
        elements = np.arange(first, end, dtype=np.float64)
        if how == "area":
            # The weight of an element is the part of it inside the result.
            covered_end = np.minimum(elements + 1, low + step)
            covered = covered_end - np.maximum(elements, low)
            weights = np.maximum(covered, 0.0)
        else:
            distance = np.abs((elements + 0.5 - centre) / reach)
            weights = _kernel(how, distance)

        taps.append((first, _integers(weights)))
    return taps


def _kernel(how: str, x: Array) -> Array:
    """Return the filter at distances x >= 0.

    Bilinear: 1 - x below 1. Catmull and Rom: 1.5 x^3 - 2.5 x^2 + 1 below 1, and
    -0.5 x^3 + 2.5 x^2 - 4 x + 2 below 2.
    """
    if how == "bilinear":
        return np.maximum(1.0 - x, 0.0)

    # Horner's rule has the same order of operations on every machine.
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((2.5 - 0.5 * x) * x - 4.0) * x + 2.0
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _integers(weights: Array) -> Array:
    """Return integers in proportion to weights, with the sum ONE.

    Running sums are rounded, so that errors of many small weights do not add up.
    """
    # A cumulative sum adds in one order on every machine, unlike a plain sum.
    running = np.cumsum(weights)
    scaled = running * (ONE / running[-1])
    return np.diff(np.rint(scaled), prepend=0.0)


def sample(
    plane: Array, box: Tuple[float, float, float, float], size: Tuple[int, int]
) -> Array:
    """Return a part of a plane in another size, interpolated, without antialiasing.

    Args:
        plane: float32 [H, W]
        box: left, top, width and height of the part
        size: width and height of the result
    """
    low, high, part = _between(plane.shape[0], box[1], box[3], size[1])
    rows = plane[low] + (plane[high] - plane[low]) * part[:, None]

    low, high, part = _between(plane.shape[1], box[0], box[2], size[0])
    left = rows[:, low]
    right = rows[:, high]
    return np.asarray(left + (right - left) * part, np.float32)


def _between(
    length: int, start: float, extent: float, count: int
) -> Tuple[Array, Array, Array]:
    """Return the elements before and after the middle of each of `count` results.

    The third array is the distance from the element before it, 0…1.

    Args:
        length: number of elements
        start: where the results begin, in elements
        extent: the length of all results, in elements
        count: number of results
    """
    # The last half is from the border of an element to its middle.
    middles = start + (np.arange(count) + 0.5) * (extent / count) - 0.5
    inside = np.clip(middles, 0, length - 1)
    low = np.minimum(inside.astype(np.int64), length - 1)
    high = np.minimum(low + 1, length - 1)
    return low, high, (inside - low).astype(np.float32)
