"""Measures the distance between two arrays that should be the same."""

from __future__ import annotations

import math

import numpy as np

from edgec.ir import Array

MIN_SPAN = 1e-30
"""Least range that a difference of floats is divided by."""


def distance(actual: Array, want: Array) -> float:
    """Return the largest difference between two arrays.

    It is in steps for integers, and a share of the range of `want` for floats. It is
    infinite if an element is not finite and the other one is not the same.
    """
    if want.dtype.kind != "f":
        steps = np.abs(actual.astype(np.int64) - want.astype(np.int64))
        return float(steps.max(initial=0))

    finite = np.isfinite(want)
    if not np.array_equal(np.isfinite(actual), finite):
        return math.inf

    # Infinities and NaN must be at the same places, with the same sign.
    if not np.array_equal(actual[~finite], want[~finite], equal_nan=True):
        return math.inf
    if not finite.any():
        return 0.0

    # In float64, so that the difference of two large floats is not rounded.
    reference = want[finite].astype(np.float64)
    difference = actual[finite].astype(np.float64) - reference
    return float(np.abs(difference).max()) / _span(reference)


def root_mean_square(actual: Array, want: Array) -> float:
    """Return the root mean square of the differences, in the unit of `distance`.

    It is infinite if `distance` is.
    """
    if distance(actual, want) == math.inf:
        return math.inf
    # Elements that are not finite are the same on both sides: they differ by nothing.
    result = _finite(actual)
    reference = _finite(want)
    difference = float(np.sqrt(np.mean(np.square(result - reference))))
    if want.dtype.kind != "f":
        return difference
    return difference / _span(reference)


def _finite(array: Array) -> Array:
    """Return the array in float64, with zeros in place of NaN and infinity."""
    return np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def span(low: float, high: float) -> float:
    """Return the extent of a range, or its largest magnitude if that is more."""
    return max(high - low, abs(low), abs(high))


def _span(reference: Array) -> float:
    return max(span(float(reference.min()), float(reference.max())), MIN_SPAN)
