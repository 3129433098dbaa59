"""The range of every value: what calibration saw, reduced by a method chosen by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from edgec.errors import InputError
from edgec.ir import Array, Graph, Value, interp

Range = tuple[float, float]
"""(lowest, highest) real."""


class RangeMethod(Protocol):
    """Watches one value over all samples, then names its range."""

    def observe(self, array: Array) -> None:
        """One sample's float32 elements, all finite and at least one."""

    def range(self) -> Range:
        """The range to represent; called once, after the last sample."""


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


METHODS: dict[str, Callable[[], RangeMethod]] = {"minmax": MinMax}
"""Range methods by name; a new one is a class with `observe` and `range` and a row here."""


Observe = Callable[[Value, Array], None]
"""Is given a value and its array, which it must not keep: the next op may write over it."""
Run = Callable[[Mapping[str, Array], Observe | None], dict[str, Array]]
"""Runs one graph on inputs by name, shows every input and result in order, and returns the outputs by name."""


def calibrate(
    graph: Graph, samples: Iterable[Mapping[str, Array]], method: str = "minmax", run: Run | None = None
) -> dict[Value, Range]:
    """The range of every float32 input and result of `graph` over the samples, one at a time.

    run: runs the graph; default: `interp`. Elements that are not finite are left out; a value of which none is finite
    has the range (0, 0). Raises InputError when there is no sample or no such method.
    """
    if method not in METHODS:
        raise InputError(f'there is no range method "{method}"', hint=f"use one of {', '.join(METHODS)}")
    watchers: dict[Value, RangeMethod] = {}

    def observe(v: Value, array: Array) -> None:
        if v.type.dtype != "float32":
            return
        watcher = watchers.setdefault(v, METHODS[method]())
        # the extremes of an array with anything else than finite elements are not finite themselves
        finite = array if np.isfinite([array.min(initial=0), array.max(initial=0)]).all() else array[np.isfinite(array)]
        if finite.size:
            watcher.observe(finite)

    count, run = 0, run or partial(interp, graph)
    for sample in samples:
        run(sample, observe)
        count += 1
    if not count:
        raise InputError("there is no calibration sample", hint="give a folder of photos or an .npz file")
    return {v: _finite(w.range()) for v, w in watchers.items()}


def constant_range(array: Array) -> Range:
    """The range of a constant: of its finite elements."""
    finite = array[np.isfinite(array)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def _finite(r: Range) -> Range:
    return r if np.isfinite(r).all() else (0.0, 0.0)
