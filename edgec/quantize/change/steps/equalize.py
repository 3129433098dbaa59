"""Rewrite: cross-layer equalization (CLE; Nagel et al. 2019, arXiv:1906.04721).

Each output channel i of a layer is multiplied by a factor s_i, in weights and bias, and
the weights of the consumers that read it are divided by it:

    W1' = diag(s) W1,   b1' = diag(s) b1,   W2' = W2 diag(1 / s)

A relu between the two keeps a positive factor, so that the model computes the same.
Nagel et al. take s_i from the ranges of the weights; here the weights have scales of
their own, and s_i is taken from the observed ranges of the activations, whose channels
share one scale. With R the end of the range of all channels of a value, and r_i that of
channel i:

    s_i = (min over the values with channel i of R / r_i) ** power
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.analysis.channels import FIXED, ChannelFactors, scale_groups
from edgec.ir import Array, Graph, Op, QuantRule, Value
from edgec.passes._linear import columns
from edgec.quantize.change.state import ChannelExtremes, QuantizationState
from edgec.quantize.observe.ranges import Range, vectors

MAX_FACTOR = 1024.0
"""Channels that would need a larger factor are noise."""
TINY = 1e-30
"""The least end of a range that is divided by."""


@dataclass(frozen=True)
class Equalize:
    """Multiply each channel by a factor, and divide where it is read (`ChannelFactors`).

    A channel grows until one of the values that hold it would need a larger range, or a
    relu6 would clip it; it never shrinks.

    Attributes:
        power: the exponent of the factor. Below 1 it leaves the weights of a dense
            convolution that reads the channel with columns of less unlike sizes, and
            some dozens of samples do not tell every range.
        room: the exponent by which unseen samples may exceed the observed ones, see
            `reach`.
        margin: how far a channel may grow beyond that before a relu6 clips it.
        rows: a channel does not grow in values of which fewer vectors were observed. A
            channel that stands for one class is small in all samples without it.
    """

    power: float = 0.5
    room: float = 0.0
    margin: float = 1.05
    rows: int = 0
    name: ClassVar[str] = "equalize"
    changes: ClassVar[str] = "graph"

    def run(self, state: QuantizationState) -> None:
        """Equalize all channels that may have a factor."""
        # Constants are replaced in a copy: the state before the step is kept.
        graph = state.graph.copy()
        factors = ChannelFactors(graph)
        extremes = _extremes(state, graph, factors)
        values = self._factors(graph, factors, extremes)

        # Producers multiply, consumers divide: the order of the two does not matter.
        for op, ids in factors.produced.items():
            _multiply_outputs(graph, op, values[ids])

        for op, ids in factors.consumed.items():
            _divide_inputs(graph, op, values[factors.same(ids)])

        state.graph = graph

    def _factors(
        self,
        graph: Graph,
        factors: ChannelFactors,
        extremes: Mapping[Value, Sequence[ChannelExtremes]],
    ) -> Array:
        """Return the factors by their numbers, float64, at least 1."""
        reached = {v: self._reach(each) for v, each in extremes.items()}
        limit = self._growth_limits(graph, factors, reached, extremes)
        limit = np.minimum(limit, MAX_FACTOR)
        limit = limit**self.power

        # The ends of a relu6 are fixed: `power` does not apply to them.
        for v, bound in factors.limits:
            ids = factors.channels(v)
            if ids is not None and v in reached:
                high = reached[v][1] * self.margin
                np.minimum.at(limit, ids, bound / np.maximum(high, TINY))

        limit[FIXED] = 1.0
        values: Array = np.maximum(limit, 1.0)

        return values[factors.same(np.arange(factors.count))]

    def _growth_limits(
        self,
        graph: Graph,
        factors: ChannelFactors,
        reached: Mapping[Value, ChannelExtremes],
        extremes: Mapping[Value, Sequence[ChannelExtremes]],
    ) -> Array:
        """Return how far channels may grow within the ranges of their values, by number.

        reached: how far the channels of each value reach in any sample.
        extremes: the extremes in each sample.
        """
        limit = np.full(factors.count, np.inf)

        # A channel may grow up to the end of the whole scale's range, at either side.
        groups = _same_scale_groups(graph)
        ranges = _group_ranges(groups, reached)
        for v, (low, high) in reached.items():
            ids = factors.channels(v)
            if ids is None:
                continue
            bottom, top = ranges[groups[v]]
            up = np.where(high > 0, top / np.maximum(high, TINY), np.inf)
            down = np.where(low < 0, bottom / np.minimum(low, -TINY), np.inf)
            growth = np.minimum(up, down)

            # Few vectors do not show how large a channel can be.
            if vectors(v) * len(extremes[v]) < self.rows:
                growth = np.ones_like(up)
            # A factor belongs to channels of several values: the least growth counts.
            np.minimum.at(limit, ids, growth)

        return limit

    def _reach(self, each_sample: Sequence[ChannelExtremes]) -> ChannelExtremes:
        """Return how far each channel reaches to both sides, [C] each."""
        lows, highs = zip(*each_sample, strict=True)
        low = np.stack(lows)
        high = np.stack(highs)

        return -reach(-low, self.room), reach(high, self.room)


def _same_scale_groups(graph: Graph) -> Mapping[Value, int]:
    """Return the number of each value's scale, if every op became int8."""
    same = [op for op in graph.ops if op.spec.quant is QuantRule.SAME]
    return scale_groups(graph, same)


