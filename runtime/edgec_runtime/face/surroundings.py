"""The mesh around a face: hair, neck, shoulders and background.

Rays from the middle of the face through the points of its outline have points out to the
border of the picture, so that these form rings. Points of the head follow its pose, and
points beyond it follow less and less (a smooth step). An expression that moves the
outline, like an open jaw, fades out near the face.
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
"""Positions of the rings between the outline, 0, and the border, 1."""
HEAD_ABOVE = 1.7
HEAD_BELOW = 1.0
"""Radius of the head with its hair, upwards and downwards, in radii of the face."""
FADED_ABOVE = 3.4
FADED_BELOW = 3.0
"""Radius from which points do not move, upwards and downwards, in radii of the face."""
EXPRESSION_REACH = 0.5
"""Distance from the outline at which expressions have faded, in radii of the face."""
LEAST_FADING = 0.4
"""Largest part of the way from the outline to the fixed points that follows the head
completely.
"""
LEAST_MARGIN = 0.25
"""Least distance of the outline from the outer border, in radii of the face."""


class AroundFace:
    """The rings around one face."""

    def __init__(self, face: Array, size: Tuple[int, int]) -> None:
        """Prepare the rings.

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

        # Rings are dense close to the face, where the picture is distorted most.
        parts = np.array(RINGS)[:, None, None]
        rings = outline + parts * (border - outline)
        self.points = rings.reshape(-1, 2)
        self.depth = np.tile(self._oval[:, 2], len(RINGS))

        # The unit of distances along a ray is the distance of the outline.
        unit = lengths(rays)
        out = lengths(rings - middle) / unit
        ends = lengths(border - middle) / unit
        follow = _pose_shares(_above(rays, face), ends, out)
        self._pose_share = follow.reshape(-1, 1)
        self._expression_share = _expression_shares((out - 1) * unit / radius).reshape(
            -1, 1
        )

    def moved(self, before: HeadPose, after: HeadPose, face: Array) -> Array:
        """Return the points of the rings for another pose of the head [N, 2].

        Args:
            before: the pose in the portrait
            after: the new pose
            face: the points of the face in the new pose, with its expression [468, 3]
        """
        solids = np.column_stack([self.points, self.depth])
        posed = after.apply(before.undo(solids))
        by_pose = posed[:, :2] - self.points

        # The rest of the outline's movement is due to the expression.
        rigid = after.apply(before.undo(self._oval))
        outline = face[list(OVAL)] - rigid
        by_expression = np.tile(outline[:, :2], (len(RINGS), 1))
        moved = self.points + by_pose * self._pose_share
        return np.asarray(moved + by_expression * self._expression_share)

    def triangles(self, first: int) -> Array:
        """Return the triangles from the outline to the border [M, 3].

        Args:
            first: the number of the rings' first point among all corners
        """
        count = len(OVAL)
        rows: List[Sequence[int]] = [OVAL]
        for i in range(len(RINGS)):
            begin = first + i * count
            rows.append(range(begin, begin + count))

        result: List[Tuple[int, int, int]] = []
        for inner, outer in zip(rows[:-1], rows[1:]):
            # A ring is closed: its first point follows its last one.
            outside = (*outer, outer[0])
            inside = (*inner, inner[0])
            result += strip(outside, inside)
        return np.array(result)


def _margin(outline: Array, size: Tuple[int, int], least: float) -> int:
    """Return the pixels by which the mesh extends beyond the picture on each side.

    It does so if the face is at the border of the picture, or cut off there.

    Args:
        outline: the outline of the face [36, 2]
        size: width and height of the picture
        least: least distance of the outline from the outer border, pixels
    """
    low = outline.min(axis=0) - least
    high = outline.max(axis=0) + least
    beyond = high - np.array(size)
    # The side with the largest need determines all four.
    most = max(float(beyond.max()), float(-low.min()))
    return max(0, int(np.ceil(most)))


def _border(middle: Array, rays: Array, size: Tuple[int, int], margin: int) -> Array:
    """Return the points of rays on the outer border, with the border's corners [36, 2].

    Args:
        middle: the middle of the face [2]
        rays: vectors from there to the outline [36, 2]
        size: width and height of the picture
        margin: distance of the outer border from the picture, pixels
    """
    low = np.full(2, -float(margin))
    high = np.array(size, np.float64) + margin
    # A ray parallel to a side never meets it: the quotient is infinite.
    with np.errstate(divide="ignore"):
        to_high = (high - middle) / rays
        to_low = (low - middle) / rays
    parts = np.where(rays > 0, to_high, to_low)
    parts[rays == 0] = np.inf
    border = middle + rays * parts.min(axis=1)[:, None]

    # Without a point at each corner, a triangle of the picture would be missing there.
    directions = rays / lengths(rays)[:, None]
    for x in (low[0], high[0]):
        for y in (low[1], high[1]):
            corner = np.array([x, y])
            cosines = directions @ (corner - middle)
            border[int(cosines.argmax())] = corner
    return np.asarray(border)


def _above(rays: Array, face: Array) -> Array:
    """Return the direction of rays: 1 to the top of the head, 0 to its bottom [36].

    Args:
        rays: vectors from the middle of the face to its outline [36, 2]
        face: the points of the face [468, 3]
    """
    up = face[FOREHEAD, :2] - face[CHIN, :2]
    directions = rays / lengths(rays)[:, None]
    cosines = directions @ (up / length(up))
    return np.asarray((cosines + 1) / 2)


def _pose_shares(above: Array, ends: Array, out: Array) -> Array:
    """Return the share with which points follow the head's pose, 1 to 0 [rings, 36].

    Args:
        above: the direction of each ray, see `_above` [36]
        ends: distance of the border on each ray, in lengths of the ray [36]
        out: distances of the points, in the same unit [rings, 36]
    """
    faded = FADED_BELOW + (FADED_ABOVE - FADED_BELOW) * above
    faded = np.minimum(faded, ends)
    # If the border is near, space has to be left for the transition.
    head = HEAD_BELOW + (HEAD_ABOVE - HEAD_BELOW) * above
    head = np.minimum(head, 1 + (faded - 1) * LEAST_FADING)
    return 1 - smooth_step(out, head, faded)


def _expression_shares(distance: Array) -> Array:
    """Return the share with which points follow an expression, 1 to 0 [rings, 36].

    Args:
        distance: distance from the outline in radii of the face [rings, 36]
    """
    shares = np.clip(1 - distance / EXPRESSION_REACH, 0, 1) ** 2
    # The border of the picture never moves, even if it is near.
    shares[-1] = 0
    return shares
