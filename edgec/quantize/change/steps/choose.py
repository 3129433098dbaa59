"""Ranges: for each value by the method with the least cost for its consumers.

Every method of `METHODS` proposes a range; `range_costs` weighs its error by what the
consumers of the value compute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.analysis.channels import scale_groups
from edgec.ir import Array, Observe, Op, QuantRule, Value
from edgec.quantize.change.domains import int8_ops
from edgec.quantize.change.functions import softmax
from edgec.quantize.change.histograms import (
    METHODS,
    Histogram,
    histograms,
    mse,
    search,
)
from edgec.quantize.change.products import LinearLayer, consumers, linear_layers
from edgec.quantize.change.range_costs import (
    CostModel,
    RangeCost,
    RangeCosts,
    SampledWindows,
    total,
)
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.observe.ranges import Range, vectors

MIN_VECTORS = 256
"""A value of which fewer channel vectors were observed is not clipped: unseen samples
may have other extremes.
"""
MAX_GROUPED_ELEMENTS = 1 << 20
"""The most elements of one grouped layer's windows: 4 MB."""
SOFTMAX_ROWS = 256
"""The rows that are drawn of a softmax: each has many elements."""

DrawnRows = tuple[Array, Array]
"""Windows or rows of one sample, and the number that each stands for."""


