"""Histograms of the elements of every value, and methods that choose a range from one.

A range narrower than the extremes clips outliers and rounds everything else in finer
steps. The methods weigh both:

    percentile   leaves a fixed share of the elements outside
    entropy      least Kullback-Leibler divergence (Migacz, "8-bit inference with
                 TensorRT", GTC 2017)
    mse          least mean square error of rounding and clipping (as Banner et al. 2019,
                 arXiv:1810.05723, but by search in the histogram, not from a
                 distribution that is assumed)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from edgec.ir import Array, Observe, Value
from edgec.quantize.change.params import activation_quant
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.observe.ranges import Range, finite

BINS = 2048
TRIED_FACTORS = np.geomspace(1.0, 0.05, 41)
"""The factors by which the search shrinks an end of a range."""
SEARCH_ROUNDS = 2
"""How often the search goes over both ends."""
INT8_STEPS = 256
EPSILON = 1e-12
"""The least probability in a divergence: the logarithm of 0 is infinite."""


@dataclass(eq=False)
class Histogram:
    """Counts of elements in `BINS` equal parts of a range.

    Attributes:
        range: the range of all elements.
        counts: the number of elements in each bin, [BINS].
    """

    range: Range
    counts: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def add(self, array: Array) -> None:
        """Count the finite elements of an array."""
        self.counts += self.counted(array)

    def counted(self, array: Array) -> Array:
        """Return the number of finite elements of an array in each bin, [BINS]."""
        low, high = self.range
        x = finite(array).reshape(-1)
        if not high > low:
            return np.zeros(BINS, np.int64)

        per_unit = np.float32(BINS / (high - low))
        numbers = ((x - np.float32(low)) * per_unit).astype(np.int32)

        # The largest element lies on the end of the last bin.
        return np.bincount(numbers.clip(0, BINS - 1), minlength=BINS)

    @property
    def centres(self) -> Array:
        """The centres of the bins, [BINS]."""
        low, high = self.range
        return low + (np.arange(BINS) + 0.5) * ((high - low) / BINS)


def histograms(state: QuantizationState) -> dict[Value, Histogram]:
    """Return the histogram of every float value over all samples.

    They are made once for all candidates with this float graph.
    """

    def make() -> dict[Value, Histogram]:
        # The first pass over the samples gives the ends of the bins.
        by_value = {v: Histogram(r) for v, r in state.observed_ranges().items()}

        def of_sample(i: int) -> tuple[dict[Value, Array], Observe]:
            counts: dict[Value, Array] = {}

            # Constants have no place in the observed ranges.
            def observe(v: Value, array: Array) -> None:
                if v in by_value:
                    counts[v] = by_value[v].counted(array)

            return counts, observe

        # Counts are integers: their sum is the same in any order.
        for counts in state.observe_samples(of_sample, "count"):
            for v, n in counts.items():
                by_value[v].counts += n

        return by_value

    return state.cached("histograms", make)


def percentile(h: Histogram, percent: float) -> Range:
    """Return the range that leaves (100 - percent) % outside, half of it at either end.

    The ends are ends of bins.
    """
    cumulative = np.cumsum(h.counts)
    total = cumulative[-1]
    if not total:
        return h.range

    low, high = h.range
    width = (high - low) / BINS

    # Half of the share at either end.
    outside = (1 - percent / 100) / 2 * total
    first = int(np.searchsorted(cumulative, outside, "right"))
    last = int(np.searchsorted(cumulative, total - outside, "left"))
    # All elements are in one bin, or nearly.
    if first > last:
        return h.range

    return low + first * width, low + (last + 1) * width


def noise(h: Histogram, r: Range, clipping: float = 1.0) -> float:
    """Return the mean square error of int8 in a range.

    An element inside the range has the variance of a uniform error, scale² / 12; one
    outside has (x - nearest end)².

    clipping: how many times the error of clipped elements counts.
    """
    q = activation_quant(r)
    scale = q.scale[0]
    zero = q.zero_point[0]
    steps = np.clip(np.rint(h.centres / scale) + zero, -128, 127) - zero
    # The error of a bin's centre would do if bins were much finer than the steps of
    # int8, which they are not always.
    rounding_error = scale**2 / 12
    clipping_error = clipping * (h.centres - steps * scale) ** 2
    is_inside = (h.centres >= (-128 - zero) * scale) & (
        h.centres <= (127 - zero) * scale
    )
    error = np.where(is_inside, rounding_error, clipping_error)

    return float((h.counts * error).sum() / max(1, h.counts.sum()))


def mse(h: Histogram, clipping: float = 1.0) -> Range:
    """Return the range of the least `noise`."""
    return search(h, lambda r: noise(h, r, clipping))


def search(h: Histogram, cost: Callable[[Range], float]) -> Range:
    """Return the range of the least cost, by coordinate descent over both ends."""
    low, high = h.range
    best = (low, high)
    for _ in range(SEARCH_ROUNDS):
        # The best low end depends on the high end, so that both are searched again. An
        # end at zero stays: every scale holds zero.
        if low < 0:
            best = min(((low * s, best[1]) for s in TRIED_FACTORS), key=cost)
        if high > 0:
            best = min(((best[0], high * s) for s in TRIED_FACTORS), key=cost)

    return best


def entropy(h: Histogram) -> Range:
    """Return the range with the least Kullback-Leibler divergence."""
    low, high = h.range
    # Both ends by one factor, as in TensorRT, whose ranges are symmetric.
    tries = [(low * s, high * s) for s in TRIED_FACTORS]
    return min(tries, key=lambda r: _divergence(h, r))


def _divergence(h: Histogram, r: Range) -> float:
    """Return the divergence of the int8 distribution from the clipped one.

    It is Σ p log(p / q) as in TensorRT's calibration: p counts clipped elements in the
    bins at the ends of the range; q spreads the elements of each int8 step evenly over
    the bins of that step that are not empty.
    """
    q = activation_quant(r)
    scale = q.scale[0]
    zero = q.zero_point[0]
    steps = np.clip(np.rint(h.centres / scale) + zero, -128, 127).astype(np.int64)
    # Integers from 0, as indices of a bincount.
    steps = steps + 128
    inside = (h.centres >= r[0]) & (h.centres <= r[1])

    # TensorRT counts clipped elements at the ends of the reference distribution.
    first = np.argmax(inside)
    last = BINS - 1 - np.argmax(inside[::-1])
    outside_bin = np.where(h.centres < r[0], first, last)
    clipped_bin = np.where(inside, np.arange(BINS), outside_bin)
    p = np.bincount(clipped_bin, h.counts, BINS)

    # Elements outside belong to p alone: a range that clips many is unlike it.
    counts = np.where(inside, h.counts, 0)
    filled = counts > 0
    step_counts = np.bincount(steps, counts, INT8_STEPS)
    step_bins = np.bincount(steps, filled, INT8_STEPS)
    mean_counts = step_counts[steps] / np.maximum(step_bins[steps], 1)
    spread = np.where(filled, mean_counts, 0.0)

    p = p / max(p.sum(), 1)
    spread = spread / max(spread.sum(), 1e-30)
    positive = p > 0
    ratio = p[positive] / np.maximum(spread[positive], EPSILON)

    return float((p[positive] * np.log(ratio)).sum())


METHODS: Mapping[str, Callable[[Histogram], Range]] = {
    "minmax": lambda h: h.range,
    "p99.9": lambda h: percentile(h, 99.9),
    "p99.99": lambda h: percentile(h, 99.99),
    "p99.999": lambda h: percentile(h, 99.999),
    "entropy": entropy,
    "mse": mse,
}
"""The methods that choose a range, by name; a new one is a row."""
