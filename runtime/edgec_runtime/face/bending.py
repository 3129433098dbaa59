"""Places carried along with some that are known, by the smoothest map: a thin-plate
spline (Bookstein, "Principal Warps: Thin-Plate Splines and the Decomposition of
Deformations", 1989).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .geometry import lengths

Array = NDArray[Any]

NEAREST = 1e-9
"""Distances below it count as this: the logarithm of 0 is not finite."""


def bent(at: Array, to: Array, places: Array) -> Array:
    """Return where places go, if some of them go to known ones [N, 2].

    The map is affine and a sum of U = r² log r about the known places; its weights and
    the affine part solve [K P; Pᵀ 0] [w; a] = [to; 0] with P = (1, x, y).

    Args:
        at: the known places [M, 2], at least three that are not on a line
        to: where they go [M, 2]
        places: [N, 2]
    """
    count = len(at)
    system = np.zeros((count + 3, count + 3))
    affine = np.column_stack([np.ones(count), at])
    system[:count, :count] = _bending(at, at)
    system[:count, count:] = affine
    system[count:, :count] = affine.T
    wanted = np.zeros((count + 3, 2))
    wanted[:count] = to
    # Least squares: known places on a line leave it open how the rest is turned.
    weights = np.linalg.lstsq(system, wanted, rcond=None)[0]

    everywhere = np.column_stack([np.ones(len(places)), places])
    straight = everywhere @ weights[count:]
    curved = _bending(places, at) @ weights[:count]
    return np.asarray(straight + curved)


def _bending(places: Array, at: Array) -> Array:
    """Return U of the distances between places [N, M].

    Args:
        places: [N, 2]
        at: [M, 2]
    """
    apart = lengths(places[:, None] - at[None])
    safe = np.maximum(apart, NEAREST)
    return np.asarray(safe**2 * np.log(safe))