@dataclass(frozen=True)
class Choose:
    """Choose for each value the range with the least cost (`RangeCosts`).

    Values that share a scale have the sum of their costs.

    Attributes:
        windows: the number of windows that are drawn of each layer.
        than: the cost of a range must be below this part of that of min/max. What a
            range clips is judged on few samples, of which others may have several times
            as much, and in all layers at once.
        clipping: how many times the error of clipped elements counts.
        room: how many times the observed range a value with one vector in each sample
            gets, logits for example: those of mobilenet_v1 0.25 reached 17 in 21 photos
            and 23 in others, whose best classes would become equal.
        methods: the methods that are tried, of `METHODS`.
    """

    windows: int = 1024
    than: float = 0.6
    clipping: float = 1.0
    room: float = 1.5
    methods: tuple[str, ...] = tuple(m for m in METHODS if m != "entropy")
    name: ClassVar[str] = "choose"
    changes: ClassVar[str] = "ranges"

    def __post_init__(self) -> None:
        if unknown := [m for m in self.methods if m not in METHODS]:
            raise ValueError(
                f'step choose has no method "{unknown[0]}"; it has {", ".join(METHODS)}'
            )

    def run(self, state: QuantizationState) -> None:
        """Set the range of every value."""
        by_value = histograms(state)
        ops = int8_ops(state.graph, state.observed_ranges())
        same = {op for op in ops if op.spec.quant is QuantRule.SAME}
        model = CostModel(
            graph=state.graph,
            users=state.graph.users(),
            windows=self._windows(state),
            same=same,
            clipping=self.clipping,
        )

        # Values with one scale have one range: their costs are added up.
        groups = scale_groups(state.graph, same)
        count = len(state.samples)

        ranges: dict[Value, Range] = {}
        for values in by_scale_group(by_value, groups):
            chosen = self._range(model, {v: by_value[v] for v in values}, count)
            ranges.update(dict.fromkeys(values, chosen))

        state.ranges = ranges

    def _range(
        self, model: CostModel, group: Mapping[Value, Histogram], samples: int
    ) -> Range:
        """Return the range of values that share a scale, by their histograms.

        samples: the number of samples.
        """
        observed = union(h.range for h in group.values())

        # A range that clips needs enough samples to be judged on.
        most_vectors = max(map(vectors, group))
        if most_vectors * samples < MIN_VECTORS:
            room = self.room if most_vectors == 1 else 1.0
            return room * observed[0], room * observed[1]

        costs = {v: model.costs(v, h) for v, h in group.items()}
        tries = self._tries(group, costs)
        every_cost = [cost for of_value in costs.values() for cost in of_value]

        return self._best(observed, tries, total(every_cost))

    def _tries(
        self, group: Mapping[Value, Histogram], costs: Mapping[Value, RangeCosts]
    ) -> list[Range]:
        """Return the ranges that the methods propose for a group of values.

        group: the histograms of values that share a scale.
        costs: the costs of their consumers.
        """
        histograms_ = group.values()
        tries = []
        for name in self.methods:
            method = METHODS[name]
            tries.append(union(method(h) for h in histograms_))

        # The methods do not know of a dearer clipping; one more search does.
        if self.clipping != 1:
            tries.append(union(mse(h, self.clipping) for h in histograms_))

        # A range may also end where the functions behind a value are flat.
        for v, h in group.items():
            if costs[v].of_functions:
                tries.append(search(h, total(costs[v].of_functions)))

        for v, h in group.items():
            if costs[v].of_rows:
                tries.append(search(h, total(costs[v].of_rows)))

        return tries

    def _best(self, observed: Range, tries: Sequence[Range], cost: RangeCost) -> Range:
        """Return the range of the least cost, if it is well below the observed one's."""
        # min/max clips nothing, so that it is the one to beat.
        totals = {r: cost(r) for r in (observed, *tries)}
        best = min(totals, key=lambda r: totals[r])
        return best if totals[best] < self.than * totals[observed] else observed

    def _windows(self, state: QuantizationState) -> dict[Op, SampledWindows]:
        """Return the drawn windows of each layer, the same for all candidates."""
        key = ("windows", self.windows)
        return state.cached(key, lambda: self._draw_windows(state))

    def _draw_windows(self, state: QuantizationState) -> dict[Op, SampledWindows]:
        """Return windows of each layer, [n, G, D], and rows of each softmax, [n, C]."""
        layers = linear_layers(state.graph.ops)
        softmaxes = [op for op in state.graph.ops if softmax(op) is not None]
        parts: dict[Op, list[DrawnRows]] = {op: [] for op in (*layers, *softmaxes)}
        by_value = consumers(parts)
        numbers = {op: i for i, op in enumerate(state.graph.ops)}
        samples = len(state.samples)

        def of_sample(i: int) -> tuple[dict[Op, DrawnRows], Observe]:
            drawn: dict[Op, DrawnRows] = {}

            def observe(v: Value, array: Array) -> None:
                """Draw windows for every consumer of a value."""
                for op in by_value.get(v, ()):
                    # A seed for each sample and op: the draws do not depend on the
                    # order in which threads come to them.
                    rng = np.random.default_rng((state.seed, i, numbers[op]))
                    if op in layers:
                        count = -(-self._window_count(layers[op]) // samples)
                        drawn[op] = layers[op].weighted_windows(array, count, rng)
                    else:
                        drawn[op] = _rows(array, -(-SOFTMAX_ROWS // samples), rng)

            return drawn, observe

        for drawn in state.observe_samples(of_sample, "sample windows"):
            for op, rows in drawn.items():
                parts[op].append(rows)

        windows: dict[Op, SampledWindows] = {}
        for op in [*parts]:
            # Each part is freed when it is joined: memory has no second copy of all.
            of_op = parts.pop(op)
            if of_op:
                windows[op] = SampledWindows.of(of_op)

        return windows

    def _window_count(self, layer: LinearLayer) -> int:
        """Return the number of windows to draw of a layer.

        There are fewer of a layer with many groups: a wide depthwise convolution has as
        many windows of its own at every pixel.
        """
        if layer.groups == 1:
            return self.windows
        window_elements = layer.groups * layer.depth
        return max(1, min(self.windows, MAX_GROUPED_ELEMENTS // window_elements))


def _rows(array: Array, count: int, rng: np.random.Generator) -> DrawnRows:
    """Return at most `count` rows of the last axis; each stands for one.

    array: the input of a softmax.
    count: the most rows.
    """
    rows = array.reshape(-1, array.shape[-1])
    count = min(len(rows), count)
    drawn = rows[rng.choice(len(rows), count, replace=False)]

    # All rows are drawn with the same chance: none has more weight.
    return drawn, np.ones(count, np.float32)


def by_scale_group(
    values: Iterable[Value], number: Mapping[Value, int]
) -> Iterable[Sequence[Value]]:
    """Return the values in lists of those with the same number (`scale_groups`)."""
    # In the order of the first value of each group.
    groups: dict[int, list[Value]] = {}
    for v in values:
        groups.setdefault(number[v], []).append(v)

    return groups.values()


def union(ranges: Iterable[Range]) -> Range:
    """Return the smallest range that holds all ranges."""
    lows, highs = zip(*ranges, strict=True)
    return min(lows), max(highs)


STEP = Choose
