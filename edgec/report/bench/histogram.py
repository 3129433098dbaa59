"""Counts latencies in bins, so that outliers do not squeeze the others into one bar."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from edgec_runtime.model.stats import percentile

USUAL_PERCENT = 95
"""Latencies far above this percentile share the last bin."""


@dataclass(frozen=True)
class Bin:
    """The number of latencies in [low, high), ms.

    The last of the bins of equal width includes its upper edge.
    """

    low: float
    high: float
    count: int


def histogram(samples: Sequence[float], bins: int) -> tuple[Bin, ...]:
    """Count latencies in `bins` bins of equal width, and one for far outliers.

    The result is empty without samples.
    """
    if not samples:
        return ()
    low = min(samples)
    high = max(samples)
    usual_high = _usual_high(samples)
    if usual_high <= low:
        return (Bin(low, high, len(samples)),)

    width = (usual_high - low) / bins
    edges = [low + i * width for i in range(bins)]
    edges.append(usual_high)
    counts = [0] * bins
    outliers = 0
    for ms in samples:
        if ms > usual_high:
            outliers += 1
            continue
        # The upper edge of the last bin would otherwise be beyond all bins.
        index = min(bisect_right(edges, ms), bins) - 1
        counts[index] += 1

    result = []
    for i, count in enumerate(counts):
        result.append(Bin(edges[i], edges[i + 1], count))
    if outliers:
        result.append(Bin(usual_high, high, outliers))
    return tuple(result)


def _usual_high(samples: Sequence[float]) -> float:
    """Return the largest latency that is no far outlier, ms.

    Far outliers lie above the 95th percentile by more than half of its distance from
    the fastest.
    """
    low = min(samples)
    usual = percentile(samples, USUAL_PERCENT)
    # Most latencies are equal, and no distance tells usual ones from outliers.
    if usual <= low:
        return max(samples)
    fence = usual + (usual - low) / 2
    return max(ms for ms in samples if ms <= fence)
