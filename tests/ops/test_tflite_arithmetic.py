"""The arithmetic families read from TFLite, int8 and uint8, against LiteRT's reference
kernels.

Where kernels round differently, random data rarely tells: here every input of a table
is tried, and sums are put next to the ties of their rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from edgec.ir import Array
from tests.ops.tflite_node import Operator, Scale

RNG = np.random.default_rng(3)
NONE = {"fusedActivationFunction": 0}
SAME = {"padding": 0, "strideH": 1, "strideW": 1, **NONE}
DTYPES = ("int8", "uint8")


def _data(dtype: str, *shape: int) -> Array:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def _zero(dtype: str, zero: int) -> int:
    """An int8 zero point in the element type."""
    return zero + (128 if dtype == "uint8" else 0)


def _every(dtype: str) -> Array:
    return np.arange(256).astype(np.uint8).view(dtype).reshape(1, 4, 8, 8)


def _tables() -> Iterator[Operator]:
    # By 1 / 128 only the steps of float32 tell on which side of a tie a sigmoid is.
    scales = ((0.03, 4), (0.0313, -90), (0.2, 0), (0.004, -128), (1 / 128, -128))
    for scale, zero in scales:
        for dtype in DTYPES:
            x = _every(dtype)
            quant = {0: (scale, _zero(dtype, zero))}
            version = 2 if dtype == "int8" else 1
            for name in (
                "RELU",
                "RELU6",
                "RELU_N1_TO_1",
                "LEAKY_RELU",
                "HARD_SWISH",
                "TANH",
                "LOGISTIC",
            ):
                y = (0.05, _zero(dtype, -30))
                y = {
                    "TANH": (1 / 128, _zero(dtype, 0)),
                    "LOGISTIC": (1 / 256, _zero(dtype, -128)),
                }.get(name, y)
                options = {
                    "LEAKY_RELU": ("LeakyReluOptions", {"alpha": 0.1}),
                    "HARD_SWISH": ("HardSwishOptions", {}),
                }
                at = 1 if name in ("HARD_SWISH", "RELU_N1_TO_1") else version
                yield Operator(name, [x], (), (dtype,), options.get(name), quant, y, at)
        for name in ("ABS", "EXP", "LOG", "GELU"):
            if name == "LOG":
                table = None
            else:
                table = (f"{name.capitalize()}Options", dict[str, Any]())
            yield Operator(
                name,
                [_every("int8")],
                (),
                ("int8",),
                table,
                {0: (scale, zero)},
                (0.07, -8),
                1,
            )
        for name in ("SQRT", "RSQRT"):  # they refuse negative numbers
            yield Operator(
                name,
                [_every("int8")],
                (),
                ("int8",),
                None,
                {0: (scale, -128)},
                (0.02, -100),
                2,
            )
    gelu = ("GeluOptions", dict[str, Any]())
    scale_at_tie = {0: (0.125, -128)}
    yield Operator(
        "GELU", [_every("int8")], (), ("int8",), gelu, scale_at_tie, (0.25, 0)
    )


def _near_ties(real: float, count: int) -> Array:
    """int32 sums that are worth a whole number and a half of output units, give or take
    a little.
    """
    halves = (RNG.integers(-100, 100, count) + 0.5) / real
    return (np.round(halves) + RNG.integers(-3, 4, count)).astype(np.int32)


def _weighted() -> Iterator[Operator]:
    """One input pixel that is zero: the sums are the biases."""
    o = 600
    for dtype in DTYPES:
        for sx, sw in ((0.031, 0.0123), (0.7, 0.00391), (0.11, 0.05)):
            sx, sw = (float(np.float32(s)) for s in (sx, sw))
            sy = float(np.float32(sx * sw * 2**20 * 1.37))
            bias = _near_ties(sx * sw / sy, o)
            zero = _zero(dtype, 5)
            quant: dict[int, Scale] = {
                0: (sx, zero),
                1: (sw, _zero(dtype, 0)),
                2: (sx * sw, 0),
            }
            weights = {
                "CONV_2D": (o, 1, 1, 1),
                "DEPTHWISE_CONV_2D": (1, 1, 1, o),
                "FULLY_CONNECTED": (o, 1),
            }
            depthwise = {
                **SAME,
                "depthMultiplier": o,
                "dilationHFactor": 1,
                "dilationWFactor": 1,
            }
            options: dict[str, tuple[str, dict[str, Any]]] = {
                "CONV_2D": (
                    "Conv2DOptions",
                    {**SAME, "dilationHFactor": 1, "dilationWFactor": 1},
                ),
                "DEPTHWISE_CONV_2D": ("DepthwiseConv2DOptions", depthwise),
                "FULLY_CONNECTED": ("FullyConnectedOptions", NONE),
            }
            for name, shape in weights.items():
                x = np.full(
                    (1, 1) if name == "FULLY_CONNECTED" else (1, 1, 1, 1), zero, dtype
                )
                inputs = [x, _data(dtype, *shape), bias]
                version = 3 if name != "FULLY_CONNECTED" else 4
                yield Operator(
                    name,
                    inputs,
                    (1, 2),
                    (dtype,),
                    options[name],
                    quant,
                    (sy, zero),
                    version,
                )
            inputs = [
                np.array([1, 1, 1, o], np.int32),
                _data(dtype, o, 1, 1, 1),
                np.full((1, 1, 1, 1), zero, dtype),
                bias,
            ]
            quant = {1: quant[1], 2: quant[0], 3: quant[2]}
            conv = ("TransposeConvOptions", SAME)
            yield Operator(
                "TRANSPOSE_CONV",
                inputs,
                (0, 1, 3),
                (dtype,),
                conv,
                quant,
                (sy, zero),
                3,
            )


def _asymmetric() -> Iterator[Operator]:
    """uint8 weights with a zero point, as quantization-aware training of old made them."""
    x = _data("uint8", 2, 6, 6, 8)
    bias = RNG.integers(-9000, 9000, 8).astype(np.int32)
    quant: dict[int, Scale] = {
        0: (0.05, 120),
        1: (0.02, 131),
        2: (float(np.float32(0.05) * np.float32(0.02)), 0),
    }
    dilated = {**SAME, "dilationHFactor": 2, "dilationWFactor": 2}
    conv = ("Conv2DOptions", dilated)
    yield Operator(
        "CONV_2D",
        [x, _data("uint8", 8, 3, 3, 8), bias],
        (1, 2),
        ("uint8",),
        conv,
        quant,
        (0.9, 100),
    )
    conv = (
        "DepthwiseConv2DOptions",
        {**SAME, "dilationHFactor": 1, "dilationWFactor": 1, "depthMultiplier": 1},
    )
    yield Operator(
        "DEPTHWISE_CONV_2D",
        [x, _data("uint8", 1, 3, 3, 8), bias],
        (1, 2),
        ("uint8",),
        conv,
        quant,
        (0.3, 90),
    )
    dense = ("FullyConnectedOptions", NONE)
    weights = _data("uint8", 8, 36 * 8)
    yield Operator(
        "FULLY_CONNECTED",
        [x, weights, bias],
        (1, 2),
        ("uint8",),
        dense,
        quant,
        (1.1, 100),
    )


def _reductions() -> Iterator[Operator]:
    for dtype in DTYPES:
        x = _data(dtype, 3, 7, 5, 16)
        one = (0.05, _zero(dtype, 9))
        pool = {"filterHeight": 3, "filterWidth": 2, **SAME}
        for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
            for act in (0, 1, 3):
                options = ("Pool2DOptions", {**pool, "fusedActivationFunction": act})
                yield Operator(
                    name,
                    [x],
                    (),
                    (dtype,),
                    options,
                    {0: one},
                    one,
                    2 if dtype == "int8" else 1,
                )
        for axes in ([1, 2], [3], [1], [-1, 1]):
            for keep in (True, False):
                options = ("ReducerOptions", {"keepDims": keep})
                inputs = [x, np.array(axes, np.int32)]
                yield Operator(
                    "MEAN",
                    inputs,
                    (1,),
                    (dtype,),
                    options,
                    {0: one},
                    (0.03, _zero(dtype, -4)),
                    2,
                )
                yield Operator(
                    "REDUCE_MAX", inputs, (1,), (dtype,), options, {0: one}, one, 2
                )
                yield Operator(
                    "REDUCE_MIN", inputs, (1,), (dtype,), options, {0: one}, one, 2
                )
        for beta in (1.0, 0.5):
            table = ("SoftmaxOptions", {"beta": beta})
            y = (1 / 256, _zero(dtype, -128))
            yield Operator(
                "SOFTMAX",
                [_data(dtype, 40, 21)],
                (),
                (dtype,),
                table,
                {0: (0.06, 3)},
                y,
                1,
            )


def _pairs() -> Iterator[Operator]:
    """All pairs of inputs; PRELU and MUL at scales whose product float32 and double
    round differently.
    """
    for dtype in DTYPES:
        a = np.repeat(_every(dtype).reshape(1, -1), 256, 0)
        b = a.T.copy()
        quant: dict[int, Scale] = {
            0: (0.0371, _zero(dtype, 3)),
            1: (0.0123, _zero(dtype, -9)),
        }
        for name, scale in (("ADD", 0.041), ("SUB", 0.029), ("MUL", 0.0517)):
            for act in (0, 1):
                options: Any = (
                    f"{name.capitalize()}Options",
                    {"fusedActivationFunction": act},
                )
                yield Operator(
                    name,
                    [a, b],
                    (),
                    (dtype,),
                    options,
                    quant,
                    (scale, _zero(dtype, 7)),
                    2,
                )
        yield Operator(
            "PRELU", [a, b], (1,), (dtype,), None, quant, (0.031, _zero(dtype, 1))
        )
        same = {0: quant[0], 1: quant[0]}
        for name in ("MAXIMUM", "MINIMUM"):
            options = ("MaximumMinimumOptions", {})
            yield Operator(name, [a, b], (), (dtype,), options, same, quant[0], 2)
    options = ("SquaredDifferenceOptions", {})
    a = _every("int8").reshape(1, 1, -1)
    b = _every("int8").reshape(1, -1, 1)
    yield Operator(
        "SQUARED_DIFFERENCE",
        [a, b],
        (),
        ("int8",),
        options,
        {0: (0.03, 3), 1: (0.04, -9)},
        (0.21, 4),
        2,
    )


def _cases(*groups: Iterator[Operator]) -> list[Any]:
    return [
        pytest.param(op, id=f"{i}-{op}")
        for group in groups
        for i, op in enumerate(group)
    ]


@pytest.mark.parametrize(
    "op", _cases(_tables(), _weighted(), _asymmetric(), _reductions(), _pairs())
)
def test_is_the_reference_kernels(op: Operator) -> None:
    op.check()


def test_a_product_of_scales_is_rounded_to_float32() -> None:
    """MUL and PRELU: scales are sought at which float32 and double give different int8
    numbers.
    """
    from edgec.ops.fixed_point import (
        multiply_by_quantized_multiplier,
        quantize_multiplier,
    )

    f32 = np.float32
    found = 0
    products = np.unique(np.outer(np.arange(-120, 0), np.arange(-120, 121)))
    while found < 3:
        sa, sb = np.exp(RNG.uniform(-5, 0, 2)).astype(f32)
        sy = f32(sa * sb * f32(RNG.uniform(100, 180)))
        reals = float(f32(sa * sb) / sy), float(sa) * float(sb) / float(sy)
        one, two = (
            multiply_by_quantized_multiplier(products, *quantize_multiplier(r))
            for r in reals
        )
        if not ((one != two) & (np.abs(one) < 120)).any():
            continue
        found += 1
        a = np.repeat(_every("int8").reshape(1, -1), 256, 0)
        quant = {0: (float(sa), 0), 1: (float(sb), 0)}
        y = (float(sy), 0)
        Operator(
            "MUL", [a, a.T.copy()], (), ("int8",), ("MulOptions", NONE), quant, y, 2
        ).check()
        Operator("PRELU", [a, a.T.copy()], (1,), ("int8",), None, quant, y).check()
