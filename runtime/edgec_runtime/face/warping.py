"""Warps a picture by a mesh of triangles with numpy: the same integers as
csrc/ek_warp.h, where each step is explained, computes.

All triangles are worked on at once: first their rows, then the spans of pixels of all
rows, then all pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PARTS = 256
"""Parts of a pixel, for corners in the result: EK_WARP_PARTS."""
MIDDLE = PARTS // 2
FINE = 24
"""Bits after the point of a triangle's affine map."""
COARSE = 16
"""Bits after the point of a place in the source."""
MOST = 1 << 14
"""The largest side of a picture: EK_WARP_MOST."""
MOST_GAIN = 255 * 256
"""The largest gain, in 1/256."""


@dataclass(frozen=True)
class Warp:
    """A picture and the mesh that it is warped by.

    Attributes:
        source: the picture, uint8 [H, W, 4], at least 2 x 2; the fourth channel is
            alpha, and the others are multiplied by it
        begin: the corners in the source, x and y in pixels, float32 [N, 2]; the middle
            of the first pixel is at 0.5
        end: the corners in the result, float32 [N, 2]
        triangles: corners of each, clockwise on the screen, int32 [M, 3]
        gain: how bright each corner becomes, float32 [N]; None: as it is
        blended: whether the picture is put over the result by its alpha
    """

    source: Array
    begin: Array
    end: Array
    triangles: Array
    gain: Optional[Array] = None
    blended: bool = False

    def moved(self, by: Array, scale: float = 1.0) -> Warp:
        """Return the same warp in another result.

        Args:
            by: how far its corners move in the result, pixels [2]
            scale: the factor by which they are enlarged after that
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
        which: the triangle of each
        row: its row
        left: its first column
        count: its pixels
    """

    which: Array
    row: Array
    left: Array
    count: Array


def warp_into(warp: Warp, out: Array) -> None:
    """Draw a warped picture into a result, uint8 [H, W, 3].

    Triangles that are turned over or have no area are left out.
    """
    # The same integers for all triangles at a corner leave no gap between them.
    scaled = warp.end.astype(np.float64) * PARTS
    corners = np.rint(scaled).astype(np.int64)
    is_finite = np.all(np.abs(warp.end) < MOST, axis=1)
    is_whole = np.all(is_finite[warp.triangles], axis=1)
    triangles = warp.triangles[is_whole]
    to = corners[triangles]
    is_seen = _area(to) > 0
    if not is_seen.any():
        return

    to = to[is_seen]
    maps = _maps(warp, triangles[is_seen], to)
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
        triangles: those that are drawn [M, 3]
        to: their corners in 1/256 pixels [M, 3, 2]
    """
    gain = np.ones(len(warp.begin))
    if warp.gain is not None:
        gain = warp.gain
    at = warp.begin.astype(np.float64) - 0.5
    values = np.column_stack([at, gain])
    is_number = (values >= -MOST) & (values <= MOST)
    value = np.where(is_number, values, 0.0)[triangles]
    first = value[:, 0]

    # Both sides from the first corner, in the result and in the values.
    one = to[:, 1] - to[:, 0]
    two = to[:, 2] - to[:, 0]
    rise_one = value[:, 1] - first
    rise_two = value[:, 2] - first
    unit = float(1 << FINE)
    each = unit * PARTS / _area(to)[:, None]
    right = rise_one * two[:, 1:] - rise_two * one[:, 1:]
    down = rise_two * one[:, :1] - rise_one * two[:, :1]

    # A sliver's map may grow without bound, but has no pixel to show it.
    bound = unit * (MOST - 1)
    right = np.rint(np.clip(right * each, -bound, bound))
    down = np.rint(np.clip(down * each, -bound, bound))
    # From the first corner back to the middle of pixel (0, 0).
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
        width: of the result
        height: of the result
    """
    order = np.argsort(to[:, :, 1], axis=1, kind="stable")
    sorted_corners = np.take_along_axis(to, order[:, :, None], axis=1)
    top, middle, bottom = sorted_corners.transpose(1, 0, 2)
    first = _first_row(top, height)
    counts = _first_row(bottom, height) - first
    which = np.repeat(np.arange(len(to)), counts)
    row = first[which] + _steps(counts)

    # Each row lies between the long edge and one of the two others.
    long = _column(top[which], bottom[which], row)
    is_upper = row < _first_row(middle, height)[which]
    begin = np.where(is_upper[:, None], top[which], middle[which])
    end = np.where(is_upper[:, None], middle[which], bottom[which])
    short = _column(begin, end, row)
    left = np.clip(np.minimum(long, short), 0, width)
    right = np.clip(np.maximum(long, short), 0, width)
    count = right - left
    is_there = count > 0
    return _Spans(which[is_there], row[is_there], left[is_there], count[is_there])


