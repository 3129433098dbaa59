"""Multiplies a batch normalisation, or a constant factor per channel, into the weights
before it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgec.ir import Graph, Op
from edgec.ir.rewrite import Rewriter, channel_vector
from edgec.ops.norm import BatchNorm
from edgec.passes._linear import linear_before, scaled


def run(graph: Graph) -> bool:
    """Only where nothing else reads the unscaled result.

    Weights are multiplied in double and rounded once.
    """
    rw = Rewriter(graph)
    for op in rw.ops("batch_norm", "mul"):
        if isinstance(op.spec, BatchNorm):
            _fold_norm(rw, op, op.spec)
        else:
            _fold_factor(rw, op)
    return rw.changed


def _fold_norm(rw: Rewriter, op: Op, spec: BatchNorm) -> None:
    linear = linear_before(rw, op.inputs[0])
    constants = [v.const for v in op.inputs[1:] if v.const is not None]
    if linear is not None and len(constants) == 4:
        scale, offset = spec.line(constants)
        rw.absorb(linear, op, inputs=scaled(rw, linear, scale, offset))


def _fold_factor(rw: Rewriter, op: Op) -> None:
    for x, factor in (op.inputs, op.inputs[::-1]):
        linear = linear_before(rw, x)
        scale = channel_vector(factor, x.type.shape)
        if linear is not None and scale is not None and x.type == op.output.type:
            spec = replace(linear.spec, act=getattr(op.spec, "act", "none"))  # type: ignore[call-arg]
            rw.absorb(
                linear, op, spec, scaled(rw, linear, scale, np.zeros(scale.shape))
            )
            return
