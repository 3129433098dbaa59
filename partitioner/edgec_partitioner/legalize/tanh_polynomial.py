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

from edgec.ir import Builder, Graph, Op, OpDef, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.activation import Elu, Selu
from edgec.ops.binary import Add, Mul, Sub
from edgec.ops.unary import Mish, Relu, Softplus, Tanh

KINDS = ("elu", "selu", "softplus", "mish")
BOUND = 0.0066

_ONE_LESS_EXP = (0.0, 1.917867, -1.393686, 0.475819)
"""1 - e^-z = 2s / (1 + s) by powers of s = tanh(z / 2), z >= 0."""

_LOG_ONE_PLUS_EXP = (0.689077, -0.917124, 0.228047)
"""log(1 + e^-z) = -log((1 + s) / 2) by powers of s."""

_TANH_SOFTPLUS = (0.611155, 0.629174, -0.111155, -0.129174)
"""tanh(log(1 + e^x)) = (3 + 2t - t²) / (5 - 2t + t²) by powers of t = tanh(x / 2)."""


def rewrite(r: Rewriter, op: Op) -> bool:
    """The form of each function."""
    parts, (x,), spec = _Parts(r, op), op.inputs, op.spec
    if x.type.dtype != "float32":
        return False
    if isinstance(spec, Mish):
        gate = parts.polynomial(parts.made(Tanh(), parts.times(x, 0.5)), _TANH_SOFTPLUS)
        r.update(op, Mul(), [x, gate])
    elif isinstance(spec, Softplus):
        positive = parts.made(Relu(), x)
        negative = parts.made(Relu(), parts.times(x, -1))
        s = parts.made(Tanh(), parts.times(parts.made(Add(), positive, negative), 0.5))
        r.update(op, Add(), [positive, parts.polynomial(s, _LOG_ONE_PLUS_EXP)])
    elif isinstance(spec, Elu | Selu):
        gamma = spec.gamma if isinstance(spec, Selu) else 1.0
        rate = spec.rate if isinstance(spec, Elu) else 1.0
        if spec.alpha <= 0 or gamma <= 0 or rate <= 0:
            return False
        positive = parts.made(Relu(), x if gamma == 1 else parts.times(x, gamma))
        s = parts.made(Tanh(), parts.made(Relu(), parts.times(x, -0.5 * rate)))
        r.update(
            op,
            Sub(),
            [
                positive,
                parts.polynomial(s, [gamma * spec.alpha * c for c in _ONE_LESS_EXP]),
            ],
        )
    return True


class _Parts:
    """Makes the parts of one op's replacement, right before it."""

    def __init__(self, r: Rewriter, op: Op) -> None:
        self.r = r
        self.op = op
        self.name = op.output.name

    def made(self, spec: OpDef, *inputs: Value) -> Value:
        return self.r.add(self.op, spec, inputs, f"{self.name}_{spec.kind}")

    def number(self, value: float) -> Value:
        return self.r.const(np.array(value, np.float32), f"{self.name}_number")

    def times(self, x: Value, factor: float) -> Value:
        return self.made(Mul(), x, self.number(factor))

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """By Horner's rule; coefficients from that of x^0 on."""
        y = self.times(x, coefficients[-1])
        for c in coefficients[-2:0:-1]:
            y = self.made(Mul(), self.made(Add(), y, self.number(c)), x)
        if coefficients[0]:
            return self.made(Add(), y, self.number(coefficients[0]))
        return y


def example(rng: np.random.Generator) -> Graph:
    """Each function, of enough elements that one result is above 1; slopes up to 1."""
    build = Builder("tanh_polynomial")
    x = build.input(
        "x", TensorType((1, *map(int, rng.integers(4, 9, 2)), int(rng.integers(4, 9))))
    )
    elu = Elu(float(rng.uniform(0.1, 1)), float(rng.uniform(0.5, 2)))
    spec: OpDef = (Elu(), elu, Selu(), Softplus(), Mish())[rng.integers(5)]
    build.graph.outputs = [build.add(spec, [x])]
    return build.graph
