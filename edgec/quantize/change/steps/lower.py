"""Rewrites that every int8 model needs: edgec/quantize/lower.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgec.quantize.change.lower import lower
from edgec.quantize.change.state import QuantizationState


@dataclass(frozen=True)
class Lower:
    """Write ops whose int8 form is missing or bad as ops that have a good one."""

    name: ClassVar[str] = "lower"
    changes: ClassVar[str] = "graph"

    def run(self, work: QuantizationState) -> None:
        """On the float graph."""
        work.graph = lower(work.graph)


STEP = Lower
