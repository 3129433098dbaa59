"""A histogram of latencies that outliers do not squeeze into one bar."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from edgec_runtime.model.stats import percentile

_USUAL = 95  # per cent; what is much slower than these is far away


@dataclass(frozen=True)
class Bin:
    """How many latencies are in [low, high), ms; those on the highest edge of equal
    bins are in the last of these.
    """

    low: float
    high: float
    count: int


def histogram(samples: Sequence[float], bins: int) -> tuple[Bin, ...]:
    """Bins of equal width; where the slowest are far away, they share one wider last
    bin. Empty without samples.
    """
    if not samples:
        return ()
    low = min(samples)
    high = max(samples)
    near = percentile(samples, _USUAL)
    fence = near + (near - low) / 2
    usual = max(ms for ms in samples if ms <= fence) if near > low else high
    if usual <= low:
        return (Bin(low, high, len(samples)),)
    width = (usual - low) / bins
    edges = [low + i * width for i in range(bins)] + [usual]
    counts = [0] * bins
    slow = [ms for ms in samples if ms > usual]
    for ms in samples:
        if ms <= usual:
            counts[min(bisect_right(edges, ms), bins) - 1] += 1
    found = [Bin(a, b, n) for (a, b), n in zip(pairwise(edges), counts, strict=True)]
    return (*found, *([Bin(usual, high, len(slow))] if slow else []))
