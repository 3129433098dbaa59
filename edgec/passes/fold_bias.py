"""Adds a constant that is added to, or subtracted from, the result of a linear op into
its bias.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgec.ir import Graph, Op
from edgec.ir.rewrite import Rewriter, channel_vector
from edgec.passes._linear import linear_before, scaled


def run(graph: Graph) -> bool:
    """The constant must be the same at every place of the image."""
    rw = Rewriter(graph)
    for op in rw.ops("add", "sub"):
        _fold(rw, op)
    return rw.changed


def _fold(rw: Rewriter, op: Op) -> None:
    orders = (op.inputs, op.inputs[::-1]) if op.kind == "add" else (op.inputs,)
    for x, term in orders:
        linear = linear_before(rw, x)
        offset = channel_vector(term, x.type.shape)
        if linear is not None and offset is not None and x.type == op.output.type:
            spec = replace(linear.spec, act=getattr(op.spec, "act", "none"))  # type: ignore[call-arg]
            signed = offset if op.kind == "add" else -offset
            rw.absorb(
                linear, op, spec, scaled(rw, linear, np.ones(offset.shape), signed)
            )
            return
