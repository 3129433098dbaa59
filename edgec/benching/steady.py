"""Finds the first inference of a launch that runs at the lasting speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgec.errors import InputError

MAX_BATCHES = 64
"""A long series is replaced by the medians of so many batches, which a single outlier
does not move.
"""
BAND = 0.02
"""A batch within this share of the lasting level has reached it; a series drifts if it
still moves by more.
"""
NOISE_DEVIATIONS = 4.0
"""A difference of so many standard deviations of the noise is no change either."""
MIN_INFERENCES = 4
"""Fewer inferences have no second half to speak of."""
MAD_TO_SIGMA = 1.4826
"""Standard deviation over the median absolute deviation, for a normal distribution."""

_Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Steady:
    """The steady part of a launch.

    Attributes:
        start: index of the first steady inference
        reached: whether the launch became steady in the first half, and stayed so
    """

    start: int
    reached: bool


def steady_from(ms: Sequence[float]) -> Steady:
    """Find the steady part of a launch, from all its inferences in order.

    The inferences include the first one and the warm-up.

    A robust form of the crossing rule (Fishman, Concepts and Methods in Discrete Event
    Digital Simulation, 1973, 10.3): the start-up ends where the series first reaches
    its lasting level. That level is the median of the second half, and it is reached
    where a batch and the median of three are within a band around it. MSER (White, An
    Effective Truncation Heuristic for Bias Reduction in Simulation Output, 1997)
    minimizes the error of a mean and would also cut a later burst of noise, which
    belongs to the measurement.

    Not reached: the level of the last quarter differs from that of the third, or only
    the second half is within the band, or there are fewer than 4 inferences. The start
    is then the best guess. Raises InputError for values that are no durations.
    """
    values = checked(ms)
    if len(values) < MIN_INFERENCES:
        return Steady(max(0, len(values) - 1), False)
    width = max(1, len(values) // MAX_BATCHES)
    batches = _batch_medians(values, width)

    half = len(batches) // 2
    level = float(np.median(batches[half:]))
    noise = _noise(batches[half:])
    band = max(BAND * level, NOISE_DEVIATIONS * noise)
    start = len(batches) - 1
    for i in range(len(batches)):
        if _within(batches[i : i + 3], level, band):
            start = i
            break

    drift = _drifts(batches, level, noise)
    first = start * width
    # The start-up may end within the batch.
    if start:
        first += width - 1
    return Steady(first, start <= half and not drift)


def _batch_medians(values: _Numbers, width: int) -> _Numbers:
    """Return the median of each complete batch of `width` values."""
    medians = []
    for start in range(0, len(values) - width + 1, width):
        # The mean would follow a single outlier.
        medians.append(np.median(values[start : start + width]))
    return np.array(medians)


def _drifts(batches: _Numbers, level: float, noise: float) -> bool:
    """Return whether the last quarter differs from the third quarter.

    Lower quartiles are compared: a burst of another program lasts longer than a batch,
    and makes few batches faster.
    """
    half = len(batches) // 2
    quarter = 3 * len(batches) // 4
    third = float(np.percentile(batches[half:quarter], 25))
    last = float(np.percentile(batches[quarter:], 25))
    # The noise of a difference of two means of so many batches.
    difference_noise = noise * math.sqrt(2 / (len(batches) - quarter))
    return abs(last - third) > max(BAND * level, NOISE_DEVIATIONS * difference_noise)


def checked(ms: Sequence[float]) -> _Numbers:
    """Return times as an array; raises InputError for a value that is no duration."""
    values = np.asarray(ms, dtype=np.float64)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        index = int(np.argmax(bad))
        message = f"{values[index]} ms is not a duration (inference {index})"
        raise InputError(
            message,
            hint="measure again; if it happens again, the device's clock is broken",
        )
    return values


def _noise(batches: _Numbers) -> float:
    """Return the standard deviation of the noise, if it is normal.

    It comes from the differences of neighbours, so that a drift is no noise.
    """
    median = float(np.median(np.abs(np.diff(batches))))
    return median * MAD_TO_SIGMA / math.sqrt(2)


def _within(batches: _Numbers, level: float, band: float) -> bool:
    """Return whether the first of some batches and their median are at the level."""
    first_distance = abs(batches[0] - level)
    median_distance = abs(np.median(batches) - level)
    return bool(first_distance <= band and median_distance <= band)
