"""Functions of e^x that the Edge TPU lacks become polynomials of TANH, which it has.

Pattern: ELU and CELU, SELU, softplus, Mish. Condition: positive slopes of an ELU, CELU
or SELU. Replacement: MUL, ADD, SUB, RELU and TANH. With s = tanh(rate |x| / 2), where
only a CELU has a rate other than 1, and t = tanh(x / 2), an ELU is relu(x) less a cubic
of s where x is negative, softplus is relu(x) and a square of s, Mish is x times a cubic
of t. Proof: e^-|x| = (1 - s) / (1 + s), so each is a function of s or t with no pole
near -1 … 1, and little is lost when it becomes a polynomial. With the coefficients
below, the best of their degree that are exact where tanh saturates, the largest
differences over all x are 0.0035 times the slope (ELU, SELU), 0.0041 (softplus) and
0.0066 (Mish); the stated bound is the last against a largest result of 1. On int8,
where half a step of TANH is 0.004 already, the error is a tenth larger than that of the
exact function. Pays where convolutions are on both sides, which it keeps together; it
is ten elementwise ops at most.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgec.ir import Builder, Graph, Op, OpDef, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.activation import Elu, Selu
from edgec.ops.binary import Add, Mul, Sub
from edgec.ops.unary import Mish, Relu, Softplus, Tanh
from edgec_partitioner.legalize._examples import float_image, integer, one_op
from edgec_partitioner.legalize._replacement import Replacement

OPS = (Elu, Selu, Softplus, Mish)
BOUND = 0.0066

ONE_LESS_EXP = (0.0, 1.917867, -1.393686, 0.475819)
"""1 - e^-z = 2s / (1 + s) by powers of s = tanh(z / 2), z >= 0."""

LOG_ONE_PLUS_EXP = (0.689077, -0.917124, 0.228047)
"""log(1 + e^-z) = -log((1 + s) / 2) by powers of s."""

TANH_SOFTPLUS = (0.611155, 0.629174, -0.111155, -0.129174)
"""tanh(log(1 + e^x)) = (3 + 2t - t²) / (5 - 2t + t²) by powers of t = tanh(x / 2)."""


def rewrite(r: Rewriter, op: Op, spec: OpDef) -> bool:
    """Replace each function by its polynomial of TANH."""
    (x,) = op.inputs
    if x.type.dtype != "float32":
        return False

    parts = _Parts(r, op)
    if isinstance(spec, Selu):
        return _elu(parts, x, spec.gamma, spec.alpha, 1.0)
    if isinstance(spec, Elu):
        return _elu(parts, x, 1.0, spec.alpha, spec.rate)

    if op.kind == "mish":
        _mish(parts, x)
    else:
        _softplus(parts, x)
    return True


class _Parts:
    """Adds the ops of a replacement, named after their kinds."""

    def __init__(self, r: Rewriter, op: Op) -> None:
        self.new = Replacement(r, op)

    def add(self, spec: OpDef, *inputs: Value) -> Value:
        return self.new.add(spec.kind, spec, *inputs)

    def number(self, value: float) -> Value:
        return self.new.number("number", value)

    def times(self, x: Value, factor: float) -> Value:
        return self.add(Mul(), x, self.number(factor))

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Return a polynomial of x by Horner's rule.

        The coefficients begin with that of x^0.
        """
        constant, *middle, highest = coefficients
        y = self.times(x, highest)

        # y = (y + c) * x, from the highest power down.
        for c in reversed(middle):
            addend = self.number(c)
            total = self.add(Add(), y, addend)
            y = self.add(Mul(), total, x)

        # Without a constant, the last ADD would do nothing.
        if constant == 0:
            return y
        addend = self.number(constant)
        return self.add(Add(), y, addend)


def _mish(parts: _Parts, x: Value) -> None:
    """Replace x * tanh(softplus(x)), Misra 2019, arXiv:1908.08681."""
    half = parts.times(x, 0.5)
    t = parts.add(Tanh(), half)

    # tanh(softplus(x)) lies within 0…1, like a gate.
    gate = parts.polynomial(t, TANH_SOFTPLUS)
    parts.new.finish(Mul(), x, gate)


def _softplus(parts: _Parts, x: Value) -> None:
    """Replace log(1 + e^x) = relu(x) + log(1 + e^-|x|).

    |x| is relu(x) + relu(-x), as ABS does not map.
    """
    positive = parts.add(Relu(), x)
    negated = parts.times(x, -1)
    negative = parts.add(Relu(), negated)
    magnitude = parts.add(Add(), positive, negative)

    half = parts.times(magnitude, 0.5)
    s = parts.add(Tanh(), half)
    logarithm = parts.polynomial(s, LOG_ONE_PLUS_EXP)
    parts.new.finish(Add(), positive, logarithm)


def _elu(parts: _Parts, x: Value, gamma: float, alpha: float, rate: float) -> bool:
    """Replace gamma * (relu(x) - alpha * (1 - e^-z)), z = relu(-rate * x).

    Return False, with the graph unchanged, if a parameter is not positive.
    """
    if min(alpha, gamma, rate) <= 0:
        return False

    # gamma is positive, so that it can be multiplied before RELU.
    scaled = x
    if gamma != 1:
        scaled = parts.times(x, gamma)
    positive = parts.add(Relu(), scaled)

    # s = tanh(z / 2)
    half = parts.times(x, -0.5 * rate)
    rectified = parts.add(Relu(), half)
    s = parts.add(Tanh(), rectified)

    factor = gamma * alpha
    coefficients = [factor * c for c in ONE_LESS_EXP]
    negative = parts.polynomial(s, coefficients)
    parts.new.finish(Sub(), positive, negative)
    return True


def example(rng: np.random.Generator) -> Graph:
    """Return one of the functions, with slopes up to 1.

    It has enough elements that one result is above 1.
    """
    build = Builder("tanh_polynomial")
    x = float_image(build, rng, 4, 9)
    alpha = float(rng.uniform(0.1, 1))
    rate = float(rng.uniform(0.5, 2))

    functions: list[OpDef] = [Elu(), Elu(alpha, rate), Selu(), Softplus(), Mish()]
    spec = functions[integer(rng, 0, 5)]
    return one_op(build, spec, x)
