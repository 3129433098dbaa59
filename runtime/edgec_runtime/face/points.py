"""The points of a face in a frame, as solid points: x, y and z in one unit."""

from __future__ import annotations

from typing import Any, List, Optional

import numpy as np
from numpy.typing import NDArray

from ..vision.tasks.base import Result
from .alignment import HeadPose
from .landmarks import COUNT, STABLE, face_layout

Array = NDArray[Any]


def face_points(result: Result) -> Optional[Array]:
    """Return x, y and depth of the first face of a result, float64 [468, 3].

    x and y are pixels of the frame, depth is as the network has it; None where there is
    no face.

    Args:
        result: the points of a face, or objects with such results by name
    """
    found = _face_of(result)
    if found is None:
        return None
    depth = found.depth
    if depth is None:
        depth = np.full(len(found.points), np.nan)
    flat = np.column_stack([found.points, depth])
    return np.asarray(flat[:COUNT], np.float64)


def has_irises(result: Result) -> bool:
    """Return whether the first face of a result has irises: then its network looks at
    each eye for itself, and sees lids that are closed.
    """
    found = _face_of(result)
    return found is not None and len(found.points) > COUNT


def _face_of(result: Result) -> Any:
    """Return the points of the first face of a result; None where there is none."""
    for candidate in results_of(result):
        points = getattr(candidate, "points", None)
        if points is None or len(points) < COUNT:
            continue
        if candidate.shown[:COUNT].any():
            return candidate
    return None


def results_of(result: Any) -> List[Any]:
    """Return a result, or the results of the objects of a cascade, in a list."""
    if not hasattr(result, "objects"):
        return [result]
    found: List[Any] = []
    for one in result.objects:
        found += one.results.values()
    return found


def seen_pose(points: Array) -> HeadPose:
    """Return the pose that carries the layout to points of a picture [468, 2].

    The best affine map of the stable points has two rows; those of the nearest rotation,
    and their length, are the pose of a distant camera (weak perspective).
    """
    # Expressions move other points, and would look like turns of the head.
    stable = list(STABLE)
    layout = face_layout().points[stable]
    middle = points[stable].mean(axis=0)
    solved = np.linalg.lstsq(layout, points[stable] - middle, rcond=None)
    rows = solved[0].T
    left, values, right = np.linalg.svd(rows, full_matrices=False)
    # The nearest matrix with orthogonal rows of one length (Procrustes).
    across = left @ right
    rotation = np.vstack([across, np.cross(across[0], across[1])])
    shift = np.array([middle[0], middle[1], 0.0])
    return HeadPose(float(values.mean()), rotation, shift)


def depth_scale(points: Array) -> float:
    """Return by how much the depth of points [468, 3] is to be multiplied, so that it
    has the unit of x and y.

    Networks give it in pixels of their input. The layout, posed as the points are, says
    how deep they should be.
    """
    stable = list(STABLE)
    depth = points[stable, 2]
    if np.isnan(depth).any():
        return float("nan")
    expected = seen_pose(points[:, :2]).apply(face_layout().points[stable])[:, 2]
    # Least squares through the means; a depth of the other sign says nothing.
    depth = depth - depth.mean()
    scale = float(depth @ (expected - expected.mean())) / max(
        float(depth @ depth), 1e-9
    )
    return max(scale, 0.0)


def solid(points: Array, scale: float) -> Array:
    """Return points [468, 3] with their depth in the unit of x and y.

    Args:
        points: with the network's depth
        scale: from depth_scale; NaN: the network has none, and the layout's is taken
    """
    result = points.copy()
    if np.isnan(scale):
        result[:, 2] = seen_pose(points[:, :2]).apply(face_layout().points)[:, 2]
        return result
    stable = list(STABLE)
    result[:, 2] = (points[:, 2] - points[stable, 2].mean()) * scale
    return result
