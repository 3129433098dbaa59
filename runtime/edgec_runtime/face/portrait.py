"""A portrait that moves: its picture, the mesh of its face, and the mesh around it.

Around the face rings of points go out to the border of the picture. Near the head they
follow its pose, as hair does, further out less, at the border not at all.
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
"""How far proportions of eyes and mouth reach, in distances of the eyes."""
LEAST = 0.01
"""The least size of an eye or a mouth: it divides."""
EYE_LIMITS = (0.5, 2.0)
MOUTH_LIMITS = (0.6, 1.6)
"""The factors that are possible: beyond, a face was not seen well."""


def proportions(own: Array, other: Array) -> Array:
    """Return factors for a motion of another face [468, 3].

    Eyes that are twice as open close twice as far, and wide mouths move more.

    Args:
        own: the face in the layout's frame [468, 3]
        other: the one that moves, likewise
    """
    factors = np.ones_like(own)
    for upper, lower in openings()[:2]:
        ratio = _opening(own, upper, lower) / _opening(other, upper, lower)
        factor = float(np.clip(ratio, *EYE_LIMITS))
        near = _nearness(own, upper, EYE_REACH)
        # Lids move up and down alone.
        factors[:, 1] *= 1 + near * (factor - 1)

    # Lips move in all directions, and so does the skin around them.
    ratio = _width(own, UPPER_MOUTH) / _width(other, UPPER_MOUTH)
    factor = float(np.clip(ratio, *MOUTH_LIMITS))
    near = _nearness(own, UPPER_MOUTH, MOUTH_REACH)
    factors *= 1 + near[:, None] * (factor - 1)
    return factors


def _opening(shape: Array, upper: Sequence[int], lower: Sequence[int]) -> float:
    """Return how far an eye is open.

    Args:
        shape: a face in the layout's frame [468, 3]
        upper: points of its upper lid
        lower: of its lower lid
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
    """Return how near points are to an edge, 1 at its middle and 0 far away [468].

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
"""Radians by which a portrait's head turns at most: beyond, too much is unseen."""
MOST_SHIFT = 0.4
"""Distances of the eyes by which it moves at most."""
MOST_GROWTH = 0.25
"""The logarithm of its largest growth."""
DEEPEST = 0.3
"""Depth behind the stable points' mean that points of a face come near to, in distances
of the eyes. Cheeks that were seen from the side have no pixels to be turned to the
front, so they turn like the part before them.
"""
GAP = 2
"""Rows between the portrait and the inside of its mouth in one picture: what is between
two pixels must not mix them.
"""
WIDER = 0.5
"""Pixels by which lips have to be wider apart than in the portrait, to show more."""
MOST_TURNED = 35.0
"""Degrees by which the face of a portrait looks aside, up or down at most."""
LEAST_EYES = 24.0
LEAST_EYES_SHARE = 1 / 12
"""The least distance of its eyes, in pixels and in shorter sides of the picture."""
MOST_ASIDE = 0.3
"""How far its middle is off that of the square about it in the picture, in its sides."""
BEHIND = 10.0
"""How far behind the face the rest is drawn, in distances of the eyes."""


@dataclass(frozen=True)
class _Expressed:
    """The last expression of a portrait.

    Attributes:
        motion: of the driver
        factors: of its expression in this face [468, 3]
        expressed: the face with it, in the layout's frame [468, 3]
    """

    motion: FaceMotion
    factors: Array
    expressed: Array


