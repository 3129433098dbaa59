"""Multiplies a batch normalisation into the weights of the layer before it.

The same is done with a multiplication by a constant factor per channel. Jacob et al.
2018, arXiv:1712.05877, section 3.2:

    scale * conv(x, w, b) + offset = conv(x, scale * w, scale * b + offset)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgec.ir import Graph, Op
from edgec.ir.rewrite import Rewriter, channel_vector
from edgec.ops.norm import BatchNorm
from edgec.passes._linear import linear_before, scaled


def run(graph: Graph) -> bool:
    """Fold each normalisation or factor that alone reads the layer's result.

    Weights are multiplied in double and rounded once.
    """
    rw = Rewriter(graph)
    for op, norm in rw.matches(BatchNorm):
        _fold_norm(rw, op, norm)
    for op in rw.ops("mul"):
        _fold_factor(rw, op)
    return rw.changed


def _fold_norm(rw: Rewriter, op: Op, spec: BatchNorm) -> None:
    """Fold a batch normalisation whose four parameters are constant.

    The parameters are scale, bias, mean and variance.
    """
    linear = linear_before(rw, op.inputs[0])
    constants = [v.const for v in op.inputs[1:] if v.const is not None]
    # A normalisation with a computed parameter stays.
    if linear is None or len(constants) != 4:
        return
    scale, offset = spec.line(constants)
    rw.absorb(linear, op, inputs=scaled(rw, linear, scale, offset))


def _fold_factor(rw: Rewriter, op: Op) -> None:
    """Fold a multiplication by a constant factor for each channel.

    The factor may be either operand, but must not broadcast the layer's result.
    """
    for x, factor in (op.inputs, op.inputs[::-1]):
        linear = linear_before(rw, x)
        scale = channel_vector(factor, x.type.shape)
        if linear is None or scale is None or x.type != op.output.type:
            continue

        # The linear op has no activation yet, so it takes over that of the product.
        act = getattr(op.spec, "act", "none")
        spec = replace(linear.spec, act=act)  # type: ignore[call-arg]
        no_offset = np.zeros(scale.shape)
        rw.absorb(linear, op, spec, scaled(rw, linear, scale, no_offset))
        return
