"""Resizing of photos in numpy, with antialiasing, the same bits on every machine.

Separable: each row of the result is a weighted sum of rows, rounded to 1/64 of a level,
then each column one of columns.  Weights are whole parts of `ONE`, so all sums are
integers that float32 (first pass, below 2^24) and float64 (second pass, below 2^53)
hold exactly: neither the order in which a machine adds nor a fused multiply-add changes
them. csrc/ek_frame.h computes the same with integers of 16 and 32 bits.
"""

from __future__ import annotations

import functools
from typing import Any, List, Tuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ONE = 1 << 14
"""A weight of 1.

255 * ONE * 1.3, the most that a bicubic sum reaches on its way, is below 2^24.
"""

_PARTS = 64
"""Of a level, between the passes: 255 * 64 * 1.3 fits into 16 bits."""

Taps = List[Tuple[int, Array]]
"""For each result: the index of the first element that it takes, and the weights
(float64 integers) from there on.
"""


def whole(pixels: Array, size: Tuple[int, int], how: str) -> Array:
    """All of a picture at another width and height."""
    return resize(
        pixels, (0.0, 0.0, float(pixels.shape[1]), float(pixels.shape[0])), size, how
    )


def resize(
    pixels: Array,
    box: Tuple[float, float, float, float],
    size: Tuple[int, int],
    how: str,
) -> Array:
    """The part `box` (left, top, width, height, in pixels) of uint8 [H,W,C] as uint8
    [size[1],size[0],C].

    how: "bilinear" and "bicubic" (of Catmull and Rom), both widened by the reduction,
    "area", the mean of what is covered, or "nearest".  At the box's border the first
    three see what is beyond, as far as the photo goes.
    """
    height, width, channels = pixels.shape
    if (*box, *size) == (0.0, 0.0, float(width), float(height), width, height):
        return pixels
    if how == "nearest":
        rows = _nearest(height, box[1], box[3], size[1])
        columns = _nearest(width, box[0], box[2], size[0])
        return pixels[rows][:, columns]
    down = _taps(how, height, box[1], box[3], size[1])
    across = _taps(how, width, box[0], box[2], size[0])
    left = across[0][0]
    right = max(first + len(w) for first, w in across)
    used = np.ascontiguousarray(pixels[:, left:right]).reshape(
        height, (right - left) * channels
    )
    narrow = np.floor(
        (_sums(used, down, np.float32) + ONE // _PARTS // 2) * np.float32(_PARTS / ONE)
    )
    narrow = narrow.reshape(size[1], right - left, channels)
    turned = narrow.transpose(1, 0, 2).reshape(right - left, size[1] * channels)
    sums = _sums(turned, [(first - left, w) for first, w in across], np.float64)
    levels = np.clip(np.floor(sums * (1.0 / (ONE * _PARTS)) + 0.5), 0, 255).astype(
        np.uint8
    )
    return np.ascontiguousarray(
        levels.reshape(size[0], size[1], channels).transpose(1, 0, 2)
    )


def _nearest(length: int, start: float, extent: float, count: int) -> Array:
    """The element in which the middle of each of `count` results lies."""
    middles = start + (np.arange(count) + 0.5) * (extent / count)
    return np.clip(middles.astype(np.int64), 0, length - 1)


def padded(
    how: str, length: int, start: float, extent: float, count: int
) -> Tuple[Array, Array]:
    """Of each of `count` results the first element that it takes, int32 [count], and
    weights, int16 [count,most].
    """
    if how == "nearest":
        return _nearest(length, start, extent, count).astype(np.int32), np.full(
            (count, 1), ONE, np.int16
        )
    taps = _taps(how, length, start, extent, count)
    most = max(len(weights) for _, weights in taps)
    first = np.array([min(at, length - most) for at, _ in taps], np.int32)
    weights = np.zeros((count, most), np.int16)
    for i, (at, own) in enumerate(taps):
        weights[i, at - first[i] : at - first[i] + len(own)] = own
    return first, weights


def _sums(rows: Array, taps: Taps, dtype: Any) -> Array:
    """[len(taps), M] of [N, M]."""
    found = np.empty((len(taps), rows.shape[1]), dtype)
    for i, (first, weights) in enumerate(taps):
        found[i] = np.dot(
            weights.astype(dtype), rows[first : first + len(weights)].astype(dtype)
        )
    return found


@functools.lru_cache(maxsize=64)
def _taps(how: str, length: int, start: float, extent: float, count: int) -> Taps:
    """What each of `count` results takes of `length` elements, when the part start …
    start + extent is resized.
    """
    step = extent / count
    reach = max(1.0, step)
    found: Taps = []
    for i in range(count):
        low = start + i * step
        centre = start + (i + 0.5) * step
        radius = {"bilinear": reach, "bicubic": 2 * reach, "area": step / 2 + 1}[how]
        first = max(0, int(centre - radius + 0.5))
        end = min(length, int(centre + radius + 0.5))
        at = np.arange(first, end, dtype=np.float64)
        if how == "area":
            weights = np.maximum(
                np.minimum(at + 1, low + step) - np.maximum(at, low), 0.0
            )
        else:
            weights = _kernel(how, np.abs((at + 0.5 - centre) / reach))
        found.append((first, _integers(weights)))
    return found


def _kernel(how: str, x: Array) -> Array:
    """The filter at distance x >= 0."""
    if how == "bilinear":
        return np.maximum(1.0 - x, 0.0)
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((2.5 - 0.5 * x) * x - 4.0) * x + 2.0
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _integers(weights: Array) -> Array:
    """In proportion, with the sum ONE.

    Running sums are rounded, so that many small weights lose nothing together.
    """
    # one after the other on every machine, as a plain sum is not
    running = np.cumsum(weights)
    return np.diff(np.rint(running * (ONE / running[-1])), prepend=0.0)


def sample(
    plane: Array, box: Tuple[float, float, float, float], size: Tuple[int, int]
) -> Array:
    """The part `box` (left, top, width, height) of float32 [H,W] as [size[1],size[0]],
    between the nearest elements.
    """
    rows = _between(plane.shape[0], box[1], box[3], size[1])
    columns = _between(plane.shape[1], box[0], box[2], size[0])
    low, high, part = rows
    across = plane[low] + (plane[high] - plane[low]) * part[:, None]
    low, high, part = columns
    return np.asarray(
        across[:, low] + (across[:, high] - across[:, low]) * part, np.float32
    )


def _between(
    length: int, start: float, extent: float, count: int
) -> Tuple[Array, Array, Array]:
    """The two elements that each of `count` results lies between, and how far towards
    the second.
    """
    at = np.clip(
        start + (np.arange(count) + 0.5) * (extent / count) - 0.5, 0, length - 1
    )
    low = np.minimum(at.astype(np.int64), length - 1)
    return low, np.minimum(low + 1, length - 1), (at - low).astype(np.float32)
