"""Ranges: the smallest and the largest element that calibration saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgec.quantize.change.state import QuantizationState


@dataclass(frozen=True)
class MinMaxRanges:
    """Nothing that was seen is clipped."""

    name: ClassVar[str] = "minmax"
    changes: ClassVar[str] = "ranges"

    def run(self, work: QuantizationState) -> None:
        """Of every value."""
        work.ranges = work.extremes()


STEP = MinMaxRanges
