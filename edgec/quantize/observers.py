"""The extremes of every value that calibration saw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from edgec.errors import InputError
from edgec.ir import Array, Graph, Value, interp

Range = tuple[float, float]
"""(lowest, highest) real."""


@dataclass
class MinMax:
    """The smallest and the largest element that were seen."""

    low: float = np.inf
    high: float = -np.inf

    def observe(self, array: Array) -> None:
        """Widen."""
        self.low, self.high = min(self.low, float(array.min())), max(self.high, float(array.max()))

    def range(self) -> Range:
        """As seen."""
        return self.low, self.high


Observe = Callable[[Value, Array], None]
"""Is given a value and its array, which it must not keep: the next op may write over it."""
Run = Callable[[Mapping[str, Array], Observe | None], dict[str, Array]]
"""Runs one graph on inputs by name, shows every input and result in order, and returns the outputs by name."""


def calibrate(graph: Graph, samples: Iterable[Mapping[str, Array]], run: Run | None = None) -> dict[Value, Range]:
    """The smallest and the largest element of every float32 input and result of `graph` over the samples.

    run: runs the graph; default: `interp`. Elements that are not finite are left out; a value of which none is finite
    has the range (0, 0). Raises InputError when there is no sample.
    """
    watchers: dict[Value, MinMax] = {}

    def observe(v: Value, array: Array) -> None:
        if v.type.dtype != "float32":
            return
        watcher = watchers.setdefault(v, MinMax())
        seen = finite(array)
        if seen.size:
            watcher.observe(seen)

    count, run = 0, run or partial(interp, graph)
    for sample in samples:
        run(sample, observe)
        count += 1
    if not count:
        raise InputError("there is no calibration sample", hint="give a folder of photos or an .npz file")
    return {v: _finite(w.range()) for v, w in watchers.items()}


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
