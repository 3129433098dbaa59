"""Confidence intervals by the bootstrap over pictures.

Pictures are drawn from the data set with replacement, as many as it has, again and
again; the middle 95 % of a figure over the draws is its interval (Efron and Tibshirani,
An Introduction to the Bootstrap, 1993, chapter 13). All sides of a comparison have the
same draws, so that the interval of a difference is not widened by hard and easy
pictures, which both sides share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from edgec.evaluation.measure import MeasuredFigure, Scored
from edgec.ir import Array
from edgec.steps import Progress, each

BOOTSTRAP = "bootstrap"
"""The step of the draws."""
LEVEL = 0.95
SEED = 36
"""The draws are the same every time: a budget must not hold by luck."""


@dataclass(frozen=True)
class FigureEstimate:
    """A figure of a data set with its confidence interval.

    Attributes:
        value: the figure of the data set itself
        low: the lower end of its interval
        high: the upper end
    """

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, draws: Array) -> FigureEstimate:
        """Return a figure with the interval of its draws; NaN among them is left out."""
        known = draws[np.isfinite(draws)]
        if not known.size:
            return cls(value, math.nan, math.nan)
        tail = 100 * (1 - LEVEL) / 2
        low, high = np.percentile(known, [tail, 100 - tail])
        # A difference of nothing would be -0.0 where figures fall.
        return cls(value + 0.0, float(low) + 0.0, float(high) + 0.0)

    def to_json(self) -> dict[str, float | None]:
        """Return the three numbers; None for those that are none."""
        numbers: dict[str, float | None] = {}
        for name, x in vars(self).items():
            # JSON has no NaN; more digits would be noise.
            numbers[name] = round(x, 6) if math.isfinite(x) else None
        return numbers


def draws(pictures: int, number: int, seed: int = SEED) -> Iterator[Array]:
    """Yield how often each picture is drawn, int64 [pictures], so many times."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        chosen = rng.integers(0, pictures, pictures)
        yield np.bincount(chosen, minlength=pictures)


@dataclass(frozen=True)
class ResampledSides:
    """The figures of several sides on a data set and on draws from it.

    Attributes:
        whole: the figures on the data set, by side
        draws: each figure on every draw, float64 [draws], by side and figure
    """

    whole: Mapping[str, Mapping[str, float]]
    draws: Mapping[str, Mapping[str, Array]]

    @classmethod
    def of(
        cls,
        sides: Mapping[str, Scored],
        pictures: int,
        number: int,
        say: Progress = lambda text: None,
    ) -> ResampledSides:
        """Draw `number` times from so many pictures, the same draws for every side."""
        whole = {name: scored.figures() for name, scored in sides.items()}
        drawn: dict[str, dict[str, list[float]]] = {}
        for name, figures in whole.items():
            drawn[name] = {figure: [] for figure in figures}

        turns = draws(pictures, number)
        for counts in each(turns, number, BOOTSTRAP, say):
            for name, scored in sides.items():
                figures = scored.figures(counts)
                for figure, value in figures.items():
                    drawn[name][figure].append(value)

        arrays: dict[str, dict[str, Array]] = {}
        for name, lists in drawn.items():
            arrays[name] = {figure: np.array(x) for figure, x in lists.items()}
        return cls(whole, arrays)

    def estimate(self, side: str, figure: MeasuredFigure) -> FigureEstimate:
        """Return a figure of a side."""
        value = self.whole[side][figure.name]
        return FigureEstimate.of(value, self.draws[side][figure.name])

    def loss(self, before: str, after: str, figure: MeasuredFigure) -> FigureEstimate:
        """Return how much worse a figure of the second side is, draw by draw."""
        name = figure.name
        value = figure.loss(self.whole[before][name], self.whole[after][name])

        # The same draw is at the same place of both.
        differences = self.draws[after][name] - self.draws[before][name]
        if figure.rises:
            differences = -differences
        return FigureEstimate.of(value, differences)
