"""Warps a picture by a mesh of triangles with numpy.

It computes the same integers as csrc/ek_warp.h, which explains each step. Here all
triangles are processed at once: first their rows, then the spans of pixels of all rows,
then all pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PARTS = 256
"""Parts of a pixel in which corners of the result are given: EK_WARP_PARTS."""
MIDDLE = PARTS // 2
FINE = 24
"""Fractional bits of a triangle's affine map."""
COARSE = 16
"""Fractional bits of a position in the source."""
MOST = 1 << 14
"""The largest side of a picture: EK_WARP_MOST."""
MOST_GAIN = 255 * 256
"""The largest gain, in 1/256."""


@dataclass(frozen=True)
class Warp:
    """A picture and the mesh by which it is warped.

    Attributes:
        source: the picture, uint8 [H, W, 4], at least 2 x 2; the fourth channel is
            alpha, by which the others are multiplied already
        begin: the corners in the source, x and y in pixels, float32 [N, 2]; the middle
            of the first pixel is at 0.5
        end: the corners in the result, float32 [N, 2]
        triangles: corners of each triangle, clockwise on the screen, int32 [M, 3]
        gain: factor of the brightness at each corner, float32 [N]; None for 1
        blended: whether the result shows through where alpha is below 255
    """

    source: Array
    begin: Array
    end: Array
    triangles: Array
    gain: Optional[Array] = None
    blended: bool = False

    def moved(self, by: Array, scale: float = 1.0) -> Warp:
        """Return the warp with its corners in the result moved and then scaled.

        Args:
            by: distance to the right and down, pixels [2]
            scale: the factor after that
        """
        end = (self.end + np.asarray(by, np.float32)) * np.float32(scale)
        return replace(self, end=end)


@dataclass(frozen=True)
class _Maps:
    """The affine map of each triangle, int64 [M, 3] of x, y and gain.

    Attributes:
        start: the value at the middle of pixel (0, 0), in 1/2^24
        right: its growth from column to column
        down: its growth from row to row
    """

    start: Array
    right: Array
    down: Array


@dataclass(frozen=True)
class _Spans:
    """The spans of pixels of all triangles.

    Attributes:
        which: number of each span's triangle [K]
        row: row of each span [K]
        left: first column of each span [K]
        count: number of pixels of each span [K]
    """

    which: Array
    row: Array
    left: Array
    count: Array


def warp_into(warp: Warp, out: Array) -> None:
    """Draw a warped picture into a result, uint8 [H, W, 3].

    Triangles that are turned over or have no area are left out.
    """
    # A corner has the same integers in all its triangles, so that there are no gaps.
    scaled = warp.end.astype(np.float64) * PARTS
    corners = np.rint(scaled).astype(np.int64)
    is_finite = np.all(np.abs(warp.end) < MOST, axis=1)
    is_whole = np.all(is_finite[warp.triangles], axis=1)
    triangles = warp.triangles[is_whole]
    to = corners[triangles]
    is_front = _area(to) > 0
    if not is_front.any():
        return

    to = to[is_front]
    maps = _maps(warp, triangles[is_front], to)
    spans = _spans(to, out.shape[1], out.shape[0])
    _draw(warp, maps, spans, out)


def _area(to: Array) -> Array:
    """Return twice the signed area of triangles.

    Args:
        to: their corners [M, 3, 2]
    """
    one = to[:, 1] - to[:, 0]
    two = to[:, 2] - to[:, 0]
    first = one[:, 0] * two[:, 1]
    second = two[:, 0] * one[:, 1]
    return np.asarray(first - second)


