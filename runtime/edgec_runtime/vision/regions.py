"""Finds connected regions of a mask, and the smallest rectangle around each.

Positions are in pixels of the mask, whose first pixel is the square from 0 to 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, Tuple

import numpy as np

from .tasks.base import Array

CORNERS = ((-1, -1), (1, -1), (1, 1), (-1, 1))
"""Corners of a rectangle around 0 in units of half a side, clockwise from the top left."""

HALF_PIXEL = 0.5
"""From the middle of a pixel to its side, in pixels."""


@dataclass(frozen=True)
class Runs:
    """Runs of pixels: neighbours in a row of a mask, all of them True.

    Attributes:
        row: row of each run, in ascending order [N]
        start: first column of each run [N]
        end: column after the last one of each run [N]
        region: number of each run's region [N]
    """

    row: Array
    start: Array
    end: Array
    region: Array

    def regions(self) -> List[Array]:
        """Return, for each region, the numbers of its runs."""
        if not len(self.row):
            return []

        # A stable sort keeps the runs of a region in the order of rows.
        order = np.argsort(self.region, kind="stable")
        sorted_regions = self.region[order]
        steps = np.diff(sorted_regions)
        ends = np.flatnonzero(steps) + 1
        return np.split(order, ends)

    def outline(self, numbers: Array) -> Array:
        """Return the middles of the first and last pixel of each row of a region [M, 2].

        The other pixels lie between them, so that these have the same convex hull.

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

    Pixels that share a side or a corner belong to the same region.

    Args:
        mask: bool [H, W]
    """
    # A run begins at a True after a False. With a column of False on each side every run
    # has a beginning and an end.
    padded = np.pad(mask, ((0, 0), (1, 1))).astype(np.int8)
    change = np.diff(padded, axis=1)
    row, start = np.nonzero(change == 1)
    _, end = np.nonzero(change == -1)

    above, below = _neighbours(row, start, end, mask.shape[1])
    return Runs(row, start, end, _region_numbers(len(row), above, below))


def _neighbours(
    row: Array, start: Array, end: Array, width: int
) -> Tuple[Array, Array]:
    """Return the pairs of touching runs: numbers of the upper and of the lower ones.

    The runs of the next row that a run touches are consecutive: they begin with the
    first that does not end before it, and end with the last that does not begin after
    its end.
    """
    # Row and column become one number, which grows from row to row.
    span = width + 2
    here = row * span
    below = here + span
    first = np.searchsorted(here + end, below + start)
    last = np.searchsorted(here + start, below + end, side="right")

    count = np.maximum(last - first, 0)
    numbers = np.arange(len(row))
    upper = np.repeat(numbers, count)

    # These are 0, 1, … for the partners of each upper run.
    pairs_before = np.cumsum(count) - count
    pairs = np.arange(len(upper))
    step = pairs - np.repeat(pairs_before, count)

    first_partner = np.repeat(first, count)
    lower = first_partner + step
    return upper, lower


def _region_numbers(count: int, upper: Array, lower: Array) -> Array:
    """Return the number of the region of each run (union-find, all pairs at once).

    Each run has a parent, at first itself. In turn, each pair makes the smaller of its
    two roots the parent of the larger one, and each run gets its root as its parent,
    until no pair has two roots.

    Args:
        count: number of runs
        upper: first run of each pair of touching runs
        lower: second run of each pair
    """
    parent = np.arange(count)
    while True:
        root = parent[upper]
        other_root = parent[lower]
        if (root == other_root).all():
            return parent

        # Several pairs may give the same root a parent: the smallest one wins, and the
        # others are joined in the next turn.
        larger = np.maximum(root, other_root)
        smaller = np.minimum(root, other_root)
        np.minimum.at(parent, larger, smaller)
        parent = _roots(parent)


def _roots(parent: Array) -> Array:
    """Return the root of each run."""
    while True:
        # Each turn halves the way to the root.
        further = parent[parent]
        if (further == parent).all():
            return parent
        parent = further


@dataclass(frozen=True)
class TurnedRectangle:
    """A rectangle that is turned about its centre.

    Attributes:
        centre: x and y of its middle
        size: lengths of its sides
        angle: direction of its first side in radians, clockwise from the x axis of the
            mask, -π/4 to π/4
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
        upright = half * np.array(CORNERS)
        turned = upright @ _turn(self.angle)
        return np.asarray(turned + np.array(self.centre))

    def mean(self, values: Array) -> float:
        """Return the mean of a map inside the rectangle; 0 if no pixel is inside.

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
        pixels = part[inside]
        if not pixels.size:
            return 0.0
        return float(pixels.mean())

    def _contains(self, shape: Tuple[int, ...], start: Tuple[int, int]) -> Array:
        """Return which pixels of a part of a map have their middle inside.

        Args:
            shape: height and width of the part
            start: column and row of its first pixel
        """
        rows, columns = np.indices(shape)
        pixels = np.stack([columns, rows], -1)
        middles = pixels + np.array(start) + HALF_PIXEL

        # Coordinates along the sides of the rectangle, from its middle.
        from_centre = middles - np.array(self.centre)
        along_sides = from_centre @ _turn(self.angle).T
        half = np.array(self.size) / 2
        is_near = np.abs(along_sides) <= half
        return np.asarray(is_near.all(axis=-1))


def smallest_rectangle(points: Array) -> TurnedRectangle:
    """Return the smallest rectangle around points.

    One of its sides lies on a side of the convex hull (Freeman and Shapira, 1975), so
    only the directions of these sides have to be tried.

    Args:
        points: x and y [N, 2]
    """
    hull = convex_hull(points)
    sides = np.roll(hull, -1, axis=0) - hull
    directions = np.arctan2(sides[:, 1], sides[:, 0])

    # A quarter turn gives the same rectangle, so the angle nearest to 0 is taken.
    quarter = math.pi / 2
    turns = np.round(directions / quarter)
    angles = directions - quarter * turns

    # These are the coordinates of the hull along each direction and across it
    # [sides, points].
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
    """Return the mean of the least and the largest value."""
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
        # A corner is none if the way to this point leaves it inside, or is straight.
        while len(hull) >= 2 and _is_right_turn(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _is_right_turn(a: List[float], b: List[float], c: List[float]) -> bool:
    """Return whether the way from a over b to c turns right, or is straight."""
    ab_x = b[0] - a[0]
    ab_y = b[1] - a[1]
    ac_x = c[0] - a[0]
    ac_y = c[1] - a[1]
    cross = ab_x * ac_y - ab_y * ac_x
    return cross <= 0


def _turn(angle: float) -> Array:
    """Return the matrix [2, 2] that turns rows of x and y clockwise in a picture.

    The rows are multiplied by it from the left: xy @ matrix.
    """
    cosine = math.cos(angle)
    sine = math.sin(angle)
    x_row = [cosine, sine]
    y_row = [-sine, cosine]
    return np.array([x_row, y_row])