def _group_ranges(
    groups: Mapping[Value, int], reached: Mapping[Value, ChannelExtremes]
) -> dict[int, Range]:
    """Return the range of each scale: over all channels of its values, with zero.

    groups: the number of each value's scale.
    reached: how far the channels of each value reach.
    """
    ranges: dict[int, Range] = {}
    for v, (low, high) in reached.items():
        bottom, top = ranges.get(groups[v], (0.0, 0.0))
        bottom = min(bottom, float(low.min()))
        top = max(top, float(high.max()))
        ranges[groups[v]] = (bottom, top)

    return ranges


def _extremes(
    state: QuantizationState, graph: Graph, factors: ChannelFactors
) -> dict[Value, list[ChannelExtremes]]:
    """Return the extremes with zero in each sample, for values with factors."""
    by_name: dict[str, Value] = {}
    for v in graph.values():
        if v.const is None and factors.channels(v) is not None:
            by_name[v.name] = v

    # What ran is the graph before the copy: its values are others of the same names.
    with_zero: dict[Value, list[ChannelExtremes]] = {}
    for v, each_sample in state.channel_extremes(by_name).items():
        with_zero[by_name[v.name]] = [
            (low.clip(max=0), high.clip(min=0)) for low, high in each_sample
        ]

    return with_zero


def reach(sizes: Array, room: float) -> Array:
    """Return how far channels may reach in unseen samples, [C].

    It is max * (max / mean) ** room over the samples: as far as observed where all
    samples are alike, and further the more one of them exceeds the mean; no further than
    any channel was observed to reach.

    sizes: how far each channel reaches in each sample, [samples, C].
    """
    largest = sizes.max(0).astype(np.float64)
    mean = sizes.mean(0, dtype=np.float64)
    unseen = largest * (largest / np.maximum(mean, TINY)) ** room
    return np.asarray(np.minimum(unseen, largest.max()))


def _multiply_outputs(graph: Graph, op: Op, factor: Array) -> None:
    """Multiply the output channels of an op, in its constants.

    factor: of each channel, [C].
    """
    # Constants that do not change stay shared with other ops.
    if (factor == 1).all():
        return

    if "weight" not in op.spec.roles:
        # A sum with a constant: its computed term has the factor already.
        for i, v in enumerate(op.inputs):
            if v.const is not None:
                _replace(graph, op, i, _array(v) * factor)
        return

    # One factor for each slice of the weights, and for each bias.
    w = op.inputs[1]
    shape = [-1 if i == op.spec.weight_axis else 1 for i in range(w.type.rank)]
    _replace(graph, op, 1, _array(w) * factor.reshape(shape))
    if len(op.inputs) > 2:
        _replace(graph, op, 2, _array(op.inputs[2]) * factor)


def _divide_inputs(graph: Graph, op: Op, factor: Array) -> None:
    """Divide the weights of each input channel of an op.

    factor: of each channel, [C].
    """
    if (factor == 1).all():
        return
    _replace(graph, op, 1, _array(op.inputs[1]) / columns(op, factor))


def _replace(graph: Graph, op: Op, i: int, array: Array) -> None:
    """Replace a constant of one op; other ops that read it keep the old one."""
    old = op.inputs[i]
    type_ = old.type.with_shape(array.shape)
    name = graph.unique_name(old.name)

    op.inputs[i] = Value(name, type_, array.astype(np.float32))


def _array(v: Value) -> Array:
    assert v.const is not None
    return v.const.astype(np.float64)


STEP = Equalize
