"""Compares calibration samples with each other, and finds outliers among them.

The range of value v on sample s has the width w[s, v]. A sample is compared with the
usual widths, the medians over all samples, by the geometric mean over the values:

    wider[s] = 2 ** mean over v of log2(w[s, v] / median over s of w[s, v])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from edgec.ir import Array, Graph, Observe, Value
from edgec.quantize.observe.ranges import ObservedRange, Range, only_finite, wider

OUTLIER_WIDTH_RATIO = 2.4
"""A sample whose ranges are so many times as wide as usual is an outlier.

Of 43 photos of all kinds, or a part of them, none came to 1.9 on any of six networks;
masks and digits come to 3.2 and more on the networks that they harm.
"""
FLAT_CONTRAST = 0.1
"""A sample with less than this part of the usual contrast is no picture of anything."""
ALIKE_VARIANCE_RATIO = 0.2
"""Samples show the same thing where the variance between them is less than this part of
the variance within them.
"""
MIN_SAMPLES_PER_OUTLIER = 3
"""If more than one sample in so many deviates, there are several kinds of pictures and
no outliers.
"""
NOTABLE_WIDENING = 1.05
"""The widening of the ranges from which on the report speaks of it."""


@dataclass(frozen=True)
class Outlier:
    """A sample unlike the others.

    Attributes:
        sample: its number.
        name: its name for people.
        wider: how many times as wide its ranges are as is usual (geometric mean).
        contrast: the contrast of its inputs, as a part of the usual one.
    """

    sample: int
    name: str
    wider: float
    contrast: float

    def __str__(self) -> str:
        if self.wider > OUTLIER_WIDTH_RATIO:
            return f"{self.name} (its values range {self.wider:.1f} times as wide as usual)"
        contrast = f"{self.contrast:.0%}" if self.contrast >= 0.01 else "none"
        return f"{self.name} ({contrast} of the usual contrast)"


@dataclass(frozen=True)
class SampleReport:
    """A comparison of the calibration samples with each other.

    Attributes:
        outliers: the samples unlike the others.
        widened: how many times as wide all outliers together make the ranges
            (geometric mean).
        alike: whether all samples show the same thing.
        without_db: the signal-to-noise ratio of the guard, or of a candidate without
            one, on held-back samples, calibrated without the outliers; None where that
            was not tried.
        with_db: the same, calibrated with the outliers.
        left_out: whether the outliers were left out.
    """

    outliers: tuple[Outlier, ...] = ()
    widened: float = 1.0
    alike: bool = False
    without_db: float | None = None
    with_db: float | None = None
    left_out: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the comparison for the bundle's report."""
        rows = []
        for outlier in self.outliers:
            row = {
                "name": outlier.name,
                "wider": round(outlier.wider, 3),
                "contrast": round(outlier.contrast, 3),
            }
            rows.append(row)
        return {
            "strangers": rows,
            "widened": round(self.widened, 3),
            "left_out": self.left_out,
            "without_db": self.without_db,
            "with_db": self.with_db,
            "alike": self.alike,
        }

    def notes(self) -> list[str]:
        """Return the comparison as sentences for people."""
        notes = []
        if self.outliers:
            notes.append(self._note_on_outliers())
        if self.alike:
            notes.append(
                "all calibration samples are nearly the same: "
                "ranges want pictures of different things"
            )
        return notes

    def _note_on_outliers(self) -> str:
        """Return who the outliers are, whether they were kept, and what they change."""
        they = "it" if len(self.outliers) == 1 else "they"
        effects = []
        if self.widened >= NOTABLE_WIDENING:
            effects.append(f"{they} made the ranges {self.widened:.1f} times as wide")

        if self.without_db is not None and self.with_db is not None:
            change = self.without_db - self.with_db
            effects.append(f"SQNR on held-back samples is {change:+.1f} dB without")

        names = ", ".join(map(str, self.outliers))
        fate = f"left out, since {they} did not help" if self.left_out else "kept"
        effect = "; ".join(effects)
        colon = ": " if effect else ""
        # The hint is for recipes that did not try to leave them out.
        hint = ""
        if self.without_db is None:
            hint = "; leave out pictures of a kind that the model will not see"

        return f"unlike the other calibration samples: {names}: {fate}{colon}{effect}{hint}"


@dataclass
class _InputSums:
    """Sums of one input over all samples.

    Attributes:
        total: Σ x, of the input's shape.
        squares: Σ x², over all elements.
        within: Σ (x - mean of its sample)², over all elements.
    """

    total: Array
    squares: float = 0.0
    within: float = 0.0


