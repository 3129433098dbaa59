"""Ratios of powers in decibels: 10 log10(power / noise)."""

from __future__ import annotations

import math

import numpy as np

from edgec.ir import Array

EQUAL_DB = 100.0
"""The ratio that equal outputs count as, where ratios are averaged."""
LEAST_NOISE = 10 ** (-EQUAL_DB / 10)
"""Noise of `EQUAL_DB`, as a part of the power."""


def decibels(power: float, noise: float) -> float:
    """Return the ratio of two powers in dB: inf without noise, -inf without a signal."""
    if noise == 0.0:
        return math.inf

    ratio = power / noise
    # A noise that is not finite leaves no signal.
    return -math.inf if ratio == 0.0 else 10 * math.log10(ratio)


def power_ratio(db: float) -> float:
    """Return the ratio of two powers that has so many decibels."""
    return float(10 ** (db / 10))


def bounded_decibels(power: Array, noise: Array) -> Array:
    """Return ratios within ±`EQUAL_DB`, so that none of them decides a mean alone.

    An output without noise has `EQUAL_DB`, one that is not finite has -`EQUAL_DB`.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        db = 10 * np.log10(power / noise)
    bounded = np.nan_to_num(db, nan=-EQUAL_DB).clip(-EQUAL_DB, EQUAL_DB)
    return np.where(noise > 0, bounded, EQUAL_DB)


def decibels_of_parts(noise: Array) -> Array:
    """Return the ratios of noises that are parts of the power, at most `EQUAL_DB`."""
    return np.asarray(-10 * np.log10(np.maximum(noise, LEAST_NOISE)))


def part_of_decibels(db: float) -> float:
    """Return the noise as a part of the power, at least that of `EQUAL_DB`."""
    return power_ratio(-min(db, EQUAL_DB))
