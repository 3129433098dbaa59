"""Rewrite: channel splitting, where cross-layer equalization cannot help.

Channels of unlike ranges that can have no factor get tensors, and so scales, of their
own. Zhao et al. 2019 (outlier channel splitting, arXiv:1901.09504) halve outliers and
duplicate them; here the channels are sorted by range and divided into few groups.

The noise of int8 is R² / (12 * 255²) for a range R. A depthwise convolution that reads
channels c in groups g, with weights w_c and a result of C channels in the range Y, has
up to that constant the noise

    Σ over g of (Σ over c in g of |w_c|²) * max over c in g of R_c²  +  C * Y²
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import ClassVar

import numpy as np

from edgec.analysis.splittable import SplittablePath, splittable_paths
from edgec.ir import Array, Op
from edgec.quantize.change.channel_groups import (
    Parts,
    part,
    whole,
)
from edgec.quantize.change.products import LinearLayer
from edgec.quantize.change.state import (
    ChannelExtremes,
    QuantizationState,
    over_samples,
)
from edgec.quantize.change.steps.choose import MIN_VECTORS
from edgec.quantize.observe.ranges import vectors

MIN_GROUP_UNIT = 4
MAX_GROUP_UNIT = 16
"""The sizes of groups are multiples of the largest power of two in an eighth of the
channels, between these: kernels compute vectors of channels, and a remainder costs more
than a few channels in the wrong group.
"""


@dataclass(frozen=True)
class Separate:
    """Split channels into groups of about the same range, each with its own tensors.

    Values with few observed channel vectors stay as they are.

    Attributes:
        most: the most groups.
        worth: one more group must divide the noise by this.
    """

    most: int = 3
    worth: float = 1.5
    name: ClassVar[str] = "separate"
    changes: ClassVar[str] = "graph"

    def run(self, state: QuantizationState) -> None:
        """Split the channels of all paths for which it pays."""
        graph = state.graph.copy()
        paths = [p for p in splittable_paths(graph) if _may_split(state, p)]
        if not paths:
            return

        names: set[str] = set()
        for path in paths:
            names |= {path.last.name, path.consumer.output.name}
        extremes = state.channel_extremes(names)
        widths = {v.name: _widths(each_sample) for v, each_sample in extremes.items()}

        split: dict[str, Parts] = {}
        for path in paths:
            groups = self._groups(path, widths)
            # `part` changes the graph, unless the channels cannot be reordered.
            if len(groups) > 1 and part(graph, path, groups) is not None:
                split[path.producer.output.name] = groups

        if split:
            state.graph = graph
            state.parts = {**state.parts, **split}

    def _groups(self, path: SplittablePath, widths: Mapping[str, Array]) -> Parts:
        """Return the channels of each group; all in one where more do not pay.

        path: the values through which the channels go.
        widths: of each channel's range, by the name of the value.
        """
        width = widths[path.last.name]
        result_width = widths[path.consumer.output.name]
        weights = _squared_weights(path.consumer)
        result_noise = len(result_width) * result_width.max() ** 2

        # Greedily: two groups are weighed with one, three with two.
        best: Parts = [np.arange(len(width))]
        noise = weights.sum() * width.max() ** 2 + result_noise

        for count in range(2, self.most + 1):
            groups = _divided(width, weights, count)
            divided_noise = (
                sum(weights[g].sum() * width[g].max() ** 2 for g in groups)
                + result_noise
            )
            if not groups or divided_noise * self.worth > noise:
                break
            best = groups
            noise = divided_noise

        return best


def _may_split(state: QuantizationState, path: SplittablePath) -> bool:
    """Return whether a path is not split yet, and has enough observed vectors."""
    is_split = whole(path.producer.output.name) in state.parts
    count = vectors(path.last) * len(state.samples)

    return not is_split and count >= MIN_VECTORS


def _widths(each_sample: Sequence[ChannelExtremes]) -> Array:
    """Return the width of each channel's range with zero, [C]."""
    low, high = over_samples(each_sample)
    return np.asarray(high.clip(min=0) - low.clip(max=0))


def _squared_weights(op: Op) -> Array:
    """Return |w_c|² for each channel of a depthwise convolution, [C]."""
    w = op.inputs[1].const
    assert w is not None
    # [channels, outputs of the channel, taps].
    matrix = LinearLayer(op).matrix(w.astype(np.float64))
    return np.asarray(np.square(matrix).sum((1, 2)))


def _divided(width: Array, weights: Array, count: int) -> Parts:
    """Return the division into `count` groups with the least noise.

    The channels are sorted by width, so that every group is a run of them. Empty where
    there are too few channels for so many groups.
    """
    channels = len(width)
    order = np.argsort(width, kind="stable")
    # With these sums the noise of a run takes one subtraction and one product.
    sums = np.concatenate([[0.0], weights[order].cumsum()])
    squares = np.square(width[order])

    # The largest power of two in channels / 8.
    largest_unit = 2.0 ** (channels.bit_length() - 4)
    unit = int(np.clip(largest_unit, MIN_GROUP_UNIT, MAX_GROUP_UNIT))

    def noise(cuts: tuple[int, ...]) -> float:
        ends = pairwise((0, *cuts, channels))
        return sum(float((sums[b] - sums[a]) * squares[b - 1]) for a, b in ends)

    possible = combinations(range(unit, channels, unit), count - 1)
    cuts = min(possible, key=noise, default=None)
    if cuts is None:
        return []

    # Inside a group the channels keep the model's order.

    return [np.sort(order[a:b]) for a, b in pairwise((0, *cuts, channels))]


STEP = Separate
