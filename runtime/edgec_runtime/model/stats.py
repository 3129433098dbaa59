"""Percentiles of latencies, the same on every device and in csrc/main.c."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Sequence

PERCENTS = (50, 90, 95, 99)


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return a percentile, interpolated linearly like numpy.percentile by default.

    Raises ValueError without samples.
    """
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    at = (len(ordered) - 1) * percent / 100
    low = int(at)
    if low + 1 == len(ordered):
        return float(ordered[low])
    return ordered[low] + (at - low) * (ordered[low + 1] - ordered[low])


@dataclass(frozen=True)
class Summary:
    """The distribution of samples, in their unit."""

    n: int
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    mean: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Summary":
        """Return the summary of samples; raise ValueError without any."""
        p50, p90, p95, p99 = (percentile(samples, p) for p in PERCENTS)
        return cls(
            len(samples),
            min(samples),
            p50,
            p90,
            p95,
            p99,
            max(samples),
            sum(samples) / len(samples),
        )

    def as_dict(self) -> Dict[str, float]:
        """Return the figures for JSON."""
        return dict(self.__dict__)
