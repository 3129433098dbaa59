"""recognize_activations and recognize_norms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgec.ir import Value
from edgec.ops.activation import HardSigmoid
from edgec.ops.binary import Add, Mul, Sub
from edgec.ops.norm import InstanceNorm, LayerNorm
from edgec.ops.reduce import Mean
from edgec.ops.unary import Erf, Relu6, Rsqrt, Square
from tests.passes.chain import Chain


def relu6_plus_3(b: Chain, x: Value, fused: bool) -> Value:
    if fused:
        return b.add(Add("relu6"), [x, b.number(3.0)])
    return b.add(Relu6(), [b.add(Add(), [b.number(3.0), x])])


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("grouping", range(3))
def test_hard_swish_in_every_grouping(fused: bool, grouping: int) -> None:
    b = Chain()
    x = b.x(2, 9)
    t = relu6_plus_3(b, x, fused)
    sixth = b.number(1 / 6)
    if grouping == 0:
        y = b.add(Mul(), [b.add(Mul(), [x, t]), sixth])
    elif grouping == 1:
        y = b.add(Mul(), [b.add(Mul(), [t, sixth]), x])
    else:
        y = b.add(Mul(), [t, b.add(Mul(), [sixth, x])])
    b.done(y).run("recognize_activations").kinds("hard_swish").same(1e-6).settles(
        "recognize_activations"
    )


@pytest.mark.parametrize("factors", [(), (0.2,), (1 / 6, 3.0), (0.25, -0.5, 2.0)])
@pytest.mark.parametrize("sigmoid", [True, False])
def test_any_factor_stays_behind_a_hard_swish(
    factors: tuple[float, ...], sigmoid: bool
) -> None:
    b = Chain()
    x = b.x(2, 9)
    y = b.add(
        Mul(),
        [
            x,
            b.add(HardSigmoid(1 / 6, 0.5), [x])
            if sigmoid
            else relu6_plus_3(b, x, True),
        ],
    )
    for factor in factors:
        y = b.add(Mul(), [y, b.number(factor)])
    check = b.done(y).run("recognize_activations").same(1e-6)
    # of a hard-sigmoid the factors are none of the function's
    check.kinds("hard_swish", *["mul"] * (len(factors) if sigmoid else 1)).settles(
        "recognize_activations"
    )


def test_hard_swish_of_a_hard_sigmoid() -> None:
    b = Chain()
    x = b.x(2, 9)
    y = b.add(Mul(), [x, b.add(HardSigmoid(1 / 6, 0.5), [x])])
    b.done(y).run("recognize_activations").kinds("hard_swish").same(1e-6)


def test_hard_sigmoid() -> None:
    b = Chain()
    y = b.add(Mul(), [relu6_plus_3(b, b.x(2, 9), False), b.number(1 / 6)])
    b.done(y).run("recognize_activations").kinds("hard_sigmoid").same(1e-6)


def test_gelu() -> None:
    b = Chain()
    x = b.x(2, 9)
    erf = b.add(Erf(), [b.add(Mul(), [x, b.number(math.sqrt(0.5))])])
    y = b.add(
        Mul(), [b.add(Mul(), [x, b.number(0.5)]), b.add(Add(), [erf, b.number(1.0)])]
    )
    b.done(y).run("recognize_activations").kinds("gelu").same(1e-6)


def test_what_only_looks_like_hard_swish() -> None:
    b = Chain()
    x, other = b.x(2, 9), b.x(2, 9, name="other")
    t = relu6_plus_3(b, x, False)
    y = b.add(Mul(), [b.add(Mul(), [other, t]), b.number(1 / 6)])
    z = b.add(Mul(), [b.add(Mul(), [x, relu6_plus_3(b, other, True)]), b.number(1 / 5)])
    b.done(y, z).settles("recognize_activations")


def normalised(b: Chain, x: Value, axes: tuple[int, ...], square: bool = True) -> Value:
    d = b.add(Sub(), [x, b.add(Mean(axes), [x])])
    d2 = b.add(Square(), [d]) if square else b.add(Mul(), [d, d])
    root = b.add(Rsqrt(), [b.add(Add(), [b.number(1e-3), b.add(Mean(axes), [d2])])])
    return b.add(Mul(), [d, root])


@pytest.mark.parametrize("square", [True, False])
@pytest.mark.parametrize("axes", [(2,), (1, 2)])
def test_layer_norm(axes: tuple[int, ...], square: bool) -> None:
    b = Chain()
    x = b.x(2, 3, 5)
    y = b.add(Mul(), [normalised(b, x, axes, square), b.weights(1, 5)])
    check = (
        b.done(b.add(Add(), [b.weights(5), y]))
        .run("recognize_norms")
        .kinds("layer_norm")
        .same(1e-4)
    )
    check.settles("recognize_norms")


def test_instance_norm() -> None:
    b = Chain()
    y = b.add(Add(), [normalised(b, b.x(2, 4, 3, 5), (1, 2)), b.weights(5)])
    b.done(b.add(Mul(), [y, b.weights(1, 1, 1, 5)])).run("recognize_norms").kinds(
        "instance_norm"
    ).same(1e-4)


def test_norms_take_the_constants_behind_them() -> None:
    b = Chain()
    ones = [b.weights(5), b.weights(5)]
    y = b.add(Mul(), [b.add(InstanceNorm(), [b.x(1, 4, 3, 5), *ones]), b.number(0.5)])
    z = b.add(
        Add(), [b.add(LayerNorm(), [b.x(1, 4, 3, 5, name="z"), ones[0]]), b.number(0.5)]
    )
    b.done(y, z).run("recognize_norms").kinds("instance_norm", "layer_norm").same()


def test_what_only_looks_like_a_norm() -> None:
    b = Chain()
    x = b.x(2, 3, 5)
    d = b.add(Sub(), [x, b.add(Mean((1,)), [x])])
    root = b.add(
        Rsqrt(),
        [b.add(Add(), [b.number(1e-3), b.add(Mean((2,)), [b.add(Square(), [d])])])],
    )
    norm = b.add(LayerNorm(), [x, b.weights(5)])
    b.done(
        b.add(Mul(), [d, root]),
        b.add(Mul(), [norm, b.const(np.ones((3, 1), np.float32))]),
    ).settles("recognize_norms")
