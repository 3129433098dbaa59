"""Rewrite: channels that nothing but weights will read are moved so that zero is in
their middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import Array, Graph, Op, Value
from edgec.quantize.change.products import product
from edgec.quantize.change.shifts import shiftable_values
from edgec.quantize.change.state import Ends, QuantizationState, over_all
from edgec.quantize.change.steps.choose import FEW
from edgec.quantize.observe.ranges import vectors


@dataclass(frozen=True)
class Centre:
    """The middle of what was seen of each channel goes into the bias in front and comes
    out of those behind.

    One scale holds all channels of a value, and one of them reaches from -1 to 0,
    another from 0 to 1: centred, each needs half of that, so that `equalize` can
    multiply all by two. Where a value is linear, a depthwise convolution's before the
    1x1 one of a separable pair say, that is most of them. Not of values of which few
    vectors were seen.
    """

    name: ClassVar[str] = "centre"
    changes: ClassVar[str] = "graph"

    def run(self, work: QuantizationState) -> None:
        """All values that may be moved."""
        every = len(work.samples)
        found = {
            v: link
            for v, link in shiftable_values(work.graph).items()
            if vectors(v) * every >= FEW
        }
        if not found:
            return
        seen = work.channels({v.name for v in found})
        middles = {v: _middle(each) for v, each in seen.items()}
        graph = work.graph.copy()
        ops = dict(zip(work.graph.ops, graph.ops, strict=True))
        for v, link in found.items():
            _add(graph, ops[link.maker.op], -middles[v])
            for p in link.readers:
                w = p.op.inputs[1].const
                assert w is not None
                _add(
                    graph,
                    ops[p.op],
                    product(p.matrix(w.astype(np.float64)), p.everywhere(middles[v])),
                )
        work.graph = graph


def _middle(every: Sequence[Ends]) -> Array:
    """Of each channel; zero where what was seen has none."""
    low, high = over_all(every)
    middle = (low + high) / 2
    return np.where(np.isfinite(middle), middle, 0.0)


def _add(graph: Graph, op: Op, more: Array) -> None:
    """To the bias of an op of a graph."""
    if len(op.inputs) < 3:
        type_ = op.inputs[1].type.with_shape(more.shape)
        op.inputs.append(
            Value(
                graph.unique_name(f"{op.output.name}_bias"), type_, np.zeros_like(more)
            )
        )
    old = op.inputs[2]
    assert old.const is not None
    total = old.const + more.reshape(old.const.shape)
    op.inputs[2] = Value(
        graph.unique_name(old.name), old.type, total.astype(np.float32)
    )


STEP = Centre
