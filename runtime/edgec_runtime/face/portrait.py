"""Animates a portrait: its picture, the mesh of its face, and the mesh around the face.

The mesh around the face has rings of points out to the border of the picture. Near the
head they follow its pose, like hair; farther out they follow less, and at the border not
at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .alignment import HeadPose, align
from .geometry import length, lengths, limited, middle_of
from .landmarks import (
    LEFT_CORNERS,
    RIGHT_CORNERS,
    STABLE,
    UPPER_MOUTH,
    face_layout,
    openings,
)
from .lids import close_eyes, lid_pictures, lid_warps
from .motion import FaceMotion, turned_by
from .mouth import FINE, mouth_picture
from .openings import (
    Triangle,
    copied,
    copied_openings,
    keep_apart,
    lash_count,
    lashes,
    with_lashes,
    within_lids,
)
from .surroundings import AroundFace
from .warping import Warp

Array = NDArray[Any]

EYE_REACH = 0.3
MOUTH_REACH = 0.5
"""Distance at which the factors of eyes and mouth have faded, in distances of the eyes."""
LEAST = 0.01
"""Least size of an eye or a mouth as a divisor."""
EYE_LIMITS = (0.5, 2.0)
MOUTH_LIMITS = (0.6, 1.6)
"""Least and largest factors; others mean that a face was not recognized well."""


def proportions(portrait: Array, driver: Array) -> Array:
    """Return the factors by which a driver's motion is scaled for a portrait [468, 3].

    An eye that is twice as open moves twice as far, and so does a wider mouth.

    Args:
        portrait: the portrait's face in the layout's frame [468, 3]
        driver: the driver's face in the layout's frame [468, 3]
    """
    factors = np.ones_like(portrait)
    for upper, lower in openings()[:2]:
        ratio = _opening(portrait, upper, lower) / _opening(driver, upper, lower)
        factor = float(np.clip(ratio, *EYE_LIMITS))
        near = _nearness(portrait, upper, EYE_REACH)
        # Lids move only up and down.
        factors[:, 1] *= 1 + near * (factor - 1)

    # Lips move in all directions, and so does the skin around them.
    ratio = _width(portrait, UPPER_MOUTH) / _width(driver, UPPER_MOUTH)
    factor = float(np.clip(ratio, *MOUTH_LIMITS))
    near = _nearness(portrait, UPPER_MOUTH, MOUTH_REACH)
    factors *= 1 + near[:, None] * (factor - 1)
    return factors


def _opening(shape: Array, upper: Sequence[int], lower: Sequence[int]) -> float:
    """Return the mean opening of an eye.

    Args:
        shape: a face in the layout's frame [468, 3]
        upper: numbers of the points of its upper lid
        lower: numbers of the points of its lower lid
    """
    top = shape[list(upper), 1]
    bottom = shape[list(lower), 1]
    apart = bottom - top
    return max(float(apart.mean()), LEAST)


def _width(shape: Array, edge: Sequence[int]) -> float:
    """Return the distance of the ends of an edge.

    Args:
        shape: a face in the layout's frame [468, 3]
        edge: points from left to right
    """
    across = shape[edge[-1]] - shape[edge[0]]
    return max(float(lengths(across)), LEAST)


def _nearness(shape: Array, edge: Sequence[int], reach: float) -> Array:
    """Return the nearness of points to an edge, 1 at its middle and 0 far away [468].

    Args:
        shape: a face in the layout's frame [468, 3]
        edge: points from left to right
        reach: the distance at which it is 1/e
    """
    middle = middle_of(shape, edge)
    apart = lengths(shape[:, :2] - middle[:2])
    relative = apart / reach
    return np.asarray(np.exp(-(relative**2)))


MOST_TURN = 0.6
"""Limit of the head's turn in radians: beyond it the picture lacks too many pixels."""
MOST_SHIFT = 0.4
"""Limit of the head's shift in distances of the eyes."""
MOST_GROWTH = 0.25
"""Limit of the logarithm of the head's growth."""
DEEPEST = 0.3
"""Limit of the depth of points behind the mean of the stable ones, in distances of the
eyes. The sides of cheeks have no pixels for a turn to the front, so that they are made
flatter.
"""
GAP = 2
"""Rows between the portrait and the inside of its mouth in one picture, so that
interpolation does not mix them.
"""
WIDER = 0.5
"""Pixels by which the lips must be farther apart than in the portrait to show the picture
of the mouth's inside.
"""
MOST_TURNED = 35.0
"""Largest angle in degrees by which the face of a portrait may look aside, up or down."""
LEAST_EYES = 24.0
LEAST_EYES_SHARE = 1 / 12
"""Least distance of its eyes in pixels, and relative to the picture's shorter side."""
MOST_ASIDE = 0.3
"""Largest distance of its middle from that of the square part of the picture around it,
relative to the side of the square.
"""
BEHIND = 10.0
"""Depth behind the face at which the rest is drawn, in distances of the eyes."""


