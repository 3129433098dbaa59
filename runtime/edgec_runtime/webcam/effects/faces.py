"""Smooths the points of a face over time, for all effects of faces."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

from ...face.landmarks import COUNT, LEFT_CORNERS, RIGHT_CORNERS
from ...face.points import face_points
from ...vision.smoothing import OneEuro, Strength
from ...vision.tasks.base import Result
from ...vision.tasks.points import Points

Array = NDArray[Any]

STEADY = Strength(rest=2.0, agility=12.0)
"""How strongly the points of a face are smoothed."""


def has_face_points(result: Result) -> bool:
    """Return whether a result can have the points of a face."""
    if isinstance(result, Points):
        return len(result.points) >= COUNT
    # A cascade's result has points if there is a face.
    return hasattr(result, "objects")


class SteadyFace:
    """The points of a face over time without tremor, each with a 1€ filter."""

    def __init__(self) -> None:
        self._filter: Optional[OneEuro] = None

    def __call__(self, result: Result, at: float) -> Optional[Array]:
        """Return x, y and depth of the face's points in pixels [468, 3].

        None without a face.

        Args:
            result: the result for a frame
            at: time of its capture, seconds
        """
        points = face_points(result)
        if points is None:
            # The next face may be another person's.
            self._filter = None
            return None
        if self._filter is None:
            # The filter takes speeds relative to the size of the face, for which the
            # distance of the eyes stands.
            eyes = points[RIGHT_CORNERS[1], :2] - points[LEFT_CORNERS[0], :2]
            self._filter = OneEuro(STEADY, max(1.0, float(np.hypot(*eyes))))
        depth = points[:, 2]
        if np.isnan(depth).any():
            flat = self._filter(points[:, :2], at)
            return np.column_stack([flat, depth])
        return self._filter(points, at)
