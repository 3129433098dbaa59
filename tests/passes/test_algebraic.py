"""algebraic: one case per rule."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgec.ir import OpDef, Quant
from edgec.ops.activation import Clamp
from edgec.ops.arithmetic import Maximum, Minimum, Pow
from edgec.ops.binary import Add, Mul, Sub
from edgec.ops.broadcast import Tile
from edgec.ops.concat import Concat
from edgec.ops.division import Div
from edgec.ops.pad import Pad
from edgec.ops.pool import AveragePool2D
from edgec.ops.prelu import PRelu
from edgec.ops.quantize import Dequantize, Quantize
from edgec.ops.slice import Slice
from edgec.ops.unary import Exp, Reciprocal, Relu, Relu6, Sqrt, Square, Tanh
from tests.passes.chain import Chain

Q = Quant.per_tensor(0.05, -3)
UNLIKE = Quant.per_tensor(0.06, 4)


@pytest.mark.parametrize(
    "idle",
    [
        Slice((0, 0, 0, 0), (1, 4, 4, 3), (1, 1, 1, 1)),
        Pad(((0, 0),) * 4),
        Tile((1, 1, 1, 1)),
        Concat(3),
        AveragePool2D((1, 1), (1, 1)),
    ],
)
def test_ops_that_do_nothing(idle: OpDef) -> None:
    for quant in (None, Q):
        b = Chain()
        y = b.add(idle, [b.x(1, 4, 4, 3, quant=quant)])
        b.done(b.add(Concat(0), [y, y])).run("algebraic").kinds("concat").same(0)


def test_a_scale_that_is_there_already() -> None:
    b = Chain()
    x = b.add(Relu(), [b.x(512, quant=Q)], quant=Q)
    same = b.add(Quantize(), [x], quant=Q)
    back = b.add(Quantize(), [b.add(Dequantize(), [same])], quant=Q)
    b.done(b.add(Relu(), [back], quant=Q)).run("algebraic").kinds("relu", "relu").same()
    b = Chain()
    back = b.add(Quantize(), [b.add(Dequantize(), [b.x(4, quant=Q)])], quant=UNLIKE)
    b.done(b.add(Dequantize(), [back])).settles("algebraic")


def test_a_slice_backwards_does_something() -> None:
    b = Chain()
    y = b.add(Slice((3,), (4,), (-1,)), [b.x(4)])
    b.done(b.add(Tanh(), [y])).settles("algebraic")


@pytest.mark.parametrize(("op", "number"), [(Add(), 0.0), (Sub(), 0.0), (Mul(), 1.0)])
def test_neutral_constants(op: OpDef, number: float) -> None:
    b = Chain()
    y = b.add(op, [b.x(2, 3), b.const(np.full((2, 1), number, np.float32))])
    b.done(b.add(Tanh(), [y])).run("algebraic").kinds("tanh").same(0)


def test_a_neutral_constant_that_broadcasts_stays() -> None:
    b = Chain()
    y = b.add(Mul(), [b.x(1, 3), b.const(np.ones((2, 1), np.float32))])
    b.done(b.add(Tanh(), [y])).settles("algebraic")


def test_elementwise_ops_broadcast_without_tile() -> None:
    for quant in (None, Q):
        b = Chain()
        y = b.add(Tile((1, 4, 4, 1)), [b.x(1, 1, 1, 3, quant=quant)])
        z = b.add(
            Mul(), [y, b.x(1, 4, 4, 3, name="z", quant=quant)], quant=quant and UNLIKE
        )
        b.done(z).run("algebraic").kinds("mul").same(0)
    b = Chain()
    b.done(b.add(Mul(), [b.add(Tile((2,)), [b.x(3)]), b.x(6, name="z")])).settles(
        "algebraic"
    )


def test_a_tile_stays_where_the_kernels_have_too_few_dimensions() -> None:
    b = Chain()
    y = b.add(Tile((1, 2) * 2 + (1,) * 4), [b.x(2, 1, 3, 1, 2, 1, 3, 1)])
    z = b.add(Tile((1,) * 4 + (1, 2) * 2), [y])
    other = b.x(1, 2, 1, 2, 2, 2, 3, 2, name="z")
    b.done(b.add(Mul(), [z, other])).settles("algebraic")


def test_joins_of_joins() -> None:
    b = Chain()
    x, y = b.x(1, 2, quant=Q), b.x(1, 3, name="y", quant=Q)
    z = b.add(Concat(1), [b.add(Concat(1), [x, y]), x])
    b.done(z).run("algebraic").kinds("concat").same()


def test_subtracting_a_constant_adds_its_negative() -> None:
    b = Chain()
    b.done(b.add(Sub("relu"), [b.x(2, 3), b.weights(3)])).run("algebraic").kinds(
        "add"
    ).same(0)


def test_zero_minus_x() -> None:
    b = Chain()
    b.done(b.add(Sub(), [b.number(0.0), b.x(2, 3)])).run("algebraic").kinds("neg").same(
        0
    )


@pytest.mark.parametrize("op", [Add(), Mul()])
def test_constants_in_a_row_are_one(op: OpDef) -> None:
    b = Chain()
    y = b.add(op, [b.weights(3), b.add(op, [b.x(2, 3), b.number(0.3)])])
    b.done(y).run("algebraic").delta(**{op.kind: -1}).same(1e-6)


def test_constants_that_would_grow_stay() -> None:
    b = Chain()
    y = b.add(Mul(), [b.weights(3), b.add(Mul(), [b.x(2, 3), b.weights(2, 1)])])
    b.done(y).settles("algebraic")


def test_int8_arithmetic_stays() -> None:
    b = Chain()
    zero = b.const(np.full(3, -3, np.int8), "zero", Q)
    b.done(b.add(Sub(), [b.x(2, 3, quant=Q), zero], quant=Q)).settles("algebraic")


def test_reciprocal_of_a_root() -> None:
    b = Chain()
    square = b.add(Mul(), [x := b.x(4), x])
    positive = b.add(Add(), [square, b.number(1.0)])
    b.done(b.add(Reciprocal(), [b.add(Sqrt(), [positive])])).run("algebraic").kinds(
        "mul", "add", "rsqrt"
    ).same()


def test_dividing_by_a_constant_multiplies() -> None:
    b = Chain()
    b.done(b.add(Div("relu"), [b.x(2, 3), b.weights(3)])).run("algebraic").kinds(
        "mul"
    ).same(3e-7)
    b = Chain()
    b.done(
        b.add(Div(), [b.x(2, 3), b.const(np.array([1.0, 0.0, 1e-44], np.float32))])
    ).settles("algebraic")


def test_one_divided_by_x() -> None:
    b = Chain()
    b.done(b.add(Div(), [b.number(1.0), b.x(2, 3)])).run("algebraic").kinds(
        "reciprocal"
    ).same(0)


def test_dividing_by_a_root() -> None:
    b = Chain()
    positive = b.add(Add(), [b.add(Square(), [b.x(2, 1, name="y")]), b.number(1.0)])
    y = b.add(Div(), [b.x(2, 3), b.add(Sqrt(), [positive])])
    b.done(y).run("algebraic").kinds("square", "add", "rsqrt", "mul").same(1e-6)


@pytest.mark.parametrize(
    ("exponent", "kind"),
    [(2.0, "mul"), (0.5, "sqrt"), (-0.5, "rsqrt"), (-1.0, "reciprocal")],
)
def test_powers(exponent: float, kind: str) -> None:
    b = Chain()
    positive = b.add(Exp(), [b.x(2, 3)])
    b.done(b.add(Pow(), [positive, b.number(exponent)])).run("algebraic").kinds(
        "exp", kind
    ).same(1e-6)


def test_the_first_power() -> None:
    b = Chain()
    y = b.add(Pow(), [b.add(Tanh(), [b.x(2, 3)]), b.number(1.0)])
    b.done(b.add(Tanh(), [y])).run("algebraic").kinds("tanh", "tanh").same(0)
    b = Chain()
    b.done(b.add(Pow(), [b.x(2, 3), b.number(3.0)])).settles("algebraic")


def test_extremes_with_a_constant_are_clamps() -> None:
    b = Chain()
    y = b.add(Minimum(), [b.add(Maximum(), [b.number(0.0), b.x(2, 30)]), b.number(6.0)])
    b.done(y).run("algebraic", "algebraic").kinds("relu6").same(0)
    b = Chain()
    b.done(b.add(Maximum(), [b.x(2, 3), b.weights(3)])).settles("algebraic")


@pytest.mark.parametrize(("slope", "kind"), [(0.25, "leaky_relu"), (0.0, "relu")])
def test_a_prelu_of_one_slope(slope: float, kind: str) -> None:
    b = Chain()
    slopes = b.const(np.full((1, 1, 3), slope, np.float32))
    b.done(b.add(PRelu(), [b.x(1, 4, 4, 3), slopes])).run("algebraic").kinds(kind).same(
        1e-7
    )


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (Relu(), Clamp(None, 6.0), "relu6"),
        (Clamp(-9.0, 9.0), Relu6(), "relu6"),
        (Clamp(-2.0, 0.5), Clamp(-1.0, 3.0), "clamp"),
        (Clamp(2.0, 3.0), Clamp(-1.0, 1.0), "clamp"),
    ],
)
def test_clamps_in_a_row_are_one(first: OpDef, second: OpDef, kind: str) -> None:
    b = Chain()
    b.done(b.add(second, [b.add(first, [b.x(40)])])).run("algebraic").kinds(kind).same(
        0
    )


def test_a_clamp_without_bounds() -> None:
    b = Chain()
    b.done(b.add(Tanh(), [b.add(Clamp(), [b.x(4)])])).run("algebraic").kinds(
        "tanh"
    ).same(0)


def test_int8_clamps_stay() -> None:
    b = Chain()
    y = b.add(Relu6(), [b.add(Relu(), [b.x(4, quant=Q)], quant=Q)], quant=UNLIKE)
    b.done(y).settles("algebraic")


def test_infinite_bounds_are_none() -> None:
    assert Clamp().coefficients() == (-math.inf, math.inf)
