"""How far apart two arrays are that should be the same."""

from __future__ import annotations

import math

import numpy as np

from edgec.ir import Array


def distance(got: Array, want: Array) -> float:
    """The largest difference: in steps for integers, as a part of the range of `want`
    for floats; infinite where one is not finite and the other is not the same.
    """
    if want.dtype.kind != "f":
        return float(
            np.abs(got.astype(np.int64) - want.astype(np.int64)).max(initial=0)
        )
    finite = np.isfinite(want)
    if not np.array_equal(np.isfinite(got), finite) or not np.array_equal(
        got[~finite], want[~finite], equal_nan=True
    ):
        return math.inf
    if not finite.any():
        return 0.0
    w = want[finite].astype(np.float64)
    g = got[finite].astype(np.float64)
    span = max(float(w.max() - w.min()), float(np.abs(w).max()), 1e-30)
    return float(np.abs(g - w).max()) / span


def root_mean_square(got: Array, want: Array) -> float:
    """Of the differences, as `distance` has the largest of them; what is not finite on
    one side never agrees.
    """
    if distance(got, want) == math.inf:
        return math.inf
    x, y = (
        np.nan_to_num(a.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        for a in (got, want)
    )
    difference = float(np.sqrt(np.mean(np.square(x - y))))
    if want.dtype.kind != "f":
        return difference
    return difference / max(float(y.max() - y.min()), float(np.abs(y).max()), 1e-30)