def _first_row(corners: Array, height: int) -> Array:
    """Return the first row whose middle is not above corners, 0…height.

    Args:
        corners: x and y in 1/256 pixels [M, 2]
        height: of the result
    """
    row = _ceil(corners[:, 1] - MIDDLE, PARTS)
    return np.asarray(np.clip(row, 0, height))


def _steps(counts: Array) -> Array:
    """Return 0, 1, 2… for each of some groups.

    Args:
        counts: the size of each group
    """
    ends = np.cumsum(counts)
    starts = ends - counts
    total = int(counts.sum())
    # Counted through, less the number at which its group begins.
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
    # An edge without height has no row of its own.
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
        maps: of the triangles
        spans: of them
        out: the result
    """
    span = np.repeat(np.arange(len(spans.count)), spans.count)
    offset = _steps(spans.count)
    x = spans.left[span] + offset
    y = spans.row[span]

    # The place of a span's first pixel, with fewer bits; then steps of the same.
    left = spans.left[:, None]
    row = spans.row[:, None]
    line = maps.start[spans.which]
    line = line + maps.right[spans.which] * left
    line = line + maps.down[spans.which] * row
    place = _rounded(line)[span]
    step = _rounded(maps.right[spans.which])[span]
    place = place + step * offset[:, None]

    # Where triangles overlap, the last one stays, as in C.
    pixels = _sampled(warp.source, place[:, 0], place[:, 1])
    out[y, x] = _lit(warp, pixels, place[:, 2], out[y, x])


def _rounded(value: Array) -> Array:
    """Return values of FINE bits after the point with COARSE ones."""
    half = 1 << (FINE - COARSE - 1)
    return np.asarray((value + half) >> (FINE - COARSE))


def _sampled(source: Array, x: Array, y: Array) -> Array:
    """Return the pixels between four of a source, int32 [K, 4].

    Args:
        source: the picture
        x: columns with 16 bits after the point
        y: rows likewise
    """
    height, width = source.shape[:2]
    x = np.clip(x, 0, (width - 1) << COARSE)
    y = np.clip(y, 0, (height - 1) << COARSE)
    # The last pixel has no neighbour, and gets no share of one.
    column = np.minimum(x >> COARSE, width - 2)
    row = np.minimum(y >> COARSE, height - 2)
    across = (x - (column << COARSE)) >> 8
    along = (y - (row << COARSE)) >> 8

    left = _between(source[row, column], source[row + 1, column], along)
    right = _between(source[row, column + 1], source[row + 1, column + 1], along)
    return _between(left, right, across)


def _between(one: Array, other: Array, share: Array) -> Array:
    """Return levels between two pixels, rounded, int32 [K, 4].

    Args:
        one: where the share is 0 [K, 4]
        other: where it is 256 [K, 4]
        share: 0…256 [K]
    """
    part = share.astype(np.int32)[:, None]
    first = one.astype(np.int32) * (256 - part)
    second = other.astype(np.int32) * part
    return np.asarray((first + second + 128) >> 8)


def _lit(warp: Warp, pixels: Array, gain: Array, below: Array) -> Array:
    """Return the levels of pixels, as bright as wanted and over what is below.

    Args:
        warp: says both
        pixels: int32 [K, 4]
        gain: with 16 bits after the point [K]
        below: uint8 [K, 3]
    """
    levels = pixels[:, :3]
    if warp.gain is not None:
        factor = np.clip(gain >> 8, 0, MOST_GAIN)
        product = levels * factor.astype(np.int32)[:, None]
        levels = (product + 128) >> 8
    if warp.blended:
        # Rounded division by 255: alpha is 0…255.
        rest = 255 - pixels[:, 3:]
        covered = (below * rest + 127) // 255
        levels = levels + covered
    return np.minimum(levels, 255).astype(np.uint8)
