"""Rewrite: channels of unlike sizes are brought to one size, by weights that make up
for it before and behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.analysis.channels import FIXED, ChannelFactors, scale_groups
from edgec.ir import Array, Graph, Op, QuantRule, Value
from edgec.passes._linear import columns
from edgec.quantize.change.state import Ends, QuantizationState
from edgec.quantize.observe.ranges import vectors

_LARGEST = 1024.0
"""Factor: channels that are smaller are noise."""
_TINY = 1e-30


@dataclass(frozen=True)
class Equalize:
    """Each channel is multiplied by a factor, and what reads it divided by that
    (`ChannelFactors`).

    A channel may grow until one of the values that hold it would need a larger range,
    or a relu6 would clip it. Samples that were not seen may have more of it: it counts
    as reaching as many times further as the one that has most of it has more than the
    mean of all, by the power `room`. It grows by the power `power` of what it then may:
    weights of a dense convolution that reads it get columns of unlike sizes instead,
    and some dozens of samples do not tell all. margin: how far a channel may grow
    beyond that before a relu6 clips it. rows: none grows in values of which fewer
    vectors were seen: a channel that stands for one class is small in all samples
    without it.
    """

    power: float = 0.5
    room: float = 0.0
    margin: float = 1.05
    rows: int = 0
    name: ClassVar[str] = "equalize"
    changes: ClassVar[str] = "graph"

    def run(self, work: QuantizationState) -> None:
        """All channels that may have a factor."""
        graph = work.graph.copy()
        factors = ChannelFactors(graph)
        found = self._find(graph, factors, _seen(work, graph, factors))
        for op, ids in factors.produced.items():
            _multiply(graph, op, found[ids])
        for op, ids in factors.consumed.items():
            _divide(graph, op, found[factors.same(ids)])
        work.graph = graph

    def _find(
        self,
        graph: Graph,
        factors: ChannelFactors,
        every: Mapping[Value, Sequence[Ends]],
    ) -> Array:
        """float64, by number."""
        seen = {v: self._reach(each) for v, each in every.items()}
        room = np.full(factors.count, np.inf)
        groups = scale_groups(
            graph, (op for op in graph.ops if op.spec.quant is QuantRule.SAME)
        )
        whole: dict[int, tuple[float, float]] = {}
        for v, (low, high) in seen.items():
            a, b = whole.get(groups[v], (0.0, 0.0))
            whole[groups[v]] = min(a, float(low.min())), max(b, float(high.max()))
        for v, (low, high) in seen.items():
            ids = factors.channels(v)
            if ids is not None:
                bottom, top = whole[groups[v]]
                up = np.where(high > 0, top / np.maximum(high, _TINY), np.inf)
                down = np.where(low < 0, bottom / np.minimum(low, -_TINY), np.inf)
                few = vectors(v) * len(every[v]) < self.rows
                np.minimum.at(
                    room, ids, np.ones_like(up) if few else np.minimum(up, down)
                )
        room = np.minimum(room, _LARGEST)
        room = room**self.power
        for v, bound in factors.limits:
            ids = factors.channels(v)
            if ids is not None and v in seen:
                np.minimum.at(
                    room, ids, bound / np.maximum(seen[v][1] * self.margin, _TINY)
                )
        room[FIXED] = 1.0
        found: Array = np.maximum(room, 1.0)[factors.same(np.arange(factors.count))]
        return found

    def _reach(self, each: Sequence[Ends]) -> Ends:
        lows, highs = (np.stack(ends) for ends in zip(*each, strict=True))
        return -reach(-lows, self.room), reach(highs, self.room)


def _seen(
    work: QuantizationState, graph: Graph, factors: ChannelFactors
) -> dict[Value, list[Ends]]:
    """Of the values that have channels with a factor, in each sample; with zero."""
    wanted = {
        v.name: v
        for v in graph.values()
        if v.const is None and factors.channels(v) is not None
    }
    found = work.channels(wanted)
    return {
        wanted[v.name]: [(low.clip(max=0), high.clip(min=0)) for low, high in each]
        for v, each in found.items()
    }


def reach(sizes: Array, room: float) -> Array:
    """[C]: how far channels may reach in other samples, of how far they did in each,
    [samples, C]: as far as in all of these where all are alike, and further the more
    one of them has of a channel beyond the mean of all; no further than any channel
    did.
    """
    most = sizes.max(0).astype(np.float64)
    mean = sizes.mean(0, dtype=np.float64)
    return np.asarray(
        np.minimum(most * (most / np.maximum(mean, _TINY)) ** room, most.max())
    )


def _multiply(graph: Graph, op: Op, factor: Array) -> None:
    """What an op adds or multiplies by for each output channel."""
    if (factor == 1).all():
        return
    if "weight" not in op.spec.roles:  # a sum with a constant
        for i, v in enumerate(op.inputs):
            if v.const is not None:
                _replace(graph, op, i, _array(v) * factor)
        return
    w = op.inputs[1]
    shape = [-1 if i == op.spec.weight_axis else 1 for i in range(w.type.rank)]
    _replace(graph, op, 1, _array(w) * factor.reshape(shape))
    if len(op.inputs) > 2:
        _replace(graph, op, 2, _array(op.inputs[2]) * factor)


def _divide(graph: Graph, op: Op, factor: Array) -> None:
    """The weights of each input channel."""
    if (factor == 1).all():
        return
    _replace(graph, op, 1, _array(op.inputs[1]) / columns(op, factor))


def _replace(graph: Graph, op: Op, i: int, array: Array) -> None:
    old = op.inputs[i]
    type_ = old.type.with_shape(array.shape)
    op.inputs[i] = Value(graph.unique_name(old.name), type_, array.astype(np.float32))


def _array(v: Value) -> Array:
    assert v.const is not None
    return v.const.astype(np.float64)


STEP = Equalize
