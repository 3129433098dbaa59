"""Multiplies a channel scale (a batch normalisation, or a constant factor) into the weights before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgec.ir import Graph, Op
from edgec.passes._linear import linear_before, scaled
from edgec.passes._rewrite import Rewriter, channel_vector


def run(graph: Graph) -> bool:
    """Only where nothing else reads the unscaled result. Weights are multiplied in double and rounded once."""
    rw = Rewriter(graph)
    for op in rw.ops("mul"):
        _fold_mul(rw, op)
    return rw.changed


def _fold_mul(rw: Rewriter, op: Op) -> None:
    for x, factor in (op.inputs, op.inputs[::-1]):
        linear = linear_before(rw, x)
        scale = channel_vector(factor, x.type.shape)
        if linear is not None and scale is not None and x.type == op.output.type:
            spec = replace(linear.spec, act=getattr(op.spec, "act", "none"))  # type: ignore[call-arg]
            rw.absorb(linear, op, spec, scaled(rw, linear, scale, np.zeros(scale.shape)))
            return