def _maps(warp: Warp, triangles: Array, to: Array) -> _Maps:
    """Return the affine maps of triangles.

    With the corners p0, p1, p2 and the values v0, v1, v2 there, the growth of a value
    solves (p1 - p0, p2 - p0) g = (v1 - v0, v2 - v0) by Cramer's rule.

    Args:
        warp: the picture and the mesh
        triangles: the triangles to draw [M, 3]
        to: their corners in 1/256 pixels of the result [M, 3, 2]
    """
    gain = np.ones(len(warp.begin))
    if warp.gain is not None:
        gain = warp.gain
    at = warp.begin.astype(np.float64) - 0.5
    values = np.column_stack([at, gain])
    is_number = (values >= -MOST) & (values <= MOST)
    value = np.where(is_number, values, 0.0)[triangles]
    first = value[:, 0]

    # These are the two sides at the first corner, and the rises of the values on them.
    one = to[:, 1] - to[:, 0]
    two = to[:, 2] - to[:, 0]
    rise_one = value[:, 1] - first
    rise_two = value[:, 2] - first
    unit = float(1 << FINE)
    each = unit * PARTS / _area(to)[:, None]
    right = rise_one * two[:, 1:] - rise_two * one[:, 1:]
    down = rise_two * one[:, :1] - rise_one * two[:, :1]

    # The map of a sliver may be too large for integers, but it has no pixel.
    bound = unit * (MOST - 1)
    right = np.rint(np.clip(right * each, -bound, bound))
    down = np.rint(np.clip(down * each, -bound, bound))
    # The value is extrapolated from the first corner to the middle of pixel (0, 0).
    middle = (MIDDLE - to[:, 0]) / PARTS
    start = first * unit
    start = start + right * middle[:, :1]
    start = start + down * middle[:, 1:]
    rounded = np.rint(start)
    return _Maps(
        rounded.astype(np.int64), right.astype(np.int64), down.astype(np.int64)
    )


def _spans(to: Array, width: int, height: int) -> _Spans:
    """Return the spans of pixels of triangles.

    Args:
        to: their corners in 1/256 pixels [M, 3, 2]
        width: width of the result
        height: height of the result
    """
    order = np.argsort(to[:, :, 1], axis=1, kind="stable")
    sorted_corners = np.take_along_axis(to, order[:, :, None], axis=1)
    top, middle, bottom = sorted_corners.transpose(1, 0, 2)
    first = _first_row(top, height)
    counts = _first_row(bottom, height) - first
    which = np.repeat(np.arange(len(to)), counts)
    row = first[which] + _steps(counts)

    # Each row is between the longest edge (in y) and one of the two others.
    long = _column(top[which], bottom[which], row)
    is_upper = row < _first_row(middle, height)[which]
    begin = np.where(is_upper[:, None], top[which], middle[which])
    end = np.where(is_upper[:, None], middle[which], bottom[which])
    short = _column(begin, end, row)
    left = np.clip(np.minimum(long, short), 0, width)
    right = np.clip(np.maximum(long, short), 0, width)
    count = right - left
    is_visible = count > 0
    return _Spans(
        which[is_visible], row[is_visible], left[is_visible], count[is_visible]
    )


def _first_row(corners: Array, height: int) -> Array:
    """Return the first row whose middle is not above corners, 0…height.

    Args:
        corners: x and y in 1/256 pixels [M, 2]
        height: height of the result
    """
    row = _ceil(corners[:, 1] - MIDDLE, PARTS)
    return np.asarray(np.clip(row, 0, height))


def _steps(counts: Array) -> Array:
    """Return 0, 1, 2… for each group, one after the other.

    Args:
        counts: the size of each group
    """
    ends = np.cumsum(counts)
    starts = ends - counts
    total = int(counts.sum())
    # Each number is the index in all groups minus that at which its group begins.
    return np.asarray(np.arange(total) - np.repeat(starts, counts))


