"""The motion of a person before the camera: how the head turned and what the face does,
compared with its neutral pose.

Points are taken out of the head's pose into the frame of the layout, where a face that
rests has always the same shape; what is left over is the expression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Optional

import numpy as np
from numpy.typing import NDArray

from .alignment import HeadPose, align, rotation_of, rotation_vector
from .geometry import length, limited
from .landmarks import COUNT, STABLE, face_layout
from .points import depth_scale, solid

Array = NDArray[Any]

NEUTRAL_FRAMES = 12
"""Frames whose median is the neutral pose."""


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
    """

    turn: Array
    growth: float
    shift: Array
    expression: Array
    shape: Array

    def eased(self, share: float) -> FaceMotion:
        """Return a share of the motion: 1 is all of it, 0 the neutral pose."""
        return FaceMotion(
            self.turn * share,
            self.growth * share,
            self.shift * share,
            self.expression * share,
            self.shape,
        )


def at_rest() -> FaceMotion:
    """Return no motion."""
    still = np.zeros((COUNT, 3))
    return FaceMotion(np.zeros(3), 0.0, np.zeros(3), still, face_layout().points)


class Driver:
    """A person before the camera, from frame to frame."""

    def __init__(self) -> None:
        """Begin without a neutral pose."""
        self._first: List[Array] = []
        self._is_stale = False
        self._scale = 1.0
        self._pose: Optional[HeadPose] = None
        self._shape: Optional[Array] = None

    def renew(self) -> None:
        """Take the neutral pose anew from the next frames."""
        # The thread of a page calls this, while another one may be in a frame.
        self._is_stale = True

    def __call__(self, points: Array) -> Optional[FaceMotion]:
        """Return the motion of a face; None as long as the neutral pose is not known.

        Args:
            points: x, y and depth of face_points [468, 3]
        """
        if self._is_stale:
            self._is_stale = False
            self._first = []
            self._pose = None
        if self._pose is None:
            self._first.append(points)
            if len(self._first) < NEUTRAL_FRAMES:
                return None
            self._settle()
        assert self._pose is not None
        assert self._shape is not None
        face = solid(points, self._scale)
        pose = _pose_of(face, self._shape)
        return _motion(pose, self._pose, face, self._shape)

    def _settle(self) -> None:
        """Make the neutral pose of the first frames, by medians."""
        # A median: a blink or a word in some of the frames has no part in it.
        # One scale for all frames: from frame to frame it would tremble.
        scales = [depth_scale(points) for points in self._first]
        self._scale = float(np.median(scales))
        solids = [solid(points, self._scale) for points in self._first]
        layout = face_layout().points
        shapes: List[Array] = []
        for face in solids:
            pose = _pose_of(face, layout)
            shapes.append(pose.undo(face))
        self._shape = np.median(shapes, axis=0)
        # The pose is the median, too: a head that moves at first has a middle one.
        middle = np.median(solids, axis=0)
        self._pose = _pose_of(middle, self._shape)
        self._first = []


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
