"""Ranges: by one method for all values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgec.quantize.change.histograms import METHODS, histograms
from edgec.quantize.change.state import QuantizationState


@dataclass(frozen=True)
class Ranges:
    """Take the range that one method finds for the histogram of each value.

    Attributes:
        method: "minmax", "p99.9", "p99.99", "p99.999" (percentiles), "entropy" or "mse".
    """

    method: str = "mse"
    name: ClassVar[str] = "ranges"
    changes: ClassVar[str] = "ranges"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(
                f'step ranges has no method "{self.method}"; it has {", ".join(METHODS)}'
            )

    def run(self, state: QuantizationState) -> None:
        """Set the range of every value."""
        method = METHODS[self.method]
        state.ranges = {v: method(h) for v, h in histograms(state).items()}


STEP = Ranges
