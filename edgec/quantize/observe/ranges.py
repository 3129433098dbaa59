"""The extremes of every value that calibration saw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np

from edgec.errors import InputError
from edgec.ir import Array, Graph, Run, Value, interp

Range = tuple[float, float]
"""(lowest, highest) real."""


_NOTHING: Range = (np.inf, -np.inf)


def calibrate(
    graph: Graph, samples: Iterable[Mapping[str, Array]], run: Run | None = None
) -> dict[Value, Range]:
    """The smallest and the largest element of every float32 input and result of `graph`
    over the samples.

    run: runs the graph; default: `interp`. Elements that are not finite are left out; a
    value of which none is finite has the range (0, 0). Raises InputError when there is
    no sample.
    """
    run = run or partial(interp, graph)
    found = dict[Value, Range]()
    count = 0
    for sample in samples:
        seen = ObservedRange()
        run(sample, seen.observe)
        found = wider(found, seen.ranges)
        count = count + 1
    if not count:
        raise InputError(
            "there is no calibration sample",
            hint="give a folder of photos or an .npz file",
        )
    return only_finite(found)


def vectors(v: Value) -> int:
    """How many vectors of channels a value has in one sample."""
    return v.type.size // max(1, v.type.shape[-1] if v.type.rank else 1)


class ObservedRange:
    """The smallest and the largest finite element of every float32 value on one sample;
    (inf, -inf) of none.
    """

    def __init__(self) -> None:
        self.ranges: dict[Value, Range] = {}

    def observe(self, v: Value, array: Array) -> None:
        """Take in a value."""
        if v.type.dtype == "float32":
            seen = finite(array)
            self.ranges[v] = (
                (float(seen.min()), float(seen.max())) if seen.size else _NOTHING
            )


def wider(
    ranges: Mapping[Value, Range], others: Mapping[Value, Range]
) -> dict[Value, Range]:
    """Of every value the range that holds both."""
    found = dict(ranges)
    for v, (low, high) in others.items():
        old = found.get(v, _NOTHING)
        found[v] = min(old[0], low), max(old[1], high)
    return found


def only_finite(ranges: Mapping[Value, Range]) -> dict[Value, Range]:
    """(0, 0) for values of which nothing finite was seen."""
    return {v: _finite(r) for v, r in ranges.items()}


def finite(array: Array) -> Array:
    """The elements that are finite; the array itself where all are."""
    # the extremes of an array with anything else are not finite themselves
    ends = [array.min(initial=0), array.max(initial=0)]
    return array if np.isfinite(ends).all() else array[np.isfinite(array)]


def constant_range(array: Array) -> Range:
    """The range of a constant: of its finite elements."""
    seen = finite(array)
    return (float(seen.min()), float(seen.max())) if seen.size else (0.0, 0.0)


def _finite(r: Range) -> Range:
    return r if np.isfinite(r).all() else (0.0, 0.0)
