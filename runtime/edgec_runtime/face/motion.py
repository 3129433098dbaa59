"""The motion of a person before the camera: how the head turned and what the face does,
compared with its neutral pose.

Points are taken out of the head's pose into the frame of the layout, where a face that
rests has always the same shape; what is left over is the expression.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, List, Optional, Sequence

import numpy as np
from numpy.typing import NDArray

from .alignment import HeadPose, align, rotation_of, rotation_vector
from .geometry import TINY, length, lengths, limited, smooth_step
from .landmarks import COUNT, STABLE, face_layout, openings
from .points import depth_scale, solid

Array = NDArray[Any]

NEUTRAL_FRAMES = 12
"""Frames whose median is the neutral pose."""
TREMORS = 8.0
"""The motion that is halved, in tremors."""
LEAST_GAP = 0.01
"""The least opening of an eye, in distances of the eyes: it divides."""
MOST_TREMOR = 0.01
"""The largest tremor, in distances of the eyes and radians."""

OPEN = 0.04
CLOSED = 0.38
CLOSED_EXACT = 0.7
"""By how much, in parts of its opening, an eye seems narrower when it begins to close,
and when it is closed: to a mesh network, which sees a closed eye as one that is half
open, and to one that looks at each eye. Less is tremor.
"""
WIDER = 0.25
"""By how much an eye can be wider open than usually, in the same."""


@dataclass(frozen=True)
class FaceMotion:
    """The motion of a face since its neutral pose.

    Attributes:
        turn: the rotation of the head, as axis times angle, as the camera sees it [3]
        growth: the logarithm of how much larger it is
        shift: its movement to the right, down and away, in distances of the eyes [3]
        expression: the movement of each point in the head, in the layout's unit
            [468, 3]
        shape: the neutral face in the layout's frame [468, 3]
        lids: how far the left and the right eye are closed, from 0, as in the neutral
            pose, to 1; below 0: wide open [2]; None: the expression says it
    """

    turn: Array
    growth: float
    shift: Array
    expression: Array
    shape: Array
    lids: Optional[Array] = None

    def eased(self, share: float) -> FaceMotion:
        """Return a share of the motion: 1 is all of it, 0 the neutral pose."""
        return FaceMotion(
            self.turn * share,
            self.growth * share,
            self.shift * share,
            self.expression * share,
            self.shape,
            self.closed() * share,
        )

    def closed(self) -> Array:
        """Return how far the left and the right eye are closed, -WIDER…1 [2]."""
        lids = self.narrowed() if self.lids is None else self.lids
        return np.asarray(np.clip(lids, -WIDER, 1))

    def narrowed(self) -> Array:
        """Return how much narrower both eyes are by the expression, 1: all of it [2]."""
        face = self.shape + self.expression
        parts: List[float] = []
        for upper, lower in openings()[:2]:
            usual = max(_gap(self.shape, upper, lower), LEAST_GAP)
            parts.append(1 - _gap(face, upper, lower) / usual)
        return np.array(parts)


def _gap(face: Array, upper: Sequence[int], lower: Sequence[int]) -> float:
    """Return how far an eye is open, as the mean over its width.

    Args:
        face: in the layout's frame [468, 3]
        upper: points of the upper lid
        lower: of the lower lid
    """
    apart = face[list(lower), 1] - face[list(upper), 1]
    return float(apart.mean())


def at_rest() -> FaceMotion:
    """Return the motion of a face at rest: zeros."""
    still = np.zeros((COUNT, 3))
    return FaceMotion(np.zeros(3), 0.0, np.zeros(3), still, face_layout().points)


@dataclass(frozen=True)
class _Neutral:
    """A person at rest.

    Attributes:
        scale: of the depth of points
        pose: of the head
        shape: the face in the layout's frame [468, 3]
        tremor: what seems to move, though it rests: for turn, growth and shift a
            number, and a number for each point, [3 + 468]
    """

    scale: float
    pose: HeadPose
    shape: Array
    tremor: Array

    def motion(self, points: Array) -> FaceMotion:
        """Return the motion of a face since then, with its tremor."""
        face = solid(points, self.scale)
        return _motion(_pose_of(face, self.shape), self.pose, face, self.shape)

    def steady_motion(self, points: Array, closed_at: float) -> FaceMotion:
        """Return the motion of a face since then, without its tremor.

        Each v becomes v * v² / (v² + t²) with t some times its tremor: what is larger
        stays, and what is smaller nearly vanishes (as Wiener's filter does).

        Args:
            points: of the face [468, 3]
            closed_at: by how much an eye seems narrower when it is closed
        """
        motion = self.motion(points)
        sizes = _sizes(motion) ** 2
        noise = (TREMORS * self.tremor) ** 2
        shares = sizes / np.maximum(sizes + noise, TINY**2)
        return FaceMotion(
            motion.turn * shares[0],
            motion.growth * float(shares[1]),
            motion.shift * shares[2],
            motion.expression * shares[3:, None],
            self.shape,
            # Of the motion before the filter, which would lose small motions of a lid: the
            # mean over its points hardly trembles.
            _closed(motion.narrowed(), closed_at),
        )


def _closed(narrower: Array, closed_at: float) -> Array:
    """Return how far eyes are closed that seem narrower [2]."""
    # With a slow beginning: networks see eyes narrow a little when a mouth opens.
    share = smooth_step(narrower, OPEN, closed_at)
    return np.where(narrower < 0, narrower, share)


def _sizes(motion: FaceMotion) -> Array:
    """Return the sizes of turn, growth, shift and the motion of each point [3 + 468]."""
    head = [length(motion.turn), abs(motion.growth), length(motion.shift)]
    return np.concatenate([head, lengths(motion.expression)])


class Driver:
    """A person before the camera, from frame to frame."""

    def __init__(self) -> None:
        """Begin without a neutral pose."""
        self._first: List[Array] = []
        self._is_stale = False
        self._neutral: Optional[_Neutral] = None

    def renew(self) -> None:
        """Take the neutral pose anew from the next frames."""
        # The thread of a page calls this, while another one may be in a frame.
        self._is_stale = True

    def __call__(self, points: Array, exact_lids: bool = False) -> Optional[FaceMotion]:
        """Return the motion of a face; None as long as the neutral pose is not known.

        Args:
            points: x, y and depth of face_points [468, 3]
            exact_lids: whether the network looks at each eye: has_irises says it
        """
        if self._is_stale:
            self._is_stale = False
            self._first = []
            self._neutral = None
        if self._neutral is None:
            self._first.append(points)
            if len(self._first) < NEUTRAL_FRAMES:
                return None
            self._neutral = _neutral(self._first)
            self._first = []
        closed_at = CLOSED_EXACT if exact_lids else CLOSED
        return self._neutral.steady_motion(points, closed_at)


def _neutral(frames: List[Array]) -> _Neutral:
    """Return the neutral pose, by medians.

    A blink or a word in some of the frames has no part in a median.

    Args:
        frames: points of the first frames [468, 3] each
    """
    # One scale for all frames: from frame to frame it would tremble.
    scales = [depth_scale(points) for points in frames]
    scale = float(np.median(scales))
    solids = [solid(points, scale) for points in frames]
    layout = face_layout().points
    shapes: List[Array] = []
    for face in solids:
        pose = _pose_of(face, layout)
        shapes.append(pose.undo(face))
    shape = np.median(shapes, axis=0)
    # The pose is the median, too: a head that moves at first has a middle one.
    middle = np.median(solids, axis=0)
    still = _Neutral(scale, _pose_of(middle, shape), shape, np.zeros(3 + COUNT))

    # Median sizes, for the same reason; and who moves all the time has no tremor.
    sizes = [_sizes(still.motion(points)) for points in frames]
    tremor = np.minimum(np.median(sizes, axis=0), MOST_TREMOR)
    return replace(still, tremor=tremor)


def _motion(pose: HeadPose, neutral: HeadPose, face: Array, shape: Array) -> FaceMotion:
    """Return the motion of a face.

    Args:
        pose: of the head
        neutral: its neutral pose
        face: its points [468, 3]
        shape: the neutral face in the layout's frame [468, 3]
    """
    turn = pose.rotation @ neutral.rotation.T
    growth = float(np.log(pose.scale / neutral.scale))
    # Points say nothing of how far away a head is: their depth is relative.
    shift = (pose.shift - neutral.shift) / neutral.scale
    shift[2] = 0.0
    expression = pose.undo(face) - shape
    return FaceMotion(rotation_vector(turn), growth, shift, expression, shape)


def _pose_of(points: Array, shape: Array) -> HeadPose:
    """Return the pose that carries the stable points of a shape onto points."""
    stable = list(STABLE)
    return align(shape[stable], points[stable])


def turned_by(motion: FaceMotion, most: float) -> Array:
    """Return the rotation of a motion [3, 3].

    Args:
        motion: of a face
        most: an angle in radians that it comes near to at most
    """
    angle = length(motion.turn)
    axis = motion.turn / angle
    bounded = float(limited(angle, most))
    return rotation_of(axis * bounded)
