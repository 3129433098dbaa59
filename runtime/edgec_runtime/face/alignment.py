"""Estimates the pose of a head: the similarity that maps one set of points to another.

The least squares over rotation, scale and shift have a closed solution (Umeyama,
"Least-squares estimation of transformation parameters between two point patterns",
1991).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .geometry import TINY, length

Array = NDArray[Any]


@dataclass(frozen=True)
class HeadPose:
    """A similarity transform: y = scale * rotation @ x + shift.

    Attributes:
        scale: the factor
        rotation: [3, 3]
        shift: [3]
    """

    scale: float
    rotation: Array
    shift: Array

    def apply(self, points: Array) -> Array:
        """Return points after the transform [N, 3]."""
        turned = points @ self.rotation.T
        return np.asarray(self.scale * turned + self.shift)

    def undo(self, points: Array) -> Array:
        """Return points after the inverse transform [N, 3]."""
        turned = (points - self.shift) @ self.rotation
        return np.asarray(turned / self.scale)


def align(points: Array, to: Array) -> HeadPose:
    """Return the pose that maps points to others with the least squared error.

    Args:
        points: the points [N, 3]
        to: their targets, in the same order [N, 3]
    """
    middle = points.mean(axis=0)
    target = to.mean(axis=0)
    centred = points - middle
    centred_targets = to - target
    left, values, right = np.linalg.svd(centred_targets.T @ centred)

    # A reflection would fit a flat set of points as well as a rotation.
    mirror = np.linalg.det(left) * np.linalg.det(right)
    sign = np.array([1.0, 1.0, np.sign(mirror)])
    rotation = (left * sign) @ right

    # The scale is the ratio of covariance and variance.
    spread = np.sum(centred * centred)
    scale = float((values * sign).sum() / max(spread, TINY**2))
    shift = target - scale * rotation @ middle
    return HeadPose(scale, rotation, shift)


def rotation_vector(rotation: Array) -> Array:
    """Return the axis of a rotation times its angle in radians [3].

    Args:
        rotation: [3, 3]
    """
    cosine = (np.trace(rotation) - 1) / 2
    angle = float(np.arccos(np.clip(cosine, -1, 1)))

    # The skew part of the matrix is the axis times the sine, in the off-diagonals.
    skew = rotation - rotation.T
    axis = np.array([skew[2, 1], skew[0, 2], skew[1, 0]])
    sine = np.sin(angle)
    if sine < TINY:
        # At small angles angle and sine are the same.
        return axis / 2
    return np.asarray(axis * (angle / (2 * sine)))


def rotation_of(vector: Array) -> Array:
    """Return the rotation matrix of a rotation vector [3, 3] (Rodrigues' formula).

    Args:
        vector: axis times angle in radians [3]
    """
    angle = length(vector)
    x, y, z = vector / angle
    skew = np.zeros((3, 3))
    skew[0] = 0, -z, y
    skew[1] = z, 0, -x
    skew[2] = -y, x, 0

    # R = I + sin(a) K + (1 - cos(a)) K²
    first = np.sin(angle) * skew
    second = (1 - np.cos(angle)) * skew @ skew
    return np.asarray(np.eye(3) + first + second)
