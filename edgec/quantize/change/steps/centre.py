"""Rewrite: activation shifts, which put zero in the middle of each channel's range.

A convolution or matrix product y = W x + b that reads a channel with a constant added,
x' = x - m, takes the constant on in its bias:

    W x + b = W x' + (b + W m)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import Array, Graph, Op, Value
from edgec.quantize.change.products import product
from edgec.quantize.change.shifts import shiftable_values
from edgec.quantize.change.state import (
    ChannelExtremes,
    QuantizationState,
    over_samples,
)
from edgec.quantize.change.steps.choose import MIN_VECTORS
from edgec.quantize.observe.ranges import vectors


@dataclass(frozen=True)
class Centre:
    """Subtract the middle of each channel's range in the bias of the producer.

    The biases of the consumers add it again (see above). One scale holds all channels of
    a value. Where one reaches from -1 to 0 and another from 0 to 1, each needs half of
    that range after the shift, so that `equalize` can multiply all channels by two. In a
    value without an activation, such as the one between the depthwise and the 1x1
    convolution of a separable pair, most channels are off centre.

    Values with few observed channel vectors stay as they are.
    """

    name: ClassVar[str] = "centre"
    changes: ClassVar[str] = "graph"

    def run(self, state: QuantizationState) -> None:
        """Shift all values that may be shifted."""
        count = len(state.samples)
        links = {}
        for v, link in shiftable_values(state.graph).items():
            if vectors(v) * count >= MIN_VECTORS:
                links[v] = link

        if not links:
            return

        # One run over the samples measures all values.
        extremes = state.channel_extremes({v.name for v in links})
        middles = {v: _middle(each_sample) for v, each_sample in extremes.items()}
        graph = state.graph.copy()
        copies = dict(zip(state.graph.ops, graph.ops, strict=True))

        # The products are float64 until a bias is stored: the model stays the same.
        for v, link in links.items():
            _add_to_bias(graph, copies[link.maker.op], -middles[v])
            for layer in link.readers:
                w = layer.op.inputs[1].const
                assert w is not None
                matrix = layer.matrix(w.astype(np.float64))
                added = product(matrix, layer.uniform_window(middles[v]))
                _add_to_bias(graph, copies[layer.op], added)

        state.graph = graph


def _middle(each_sample: Sequence[ChannelExtremes]) -> Array:
    """Return the middle of each channel's range, [C].

    It is zero for a channel with an infinite or no range.
    """
    low, high = over_samples(each_sample)
    middle = (low + high) / 2
    return np.where(np.isfinite(middle), middle, 0.0)


def _add_to_bias(graph: Graph, op: Op, added: Array) -> None:
    """Add to the bias of an op of a graph; the op gets one if it has none."""
    if len(op.inputs) < 3:
        type_ = op.inputs[1].type.with_shape(added.shape)
        name = graph.unique_name(f"{op.output.name}_bias")
        op.inputs.append(Value(name, type_, np.zeros_like(added)))

    old = op.inputs[2]
    assert old.const is not None
    total = old.const + added.reshape(old.const.shape)
    # Another op may read the same constant, so that it is not changed in place.
    name = graph.unique_name(old.name)
    op.inputs[2] = Value(name, old.type, total.astype(np.float32))


STEP = Centre
