"""Ranges: the smallest and the largest element over the calibration samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgec.quantize.change.state import QuantizationState


@dataclass(frozen=True)
class MinMaxRanges:
    """Take the observed extremes, so that no observed element is clipped."""

    name: ClassVar[str] = "minmax"
    changes: ClassVar[str] = "ranges"

    def run(self, state: QuantizationState) -> None:
        """Set the range of every value."""
        state.ranges = state.observed_ranges()


STEP = MinMaxRanges
