"""Maps points of the plane by the smoothest map with known values at some of them.

That is a thin-plate spline (Bookstein, "Principal Warps: Thin-Plate Splines and the
Decomposition of Deformations", 1989).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .geometry import lengths

Array = NDArray[Any]

NEAREST = 1e-9
"""The least distance, since the logarithm of 0 is not finite."""


def bent(at: Array, to: Array, places: Array) -> Array:
    """Return points after the spline that maps some known points [N, 2].

    The map is an affine one plus a weighted sum of U = r² log r, where r is the distance
    from each known point. The weights w and the affine part a solve
    [K P; Pᵀ 0] [w; a] = [to; 0] with P = (1, x, y).

    Args:
        at: the known points, at least three that are not on a line [M, 2]
        to: their images [M, 2]
        places: the points to map [N, 2]
    """
    count = len(at)
    system = np.zeros((count + 3, count + 3))
    affine = np.column_stack([np.ones(count), at])
    system[:count, :count] = _bending(at, at)
    system[:count, count:] = affine
    system[count:, :count] = affine.T
    right_side = np.zeros((count + 3, 2))
    right_side[:count] = to
    # Least squares also solve the singular system of known points on a line.
    weights = np.linalg.lstsq(system, right_side, rcond=None)[0]

    basis = np.column_stack([np.ones(len(places)), places])
    affine_part = basis @ weights[count:]
    bending_part = _bending(places, at) @ weights[:count]
    return np.asarray(affine_part + bending_part)


def _bending(places: Array, at: Array) -> Array:
    """Return U of the distances from points [N, 2] to known points [M, 2], [N, M]."""
    apart = lengths(places[:, None] - at[None])
    safe = np.maximum(apart, NEAREST)
    return np.asarray(safe**2 * np.log(safe))
