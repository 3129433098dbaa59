"""Least squares with coefficients of at least 0, and cross-validation. numpy only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Fit = Callable[[Matrix, Matrix], Matrix]


def nonnegative(a: Matrix, b: Matrix) -> Matrix:
    """Fit by least squares; while a coefficient is negative, leave out the most negative."""
    active = list(range(a.shape[1]))
    while True:
        x = np.linalg.lstsq(a[:, active], b, rcond=None)[0]
        if (x >= 0).all():
            full = np.zeros(a.shape[1])
            full[active] = x
            return full
        active.pop(int(np.argmin(x)))


def relative(a: Matrix, t: Matrix) -> Matrix:
    """Fit by least squares of the relative errors."""
    return nonnegative(a / t[:, None], np.ones(len(t)))


def logarithmic(a: Matrix, t: Matrix) -> Matrix:
    """Fit by least squares of the errors' logarithms, for what is known to a factor only."""
    x = relative(a, t)
    for _ in range(100):
        error = a @ x / t - 1
        weight = (
            np.where(
                np.abs(error) > 1e-6,
                np.log1p(error) / np.where(error == 0, 1, error),
                1.0,
            )
            / t
        )
        x = (x + nonnegative(a * weight[:, None], t * weight)) / 2
    return x


@dataclass(frozen=True)
class Fitted:
    """The result of a fit.

    Attributes:
        coefficients: of all rows
        truth: the value of each row
        estimate: the estimate of each row
        held_out: the estimate of each row by a fit without its group
    """

    coefficients: Matrix
    truth: Matrix
    estimate: Matrix
    held_out: Matrix


def cross_validate(a: Matrix, t: Matrix, groups: Sequence[str], fit: Fit) -> Fitted:
    """Fit, and fit again without each group in turn."""
    names = np.array(groups)
    held_out = np.empty(len(t))
    for name in dict.fromkeys(groups):
        out = names == name
        held_out[out] = a[out] @ fit(a[~out], t[~out])
    x = fit(a, t)
    return Fitted(x, t, a @ x, held_out)
