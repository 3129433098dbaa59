"""The smallest and the largest element of every value, over calibration samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np

from edgec.errors import InputError
from edgec.ir import Array, Graph, Run, Value, interp

Range = tuple[float, float]
"""(lowest, highest) real."""

EMPTY_RANGE: Range = (np.inf, -np.inf)
"""The range of no element; the union with another range is that other range."""


def calibrate(
    graph: Graph, samples: Iterable[Mapping[str, Array]], run: Run | None = None
) -> dict[Value, Range]:
    """Return the range of every float32 input and result of `graph` over the samples.

    Elements that are not finite are left out; a value without any finite element has
    the range (0, 0).

    run: runs the graph; default: `interp`.

    Raises InputError when there is no sample.
    """
    run = run or partial(interp, graph)
    ranges: dict[Value, Range] = {}
    count = 0
    for sample in samples:
        observed = ObservedRange()
        run(sample, observed.observe)
        ranges = wider(ranges, observed.ranges)
        count += 1
    if not count:
        raise InputError(
            "there is no calibration sample",
            hint="give a folder of photos or an .npz file",
        )
    return only_finite(ranges)


def vectors(v: Value) -> int:
    """Return the number of channel vectors of a value in one sample (its pixels)."""
    channels = v.type.shape[-1] if v.type.rank else 1
    return v.type.size // max(1, channels)


class ObservedRange:
    """The range of every float32 value on one sample.

    Attributes:
        ranges: the smallest and the largest finite element; `EMPTY_RANGE` without any.
    """

    def __init__(self) -> None:
        self.ranges: dict[Value, Range] = {}

    def observe(self, v: Value, array: Array) -> None:
        """Take in a value."""
        if v.type.dtype == "float32":
            self.ranges[v] = _extremes(array, EMPTY_RANGE)


def wider(
    ranges: Mapping[Value, Range], others: Mapping[Value, Range]
) -> dict[Value, Range]:
    """Return for every value the smallest range that holds both.

    ranges, others: the ranges of two sets of samples, by value.
    """
    united = dict(ranges)
    for v, (low, high) in others.items():
        old_low, old_high = united.get(v, EMPTY_RANGE)
        united[v] = (min(old_low, low), max(old_high, high))

    return united


def only_finite(ranges: Mapping[Value, Range]) -> dict[Value, Range]:
    """Return the ranges, with (0, 0) for values without any finite element."""
    return {v: r if np.isfinite(r).all() else (0.0, 0.0) for v, r in ranges.items()}


def finite(array: Array) -> Array:
    """Return the finite elements; the array itself where all are finite."""
    # The extremes of an array with an infinity or a NaN are not finite themselves, and
    # they are found without an array of booleans.
    ends = [array.min(initial=0), array.max(initial=0)]
    return array if np.isfinite(ends).all() else array[np.isfinite(array)]


def constant_range(array: Array) -> Range:
    """Return the range of the finite elements of a constant, (0, 0) without any."""
    return _extremes(array, (0.0, 0.0))


def _extremes(array: Array, default: Range) -> Range:
    """Return the smallest and the largest finite element.

    default: the range of an array without any.
    """
    elements = finite(array)
    if not elements.size:
        return default
    return float(elements.min()), float(elements.max())
