"""Lets the op that computes a value clamp it too: relu, relu6 and the like become its
`act`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgec.ir import Graph, Op, QuantRule
from edgec.ir.rewrite import Rewriter
from edgec.ops.fixed_point import ACTIVATIONS, activation_range
from edgec.ops.unary import Unary


def run(graph: Graph) -> bool:
    """Not into pools, whose output keeps the scale of the input and which the Edge TPU
    wants without.
    """
    rw = Rewriter(graph)
    for op in rw.ops(*ACTIVATIONS):
        maker = rw.private(op.inputs[0])
        if (
            maker is None
            or not hasattr(maker.spec, "act")
            or maker.spec.quant is QuantRule.SAME
        ):
            continue
        act = _both(maker.spec.act, op.kind)
        if act is not None and _exact(op):
            rw.absorb(maker, op, replace(maker.spec, act=act))  # type: ignore[call-arg]
    return rw.changed


def _both(first: str, second: str) -> str | None:
    """The activation that is one after the other."""
    (low, high), (floor, ceiling) = ACTIVATIONS[first], ACTIVATIONS[second]
    both = tuple(min(max(bound, floor), ceiling) for bound in (low, high))
    return next((name for name, bounds in ACTIVATIONS.items() if bounds == both), None)


def _exact(op: Op) -> bool:
    """Whether the op does nothing but clamp: a quantized one may also change the scale."""
    x = op.inputs[0].type
    y = op.output.type
    if not y.is_quantized:
        return y.dtype == "float32"
    if x != y or y.dtype != "int8" or not isinstance(op.spec, Unary):
        return False
    clamped = np.clip(np.arange(-128, 128), *activation_range(op.kind, y))
    return bool((op.spec.table(x, y) == clamped).all())
