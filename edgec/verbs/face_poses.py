"""Poses of a face: turns, tilts, blinks, an opening jaw, raised brows.

Each is a displacement of the 468 points in the frame of the layout, smooth over the
skin and with sharp edges where a face has them: between lips and between lids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from edgec_runtime.face.alignment import rotation_of
from edgec_runtime.face.landmarks import (
    LEFT_BROW,
    LOWER_ROWS,
    RIGHT_BROW,
    UPPER_MOUTH,
    UPPER_ROWS,
    openings,
)
from edgec_runtime.face.motion import FaceMotion
from numpy.typing import NDArray

Array = NDArray[Any]

NECK = np.array([0.0, 0.55, 0.75])
"""The point about which a head turns, in the frame of the layout."""


@dataclass(frozen=True)
class FacePose:
    """A pose of head and face, in parts of what a face does.

    Attributes:
        turn: axis times angle of the head [3]; x nods, y turns, z tilts
        jaw: how far it goes down, in distances of the eyes
        left_lid, right_lid: 1: closed
        brows: how far they go up, in distances of the eyes
        shift: movement to the right and down, likewise
        growth: the logarithm of how much larger it is
    """

    turn: tuple[float, float, float] = (0.0, 0.0, 0.0)
    jaw: float = 0.0
    left_lid: float = 0.0
    right_lid: float = 0.0
    brows: float = 0.0
    shift: tuple[float, float] = (0.0, 0.0)
    growth: float = 0.0

    def part(self, share: float) -> FacePose:
        """Return a share of the pose: 1 is all of it, 0 none."""
        return FacePose(
            (self.turn[0] * share, self.turn[1] * share, self.turn[2] * share),
            self.jaw * share,
            self.left_lid * share,
            self.right_lid * share,
            self.brows * share,
            (self.shift[0] * share, self.shift[1] * share),
            self.growth * share,
        )


def motion_of(pose: FacePose, shape: Array) -> FaceMotion:
    """Return the motion of a face into a pose.

    Args:
        pose: the pose
        shape: the neutral face in the layout's frame [468, 3]
    """
    turn = np.array(pose.turn)
    # A head turns about its neck, so its middle moves as well.
    pivot = (NECK - rotation_of(turn) @ NECK) * [1, 1, 0]
    expression = _jaw(pose.jaw, shape) + _brows(pose.brows, shape)
    for closed, (upper, lower) in zip(
        (pose.left_lid, pose.right_lid), openings()[:2], strict=True
    ):
        expression += _lids(closed, shape, upper, lower)
    shift = np.array([*pose.shift, 0.0])
    return FaceMotion(turn, pose.growth, pivot + shift, expression, shape)


def _jaw(down: float, shape: Array) -> Array:
    """Return the motion of an opening jaw [468, 3]."""
    moved = np.zeros_like(shape)
    x, y = shape[:, 0], shape[:, 1]
    lips = shape[UPPER_MOUTH[5], 1]
    # Below the lips all goes down, at the sides of the face less.
    moved[:, 1] = down * np.clip((y - lips) / 0.15, 0, 1) * np.exp(-((x / 0.75) ** 4))
    # In the middle a lip goes down most, at the corners of the mouth not at all.
    for row in LOWER_ROWS:
        share = np.sin(np.pi * np.arange(len(row)) / (len(row) - 1)) ** 0.7
        moved[list(row), 1] = down * share
    # The upper jaw stays; the corners of the mouth come a little down and together.
    for row in UPPER_ROWS:
        moved[list(row[1:-1]), 1] = 0
        moved[[row[0], row[-1]], 1] = 0.25 * down
        moved[row[0], 0] = 0.1 * down
        moved[row[-1], 0] = -0.1 * down
    return moved


def _brows(up: float, shape: Array) -> Array:
    """Return the motion of raised brows [468, 3]."""
    moved = np.zeros_like(shape)
    for brow in (LEFT_BROW, RIGHT_BROW):
        # The skin about a brow goes with it, the lids do not.
        line = shape[list(brow), :2]
        apart = np.linalg.norm(shape[:, None, :2] - line[None], axis=2).min(axis=1)
        moved[:, 1] = np.minimum(moved[:, 1], -up * np.exp(-((apart / 0.12) ** 2)))
    for upper, lower in openings()[:2]:
        moved[[*upper, *lower], 1] = 0
    return moved


def _lids(
    closed: float, shape: Array, upper: tuple[int, ...], lower: tuple[int, ...]
) -> Array:
    """Return the motion of closing lids [468, 3]."""
    moved = np.zeros_like(shape)
    # The upper lid does most of the way.
    gap = shape[list(lower), 1] - shape[list(upper), 1]
    moved[list(upper), 1] = 0.85 * closed * gap
    moved[list(lower), 1] = -0.15 * closed * gap
    # The skin above the lid is drawn after it.
    edge = shape[list(upper), :2]
    apart = np.linalg.norm(shape[:, None, :2] - edge[None], axis=2)
    near = apart.min(axis=1)
    is_above = (near < 0.09) & (shape[:, 1] < edge[apart.argmin(axis=1), 1])
    followed = moved[np.array(upper)[apart.argmin(axis=1)], 1]
    is_above[[*upper, *lower]] = False
    share = np.where(is_above, 0.5 * np.exp(-((near / 0.05) ** 2)), 0)
    moved[:, 1] += share * followed
    return moved
