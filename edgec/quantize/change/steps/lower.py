"""Rewrite: the changes that every int8 model needs (`edgec.quantize.change.lower`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgec.quantize.change.lower import lower
from edgec.quantize.change.state import QuantizationState


@dataclass(frozen=True)
class Lower:
    """Write operations without a good int8 form as operations that have one."""

    name: ClassVar[str] = "lower"
    changes: ClassVar[str] = "graph"

    def run(self, state: QuantizationState) -> None:
        """Rewrite the float graph."""
        state.graph = lower(state.graph)


STEP = Lower
