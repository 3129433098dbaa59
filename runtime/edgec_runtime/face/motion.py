"""Measures the motion of a person's head and face since their neutral pose.

The pose of the head is removed from the points of the face, which gives them in the
frame of the layout. A resting face always has the same shape there; the difference from
that shape is the expression.
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
"""The motion that is halved, as a multiple of the tremor."""
LEAST_GAP = 0.01
"""Least opening of an eye as a divisor, in distances of the eyes."""
MOST_TREMOR = 0.01
"""The largest tremor, in distances of the eyes and radians."""

OPEN = 0.04
CLOSED = 0.38
CLOSED_EXACT = 0.7
"""The fraction by which an eye is narrower than usual when it begins to close (less is
tremor) and when it is closed. A plain mesh network sees a closed eye as half open; one
with a part for each eye sees it more exactly.
"""
WIDER = 0.25
"""The largest fraction by which an eye can be wider than usual."""


@dataclass(frozen=True)
class FaceMotion:
    """The motion of a face since its neutral pose.

    Attributes:
        turn: the rotation of the head, axis times angle in radians, as the camera sees
            it [3]
        growth: the logarithm of the ratio of the head's sizes in the picture
        shift: its movement to the right, down and away, in distances of the eyes [3]
        expression: the movement of each point relative to the head, in the layout's
            unit [468, 3]
        shape: the neutral face in the layout's frame [468, 3]
        lids: closure of the left and the right eye, 0 in the neutral pose, 1 for closed,
            below 0 for wide open [2]; None to compute it from the expression
    """

    turn: Array
    growth: float
    shift: Array
    expression: Array
    shape: Array
    lids: Optional[Array] = None

    def eased(self, share: float) -> FaceMotion:
        """Return a fraction of the motion: 1 is all of it, 0 the neutral pose."""
        return FaceMotion(
            self.turn * share,
            self.growth * share,
            self.shift * share,
            self.expression * share,
            self.shape,
            self.closed() * share,
        )

    def closed(self) -> Array:
        """Return the closure of the left and the right eye, -WIDER…1 [2]."""
        lids = self.narrowed() if self.lids is None else self.lids
        return np.asarray(np.clip(lids, -WIDER, 1))

    def narrowed(self) -> Array:
        """Return the fraction by which the expression narrows each eye [2]."""
        face = self.shape + self.expression
        parts: List[float] = []
        for upper, lower in openings()[:2]:
            usual = max(_gap(self.shape, upper, lower), LEAST_GAP)
            parts.append(1 - _gap(face, upper, lower) / usual)
        return np.array(parts)


def _gap(face: Array, upper: Sequence[int], lower: Sequence[int]) -> float:
    """Return the mean opening of an eye over its width.

    Args:
        face: the face in the layout's frame [468, 3]
        upper: numbers of the points of the upper lid
        lower: numbers of the points of the lower lid
    """
    apart = face[list(lower), 1] - face[list(upper), 1]
    return float(apart.mean())


def at_rest() -> FaceMotion:
    """Return the motion of a face at rest (all zeros)."""
    still = np.zeros((COUNT, 3))
    return FaceMotion(np.zeros(3), 0.0, np.zeros(3), still, face_layout().points)


@dataclass(frozen=True)
class _Neutral:
    """The neutral pose of a person.

    Attributes:
        scale: factor for the depth of points (depth_scale)
        pose: the pose of the head
        shape: the face in the layout's frame [468, 3]
        tremor: apparent motion at rest, of turn, growth, shift and each point [3 + 468]
    """

    scale: float
    pose: HeadPose
    shape: Array
    tremor: Array

    def motion(self, points: Array) -> FaceMotion:
        """Return the motion of a face since the neutral pose, with its tremor."""
        face = solid(points, self.scale)
        return _motion(_pose_of(face, self.shape), self.pose, face, self.shape)

    def steady_motion(self, points: Array, closed_at: float) -> FaceMotion:
        """Return the motion of a face since the neutral pose, without its tremor.

        Each value v becomes v * v² / (v² + t²), where t is TREMORS times its tremor:
        larger values hardly change, and smaller ones nearly vanish (like Wiener's
        filter).

        Args:
            points: the points of the face [468, 3]
            closed_at: the fraction by which a closed eye is narrower
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
            # The lids need no filter, which would remove their small motions: the mean
            # over the points of a lid hardly trembles.
            _closed(motion.narrowed(), closed_at),
        )


