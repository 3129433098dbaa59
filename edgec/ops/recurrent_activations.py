"""The activations of recurrent layers, by their names in ONNX."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgec.ir import Builder, OpDef, Value
from edgec.ops.activation import Elu, HardSigmoid, LeakyRelu
from edgec.ops.binary import Add, Mul
from edgec.ops.compare import Greater, Where
from edgec.ops.unary import Logistic, Relu, Softplus, Softsign, Tanh

Activation = Callable[[Builder, Value, str], Value]
"""A function of a value, which adds ops of the given name."""


def of_op(spec: OpDef) -> Activation:
    """Return the activation that is one op."""

    def applied(b: Builder, x: Value, name: str) -> Value:
        return b.add(spec, [x], name)

    return applied


def _affine(alpha: float, beta: float) -> Activation:
    """Return alpha * x + beta."""

    def applied(b: Builder, x: Value, name: str) -> Value:
        scaled = b.add(Mul(), [x, _number(b, alpha)], name)
        return b.add(Add(), [scaled, _number(b, beta)], name)

    return applied


def _scaled_tanh(alpha: float, beta: float) -> Activation:
    """Return alpha * tanh(beta * x)."""

    def applied(b: Builder, x: Value, name: str) -> Value:
        scaled = b.add(Mul(), [x, _number(b, beta)], name)
        y = b.add(Tanh(), [scaled], name)
        return b.add(Mul(), [y, _number(b, alpha)], name)

    return applied


def _thresholded_relu(alpha: float, beta: float) -> Activation:
    """Return x where it is greater than alpha, else 0."""

    def applied(b: Builder, x: Value, name: str) -> Value:
        is_greater = b.add(Greater(), [x, _number(b, alpha)], name)
        return b.add(Where(), [is_greater, x, _number(b, 0.0)], name)

    return applied


def _number(b: Builder, value: float) -> Value:
    """Return a float32 constant."""
    return b.const(np.array(value, np.float32), "factor")


@dataclass(frozen=True)
class _Parametric:
    """An activation with numbers of the node.

    Attributes:
        make: returns it for an alpha and a beta
        alpha, beta: the numbers where the node has none, None for one without a meaning
    """

    make: Callable[[float, float], Activation]
    alpha: float
    beta: float | None = None


_PLAIN: Mapping[str, OpDef] = {
    "sigmoid": Logistic(),
    "tanh": Tanh(),
    "relu": Relu(),
    "softsign": Softsign(),
    "softplus": Softplus(),
}
_PARAMETRIC: Mapping[str, _Parametric] = {
    "hardsigmoid": _Parametric(lambda a, b: of_op(HardSigmoid(a, b)), 0.2, 0.5),
    "leakyrelu": _Parametric(lambda a, b: of_op(LeakyRelu(a)), 0.01),
    "elu": _Parametric(lambda a, b: of_op(Elu(a)), 1.0),
    "thresholdedrelu": _Parametric(_thresholded_relu, 1.0),
    "affine": _Parametric(_affine, 1.0, 0.0),
    "scaledtanh": _Parametric(_scaled_tanh, 1.0, 1.0),
}
"""ONNX compares the names without regard to case."""


def activations(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> list[Activation]:
    """Return the activations of these names, in lower case.

    Each takes the next of the numbers that it has a meaning for. Raises ValueError for
    activations that edgec does not have.
    """
    known = (*_PLAIN, *_PARAMETRIC)
    if any(name not in known for name in names):
        raise ValueError(f"activations {list(names)}; edgec has {', '.join(known)}")

    next_alpha = iter(alphas)
    next_beta = iter(betas)
    return [_activation(name, next_alpha, next_beta) for name in names]


def _activation(
    name: str, alphas: Iterator[float], betas: Iterator[float]
) -> Activation:
    """Return one activation, which takes its numbers."""
    if name in _PLAIN:
        return of_op(_PLAIN[name])

    parametric = _PARAMETRIC[name]
    alpha = next(alphas, parametric.alpha)
    beta = 0.0
    if parametric.beta is not None:
        beta = next(betas, parametric.beta)

    return parametric.make(alpha, beta)
