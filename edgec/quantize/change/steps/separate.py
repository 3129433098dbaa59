"""Rewrite: channels of unlike sizes that can have no factor get tensors, and so scales,
of their own.
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
from edgec.quantize.change.state import Ends, QuantizationState, over_all
from edgec.quantize.change.steps.choose import FEW
from edgec.quantize.observe.ranges import vectors

_UNITS = 4, 16
"""Channels: parts are multiples of the largest power of two in an eighth of the
channels, between these: kernels compute vectors of channels, and fewer in the end cost
more than few in a row.
"""


@dataclass(frozen=True)
class Separate:
    """Channels that reach about as far stay together, in at most `most` tensors.

    Counted is what int8 makes of what a depthwise convolution reads, as noise in its
    result: each channel's by its weights and by the range of the tensor that it is in;
    and what rounding that result adds. One more part must leave at most 1 / `worth` of
    it. Not where few vectors of channels were seen.
    """

    most: int = 3
    worth: float = 1.5
    name: ClassVar[str] = "separate"
    changes: ClassVar[str] = "graph"

    def run(self, work: QuantizationState) -> None:
        """All strands for which it pays."""
        graph = work.graph.copy()
        every = (
            s
            for s in splittable_paths(graph)
            if whole(s.producer.output.name) not in work.parts
        )
        found = [s for s in every if vectors(s.last) * len(work.samples) >= FEW]
        if not found:
            return
        seen = work.channels(
            {v.name for s in found for v in (s.last, s.consumer.output)}
        )
        widths = {v.name: _widths(each) for v, each in seen.items()}
        done = dict[str, Parts]()
        for strand in found:
            parts = self._parts(strand, widths)
            if len(parts) > 1 and part(graph, strand, parts) is not None:
                done[strand.producer.output.name] = parts
        if done:
            work.graph = graph
            work.parts = {**work.parts, **done}

    def _parts(self, strand: SplittablePath, widths: Mapping[str, Array]) -> Parts:
        """All in one where more do not pay."""
        reach = widths[strand.last.name]
        result = widths[strand.consumer.output.name]
        weights = _weights(strand.consumer)
        added = len(result) * result.max() ** 2
        best: Parts = [np.arange(len(reach))]
        noise = weights.sum() * reach.max() ** 2 + added
        for count in range(2, self.most + 1):
            parts = _divided(reach, weights, count)
            then = sum(weights[p].sum() * reach[p].max() ** 2 for p in parts) + added
            if not parts or then * self.worth > noise:
                break
            best = parts
            noise = then
        return best


def _widths(every: Sequence[Ends]) -> Array:
    """[C]: of the range, with zero, that each channel has."""
    low, high = over_all(every)
    return np.asarray(high.clip(min=0) - low.clip(max=0))


def _weights(op: Op) -> Array:
    """[C]: how much the noise of a channel of an image is in that of a depthwise
    convolution.
    """
    w = op.inputs[1].const
    assert w is not None
    return np.asarray(
        np.square(LinearLayer(op).matrix(w.astype(np.float64))).sum((1, 2))
    )


def _divided(reach: Array, weights: Array, count: int) -> Parts:
    """So many parts, of the narrowest channels to the widest, that the noise of all is
    least; none where that many are too many.
    """
    every = len(reach)
    order = np.argsort(reach, kind="stable")
    sums = np.concatenate([[0.0], weights[order].cumsum()])
    squares = np.square(reach[order])
    unit = int(np.clip(2.0 ** (every.bit_length() - 4), *_UNITS))

    def noise(cuts: tuple[int, ...]) -> float:
        return sum(
            float((sums[b] - sums[a]) * squares[b - 1])
            for a, b in pairwise((0, *cuts, every))
        )

    cuts = min(
        combinations(range(unit, every, unit), count - 1), key=noise, default=None
    )
    if cuts is None:
        return []
    return [np.sort(order[a:b]) for a, b in pairwise((0, *cuts, every))]


STEP = Separate
