"""The interface of measures: from labels and results of a task to figures."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from edgec_runtime.vision.photo import Placement
from edgec_runtime.vision.tasks.base import Result, View

from edgec.comparing.tasks import agreement
from edgec.ir import Array

Observation = Mapping[str, Any]
"""How good the result for one picture is, in JSON's types."""
RESAMPLES = 1000
"""Bootstrap samples of a measure whose figures are means."""


@dataclass(frozen=True)
class MeasuredFigure:
    """A figure of a measure.

    Attributes:
        name: its name in budgets and in JSON
        title: its name for people
        unit: one of `edgec_devices.requirement.UNITS`
        text: its meaning, for people
        rises: whether a larger number is better
    """

    name: str
    title: str
    unit: str
    text: str
    rises: bool = True

    def loss(self, before: float, after: float) -> float:
        """Return how much worse the second number is; below 0, it is better."""
        return before - after if self.rises else after - before


@dataclass(frozen=True)
class LabelledPicture:
    """A picture and its label.

    Attributes:
        file: the picture
        truth: the label, in JSON's types
        beside: the picture that belongs to it: a mask, or what a network should paint
    """

    file: Path
    truth: Any
    beside: Path | None = None


def whole_view(pixels: Array) -> View:
    """Return the view of a label, which is made in the picture itself, [H, W, …]."""
    height, width = pixels.shape[:2]
    size = (width, height)
    box = (0.0, 0.0, float(width), float(height))
    place = Placement(box, (0, 0, width, height))
    return View(size, size, place)


class Scored(Protocol):
    """The observations of all pictures, ready for many sums."""

    def figures(self, counts: Array | None = None) -> dict[str, float]:
        """Return each figure by its name, NaN where it has no value.

        counts: how often each picture counts, int [pictures]; None: once.
        """


class Measure(ABC):
    """Judges results of one task."""

    @property
    @abstractmethod
    def figures(self) -> tuple[MeasuredFigure, ...]:
        """Its figures, the most important first."""

    @property
    def resamples(self) -> int:
        """Bootstrap samples that are worth their time."""
        return RESAMPLES

    @abstractmethod
    def read(self, data: Path) -> Sequence[LabelledPicture]:
        """Return the pictures of a data set.

        Raises InputError, which names all faults of one kind together.
        """

    @abstractmethod
    def observe(
        self, result: Result, picture: LabelledPicture, frame: Array
    ) -> Observation:
        """Return how good a result is.

        Raises InputError where the label does not fit the picture.

        Args:
            result: the result of the task
            picture: the picture and its label
            frame: its pixels, uint8 [H, W, 3]
        """

    @abstractmethod
    def score(
        self, pictures: Sequence[LabelledPicture], observations: Sequence[Observation]
    ) -> Scored:
        """Return the observations of all pictures, each of one in the same place."""

    @abstractmethod
    def truth(self, picture: LabelledPicture, frame: Array) -> Result:
        """Return the label as a result of the task, which can draw itself."""

    def shown(self, result: Result) -> Result:
        """Return the part of a result that a person would be shown."""
        return result

    def loss(self, result: Result, picture: LabelledPicture, frame: Array) -> float:
        """Return how bad the result of one picture is: 0 for none, more for worse.

        It ranks pictures, and is no figure of the data set. By default it is 1 less the
        overlap of boxes, or the distance of points as a part of the picture's width.
        """
        width = frame.shape[1]
        truth = self.truth(picture, frame)
        same = agreement(truth, self.shown(result), width)
        if "boxes" in same:
            return 1 - same["boxes"]
        # Where nothing was labelled and nothing found, there is no fault.
        return same.get("points", 0.0)


@dataclass(frozen=True)
class Means:
    """Figures that are means over pictures.

    Attributes:
        names: the names of the figures
        rows: each figure of each picture, float64 [pictures, figures]; NaN where a
            picture has none
    """

    names: tuple[str, ...]
    rows: Array

    @classmethod
    def of(
        cls, figures: Sequence[MeasuredFigure], observations: Sequence[Observation]
    ) -> Means:
        """Return the means of numbers that observations have by the figures' names."""
        names = tuple(figure.name for figure in figures)
        rows = []
        for observation in observations:
            row = [_number(observation[name]) for name in names]
            rows.append(row)
        # Without pictures numpy would not know how many columns there are.
        shape = (len(rows), len(names))
        table = np.array(rows, np.float64).reshape(shape)
        return cls(names, table)

    def figures(self, counts: Array | None = None) -> dict[str, float]:
        """Return the means, see `Scored.figures`."""
        weights = np.ones(len(self.rows)) if counts is None else counts
        finite = np.isfinite(self.rows)

        # A picture without a number neither adds to the sum nor to the count.
        numbers = np.where(finite, self.rows, 0.0)
        sums = weights @ numbers
        totals = weights @ finite
        means = np.full(len(self.names), math.nan)
        np.divide(sums, totals, out=means, where=totals > 0)
        return dict(zip(self.names, means.tolist(), strict=True))


def _number(value: float | None) -> float:
    """Return the number of an observation; JSON has no NaN, but null."""
    return math.nan if value is None else float(value)
