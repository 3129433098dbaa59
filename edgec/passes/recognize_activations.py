"""Recognises activation functions that exporters write as several ops.

hard_sigmoid(x) = relu6(x + 3) / 6                    (alpha = 1/6, beta = 0.5)
hard_swish(x)   = x * relu6(x + 3) / 6                (Howard 2019, arXiv:1905.02244)
gelu(x)         = 0.5 * x * (1 + erf(x / sqrt(2)))    (Hendrycks 2016, arXiv:1606.08415)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgec.ir import Graph, Op, OpDef, Value
from edgec.ir.rewrite import Rewriter, scalar
from edgec.ops.activation import Gelu, HardSigmoid
from edgec.ops.unary import HardSwish

RELATIVE_TOLERANCE = 1e-6
"""The accepted deviation of a constant: some exporters round 1/6 in float32."""


@dataclass(frozen=True)
class _ScaledFunction:
    """The expression `factor * function(x)`."""

    function: OpDef
    x: Value
    factor: float = 1.0


@dataclass(frozen=True)
class _FactorTree:
    """A tree of multiplications, flattened: the product of `factors` and `scale`."""

    factors: list[Value]
    scale: float


def run(graph: Graph) -> bool:
    """Replace each product that is an activation function.

    The product may group x, a function of x and constants in any way. The factor of a
    hard-swish may be any number; a multiplication for the remainder stays.
    """
    rw = Rewriter(graph)
    for op in rw.ops("mul"):
        if op.output.type.dtype != "float32" or _act(op) != "none":
            continue
        match = _match(rw, _product(rw, op))
        if match is not None and match.x.type == op.output.type:
            _replace(rw, op, match)
    return rw.changed


def _act(op: Op) -> str:
    act: str = getattr(op.spec, "act", "none")
    return act


def _replace(rw: Rewriter, op: Op, match: _ScaledFunction) -> None:
    """Replace the last multiplication of a product by the function."""
    if match.factor == 1:
        rw.update(op, match.function, [match.x])
        return
    # The remaining factor joins the constants of the next multiplication first.
    if _is_scaled_again(rw, op):
        return
    name = op.output.name
    y = rw.add(op, match.function, [match.x], name)
    factor = rw.const(np.array(match.factor, np.float32), f"{name}_factor")
    rw.update(op, inputs=[y, factor])


def _is_scaled_again(rw: Rewriter, op: Op) -> bool:
    """Return whether the next op multiplies the product by another number.

    That next op is then the end of the product.
    """
    user = rw.sole_user(op.output)
    if user is None or user.kind != "mul" or _act(user) != "none":
        return False
    return any(scalar(v) is not None for v in user.inputs)


def _product(rw: Rewriter, op: Op) -> _FactorTree:
    """Return the tree of multiplications that ends with `op`.

    Only results without other users belong to the tree.
    """
    factors: list[Value] = []
    scale = 1.0
    for v in op.inputs:
        number = scalar(v)
        inner = rw.private(v, "mul")
        if number is not None:
            scale *= number
        elif inner is not None and inner is not op and _act(inner) == "none":
            subtree = _product(rw, inner)
            factors += subtree.factors
            scale *= subtree.scale
        else:
            factors.append(v)
    return _FactorTree(factors, scale)


def _match(rw: Rewriter, product: _FactorTree) -> _ScaledFunction | None:
    """Return the function equal to a product, None for other products."""
    factors = product.factors
    # A hard-sigmoid is its clamp times a constant.
    if len(factors) == 1 and _near(product.scale, 1 / 6):
        x = _relu6_argument(rw, factors[0])
        return None if x is None else _ScaledFunction(HardSigmoid(1 / 6, 0.5), x)
    if len(factors) != 2:
        return None
    for x, gate in (factors, factors[::-1]):
        match = _match_gate(rw, x, gate, product.scale)
        if match is not None:
            return match
    return None


def _match_gate(
    rw: Rewriter, x: Value, gate: Value, scale: float
) -> _ScaledFunction | None:
    """Return the function equal to `scale * x * gate`, if the gate is a function of x.

    The gate of a hard-swish is relu6(x + 3) or a hard-sigmoid, the gate of a GELU
    is 1 + erf(x / sqrt(2)).
    """
    if _relu6_argument(rw, gate) is x:
        factor = 1.0 if _near(scale, 1 / 6) else 6 * scale
        return _ScaledFunction(HardSwish(), x, factor)
    if _hard_sigmoid_argument(rw, gate) is x:
        factor = 1.0 if _near(scale, 1) else scale
        return _ScaledFunction(HardSwish(), x, factor)
    if _near(scale, 0.5) and _one_plus_erf_argument(rw, gate) is x:
        return _ScaledFunction(Gelu(), x)
    return None


def _relu6_argument(rw: Rewriter, value: Value) -> Value | None:
    """Return x if `value` is relu6(x + 3).

    The clamp may be an op of its own or fused into the sum.
    """
    clamp = rw.private(value)
    if clamp is None:
        return None
    if clamp.kind == "relu6":
        return _summand(rw, clamp.inputs[0], 3.0, "none")
    return _summand(rw, value, 3.0, "relu6")


def _hard_sigmoid_argument(rw: Rewriter, value: Value) -> Value | None:
    """Return x if `value` is hard_sigmoid(x) with alpha 1/6 and beta 0.5.

    ONNX has other values of alpha as well.
    """
    producer = rw.producer_of(value, HardSigmoid)
    if producer is None or rw.sole_user(value) is None:
        return None
    op, spec = producer
    if _near(spec.alpha, 1 / 6) and _near(spec.beta, 0.5):
        return op.inputs[0]
    return None


def _one_plus_erf_argument(rw: Rewriter, value: Value) -> Value | None:
    """Return x if `value` is 1 + erf(x / sqrt(2)).

    The division is a multiplication by sqrt(0.5) by now.
    """
    inner = _summand(rw, value, 1.0, "none")
    if inner is None:
        return None
    erf = rw.private(inner, "erf")
    if erf is None:
        return None
    multiplication = rw.private(erf.inputs[0], "mul")
    if multiplication is None:
        return None
    product = _product(rw, multiplication)
    if len(product.factors) == 1 and _near(product.scale, math.sqrt(0.5)):
        return product.factors[0]
    return None


def _summand(rw: Rewriter, value: Value, term: float, act: str) -> Value | None:
    """Return x if `value` is act(x + term).

    The sum must have no other user.
    """
    # Another user would still need the sum.
    op = rw.private(value, "add")
    if op is None or _act(op) != act:
        return None
    for x, constant in (op.inputs, op.inputs[::-1]):
        if scalar(constant) == term and x.const is None:
            return x
    return None


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= RELATIVE_TOLERANCE * abs(b)