def _closed(narrower: Array, closed_at: float) -> Array:
    """Return the closure of eyes that are narrower by a fraction [2]."""
    # It begins slowly, since networks see eyes a little narrower when a mouth opens.
    share = smooth_step(narrower, OPEN, closed_at)
    return np.where(narrower < 0, narrower, share)


def _sizes(motion: FaceMotion) -> Array:
    """Return the sizes of turn, growth, shift and the motion of each point [3 + 468]."""
    head = [length(motion.turn), abs(motion.growth), length(motion.shift)]
    return np.concatenate([head, lengths(motion.expression)])


class Driver:
    """Follows a person from frame to frame, and measures the neutral pose at first."""

    def __init__(self) -> None:
        self._first: List[Array] = []
        self._is_stale = False
        self._neutral: Optional[_Neutral] = None

    def renew(self) -> None:
        """Measure the neutral pose anew, in the next frames."""
        # A page's thread calls this while another thread may work on a frame.
        self._is_stale = True

    def __call__(self, points: Array, exact_lids: bool = False) -> Optional[FaceMotion]:
        """Return the motion of a face; None until the neutral pose is known.

        Args:
            points: x, y and depth of face_points [468, 3]
            exact_lids: whether the network has a part for each eye (has_irises)
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
    """Return the neutral pose, by medians, which a blink or a word does not change.

    Args:
        frames: points of the first frames [468, 3] each
    """
    # All frames have one scale, which would tremble from frame to frame.
    scales = [depth_scale(points) for points in frames]
    scale = float(np.median(scales))
    solids = [solid(points, scale) for points in frames]
    layout = face_layout().points
    shapes: List[Array] = []
    for face in solids:
        pose = _pose_of(face, layout)
        shapes.append(pose.undo(face))
    shape = np.median(shapes, axis=0)
    # The pose is that of the median, so that a moving head has a middle pose.
    middle = np.median(solids, axis=0)
    still = _Neutral(scale, _pose_of(middle, shape), shape, np.zeros(3 + COUNT))

    # The sizes are medians, too, with a limit for a person who moves all the time.
    sizes = [_sizes(still.motion(points)) for points in frames]
    tremor = np.minimum(np.median(sizes, axis=0), MOST_TREMOR)
    return replace(still, tremor=tremor)


def _motion(pose: HeadPose, neutral: HeadPose, face: Array, shape: Array) -> FaceMotion:
    """Return the motion of a face.

    Args:
        pose: the pose of the head
        neutral: its neutral pose
        face: its points [468, 3]
        shape: the neutral face in the layout's frame [468, 3]
    """
    turn = pose.rotation @ neutral.rotation.T
    growth = float(np.log(pose.scale / neutral.scale))
    # The depth of points is relative, so that they do not tell the head's distance.
    shift = (pose.shift - neutral.shift) / neutral.scale
    shift[2] = 0.0
    expression = pose.undo(face) - shape
    return FaceMotion(rotation_vector(turn), growth, shift, expression, shape)


def _pose_of(points: Array, shape: Array) -> HeadPose:
    """Return the pose that maps the stable points of a shape to points."""
    stable = list(STABLE)
    return align(shape[stable], points[stable])


def turned_by(motion: FaceMotion, most: float) -> Array:
    """Return the rotation of a motion, with a limited angle [3, 3].

    Args:
        motion: the motion of a face
        most: the limit of the angle in radians, see `limited`
    """
    angle = length(motion.turn)
    axis = motion.turn / angle
    bounded = float(limited(angle, most))
    return rotation_of(axis * bounded)
