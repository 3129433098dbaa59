"""Ranges: by one method for all values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgec.quantize.change.histograms import METHODS, histograms
from edgec.quantize.change.state import QuantizationState


@dataclass(frozen=True)
class Ranges:
    """method: "minmax", "p99.9", "p99.99", "p99.999" (percentiles), "entropy" or "mse"."""

    method: str = "mse"
    name: ClassVar[str] = "ranges"
    changes: ClassVar[str] = "ranges"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(
                f'step ranges has no method "{self.method}"; it has {", ".join(METHODS)}'
            )

    def run(self, work: QuantizationState) -> None:
        """Of every value."""
        work.ranges = {v: METHODS[self.method](h) for v, h in histograms(work).items()}


STEP = Ranges
