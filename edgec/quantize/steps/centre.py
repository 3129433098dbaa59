"""Rewrite: channels that nothing but weights will read are moved so that zero is in their middle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import Array, Graph, Observe, Op, Value
from edgec.quantize.links import Link, links
from edgec.quantize.observers import vectors
from edgec.quantize.products import product
from edgec.quantize.steps.choose import FEW
from edgec.quantize.work import Work

Ends = tuple[Array, Array]
"""The smallest and the largest element of each channel."""


@dataclass(frozen=True)
class Centre:
    """The middle of what was seen of each channel goes into the bias in front and comes out of those behind.

    One scale holds all channels of a value, and one of them reaches from -1 to 0, another from 0 to 1: centred, each
    needs half of that, so that `equalize` can multiply all by two. Where a value is linear, a depthwise convolution's
    before the 1x1 one of a separable pair say, that is most of them. Not of values of which few vectors were seen.
    """

    name: ClassVar[str] = "centre"
    changes: ClassVar[str] = "graph"

    def run(self, work: Work) -> None:
        """All values that may be moved."""
        every = len(work.samples)
        found = {v: link for v, link in links(work.graph).items() if vectors(v) * every >= FEW}
        if not found:
            return
        middles, graph = _middles(work, found), work.graph.copy()
        ops = dict(zip(work.graph.ops, graph.ops, strict=True))
        for v, link in found.items():
            _add(graph, ops[link.maker.op], -middles[v])
            for p in link.readers:
                w = p.op.inputs[1].const
                assert w is not None
                _add(graph, ops[p.op], product(p.matrix(w.astype(np.float64)), p.everywhere(middles[v])))
        work.graph = graph


def _middles(work: Work, wanted: Mapping[Value, Link]) -> dict[Value, Array]:
    """Of each channel; zero where what was seen has none."""

    def of_sample(i: int) -> tuple[dict[Value, Ends], Observe]:
        seen = dict[Value, Ends]()

        def observe(v: Value, array: Array) -> None:
            if v in wanted:
                rows = array.reshape(-1, array.shape[-1])
                seen[v] = rows.min(0), rows.max(0)

        return seen, observe

    found: dict[Value, Ends] = {}
    for seen in work.watch(of_sample, "measure channels"):
        for v, (low, high) in seen.items():
            a, b = found.get(v, (low, high))
            found[v] = np.minimum(a, low), np.maximum(b, high)
    middles = {v: (low.astype(np.float64) + high) / 2 for v, (low, high) in found.items()}
    return {v: np.where(np.isfinite(m), m, 0.0) for v, m in middles.items()}


def _add(graph: Graph, op: Op, more: Array) -> None:
    """To the bias of an op of a graph."""
    if len(op.inputs) > 2:
        old = op.inputs[2]
        assert old.const is not None
        bias = Value(graph.unique_name(old.name), old.type, (old.const + more.reshape(old.const.shape)))
    else:
        w, name = op.inputs[1], graph.unique_name(f"{op.output.name}_bias")
        bias = Value(name, w.type.with_shape(more.shape), more)
    assert bias.const is not None
    bias.const = bias.const.astype(np.float32)
    op.inputs[2:] = [bias]


STEP = Centre
