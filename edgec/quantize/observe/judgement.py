"""Judgements of a model on labelled pictures, by the measure of its task.

The pictures are none of those that calibrate. Two models are judged on the same draws
of a bootstrap, so that a difference can be told from chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from edgec.ir import Array, Run

LOWEST = 2.5
"""Percentile of the draws above which 0 must be excluded: an interval of 95 %."""


@dataclass(frozen=True)
class Judgement:
    """A model's figure on labelled pictures.

    Attributes:
        title: the figure's name for people, as top-1
        unit: its unit; "%" is of 0 to 100
        value: the figure
        float_value: the float model's
        losses: how much worse than the float model it is on each draw, [draws]
        loss: how much worse it is on the pictures themselves
    """

    title: str
    unit: str
    value: float
    float_value: float
    losses: Array
    loss: float

    @property
    def drop(self) -> float:
        """The loss as a part: of 100 %, or of the float model's figure."""
        whole = 100.0 if self.unit == "%" else abs(self.float_value)
        return self.loss / whole if whole else 0.0

    @property
    def is_as_float(self) -> bool:
        """Whether chance explains the distance to the float model."""
        return not _above_0(self.losses)

    def is_better_than(self, other: Judgement) -> bool:
        """Return whether it is better by more than chance explains."""
        return _above_0(other.losses - self.losses)

    def text(self) -> str:
        """Return the figure beside the float model's."""
        unit = f" {self.unit}" if self.unit else ""
        return (
            f"{self.title} {self.value:.2f}{unit} (float {self.float_value:.2f}{unit})"
        )

    def to_json(self) -> dict[str, Any]:
        """Return it for the bundle's report."""
        return {
            "figure": self.title,
            "unit": self.unit,
            "value": round(self.value, 4),
            "float": round(self.float_value, 4),
            "loss": round(self.loss, 4),
        }


def _above_0(draws: Array) -> bool:
    """Return whether differences are above 0 by more than chance."""
    # A draw without a value says nothing.
    known = draws[np.isfinite(draws)]
    return bool(known.size) and float(np.percentile(known, LOWEST)) > 0


class Judge(Protocol):
    """Judges forms of one model."""

    @property
    def pictures(self) -> int:
        """The number of labelled pictures."""

    def __call__(self, run: Run) -> Judgement:
        """Return the judgement of the form that `run` runs; takes every picture."""
