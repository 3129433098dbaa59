"""From which inference on a launch runs at its lasting speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgec.errors import InputError

_BATCHES = 64
"""A long series is looked at as medians of so many batches: a single outlier does not
move them.
"""
_BAND = 0.02
"""What is this near to the lasting level has reached it; and it drifts if it still
moves by more than this.
"""
_NOISES = 4.0
"""So many times the noise of what is compared is no change either."""
_MIN = 4
"""Fewer inferences have no second half to speak of."""

_Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Steady:
    """start: the index of the first steady inference. reached: it became steady in the
    first half, and stayed so.
    """

    start: int
    reached: bool


def steady_from(ms: Sequence[float]) -> Steady:
    """Of all inferences of one launch in their order, the first and the warm-up
    included.

    A robust form of the crossing rule (Fishman, Concepts and Methods in Discrete Event
    Digital Simulation, 1973, 10.3): the start-up ends where the series first reaches
    its lasting level. That level is the median of the second half, and it is reached
    where a batch and the median of three are within a band around it. MSER (White, An
    Effective Truncation Heuristic for Bias Reduction in Simulation Output, 1997)
    minimizes the error of a mean and would also cut a burst of noise that comes later;
    that one belongs to what was measured.

    Not reached: the level of the last quarter differs from that of the third, or only
    the second half is within the band, or there are fewer than 4 inferences. The start
    is then the best guess. Raises InputError for what is no time.
    """
    values = checked(ms)
    if len(values) < _MIN:
        return Steady(max(0, len(values) - 1), False)
    width = max(1, len(values) // _BATCHES)
    batches = np.array(
        [
            np.median(values[i : i + width])
            for i in range(0, len(values) - width + 1, width)
        ]
    )
    half = len(batches) // 2
    quarter = 3 * len(batches) // 4
    later = batches[half:]
    level = float(np.median(later))
    noise = _noise(later)
    band = max(_BAND * level, _NOISES * noise)
    start = next(
        (i for i in range(len(batches)) if _within(batches[i : i + 3], level, band)),
        len(batches) - 1,
    )
    # Lower quartiles: a neighbour's burst lasts longer than a batch, and makes few of
    # them faster.
    third, last = (
        float(np.percentile(part, 25))
        for part in (batches[half:quarter], batches[quarter:])
    )
    drift = abs(last - third) > max(
        _BAND * level, _NOISES * noise * math.sqrt(2 / (len(batches) - quarter))
    )
    # the start-up may end within the batch
    first = start * width + (width - 1 if start else 0)
    return Steady(first, start <= half and not drift)


def checked(ms: Sequence[float]) -> _Numbers:
    """As an array. Raises InputError for a value that is no duration."""
    values = np.asarray(ms, dtype=np.float64)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        what = f"{values[bad][0]} ms is no duration (inference {int(np.argmax(bad))})"
        raise InputError(
            what,
            hint="measure again; if it happens again, the device's clock is broken",
        )
    return values


def _noise(batches: _Numbers) -> float:
    """Their standard deviation if they were normal, from neighbours' differences: a
    drift does not count as noise.
    """
    return float(np.median(np.abs(np.diff(batches)))) * 1.4826 / math.sqrt(2)


def _within(batches: _Numbers, level: float, band: float) -> bool:
    return bool(
        abs(batches[0] - level) <= band and abs(np.median(batches) - level) <= band
    )
