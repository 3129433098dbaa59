"""Gets the points of a face from a result, with x, y and z in the same unit."""

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

    x and y are pixels of the frame, depth has the unit of the network, and is NaN if it
    has none. None without a face.

    Args:
        result: the points of a face, or objects with such results by name
    """
    face = _face_of(result)
    if face is None:
        return None
    depth = face.depth
    if depth is None:
        depth = np.full(len(face.points), np.nan)
    flat = np.column_stack([face.points, depth])
    return np.asarray(flat[:COUNT], np.float64)


def has_irises(result: Result) -> bool:
    """Return whether the first face of a result has irises.

    A network with irises has a part for each eye, and sees closed lids exactly.
    """
    face = _face_of(result)
    return face is not None and len(face.points) > COUNT


def _face_of(result: Result) -> Any:
    """Return the points of the first face of a result; None without a face."""
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
    results: List[Any] = []
    for item in result.objects:
        results += item.results.values()
    return results


def seen_pose(points: Array) -> HeadPose:
    """Return the pose that maps the layout to points of a picture [468, 2].

    The best affine map of the stable points is a matrix of two rows. The nearest matrix
    with orthogonal rows of one length gives rotation and scale for a distant camera
    (weak perspective).
    """
    # Expressions move other points, and would look like turns of the head.
    stable = list(STABLE)
    layout = face_layout().points[stable]
    middle = points[stable].mean(axis=0)
    solution = np.linalg.lstsq(layout, points[stable] - middle, rcond=None)
    rows = solution[0].T
    left, values, right = np.linalg.svd(rows, full_matrices=False)
    # The nearest matrix with orthogonal rows of one length (Procrustes).
    across = left @ right
    rotation = np.vstack([across, np.cross(across[0], across[1])])
    shift = np.array([middle[0], middle[1], 0.0])
    return HeadPose(float(values.mean()), rotation, shift)


def depth_scale(points: Array) -> float:
    """Return the factor that gives the depth of points [468, 3] the unit of x and y.

    Networks give depth in a unit of their own. The layout in the pose of the points
    tells their true depth. NaN if the points have no depth.
    """
    stable = list(STABLE)
    depth = points[stable, 2]
    if np.isnan(depth).any():
        return float("nan")
    expected = seen_pose(points[:, :2]).apply(face_layout().points[stable])[:, 2]
    # This is the slope of least squares; a negative one would have no meaning.
    depth = depth - depth.mean()
    scale = float(depth @ (expected - expected.mean())) / max(
        float(depth @ depth), 1e-9
    )
    return max(scale, 0.0)


def solid(points: Array, scale: float) -> Array:
    """Return points [468, 3] with their depth in the unit of x and y.

    Args:
        points: x, y, and the network's depth [468, 3]
        scale: from depth_scale; NaN if the network has no depth: then the layout's is
            used
    """
    result = points.copy()
    if np.isnan(scale):
        result[:, 2] = seen_pose(points[:, :2]).apply(face_layout().points)[:, 2]
        return result
    stable = list(STABLE)
    result[:, 2] = (points[:, 2] - points[stable, 2].mean()) * scale
    return result