@dataclass(frozen=True)
class _Expression:
    """The last expression of a portrait.

    Attributes:
        motion: the driver's motion
        factors: the factors of its expression in this face [468, 3]
        shape: the face with the expression, in the layout's frame [468, 3]
    """

    motion: FaceMotion
    factors: Array
    shape: Array


def check_portrait(points: Array, size: Tuple[int, int], where: str) -> None:
    """Refuse a face that would make a poor avatar.

    Args:
        points: the points of the face, with depth in pixels [468, 3]
        size: width and height of its picture
        where: the name of the picture, for the error

    Raises:
        InputError: the face looks aside, is tiny, or is near the border
    """
    pose = _pose_of(points)
    turned = math.degrees(math.acos(min(1.0, float(pose.rotation[2, 2]))))
    if turned > MOST_TURNED:
        what = (
            f"the face of the portrait looks {turned:.0f} degrees aside; "
            f"{MOST_TURNED:.0f} are possible"
        )
        raise InputError(what, where, "take a portrait that looks into the camera")

    flat = points[:, :2]
    side = min(size)
    least = max(LEAST_EYES, LEAST_EYES_SHARE * side)
    apart = length(flat[RIGHT_CORNERS[1]] - flat[LEFT_CORNERS[0]])
    if apart < least:
        what = (
            f"the face of the portrait is tiny: its eyes are {apart:.0f} pixels apart, "
            f"{least:.0f} are needed"
        )
        raise InputError(
            what, where, "crop the picture about the head, or take one of more pixels"
        )

    middle = (flat.min(axis=0) + flat.max(axis=0)) / 2
    corner = np.clip(middle - side / 2, 0, np.array(size) - side)
    aside = float(np.abs(middle - corner - side / 2).max()) / side
    if aside > MOST_ASIDE:
        what = (
            f"the face of the portrait is off the middle by {aside:.0%} of the picture; "
            f"{MOST_ASIDE:.0%} are possible"
        )
        raise InputError(what, where, "take a portrait with space around the head")


def _pose_of(points: Array) -> HeadPose:
    """Return the pose that maps the layout to the points of a face [468, 3]."""
    stable = list(STABLE)
    return align(face_layout().points[stable], points[stable])