@dataclass
class _ObservedSample:
    """The ranges of the values on one sample, and its inputs."""

    ranges: Mapping[Value, Range]
    inputs: dict[Value, Array] = field(default_factory=dict)


@dataclass
class Survey:
    """Figures of a float graph's values on every sample.

    Attributes:
        graph: the float graph.
        sample_ranges: the ranges of its values on each sample.
        contrast: the sum of the standard deviations of each sample's inputs.
    """

    graph: Graph
    sample_ranges: list[Mapping[Value, Range]] = field(default_factory=list)
    contrast: list[float] = field(default_factory=list)
    _inputs: dict[Value, _InputSums] = field(default_factory=dict, repr=False)

    def observer(self) -> tuple[_ObservedSample, Observe]:
        """Return an empty sample, and the observer that fills it in.

        Observers of several samples may run at once; `add` takes the samples in order.
        """
        observed_range = ObservedRange()
        inputs = {v for v in self.graph.inputs if v.type.dtype == "float32"}
        sample = _ObservedSample(observed_range.ranges)

        def observe(v: Value, array: Array) -> None:
            observed_range.observe(v, array)
            if v in inputs:
                sample.inputs[v] = array

        return sample, observe

    def add(self, sample: _ObservedSample) -> None:
        """Add the next sample.

        Samples are added in order, so that the sums do not depend on threads.
        """
        self.sample_ranges.append(sample.ranges)
        self.contrast.append(0.0)
        for v, array in sample.inputs.items():
            # An infinite pixel says nothing about the contrast of the rest.
            x = np.where(np.isfinite(array), array, 0).astype(np.float64)
            sums = self._inputs.setdefault(v, _InputSums(np.zeros(x.shape)))
            sums.total += x
            sums.squares += float((x * x).sum())
            sums.within += x.size * float(x.var())
            self.contrast[-1] += float(x.std())

    def ranges(self) -> dict[Value, Range]:
        """Return the ranges over all samples."""
        return only_finite(reduce(wider, self.sample_ranges, {}))

    def report(self, names: Sequence[str]) -> SampleReport:
        """Return the outliers, and whether all samples are alike.

        names: the names of the samples for people.
        """
        rows = []
        for ranges in self.sample_ranges:
            rows.append([_width(ranges[v]) for v in ranges])

        widths = np.array(rows)

        outliers = self._outliers(widths, names)
        if len(outliers) * MIN_SAMPLES_PER_OUTLIER > len(self.sample_ranges):
            outliers = []

        # How much wider the ranges of all samples are than those of the others.
        usual = np.delete(widths, [outlier.sample for outlier in outliers], 0)
        widened = 2 ** _mean_log2_ratio(widths.max(0), usual.max(0))

        return SampleReport(tuple(outliers), widened, self._are_alike())

    def _outliers(self, widths: Array, names: Sequence[str]) -> list[Outlier]:
        """Return the samples with wide ranges or flat inputs. widths: [samples, values]."""
        # Medians: a few outliers do not move them.
        usual_widths = np.median(widths, 0)
        usual_contrast = float(np.median(self.contrast)) or 1.0
        # A model without float inputs has no contrast at all.
        has_contrast = any(self.contrast)
        outliers = []
        for i, row in enumerate(widths):
            ratio = 2 ** _mean_log2_ratio(row, usual_widths)
            contrast = self.contrast[i] / usual_contrast
            is_flat = has_contrast and contrast < FLAT_CONTRAST
            if ratio > OUTLIER_WIDTH_RATIO or is_flat:
                outliers.append(Outlier(i, names[i], ratio, contrast))

        return outliers

    def _are_alike(self) -> bool:
        """Return whether the samples differ little, by their contrast.

        The variance between n samples is Σ x² - (Σ x)² / n.
        """
        n = len(self.sample_ranges)
        between = sum(
            sums.squares - float((sums.total**2).sum()) / n
            for sums in self._inputs.values()
        )
        within = sum(sums.within for sums in self._inputs.values())

        return n > 1 and between < ALIKE_VARIANCE_RATIO * within


def _width(r: Range) -> float:
    """Return the width of a range as an int8 scale has it: with zero."""
    return max(0.0, r[1]) - min(0.0, r[0])


def _mean_log2_ratio(a: Array, b: Array) -> float:
    """Return the mean of log2(a / b), over the elements where both are positive."""
    # A value that is always zero has no width to compare.
    positive = (a > 0) & (b > 0)
    if not positive.any():
        return 0.0
    return float(np.log2(a[positive] / b[positive]).mean())
