"""Connected regions of a mask, and the smallest rectangle around each.

Positions are in pixels of the mask, whose first pixel is the square from 0 to 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, Tuple

import numpy as np

from .tasks.base import Array

CORNERS = ((-1, -1), (1, -1), (1, 1), (-1, 1))
"""Corners of a rectangle about 0, from the top left on, clockwise; half a side is 1."""

HALF_PIXEL = 0.5
"""From the middle of a pixel to its side, in pixels."""


@dataclass(frozen=True)
class Runs:
    """Runs of pixels: neighbours in a row of a mask, all of them set.

    Attributes:
        row: the row of each [N]; in ascending order
        start: its first column [N]
        end: the column after its last one [N]
        region: the number of its region [N]
    """

    row: Array
    start: Array
    end: Array
    region: Array

    def regions(self) -> List[Array]:
        """Return the numbers of the runs of each region, region by region."""
        if not len(self.row):
            return []

        # Stable, so that the runs of a region stay in the order of rows.
        order = np.argsort(self.region, kind="stable")
        sorted_regions = self.region[order]
        steps = np.diff(sorted_regions)
        last_ones = np.flatnonzero(steps)
        ends = last_ones + 1
        return np.split(order, ends)

    def outline(self, numbers: Array) -> Array:
        """Return the middles of the first and the last pixel of a region's rows, [M, 2].

        Other pixels of a row lie between them: the convex hull is that of the region.

        Args:
            numbers: the runs of the region
        """
        rows, first = np.unique(self.row[numbers], return_index=True)
        starts = self.start[numbers]
        ends = self.end[numbers]
        left = np.minimum.reduceat(starts, first)
        right = np.maximum.reduceat(ends, first) - 1

        x = np.concatenate([left, right])
        y = np.concatenate([rows, rows])
        pixels = np.stack([x, y], -1)
        return pixels + HALF_PIXEL


def runs_of(mask: Array) -> Runs:
    """Return the runs of a mask with their regions.

    Pixels that touch at a side or a corner are of one region.

    Args:
        mask: bool [H, W]
    """
    # A run begins where a pixel is set and the one before is not. With a column of False
    # on each side every run has a beginning and an end.
    padded = np.pad(mask, ((0, 0), (1, 1))).astype(np.int8)
    change = np.diff(padded, axis=1)
    row, start = np.nonzero(change == 1)
    _, end = np.nonzero(change == -1)

    above, below = _touching(row, start, end, mask.shape[1])
    return Runs(row, start, end, _united(len(row), above, below))


def _touching(row: Array, start: Array, end: Array, width: int) -> Tuple[Array, Array]:
    """Return the pairs of runs that touch: numbers of the upper ones, of the lower ones.

    Runs of a row are in order, so those of the next row that a run touches are
    neighbours: from the first that does not end before it to the last that begins at
    its end or before.
    """
    # One number for row and column, in which runs of later rows are larger.
    span = width + 2
    here = row * span
    below = here + span
    first = np.searchsorted(here + end, below + start)
    last = np.searchsorted(here + start, below + end, side="right")

    count = np.maximum(last - first, 0)
    numbers = np.arange(len(row))
    upper = np.repeat(numbers, count)

    # 0, 1, … for each run, from its first partner on.
    pairs_before = np.cumsum(count) - count
    pairs = np.arange(len(upper))
    step = pairs - np.repeat(pairs_before, count)

    first_partner = np.repeat(first, count)
    lower = first_partner + step
    return upper, lower


def _united(count: int, one: Array, other: Array) -> Array:
    """Return the number of the region of each run.

    Each run has a parent, at first itself. In turn, all pairs hang the larger of their
    roots below the smaller one, and all runs are hung below their root, until no pair
    has two roots (union-find, many pairs at once).

    Args:
        count: how many runs there are
        one: runs that touch …
        other: … these
    """
    parent = np.arange(count)
    while True:
        root = parent[one]
        other_root = parent[other]
        if (root == other_root).all():
            return parent

        # Several pairs may hang the same root: the smallest number wins, and the others
        # are still apart at the next turn.
        larger = np.maximum(root, other_root)
        smaller = np.minimum(root, other_root)
        np.minimum.at(parent, larger, smaller)
        parent = _flattened(parent)


def _flattened(parent: Array) -> Array:
    """Return the root of each entry in place of its parent."""
    while True:
        # Each turn halves the way to the root.
        further = parent[parent]
        if (further == parent).all():
            return parent
        parent = further


@dataclass(frozen=True)
class TurnedRectangle:
    """A rectangle in any direction.

    Attributes:
        centre: x and y of its middle
        size: lengths along its own x and y
        angle: direction of its own x in radians, clockwise from that of the mask,
            -π/4 to π/4
    """

    centre: Tuple[float, float]
    size: Tuple[float, float]
    angle: float

    def grown(self, by: float) -> TurnedRectangle:
        """Return the rectangle with each side moved outwards."""
        width, height = self.size
        size = (width + 2 * by, height + 2 * by)
        return TurnedRectangle(self.centre, size, self.angle)

    def polygon(self) -> Array:
        """Return its corners [4, 2]: top left, top right, bottom right, bottom left."""
        half = np.array(self.size) / 2
        own = half * np.array(CORNERS)
        turned = own @ _turn(self.angle)
        return np.asarray(turned + np.array(self.centre))

    def mean(self, values: Array) -> float:
        """Return the mean of the elements of a map in it, 0 where it has none.

        Args:
            values: a number for each pixel [H, W]
        """
        corners = self.polygon()
        low = np.floor(corners.min(axis=0)).astype(int)
        high = np.ceil(corners.max(axis=0)).astype(int)

        left = max(low[0], 0)
        top = max(low[1], 0)
        part = values[top : high[1], left : high[0]]

        inside = self._contains(part.shape, (left, top))
        chosen = part[inside]
        if not chosen.size:
            return 0.0
        return float(chosen.mean())

    def _contains(self, shape: Tuple[int, ...], start: Tuple[int, int]) -> Array:
        """Return which pixels of a part of a map have their middle inside.

        Args:
            shape: height and width of the part
            start: column and row of its first pixel
        """
        rows, columns = np.indices(shape)
        pixels = np.stack([columns, rows], -1)
        middles = pixels + np.array(start) + HALF_PIXEL

        # In the rectangle's own directions, from its middle.
        from_centre = middles - np.array(self.centre)
        own = from_centre @ _turn(self.angle).T
        half = np.array(self.size) / 2
        is_near = np.abs(own) <= half
        return np.asarray(is_near.all(axis=-1))


def smallest_rectangle(points: Array) -> TurnedRectangle:
    """Return the smallest rectangle around points.

    One of its sides lies on a side of the convex hull (Freeman and Shapira, 1975), so
    that the directions of these sides are all that have to be tried.

    Args:
        points: x and y [N, 2]
    """
    hull = convex_hull(points)
    sides = np.roll(hull, -1, axis=0) - hull
    directions = np.arctan2(sides[:, 1], sides[:, 0])

    # A quarter turn gives the same rectangle: the angle next to 0 stands for all four.
    quarter = math.pi / 2
    turns = np.round(directions / quarter)
    angles = directions - quarter * turns

    # The hull along x and y of each direction [sides, points].
    x = hull[:, 0]
    y = hull[:, 1]
    cosine = np.cos(angles)[:, None]
    sine = np.sin(angles)[:, None]
    along = cosine * x + sine * y
    across = cosine * y - sine * x

    width = np.ptp(along, axis=1)
    height = np.ptp(across, axis=1)
    area = width * height
    best = int(np.argmin(area))

    middle = [_middle(along[best]), _middle(across[best])]
    angle = float(angles[best])
    centre_x, centre_y = np.array(middle) @ _turn(angle)
    size = (float(width[best]), float(height[best]))
    return TurnedRectangle((float(centre_x), float(centre_y)), size, angle)


def _middle(values: Array) -> float:
    """Return the middle between the least and the largest value."""
    return float(values.min() + values.max()) / 2


def convex_hull(points: Array) -> Array:
    """Return the corners of the convex hull in order (Andrew's monotone chain, 1979).

    Args:
        points: x and y [N, 2]
    """
    ordered = np.unique(points, axis=0)
    if len(ordered) < 3:
        return ordered
    forwards = _half_hull(ordered.tolist())
    backwards = _half_hull(ordered[::-1].tolist())

    # The last corner of each half is the first of the other.
    return np.array(forwards[:-1] + backwards[:-1])


def _half_hull(points: List[List[float]]) -> List[List[float]]:
    """Return the hull on one side of points, which are sorted by x and y."""
    hull: List[List[float]] = []
    for point in points:
        # A corner that the way to this point leaves inside, or on it, is none.
        while len(hull) >= 2 and _is_right_turn(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _is_right_turn(a: List[float], b: List[float], c: List[float]) -> bool:
    """Return whether the way over three points turns right, or goes straight on."""
    first_x = b[0] - a[0]
    first_y = b[1] - a[1]
    whole_x = c[0] - a[0]
    whole_y = c[1] - a[1]
    cross = first_x * whole_y - first_y * whole_x
    return cross <= 0


def _turn(angle: float) -> Array:
    """Return the matrix that turns rows of x and y, clockwise in a picture."""
    cosine = math.cos(angle)
    sine = math.sin(angle)
    x_row = [cosine, sine]
    y_row = [-sine, cosine]
    return np.array([x_row, y_row])
