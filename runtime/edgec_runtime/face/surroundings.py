"""The mesh around a face: hair, neck, shoulders and what is behind them.

On each ray from the middle of the face through a point of its outline there are points
out to the border of the picture, so that they form rings. Where the head is they follow
its pose, and beyond it less and less (a smooth step); an expression that moves the
outline, as an opened jaw does, fades out next to the face.
"""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from .alignment import HeadPose
from .geometry import length, lengths, smooth_step
from .landmarks import CHIN, FOREHEAD, OVAL, strip

Array = NDArray[Any]

RINGS = (0.06, 0.13, 0.22, 0.32, 0.44, 0.57, 0.71, 0.86, 1.0)
"""Where rings lie between the outline, 0, and the border, 1."""
HEAD_ABOVE = 1.7
HEAD_BELOW = 1.0
"""Radius of the head with its hair above and below, in radii of the face."""
FADED_ABOVE = 3.4
FADED_BELOW = 3.0
"""Where nothing moves any more, in the same."""
EXPRESSION_REACH = 0.5
"""Radii of the face beyond its outline in which expressions fade out."""
LEAST_FADING = 0.4
"""The part of the way from the outline to the border on which all follows, at most."""
LEAST_MARGIN = 0.25
"""Radii of the face between its outline and the outer border, at least."""


class AroundFace:
    """The rings around one face."""

    def __init__(self, face: Array, size: Tuple[int, int]) -> None:
        """Make the rings.

        Args:
            face: the points of the face in pixels [468, 3]
            size: width and height of the picture
        """
        self._oval = face[list(OVAL)]
        outline = self._oval[:, :2]
        low = outline.min(axis=0)
        high = outline.max(axis=0)
        middle = (low + high) / 2
        rays = outline - middle
        radius = float(lengths(rays).mean())
        self.margin = _margin(outline, size, LEAST_MARGIN * radius)
        border = _border(middle, rays, size, self.margin)

        # Close to the face rings are dense: there the picture is bent most.
        parts = np.array(RINGS)[:, None, None]
        rings = outline + parts * (border - outline)
        self.points = rings.reshape(-1, 2)
        self.depth = np.tile(self._oval[:, 2], len(RINGS))

        # Distances along a ray count in its length, which the outline ends.
        own = lengths(rays)
        out = lengths(rings - middle) / own
        ends = lengths(border - middle) / own
        follow = _following(_above(rays, face), ends, out)
        self._follow = follow.reshape(-1, 1)
        self._near = _nearness((out - 1) * own / radius).reshape(-1, 1)

    def moved(self, before: HeadPose, after: HeadPose, face: Array) -> Array:
        """Return the points [N, 2] when the head is in another pose.

        Args:
            before: the pose in the portrait
            after: the new pose
            face: the points of the face after that [468, 3]
        """
        there = np.column_stack([self.points, self.depth])
        carried = after.apply(before.undo(there))
        by_pose = carried[:, :2] - self.points

        # What the outline does beside that is the expression's part.
        rigid = after.apply(before.undo(self._oval))
        outline = face[list(OVAL)] - rigid
        by_expression = np.tile(outline[:, :2], (len(RINGS), 1))
        moved = self.points + by_pose * self._follow
        return np.asarray(moved + by_expression * self._near)

    def triangles(self, first: int) -> Array:
        """Return the triangles from the outline to the border [M, 3].

        Args:
            first: the number of the first of these points among all corners
        """
        count = len(OVAL)
        rows: List[Sequence[int]] = [OVAL]
        for i in range(len(RINGS)):
            begin = first + i * count
            rows.append(range(begin, begin + count))

        found: List[Tuple[int, int, int]] = []
        for inner, outer in zip(rows[:-1], rows[1:]):
            # A ring is closed: its first point follows its last.
            outside = (*outer, outer[0])
            inside = (*inner, inner[0])
            found += strip(outside, inside)
        return np.array(found)


def _margin(outline: Array, size: Tuple[int, int], least: float) -> int:
    """Return by how many pixels the mesh goes beyond the picture on each side.

    It does where the face is cut off by the border, or nearly.

    Args:
        outline: of the face [36, 2]
        size: width and height of the picture
        least: distance of the outline from the outer border, pixels
    """
    low = outline.min(axis=0) - least
    high = outline.max(axis=0) + least
    beyond = high - np.array(size)
    # The side where most is missing says it for all four.
    most = max(float(beyond.max()), float(-low.min()))
    return max(0, int(np.ceil(most)))


def _border(middle: Array, rays: Array, size: Tuple[int, int], margin: int) -> Array:
    """Return where rays meet the outer border [36, 2], its corners among them.

    Args:
        middle: of the face
        rays: from there to the outline [36, 2]
        size: width and height of the picture
        margin: of the outer border around it
    """
    low = np.full(2, -float(margin))
    high = np.array(size, np.float64) + margin
    # A ray that is parallel to a side never meets it: its part is infinite.
    with np.errstate(divide="ignore"):
        to_high = (high - middle) / rays
        to_low = (low - middle) / rays
    parts = np.where(rays > 0, to_high, to_low)
    parts[rays == 0] = np.inf
    border = middle + rays * parts.min(axis=1)[:, None]

    # Without a ray to each corner of the picture, its triangle would be missing.
    directions = rays / lengths(rays)[:, None]
    for x in (low[0], high[0]):
        for y in (low[1], high[1]):
            corner = np.array([x, y])
            cosines = directions @ (corner - middle)
            border[int(cosines.argmax())] = corner
    return np.asarray(border)


def _above(rays: Array, face: Array) -> Array:
    """Return how far rays point to the top of the head, 1 to 0 [36].

    Args:
        rays: from the middle of the face to its outline [36, 2]
        face: its points [468, 3]
    """
    up = face[FOREHEAD, :2] - face[CHIN, :2]
    directions = rays / lengths(rays)[:, None]
    cosines = directions @ (up / length(up))
    return np.asarray((cosines + 1) / 2)


def _following(above: Array, ends: Array, out: Array) -> Array:
    """Return how far points follow the head, 1 to 0 [rings, 36].

    Args:
        above: from 0, below the face, to 1 [36]
        ends: where the border is on each ray, in lengths of the rays [36]
        out: where the points are, likewise [rings, 36]
    """
    faded = FADED_BELOW + (FADED_ABOVE - FADED_BELOW) * above
    faded = np.minimum(faded, ends)
    # Where the border is near, it needs room for the way from all to nothing.
    head = HEAD_BELOW + (HEAD_ABOVE - HEAD_BELOW) * above
    head = np.minimum(head, 1 + (faded - 1) * LEAST_FADING)
    return 1 - smooth_step(out, head, faded)


def _nearness(apart: Array) -> Array:
    """Return how far points follow the outline in an expression, 1 to 0.

    Args:
        apart: distance from the outline in radii of the face [rings, 36]
    """
    near = np.clip(1 - apart / EXPRESSION_REACH, 0, 1) ** 2
    # The border of the picture keeps its place, however near it is.
    near[-1] = 0
    return near
