"""What calibration samples are like, and which of them do not belong with the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from edgec.ir import Array, Graph, Observe, Value
from edgec.quantize.observe.ranges import ObservedRange, Range, only_finite, wider

WIDE = 2.4
"""Times: a sample whose values range so much wider than usual, on average, is of
another kind. Of 43 photos of all kinds, or a part of them, none came to 1.9 on any of
six networks; masks and digits come to 3.2 and more on those that they harm.
"""
FLAT = 0.1
"""A sample with less than this part of the usual contrast is no picture of anything."""
ALIKE = 0.2
"""Samples whose differences have less than this part of their contrast are all of one
thing.
"""
_MOST = 3
"""One in so many at most is a stranger: else there are several kinds."""


@dataclass(frozen=True)
class Outlier:
    """A sample that does not belong. name: for people. wider: how many times as wide
    its values' ranges are as is usual (geometric mean). contrast: of its inputs, as a
    part of what is usual.
    """

    sample: int
    name: str
    wider: float
    contrast: float

    def __str__(self) -> str:
        if self.wider > WIDE:
            return f"{self.name} (its values range {self.wider:.1f} times as wide as usual)"
        return f"{self.name} ({_part(self.contrast)} of the usual contrast)"


def _part(x: float) -> str:
    return f"{x:.0%}" if x >= 0.01 else "none"


@dataclass(frozen=True)
class SampleReport:
    """What there is to say of the samples. strangers: those that do not belong;
    widened: how many times as wide all of them together make the ranges (geometric
    mean). alike: whether all samples are of one thing. without_db, with_db: what the
    first candidate had on samples held back when it was made without and with them;
    None where that was not tried. left_out: whether they were.
    """

    strangers: tuple[Outlier, ...] = ()
    widened: float = 1.0
    alike: bool = False
    without_db: float | None = None
    with_db: float | None = None
    left_out: bool = False

    def to_json(self) -> dict[str, Any]:
        """For the bundle's report."""
        rows = [
            {
                "name": s.name,
                "wider": round(s.wider, 3),
                "contrast": round(s.contrast, 3),
            }
            for s in self.strangers
        ]
        return {
            "strangers": rows,
            "widened": round(self.widened, 3),
            "left_out": self.left_out,
            "without_db": self.without_db,
            "with_db": self.with_db,
            "alike": self.alike,
        }

    def notes(self) -> list[str]:
        """For people."""
        found = []
        if self.strangers:
            names = ", ".join(map(str, self.strangers))
            they = "it" if len(self.strangers) == 1 else "they"
            if self.widened >= 1.05:
                effect = f"{they} made the ranges {self.widened:.1f} times as wide"
            else:
                effect = ""
            if self.without_db is not None and self.with_db is not None:
                change = (
                    "SQNR on held-back samples is "
                    f"{self.without_db - self.with_db:+.1f} dB without"
                )
                effect = f"{effect}; {change}" if effect else change
            done = f"left out, since {they} did not help" if self.left_out else "kept"
            if self.without_db is not None:
                hint = ""
            else:
                hint = "; leave out what is no such picture as the model will see"
            found.append(
                f"unlike the other calibration samples: {names}: "
                f"{done}{': ' * bool(effect)}{effect}{hint}"
            )
        if self.alike:
            found.append(
                "all calibration samples are nearly the same: "
                "ranges want pictures of different things"
            )
        return found


@dataclass
class _InputSums:
    """Of an input over all samples: their sum, and their squares' about each one's own
    mean.
    """

    total: Array
    squares: float = 0.0
    within: float = 0.0


@dataclass
class _Sample:
    """The ranges of its values, and its inputs."""

    ranges: Mapping[Value, Range]
    inputs: dict[Value, Array] = field(default_factory=dict)


@dataclass
class Survey:
    """Of a float graph: the ranges of its values on each sample, the samples' contrast,
    and how they differ.
    """

    graph: Graph
    each: list[Mapping[Value, Range]] = field(default_factory=list)
    contrast: list[float] = field(default_factory=list)
    _inputs: dict[Value, _InputSums] = field(default_factory=dict, repr=False)

    def sample(self) -> tuple[_Sample, Observe]:
        """A sample, and the observer that fills it in."""
        seen = ObservedRange()
        inputs = {v for v in self.graph.inputs if v.type.dtype == "float32"}
        found = _Sample(seen.ranges)

        def observe(v: Value, array: Array) -> None:
            seen.observe(v, array)
            if v in inputs:
                found.inputs[v] = array

        return found, observe

    def add(self, found: _Sample) -> None:
        """The next sample."""
        self.each.append(found.ranges)
        self.contrast.append(0.0)
        for v, array in found.inputs.items():
            x = np.where(np.isfinite(array), array, 0).astype(np.float64)
            sums = self._inputs.setdefault(v, _InputSums(np.zeros(x.shape)))
            sums.total += x
            sums.squares += float((x * x).sum())
            sums.within += x.size * float(x.var())
            self.contrast[-1] += float(x.std())

    def ranges(self) -> dict[Value, Range]:
        """Over all samples."""
        return only_finite(reduce(wider, self.each, {}))

    def suited(self, names: Sequence[str]) -> SampleReport:
        """Who does not belong, and whether all are alike. names: of the samples."""
        widths = np.array([[_width(seen[v]) for v in seen] for seen in self.each])
        found = [*self._strangers(widths, names)]
        if len(found) * _MOST > len(self.each):
            found = []
        rest = np.delete(widths, [s.sample for s in found], 0)
        return SampleReport(
            tuple(found), 2 ** _octaves(widths.max(0), rest.max(0)), self._alike()
        )

    def _strangers(self, widths: Array, names: Sequence[str]) -> list[Outlier]:
        usual = np.median(widths, 0)
        contrast = float(np.median(self.contrast)) or 1.0
        found = []
        for i, row in enumerate(widths):
            one = Outlier(
                i, names[i], 2 ** _octaves(row, usual), self.contrast[i] / contrast
            )
            if one.wider > WIDE or (one.contrast < FLAT and any(self.contrast)):
                found.append(one)
        return found

    def _alike(self) -> bool:
        n = len(self.each)
        between = sum(
            s.squares - float((s.total**2).sum()) / n for s in self._inputs.values()
        )
        return n > 1 and between < ALIKE * sum(s.within for s in self._inputs.values())


def _width(r: Range) -> float:
    """As an int8 scale sees it: with zero."""
    return max(0.0, r[1]) - min(0.0, r[0])


def _octaves(a: Array, b: Array) -> float:
    """The mean over values of how many times b goes into a, as a power of two."""
    some = (a > 0) & (b > 0)
    return float(np.log2(a[some] / b[some]).mean()) if some.any() else 0.0
