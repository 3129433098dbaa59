"""The accuracy that float16 costs, at the values of a graph that are judged.

An output of floats is judged itself. In place of an output behind positions chosen by
floats, as the boxes of a detector after a top-k, the floats before the choice are judged:
the least loss may change two positions there.

With x in float32 and y in float16, over all elements of all samples:

    SQNR = 10 log10(sum x² / sum (x - y)²)  dB
    largest error = max |x - y| / max(max x - min x, max |x|)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgec.ir import Array, Graph, Value
from edgec.measure.decibels import decibels
from edgec.measure.distance import span

MIN_SQNR_DB = 47.0
"""The least signal-to-noise ratio of a judged value over the samples.

Other inputs shall have 45 dB, and most had at most 2 dB less than the samples of the
choice.
"""
MAX_ERROR = 0.01
"""The largest error of an element, as a part of the value's range."""
_POSITIONS = ("int32", "int64", "bool")
"""Element types of positions and of comparisons."""


@dataclass(frozen=True)
class Loss:
    """The loss of one judged value over all samples.

    Attributes:
        sqnr_db: signal-to-noise ratio; inf without noise
        largest: largest error, as a part of the range
    """

    sqnr_db: float
    largest: float

    @property
    def is_small(self) -> bool:
        """Whether it is within both limits; NaN is not."""
        has_little_noise = self.sqnr_db >= MIN_SQNR_DB
        has_small_errors = self.largest <= MAX_ERROR
        return has_little_noise and has_small_errors

    @property
    def missing_db(self) -> float:
        """The decibels missing to both limits; 0 or less where none are."""
        by_noise = MIN_SQNR_DB - self.sqnr_db
        if self.largest <= 0:
            return by_noise

        # Errors shrink with the noise, by 20 dB for a tenth.
        by_error = 20 * math.log10(self.largest / MAX_ERROR)
        return max(by_noise, by_error)


def judged_values(graph: Graph) -> list[Value]:
    """Return the values whose loss counts, each once, in the order of the outputs."""
    chosen = _depending_on_choices(graph)
    producers = graph.producers()
    judged: list[Value] = []
    visited: set[Value] = set()

    # From the outputs towards the inputs, no further than the first judged value.
    pending = list(graph.outputs)
    while pending:
        v = pending.pop(0)
        # Neither a constant nor an input of the graph has a loss.
        if v in visited or v not in producers:
            continue

        visited.add(v)
        is_float = v.type.dtype == "float32"
        if is_float and v not in chosen:
            judged.append(v)
        else:
            pending += producers[v].inputs

    return judged


def _depending_on_choices(graph: Graph) -> set[Value]:
    """Return the values that depend on positions chosen by the order of floats."""
    computed: set[Value] = set()
    chosen: set[Value] = set()
    for op in graph.ops:
        follows = _has_any(op.inputs, chosen)
        by_floats = _has_any(op.inputs, computed)
        for v in op.outputs:
            dtype = v.type.dtype
            if follows or (by_floats and dtype in _POSITIONS):
                chosen.add(v)
            elif dtype == "float32":
                computed.add(v)

        # The scores of a choice come with their positions.
        if _has_any(op.outputs, chosen):
            chosen.update(op.outputs)

    return chosen


def _has_any(values: Iterable[Value], group: set[Value]) -> bool:
    """Return whether any of some values is in a group."""
    return not group.isdisjoint(values)


@dataclass
class LossSums:
    """The sums over samples from which the loss of one value follows.

    Attributes:
        signal: sum of squares in float32
        noise: sum of squared differences from float32
        error: largest difference
        low: least number in float32
        high: largest number in float32
    """

    signal: float = 0.0
    noise: float = 0.0
    error: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, want: Array, actual: Array) -> None:
        """Add one sample; infinities in `want` are no signal."""
        finite = np.isfinite(want)
        if not finite.any():
            return

        # Squares of float32 may be beyond float32.
        reference = want[finite].astype(np.float64)
        difference = actual[finite].astype(np.float64)
        difference -= reference
        self.signal += float(reference @ reference)
        self.noise += float(difference @ difference)

        largest = float(np.abs(difference).max())
        least = float(reference.min())
        most = float(reference.max())
        self.error = max(self.error, largest)
        self.low = min(self.low, least)
        self.high = max(self.high, most)

    def loss(self) -> Loss:
        """Return the loss of all samples so far."""
        if self.noise == 0:
            return Loss(math.inf, 0.0)

        # A value of nothing but 0 must stay so.
        extent = span(self.low, self.high)
        largest = self.error / extent if extent > 0 else math.inf
        return Loss(decibels(self.signal, self.noise), largest)


def losses(
    names: Iterable[str],
    expected: Sequence[Mapping[str, Array]],
    actual: Sequence[Mapping[str, Array]],
) -> dict[str, Loss]:
    """Return the loss of each value by its name, over samples."""
    by_name: dict[str, Loss] = {}
    for name in names:
        sums = LossSums()
        for want, have in zip(expected, actual, strict=True):
            sums.add(want[name], have[name])
        by_name[name] = sums.loss()

    return by_name
