"""Finds the activation functions that exporters write as several ops: hard-sigmoid,
hard-swish and GELU.
"""

from __future__ import annotations

import math

import numpy as np

from edgec.ir import Graph, Op, OpDef, Value
from edgec.ir.rewrite import Rewriter, scalar
from edgec.ops.activation import Gelu, HardSigmoid
from edgec.ops.unary import HardSwish

_TOLERANCE = 1e-6
"""How far a constant may be from the function's own: some exporters round 1/6 in
float32.
"""


def run(graph: Graph) -> bool:
    """Each is a product, of whatever grouping, of x, a function of x and a number: of
    hard-swishes any number, which stays behind.
    """
    rw = Rewriter(graph)
    for op in rw.ops("mul"):
        if (
            op.output.type.dtype == "float32"
            and getattr(op.spec, "act", "none") == "none"
        ):
            found = _match(rw, *_product(rw, op))
            if found is not None and found[1].type == op.output.type:
                _put(rw, op, *found)
    return rw.changed


def _put(rw: Rewriter, op: Op, spec: OpDef, x: Value, factor: float) -> None:
    """In the place of a product."""
    if factor == 1:
        rw.update(op, spec, [x])
    elif not _goes_on(rw, op):
        y = rw.add(op, spec, [x], op.output.name)
        rw.update(
            op,
            inputs=[
                y,
                rw.const(np.array(factor, np.float32), f"{op.output.name}_factor"),
            ],
        )


def _goes_on(rw: Rewriter, op: Op) -> bool:
    """Whether the next op multiplies by a number too: then that one is the product."""
    user = rw.sole_user(op.output)
    if (
        user is None
        or user.kind != "mul"
        or getattr(user.spec, "act", "none") != "none"
    ):
        return False
    return any(scalar(v) is not None for v in user.inputs)


def _product(rw: Rewriter, op: Op) -> tuple[list[Value], float]:
    """The factors of a tree of multiplications, and the product of its scalar
    constants.
    """
    factors = list[Value]()
    scale = 1.0
    for v in op.inputs:
        number = scalar(v)
        inner = rw.private(v, "mul")
        if number is not None:
            scale *= number
        elif (
            inner is not None
            and inner is not op
            and getattr(inner.spec, "act", "none") == "none"
        ):
            more, times = _product(rw, inner)
            factors = factors + more
            scale = scale * times
        else:
            factors.append(v)
    return factors, scale


def _match(
    rw: Rewriter, factors: list[Value], scale: float
) -> tuple[OpDef, Value, float] | None:
    """The function that a product is, its argument, and by what it is multiplied."""
    if len(factors) == 1 and _near(scale, 1 / 6):
        x = _relu6_of_x_plus_3(rw, factors[0])
        return (HardSigmoid(1 / 6, 0.5), x, 1.0) if x is not None else None
    if len(factors) != 2:
        return None
    for x, f in (factors, factors[::-1]):
        if _relu6_of_x_plus_3(rw, f) is x:
            return HardSwish(), x, 1.0 if _near(scale, 1 / 6) else 6 * scale
        if _hard_sigmoid_argument(rw, f) is x:
            return HardSwish(), x, 1.0 if _near(scale, 1) else scale
        if _near(scale, 0.5) and _one_plus_erf_argument(rw, f) is x:
            return Gelu(), x, 1.0
    return None


def _relu6_of_x_plus_3(rw: Rewriter, f: Value) -> Value | None:
    clamp = rw.private(f)
    if clamp is None:
        return None
    if clamp.kind == "relu6":
        return _plus(rw, clamp.inputs[0], 3.0, "none")
    return _plus(rw, f, 3.0, "relu6")


def _hard_sigmoid_argument(rw: Rewriter, f: Value) -> Value | None:
    op = rw.private(f, "hard_sigmoid")
    if op is None or not isinstance(op.spec, HardSigmoid):
        return None
    if _near(op.spec.alpha, 1 / 6) and _near(op.spec.beta, 0.5):
        return op.inputs[0]
    return None


def _one_plus_erf_argument(rw: Rewriter, f: Value) -> Value | None:
    """x of 1 + erf(x / sqrt(2))."""
    inner = _plus(rw, f, 1.0, "none")
    erf = rw.private(inner, "erf") if inner is not None else None
    scaled = rw.private(erf.inputs[0], "mul") if erf is not None else None
    if scaled is None:
        return None
    factors, scale = _product(rw, scaled)
    return factors[0] if len(factors) == 1 and _near(scale, math.sqrt(0.5)) else None


def _plus(rw: Rewriter, value: Value, term: float, act: str) -> Value | None:
    """x of act(x + term)."""
    op = rw.private(value, "add")
    if op is None or getattr(op.spec, "act", "none") != act:
        return None
    return next(
        (
            x
            for x, c in (op.inputs, op.inputs[::-1])
            if scalar(c) == term and x.const is None
        ),
        None,
    )


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= _TOLERANCE * abs(b)
