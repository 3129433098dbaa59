"""Folds a constant that is added after a linear op into the bias of that op."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgec.ir import Graph, Op
from edgec.ir.rewrite import Rewriter, channel_vector
from edgec.passes._linear import linear_before, scaled


def run(graph: Graph) -> bool:
    """Fold each constant that is added or subtracted.

    The constant must be the same at every pixel of the image.
    """
    rw = Rewriter(graph)
    for op in rw.ops("add", "sub"):
        _fold(rw, op)
    return rw.changed


def _fold(rw: Rewriter, op: Op) -> None:
    """Fold a sum or difference of a linear op's result and a constant.

    A sum may have its constant on either side, a difference on the right only.
    """
    orders = [op.inputs]
    if op.kind == "add":
        orders.append(op.inputs[::-1])

    for x, term in orders:
        linear = linear_before(rw, x)
        offset = channel_vector(term, x.type.shape)
        if linear is None or offset is None or x.type != op.output.type:
            continue

        # The linear op has no activation yet, so it takes over that of the sum.
        act = getattr(op.spec, "act", "none")
        spec = replace(linear.spec, act=act)  # type: ignore[call-arg]
        # x - c is x + (-c).
        signed = offset if op.kind == "add" else -offset
        unit_scale = np.ones(offset.shape)
        rw.absorb(linear, op, spec, scaled(rw, linear, unit_scale, signed))
        return
