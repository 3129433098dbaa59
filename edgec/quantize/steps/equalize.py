"""Rewrite: channels of unlike sizes are brought to one size, by weights that make up for it before and behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import Array, Graph, Op, QuantRule, Value
from edgec.ops.conv import DepthwiseConv2D
from edgec.quantize.factors import NONE, Factors, scale_groups
from edgec.quantize.products import Products
from edgec.quantize.work import Work

_LARGEST = 1024.0
"""Factor: channels that are smaller are noise."""
_TINY = 1e-30


@dataclass(frozen=True)
class Equalize:
    """Each channel is multiplied by a factor, and what reads it divided by that (`Factors`).

    A channel grows until one of the values that hold it would need a larger range, or a relu6 would clip it. Weights
    have a scale for each output channel, so what writes it loses nothing, and a depthwise convolution that reads it
    loses nothing either. A dense one gets columns of unlike sizes instead: what it reads is raised by the power `dense`
    of what is missing. margin: how far a channel may grow beyond what was seen before a relu6 clips it.
    """

    dense: float = 0.5
    margin: float = 1.05
    name: ClassVar[str] = "equalize"
    changes: ClassVar[str] = "graph"

    def run(self, work: Work) -> None:
        """All channels that may have a factor."""
        graph = work.graph.copy()
        factors = Factors(graph)
        found = self._find(graph, factors, _seen(work, graph, factors))
        for op, ids in factors.made.items():
            _multiply(graph, op, found[ids])
        for op, ids in factors.read.items():
            _divide(graph, op, found[factors.same(ids)])
        work.graph = graph

    def _find(self, graph: Graph, factors: Factors, seen: Mapping[Value, Seen]) -> Array:
        """float64, by number."""
        room = np.full(factors.count, np.inf)
        groups = scale_groups(graph, (op for op in graph.ops if op.spec.quant is QuantRule.SAME))
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
                np.minimum.at(room, ids, np.minimum(up, down))
        room = np.minimum(room, _LARGEST)
        dense = np.zeros(factors.count, bool)
        for op, ids in factors.read.items():
            dense[factors.same(ids)] |= not isinstance(op.spec, DepthwiseConv2D)
        room = np.where(dense, room**self.dense, room)
        for v, bound in factors.limits:
            ids = factors.channels(v)
            if ids is not None and v in seen:
                np.minimum.at(room, ids, bound / np.maximum(seen[v][1] * self.margin, _TINY))
        room[NONE] = 1.0
        found: Array = np.maximum(room, 1.0)[factors.same(np.arange(factors.count))]
        return found


Seen = tuple[Array, Array]
"""The smallest and the largest element of each channel, with zero."""


def _seen(work: Work, graph: Graph, factors: Factors) -> dict[Value, Seen]:
    """Of the values that have channels with a factor."""
    wanted = {v.name: v for v in graph.values() if v.const is None and factors.channels(v) is not None}
    found: dict[Value, Seen] = {}

    def observe(v: Value, array: Array) -> None:
        twin = wanted.get(v.name)
        if twin is not None and v.type.dtype == "float32":
            rows = array.reshape(-1, array.shape[-1])
            low, high = found.get(twin, (np.zeros(rows.shape[1]), np.zeros(rows.shape[1])))
            found[twin] = np.minimum(low, rows.min(0)), np.maximum(high, rows.max(0))

    work.watch(lambda i: observe, "measure channels")
    return found


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
    p = Products(op)
    w = _array(op.inputs[1])
    if isinstance(op.spec, DepthwiseConv2D):
        _replace(graph, op, 1, w / np.repeat(factor, w.shape[3] // len(factor)))
        return
    columns = np.tile(factor.reshape(p.groups, 1, -1), (1, p.depth * p.groups // len(factor), 1))
    matrix = p.matrix(w) / columns.reshape(p.groups, 1, -1)
    _replace(graph, op, 1, p.weights(matrix))


def _replace(graph: Graph, op: Op, i: int, array: Array) -> None:
    old = op.inputs[i]
    type_ = old.type.with_shape(array.shape)
    op.inputs[i] = Value(graph.unique_name(old.name), type_, array.astype(np.float32))


def _array(v: Value) -> Array:
    assert v.const is not None
    return v.const.astype(np.float64)


STEP = Equalize