class Portrait:
    """A picture of a face that can be drawn with any motion."""

    def __init__(self, picture: Array, points: Array) -> None:
        """Prepare the meshes.

        Args:
            picture: uint8 [H, W, 3]
            points: the mesh of its face, with depth in pixels [468, 3]
        """
        self._last: Optional[_Expression] = None
        self.picture = picture
        self.size = picture.shape[1], picture.shape[0]
        self._pose = _pose_of(points)
        self.shape = _flattened(self._pose.undo(points))
        keep_apart(self.shape)
        self.points = self._pose.apply(self.shape)

        self._around = AroundFace(self.points, self.size)
        self._openings = copied_openings(len(points))
        self._triangles = self._all_triangles()
        self._mouth = mouth_picture(picture, self.points)
        self._lids = lid_pictures(picture, self.points)
        self._source = self._with_mouth(picture)
        corners = self._corners(self.points)
        flat = np.concatenate([corners[:, :2], self._around.points])
        self._begin = flat + self._around.margin

    def moved(self, motion: FaceMotion) -> Array:
        """Return the points of the face after a motion [468, 3]."""
        pose = self._posed(motion)
        return pose.apply(self._expressed(motion))

    def shows_mouth(self, motion: FaceMotion) -> bool:
        """Return whether a motion shows the picture of the mouth's inside."""
        rest = self._pose.apply(self._expressed(motion))
        return self._is_wider(self._opened(rest))

    @property
    def mouth_triangles(self) -> Array:
        """The triangles of the mouth's opening, int32 [M, 3]."""
        return np.array(self._openings[-1].triangles, np.int32)

    def lids(self, motion: FaceMotion) -> List[Warp]:
        """Return the warps that draw closed lids over the portrait."""
        return lid_warps(self._lids, self.moved(motion), motion.closed())

    def warp(self, motion: FaceMotion) -> Warp:
        """Return the warp that draws the portrait after a motion."""
        pose = self._posed(motion)
        shape = self._expressed(motion)
        face = pose.apply(shape)
        corners = self._corners(face)
        around = self._around.moved(self._pose, pose, face)
        end = np.concatenate([corners[:, :2], around])

        begin = self._begin.copy()
        self._open(begin, self._pose.apply(shape))

        # Triangles are drawn from back to front, so that the nearer part of a fold is
        # visible.
        depth = np.concatenate([corners[:, 2], self._around.depth])
        behind = depth[self._triangles].mean(axis=1)
        behind[self._skin :] += BEHIND * self._pose.scale
        order = np.argsort(-behind, kind="stable")
        return Warp(
            self._source,
            begin.astype(np.float32),
            end.astype(np.float32),
            self._triangles[order].astype(np.int32),
        )

    def _posed(self, motion: FaceMotion) -> HeadPose:
        """Return the pose of the head after a motion."""
        turn = turned_by(motion, MOST_TURN)
        growth = np.exp(limited(motion.growth, MOST_GROWTH))
        scale = self._pose.scale * float(growth)
        shift = limited(motion.shift, MOST_SHIFT) * self._pose.scale
        rotation = turn @ self._pose.rotation
        return HeadPose(scale, rotation, self._pose.shift + shift)

    def _expressed(self, motion: FaceMotion) -> Array:
        """Return the face in the layout's frame with the motion's expression [468, 3].

        The expression is adapted to the proportions of the portrait.
        """
        # For each frame the warp, the lids and the mouth need it.
        if self._last is not None and self._last.motion is motion:
            return self._last.shape
        # The factors depend only on the neutral faces of the portrait and the driver.
        if self._last is not None and self._last.motion.shape is motion.shape:
            factors = self._last.factors
        else:
            factors = proportions(self.shape, motion.shape)
        shape = np.asarray(self.shape + motion.expression * factors)
        close_eyes(shape, self.shape, motion.closed())
        keep_apart(shape)
        self._last = _Expression(motion, factors, shape)
        return shape

    def _corners(self, face: Array) -> Array:
        """Return the corners of the face: its points, copies of edges, and lashes.

        Args:
            face: the points of the face [468, 3]
        """
        # Copies differ from the edges only in the source.
        copies = copied(face, self._openings)
        return np.concatenate([face, copies, lashes(face)])

    def _open(self, begin: Array, rest: Array) -> None:
        """Set the corners of the openings in the source.

        Args:
            begin: the corners
            rest: the face with its expression, in the pose of the portrait [468, 3]
        """
        flat = rest[:, :2]
        *eyes, mouth = self._openings
        for eye in eyes:
            # The eye between the lids is neither squeezed nor moved.
            begin[eye.upper_copy] = flat[list(eye.upper)] + self._around.margin
            begin[eye.lower_copy] = flat[list(eye.lower)] + self._around.margin
            within_lids(begin, eye)

        # A mouth that is not wider open than in the portrait shows the portrait.
        opened = self._opened(flat)
        begin[mouth.upper_copy] = flat[list(mouth.upper)] + self._around.margin
        begin[mouth.lower_copy] = flat[list(mouth.lower)] + self._around.margin
        if not self._is_wider(opened):
            return
        # The first row of the mouth's picture is at the upper lip.
        below = np.minimum(opened * FINE, self._mouth.deepest)
        begin[mouth.upper_copy, 0] = self._mouth.columns
        begin[mouth.lower_copy, 0] = self._mouth.columns
        begin[mouth.upper_copy, 1] = self._mouth_top
        begin[mouth.lower_copy, 1] = self._mouth_top + below

    def _is_wider(self, opened: Array) -> bool:
        """Return whether the lips are farther apart than in the portrait."""
        return bool(np.any(opened >= self._opened(self.points) + WIDER))

    def _opened(self, face: Array) -> Array:
        """Return the distances of the lips in pixels, from corner to corner [11].

        Args:
            face: the points of the face [468, …]
        """
        mouth = self._openings[-1]
        apart = face[list(mouth.lower), :2] - face[list(mouth.upper), :2]
        return lengths(apart)

    def _all_triangles(self) -> Array:
        """Return the triangles of skin, openings and surroundings [M, 3]."""
        inside: List[Triangle] = []
        for opening in self._openings:
            inside += opening.triangles
        first = self._openings[-1].lower_copy[-1] + 1
        skin = with_lashes(face_layout().triangles, first)
        self._skin = len(skin)
        around = self._around.triangles(first + lash_count())
        return np.concatenate([skin, np.array(inside), around])

    def _with_mouth(self, picture: Array) -> Array:
        """Return the portrait above the inside of its mouth, uint8 [H, W, 4]."""
        margin = self._around.margin
        rows = (margin, margin + GAP)
        padded = np.pad(picture, (rows, (margin, margin), (0, 0)), "edge")
        self._mouth_top = float(len(padded))

        # The narrower of the two is extended by its border.
        inside = self._mouth.pixels
        wide = max(inside.shape[1] + 1, padded.shape[1])
        height = len(padded) + len(inside)
        source = np.full((height, wide, 4), 255, np.uint8)
        source[: len(padded), :, :3] = _widened(padded, wide)
        source[len(padded) :, :, :3] = _widened(inside, wide)
        return source


def _widened(picture: Array, width: int) -> Array:
    """Return a picture extended to a width by copies of its last column."""
    more = width - picture.shape[1]
    return np.pad(picture, ((0, 0), (0, more), (0, 0)), "edge")


def _flattened(shape: Array) -> Array:
    """Return a face in the layout's frame whose depth is limited to DEEPEST.

    Args:
        shape: the face [468, 3]
    """
    flattened = shape.copy()
    depth = shape[:, 2]
    is_behind = depth > 0
    flattened[is_behind, 2] = limited(depth[is_behind], DEEPEST)
    return flattened
