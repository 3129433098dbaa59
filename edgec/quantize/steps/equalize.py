"""Rewrite: channels of unlike sizes are brought to one size, by weights that make up for it before and behind."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import Array, Graph, Op, Value
from edgec.ops.activation import LeakyRelu
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.fixed_point import ACTIVATIONS
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec.ops.prelu import PRelu
from edgec.ops.unary import Relu
from edgec.quantize.products import Products
from edgec.quantize.work import Work

_CONVS = (Conv2D, DepthwiseConv2D)
_THROUGH = (MaxPool2D, AveragePool2D, Relu, LeakyRelu, PRelu)
"""What does to a channel times a factor what it does to the channel, times the factor."""
_LARGEST = 1024.0
"""Factor: channels that are smaller are noise."""


@dataclass(frozen=True)
class Equalize:
    """Each channel between two convolutions is multiplied by a factor, and what reads it divided by that.

    Weights have a scale for each output channel, so the convolution before loses nothing, and a depthwise one behind
    loses nothing either: its channels become as large as the largest. A dense one gets columns of unlike sizes instead;
    its channels are raised by the power `dense` of what is missing. margin: how far a channel may grow beyond what was
    seen before a relu6 clips it.
    """

    dense: float = 0.5
    margin: float = 1.05
    name: ClassVar[str] = "equalize"
    changes: ClassVar[str] = "graph"

    def run(self, work: Work) -> None:
        """All pairs of convolutions with nothing else between them than what keeps a factor."""
        graph = work.graph.copy()
        pairs = {op.output: [*readers] for op in graph.ops if (readers := _behind(graph, op))}
        sizes = _sizes(work, {v.name for v in pairs})
        producer = graph.producers()
        for v, readers in pairs.items():
            factor = self._factor(producer[v], readers, sizes[v.name])
            _multiply(graph, producer[v], factor)
            for op in readers:
                _divide(graph, op, factor)
        work.graph = graph

    def _factor(self, op: Op, readers: list[Op], size: Array) -> Array:
        """float64 [C]. size: the largest magnitude of each channel."""
        assert isinstance(op.spec, _CONVS)
        whole = float(size.max(initial=0.0))
        if not whole:
            return np.ones_like(size)
        missing = np.minimum(whole / np.maximum(size, whole / _LARGEST), _LARGEST)
        power = 1.0 if all(isinstance(r.spec, DepthwiseConv2D) for r in readers) else self.dense
        top = ACTIVATIONS[op.spec.act][1]
        room = top / np.maximum(size * self.margin, 1e-30) if math.isfinite(top) else np.inf
        return np.maximum(1.0, np.minimum(missing**power, room))


def _behind(graph: Graph, op: Op) -> list[Op]:
    """The convolutions that read what a convolution writes; none where anything else does, or it is an output."""
    if not isinstance(op.spec, _CONVS) or op.spec.act not in ("none", "relu", "relu6") or not _constant(op):
        return []
    return list(_readers(graph, op.output) or [])


def _readers(graph: Graph, v: Value) -> Iterator[Op] | None:
    found: list[Op] = []
    if v in graph.outputs:
        return None
    for op in graph.users().get(v, []):
        if isinstance(op.spec, _CONVS) and op.inputs[0] is v and _constant(op):
            found.append(op)
        elif isinstance(op.spec, _THROUGH) and op.inputs[0] is v and getattr(op.spec, "act", "none") != "relu6":
            behind = _readers(graph, op.output)
            if behind is None:
                return None
            found += behind
        else:
            return None
    return iter(found)


def _constant(op: Op) -> bool:
    return all(v.const is not None for v in op.inputs[1:])


def _sizes(work: Work, names: set[str]) -> Mapping[str, Array]:
    """The largest magnitude of each channel of these values."""
    found: dict[str, Array] = {}

    def observe(v: Value, array: Array) -> None:
        if v.name in names:
            size = np.abs(array).reshape(-1, array.shape[-1]).max(0).astype(np.float64)
            found[v.name] = np.maximum(found.get(v.name, size), size)

    work.watch(lambda i: observe, "measure channels")
    return found


def _multiply(graph: Graph, op: Op, factor: Array) -> None:
    """Weights and bias of each output channel."""
    w = op.inputs[1]
    axis = op.spec.weight_axis
    shape = [-1 if i == axis else 1 for i in range(w.type.rank)]
    _replace(graph, op, 1, _array(w) * factor.reshape(shape))
    if len(op.inputs) > 2:
        _replace(graph, op, 2, _array(op.inputs[2]) * factor)


def _divide(graph: Graph, op: Op, factor: Array) -> None:
    """The weights of each input channel."""
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
    op.inputs[i] = Value(graph.unique_name(old.name), old.type, array.astype(np.float32))


def _array(v: Value) -> Array:
    assert v.const is not None
    return v.const.astype(np.float64)


STEP = Equalize