def check_portrait(points: Array, size: Tuple[int, int], where: str) -> None:
    """Refuse a face that would make a poor avatar.

    Args:
        points: of the face, with depth in pixels [468, 3]
        size: width and height of its picture
        where: the picture's name

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
    """Return the pose of a head that carries the layout to its points [468, 3]."""
    stable = list(STABLE)
    return align(face_layout().points[stable], points[stable])


class Portrait:
    """A picture of a face, drawn as a motion says."""

    def __init__(self, picture: Array, points: Array) -> None:
        """Make the meshes.

        Args:
            picture: uint8 [H, W, 3]
            points: the mesh of its face, with depth in pixels [468, 3]
        """
        self._last: Optional[_Expressed] = None
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
        """Return whether the picture of the mouth's inside is seen."""
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

        # From behind to the front: where the face folds, the nearer part is seen.
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
        """Return the face in the layout's frame with the motion's expression, in its
        own proportions [468, 3].
        """
        # A frame asks for it several times: for the warp, the lids and the mouth.
        if self._last is not None and self._last.motion is motion:
            return self._last.expressed
        # What the driver does is carried over in parts of the own eyes and mouth.
        if self._last is not None and self._last.motion.shape is motion.shape:
            factors = self._last.factors
        else:
            factors = proportions(self.shape, motion.shape)
        shape = np.asarray(self.shape + motion.expression * factors)
        close_eyes(shape, self.shape, motion.closed())
        keep_apart(shape)
        self._last = _Expressed(motion, factors, shape)
        return shape

    def _corners(self, face: Array) -> Array:
        """Return the corners of the face: its points, copies of edges, and lashes.

        Args:
            face: its points [468, 3]
        """
        # Copies are where the edges are, and differ in the source alone.
        copies = copied(face, self._openings)
        return np.concatenate([face, copies, lashes(face)])

    def _open(self, begin: Array, rest: Array) -> None:
        """Set the corners in the source of what is in the openings.

        Args:
            begin: the corners
            rest: the face with its expression, in the pose of the portrait [468, 3]
        """
        flat = rest[:, :2]
        *eyes, mouth = self._openings
        for eye in eyes:
            # What the lids leave free is seen where it is, neither squeezed nor moved.
            begin[eye.upper_copy] = flat[list(eye.upper)] + self._around.margin
            begin[eye.lower_copy] = flat[list(eye.lower)] + self._around.margin
            within_lids(begin, eye)

        # As long as the mouth is no wider than in the portrait, the portrait shows it.
        opened = self._opened(flat)
        begin[mouth.upper_copy] = flat[list(mouth.upper)] + self._around.margin
        begin[mouth.lower_copy] = flat[list(mouth.lower)] + self._around.margin
        if not self._is_wider(opened):
            return
        # In the mouth's own picture the upper lip is the first row.
        below = np.minimum(opened * FINE, self._mouth.deepest)
        begin[mouth.upper_copy, 0] = self._mouth.columns
        begin[mouth.lower_copy, 0] = self._mouth.columns
        begin[mouth.upper_copy, 1] = self._mouth_top
        begin[mouth.lower_copy, 1] = self._mouth_top + below

    def _is_wider(self, opened: Array) -> bool:
        """Return whether lips are wider apart than in the portrait."""
        own = self._opened(self.points)
        return bool(np.any(opened >= own + WIDER))

    def _opened(self, face: Array) -> Array:
        """Return how far the lips are apart, from corner to corner, in pixels [11].

        Args:
            face: its points [468, …]
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

        # One is as wide as the other: the border of the narrower one goes on.
        inside = self._mouth.pixels
        wide = max(inside.shape[1] + 1, padded.shape[1])
        height = len(padded) + len(inside)
        source = np.full((height, wide, 4), 255, np.uint8)
        source[: len(padded), :, :3] = _widened(padded, wide)
        source[len(padded) :, :, :3] = _widened(inside, wide)
        return source


def _widened(picture: Array, width: int) -> Array:
    """Return a picture whose last column is repeated up to a width."""
    more = width - picture.shape[1]
    return np.pad(picture, ((0, 0), (0, more), (0, 0)), "edge")


def _flattened(shape: Array) -> Array:
    """Return a face in the layout's frame that is nowhere deeper than DEEPEST.

    Args:
        shape: [468, 3]
    """
    flattened = shape.copy()
    depth = shape[:, 2]
    is_behind = depth > 0
    flattened[is_behind, 2] = limited(depth[is_behind], DEEPEST)
    return flattened
