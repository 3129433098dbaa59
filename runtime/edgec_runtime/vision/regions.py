"""Connected regions of a mask, and the smallest rectangle around each.

Positions are in pixels of the mask, whose first pixel is the square from 0 to 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, Tuple

import numpy as np

from .tasks.base import Array

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
        ends = np.flatnonzero(np.diff(self.region[order])) + 1
        return np.split(order, ends)

    def outline(self, numbers: Array) -> Array:
        """Return the middles of the first and the last pixel of a region's rows, [M, 2].

        Other pixels of a row lie between them: the convex hull is that of the region.

        Args:
            numbers: the runs of the region
        """
        rows = self.row[numbers]
        _, first = np.unique(rows, return_index=True)
        left = np.minimum.reduceat(self.start[numbers], first)
        right = np.maximum.reduceat(self.end[numbers], first) - 1

        # Runs are in the order of rows, so a row begins at its first run.
        y = rows[first]
        x = np.concatenate([left, right])
        y = np.concatenate([y, y])
        return np.stack([x, y], -1) + HALF_PIXEL


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
    first = np.searchsorted(row * span + end, (row + 1) * span + start)
    last = np.searchsorted(row * span + start, (row + 1) * span + end, side="right")

    count = np.maximum(last - first, 0)
    above = np.repeat(np.arange(len(row)), count)

    # 0, 1, … for each run, from its first partner on.
    step = np.arange(len(above)) - np.repeat(np.cumsum(count) - count, count)
    return above, np.repeat(first, count) + step


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
        np.minimum.at(
            parent, np.maximum(root, other_root), np.minimum(root, other_root)
        )
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
        size = (self.size[0] + 2 * by, self.size[1] + 2 * by)
        return TurnedRectangle(self.centre, size, self.angle)

    def polygon(self) -> Array:
        """Return its corners [4, 2]: top left, top right, bottom right, bottom left."""
        half_x = self.size[0] / 2
        half_y = self.size[1] / 2
        own = np.array(
            [[-half_x, -half_y], [half_x, -half_y], [half_x, half_y], [-half_x, half_y]]
        )
        return np.asarray(own @ _turn(self.angle) + np.array(self.centre))

    def mean(self, values: Array) -> float:
        """Return the mean of the elements of a map in it, 0 where it has none.

        Args:
            values: a number for each pixel [H, W]
        """
        corners = self.polygon()
        low = np.maximum(np.floor(corners.min(axis=0)), 0).astype(int)
        high = np.ceil(corners.max(axis=0)).astype(int)
        part = values[low[1] : high[1], low[0] : high[0]]

        # Middles of the pixels, in the rectangle's own directions.
        y, x = np.mgrid[: part.shape[0], : part.shape[1]]
        middles = np.stack([x + low[0], y + low[1]], -1) + HALF_PIXEL
        own = (middles - np.array(self.centre)) @ _turn(self.angle).T
        inside = (np.abs(own) <= np.array(self.size) / 2).all(axis=-1)
        return float(part[inside].mean()) if inside.any() else 0.0


def smallest_rectangle(points: Array) -> TurnedRectangle:
    """Return the smallest rectangle around points.

    One of its sides lies on a side of the convex hull (Freeman and Shapira, 1975), so
    that the directions of these sides are all that have to be tried.

    Args:
        points: x and y [N, 2]
    """
    hull = convex_hull(points)
    sides = np.roll(hull, -1, axis=0) - hull
    angle = np.arctan2(sides[:, 1], sides[:, 0])

    # A quarter turn gives the same rectangle: the angle next to 0 stands for all four.
    quarter = math.pi / 2
    angle = angle - quarter * np.round(angle / quarter)

    # The hull along x and y of each direction [sides, points].
    cosine = np.cos(angle)[:, None]
    sine = np.sin(angle)[:, None]
    along = cosine * hull[:, 0] + sine * hull[:, 1]
    across = cosine * hull[:, 1] - sine * hull[:, 0]

    width = np.ptp(along, axis=1)
    height = np.ptp(across, axis=1)
    best = int(np.argmin(width * height))

    middle = np.array(
        [
            (along[best].min() + along[best].max()) / 2,
            (across[best].min() + across[best].max()) / 2,
        ]
    )
    x, y = middle @ _turn(angle[best])
    size = (float(width[best]), float(height[best]))
    return TurnedRectangle((float(x), float(y)), size, float(angle[best]))


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
    cross = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
    return cross <= 0


def _turn(angle: float) -> Array:
    """Return the matrix that turns rows of x and y, clockwise in a picture."""
    cosine = math.cos(angle)
    sine = math.sin(angle)
    return np.array([[cosine, sine], [-sine, cosine]])
