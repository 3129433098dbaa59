"""How the elements of every value are distributed, and the ranges that methods make of
it.
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
_SHRINK = np.geomspace(1.0, 0.05, 41)
"""How much of either end of a range is tried."""


@dataclass(eq=False)
class Histogram:
    """Counts of elements in BINS equal parts of `range`."""

    range: Range
    counts: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def add(self, array: Array) -> None:
        """The finite elements."""
        self.counts += self.counted(array)

    def counted(self, array: Array) -> Array:
        """[BINS]: how many finite elements each bin has."""
        low, high = self.range
        x = finite(array).reshape(-1)
        if not high > low:
            return np.zeros(BINS, np.int64)
        at = ((x - np.float32(low)) * np.float32(BINS / (high - low))).astype(np.int32)
        return np.bincount(at.clip(0, BINS - 1), minlength=BINS)

    @property
    def centres(self) -> Array:
        """Of the bins."""
        low, high = self.range
        return low + (np.arange(BINS) + 0.5) * ((high - low) / BINS)


def histograms(work: QuantizationState) -> dict[Value, Histogram]:
    """Of every float value, over all samples."""

    def find() -> dict[Value, Histogram]:
        found = {v: Histogram(r) for v, r in work.extremes().items()}

        def of_sample(i: int) -> tuple[dict[Value, Array], Observe]:
            counts = dict[Value, Array]()

            def observe(v: Value, array: Array) -> None:
                if v in found:
                    counts[v] = found[v].counted(array)

            return counts, observe

        for counts in work.watch(of_sample, "count"):
            for v, n in counts.items():
                found[v].counts += n
        return found

    return work.keep("histograms", find)


def percentile(h: Histogram, percent: float) -> Range:
    """The range that leaves (100 - percent) % out, half of it at either end; what is
    not clipped ends as it does.
    """
    total = np.cumsum(h.counts)
    if not total[-1]:
        return h.range
    low, high = h.range
    width = (high - low) / BINS
    out = (1 - percent / 100) / 2 * total[-1]
    first = int(np.searchsorted(total, out, "right"))
    last = int(np.searchsorted(total, total[-1] - out, "left"))
    return (low + first * width, low + (last + 1) * width) if first <= last else h.range


def noise(h: Histogram, r: Range, clipping: float = 1.0) -> float:
    """The mean square of what int8 in a range adds; what is clipped counts `clipping`
    times.
    """
    q = activation_quant(r)
    steps = (
        np.clip(np.rint(h.centres / q.scale[0]) + q.zero_point[0], -128, 127)
        - q.zero_point[0]
    )
    # the bins are finer than the steps, but not always by much
    inside = q.scale[0] ** 2 / 12
    error = np.where(
        (h.centres >= (-128 - q.zero_point[0]) * q.scale[0])
        & (h.centres <= (127 - q.zero_point[0]) * q.scale[0]),
        inside,
        clipping * (h.centres - steps * q.scale[0]) ** 2,
    )
    return float((h.counts * error).sum() / max(1, h.counts.sum()))


def mse(h: Histogram, clipping: float = 1.0) -> Range:
    """The range of the least `noise`."""
    return search(h, lambda r: noise(h, r, clipping))


def search(h: Histogram, cost: Callable[[Range], float]) -> Range:
    """The range of the least cost, searched end by end."""
    low, high = h.range
    best = (low, high)
    for _ in range(2):
        best = min(((low * s, best[1]) for s in _SHRINK), key=cost) if low < 0 else best
        if high > 0:
            best = min(((best[0], high * s) for s in _SHRINK), key=cost)
        else:
            best = best
    return best


def entropy(h: Histogram) -> Range:
    """The range whose int8 form tells most of the distribution (least Kullback-Leibler
    divergence).
    """
    low, high = h.range
    tries = [(low * s, high * s) for s in _SHRINK]
    return min(tries, key=lambda r: _divergence(h, r))


def _divergence(h: Histogram, r: Range) -> float:
    """Of the clipped distribution from what the 256 steps leave of it, as in TensorRT's
    calibration.
    """
    q = activation_quant(r)
    steps = (
        np.clip(np.rint(h.centres / q.scale[0]) + q.zero_point[0], -128, 127).astype(
            np.int64
        )
        + 128
    )
    inside = (h.centres >= r[0]) & (h.centres <= r[1])
    # what is clipped counts where it is put; what int8 tells of a step is shared by the
    # bins that it has
    first = np.argmax(inside)
    last = BINS - 1 - np.argmax(inside[::-1])
    at = np.where(inside, np.arange(BINS), np.where(h.centres < r[0], first, last))
    p = np.bincount(at, h.counts, BINS)
    own = np.where(inside, h.counts, 0)
    filled = own > 0
    total = np.bincount(steps, own, 256)
    bins = np.bincount(steps, filled, 256)
    told = np.where(filled, total[steps] / np.maximum(bins[steps], 1), 0.0)
    p = p / max(p.sum(), 1)
    told = told / max(told.sum(), 1e-30)
    some = p > 0
    return float((p[some] * np.log(p[some] / np.maximum(told[some], 1e-12))).sum())


METHODS: Mapping[str, Callable[[Histogram], Range]] = {
    "minmax": lambda h: h.range,
    "p99.9": lambda h: percentile(h, 99.9),
    "p99.99": lambda h: percentile(h, 99.99),
    "p99.999": lambda h: percentile(h, 99.999),
    "entropy": entropy,
    "mse": mse,
}
"""Ways to a range, by name; a new one is a row."""