def _ceil(a: Array, b: Any) -> Array:
    """Return the least integers that are not below a / b."""
    return np.asarray(-(-a // b))


def _column(top: Array, bottom: Array, row: Array) -> Array:
    """Return the first column whose middle is not left of an edge.

    Args:
        top: the upper end of each edge, 1/256 pixels [K, 2]
        bottom: the lower end [K, 2]
        row: the row of each [K]
    """
    # An edge without height has no row, but must not divide by 0.
    high = np.maximum(bottom[:, 1] - top[:, 1], 1)
    wide = bottom[:, 0] - top[:, 0]
    middle = row * PARTS + MIDDLE
    below = middle - top[:, 1]
    start = top[:, 0] - MIDDLE
    return _ceil(start * high + below * wide, high * PARTS)


def _draw(warp: Warp, maps: _Maps, spans: _Spans, out: Array) -> None:
    """Draw all pixels of the spans.

    Args:
        warp: the picture and the mesh
        maps: the maps of the triangles
        spans: the spans of the triangles
        out: the result, which is changed
    """
    span = np.repeat(np.arange(len(spans.count)), spans.count)
    offset = _steps(spans.count)
    x = spans.left[span] + offset
    y = spans.row[span]

    # The position of a span's first pixel is rounded to fewer bits, and so are the steps
    # from there.
    left = spans.left[:, None]
    row = spans.row[:, None]
    line = maps.start[spans.which]
    line = line + maps.right[spans.which] * left
    line = line + maps.down[spans.which] * row
    position = _rounded(line)[span]
    step = _rounded(maps.right[spans.which])[span]
    position = position + step * offset[:, None]

    # Where triangles overlap, the last one is visible, as in C.
    pixels = _sampled(warp.source, position[:, 0], position[:, 1])
    out[y, x] = _lit(warp, pixels, position[:, 2], out[y, x])


def _rounded(value: Array) -> Array:
    """Return values with FINE fractional bits rounded to COARSE ones."""
    half = 1 << (FINE - COARSE - 1)
    return np.asarray((value + half) >> (FINE - COARSE))


def _sampled(source: Array, x: Array, y: Array) -> Array:
    """Return the bilinear means of the four pixels around positions, int32 [K, 4].

    Args:
        source: the picture
        x: columns with 16 fractional bits [K]
        y: rows with 16 fractional bits [K]
    """
    height, width = source.shape[:2]
    x = np.clip(x, 0, (width - 1) << COARSE)
    y = np.clip(y, 0, (height - 1) << COARSE)
    # The last pixel has no neighbour: it is itself the neighbour, with all the weight.
    column = np.minimum(x >> COARSE, width - 2)
    row = np.minimum(y >> COARSE, height - 2)
    across = (x - (column << COARSE)) >> 8
    along = (y - (row << COARSE)) >> 8

    left = _between(source[row, column], source[row + 1, column], along)
    right = _between(source[row, column + 1], source[row + 1, column + 1], along)
    return _between(left, right, across)


def _between(one: Array, other: Array, share: Array) -> Array:
    """Return rounded levels between two pixels, int32 [K, 4].

    Args:
        one: levels where the share is 0 [K, 4]
        other: levels where it is 256 [K, 4]
        share: 0…256 [K]
    """
    part = share.astype(np.int32)[:, None]
    first = one.astype(np.int32) * (256 - part)
    second = other.astype(np.int32) * part
    return np.asarray((first + second + 128) >> 8)


def _lit(warp: Warp, pixels: Array, gain: Array, below: Array) -> Array:
    """Return pixels after the gain and the blending of a warp, uint8 [K, 3].

    Args:
        warp: the warp
        pixels: pixels of the source, int32 [K, 4]
        gain: their gain with 16 fractional bits [K]
        below: the pixels of the result below them, uint8 [K, 3]
    """
    levels = pixels[:, :3]
    if warp.gain is not None:
        factor = np.clip(gain >> 8, 0, MOST_GAIN)
        product = levels * factor.astype(np.int32)[:, None]
        levels = (product + 128) >> 8
    if warp.blended:
        # This is a rounded division by 255, the largest alpha.
        rest = 255 - pixels[:, 3:]
        covered = (below * rest + 127) // 255
        levels = levels + covered
    return np.minimum(levels, 255).astype(np.uint8)
