"""Fuses relu, relu6 and other clamps into the op before, as its attribute `act`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgec.ir import Graph, Op, QuantRule
from edgec.ir.rewrite import Rewriter
from edgec.ops.fixed_point import ACTIVATIONS, activation_range
from edgec.ops.unary import Unary


def run(graph: Graph) -> bool:
    """Fuse each activation that alone reads an op's result.

    Pools stay as they are: their output keeps the scale of the input, and the Edge TPU
    takes them only without activation.
    """
    rw = Rewriter(graph)
    for op in rw.ops(*ACTIVATIONS):
        producer = rw.private(op.inputs[0])
        if producer is None or not hasattr(producer.spec, "act"):
            continue
        if producer.spec.quant is QuantRule.SAME:
            continue
        act = _combined(producer.spec.act, op.kind)
        if act is not None and _exact(op):
            spec = replace(producer.spec, act=act)  # type: ignore[call-arg]
            rw.absorb(producer, op, spec)
    return rw.changed


def _combined(first: str, second: str) -> str | None:
    """Return the activation equal to `first` followed by `second`, None if none is.

    An activation is a clamp, so the second one clamps the bounds of the first.
    """
    low, high = ACTIVATIONS[second]
    bounds = tuple(min(max(bound, low), high) for bound in ACTIVATIONS[first])
    for name, range_ in ACTIVATIONS.items():
        if range_ == bounds:
            return name
    return None


def _exact(op: Op) -> bool:
    """Return whether an activation does nothing but clamp.

    A quantized one may also change the scale. Its 256 results are compared with those
    of the clamp.
    """
    x = op.inputs[0].type
    y = op.output.type
    if not y.is_quantized:
        return y.dtype == "float32"
    if x != y or y.dtype != "int8" or not isinstance(op.spec, Unary):
        return False

    # The clamp of the fused activation works on the integers of the output.
    low, high = activation_range(op.kind, y)
    clamped = np.clip(np.arange(-128, 128), low, high)
    return bool((op.spec.table(x, y) == clamped).all())
