"""fold_batch_norm, fold_bias, fuse_activation, fold_pad, fold_ahead."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from edgec.ir import OpDef, Quant, Value
from edgec.ops.binary import Add, Mul, Sub
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.matmul import FullyConnected
from edgec.ops.norm import BatchNorm
from edgec.ops.pad import Pad
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec.ops.unary import Relu, Relu6, Tanh
from tests.passes.chain import Chain

Q = Quant.per_tensor(0.05, -3)


def conv(b: Chain, x: Value, bias: bool = True, act: str = "none") -> Value:
    return b.add(
        Conv2D(act=act),
        [x, b.weights(6, 3, 3, x.type.shape[3]), *([b.weights(6)] if bias else [])],
    )


def depthwise(b: Chain, x: Value, bias: bool = True) -> Value:
    return b.add(
        DepthwiseConv2D(), [x, b.weights(1, 3, 3, 6), *([b.weights(6)] if bias else [])]
    )


def dense(b: Chain, x: Value, bias: bool = True) -> Value:
    return b.add(
        FullyConnected(),
        [x, b.weights(6, x.type.shape[-1]), *([b.weights(6)] if bias else [])],
    )


LINEAR = pytest.mark.parametrize("linear", [conv, depthwise, dense])


@LINEAR
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(6,), (1, 1, 1, 6), ()])
def test_a_channel_factor_goes_into_the_weights(
    linear: Callable[..., Value], bias: bool, shape: tuple[int, ...]
) -> None:
    b = Chain()
    y = b.add(Mul("relu"), [b.weights(*shape), linear(b, b.x(1, 5, 5, 3), bias)])
    b.done(y).run("fold_batch_norm").delta(mul=-1).same().settles("fold_batch_norm")


@LINEAR
@pytest.mark.parametrize("bias", [True, False])
def test_a_batch_normalisation_goes_into_the_weights(
    linear: Callable[..., Value], bias: bool
) -> None:
    b = Chain()
    variance = b.const(b.rng.uniform(0.1, 2, 6).astype(np.float32), "variance")
    y = b.add(
        BatchNorm(1e-3),
        [
            linear(b, b.x(1, 5, 5, 3), bias),
            b.weights(6),
            b.weights(6),
            b.weights(6),
            variance,
        ],
    )
    b.done(b.add(Relu(), [y])).run("fold_batch_norm").delta(
        batch_norm=-1
    ).same().settles("fold_batch_norm")


@LINEAR
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("op", [Add(), Sub("relu6")])
def test_a_channel_term_goes_into_the_bias(
    linear: Callable[..., Value], bias: bool, op: OpDef
) -> None:
    b = Chain()
    y = b.add(op, [linear(b, b.x(1, 5, 5, 3), bias), b.weights(6)])
    b.done(y).run("fold_bias").delta(**{op.kind: -1}).same().settles("fold_bias")


def test_factors_of_places_stay() -> None:
    b = Chain()
    y = b.add(Mul(), [conv(b, b.x(1, 5, 5, 3)), b.weights(3, 1)])
    b.done(b.add(Add(), [y, b.weights(3, 3, 6)])).settles(
        "fold_batch_norm", "fold_bias"
    )


def test_an_activated_or_shared_result_is_not_scaled() -> None:
    b = Chain()
    x = b.x(1, 5, 5, 3)
    active = conv(b, x, act="relu")
    shared = conv(b, x)
    ys = [b.add(Mul(), [v, b.number(2.0)]) for v in (active, shared)]
    b.done(*ys, b.add(Tanh(), [shared])).settles("fold_batch_norm", "fold_bias")


@pytest.mark.parametrize("op", [Relu(), Relu6()])
def test_an_activation_becomes_an_attribute(op: OpDef) -> None:
    b = Chain()
    y = b.add(op, [b.add(Add(), [conv(b, b.x(1, 5, 5, 3)), b.number(0.1)])])
    b.done(y).run("fuse_activation").delta(**{op.kind: -1}).same(0).settles(
        "fuse_activation"
    )


def test_two_activations_are_one() -> None:
    b = Chain()
    y = b.add(Relu6(), [conv(b, b.x(1, 5, 5, 3), act="relu")])
    b.done(y).run("fuse_activation").kinds("conv2d").same(0)


def test_a_shared_result_is_not_clamped() -> None:
    b = Chain()
    y = conv(b, b.x(1, 5, 5, 3))
    b.done(b.add(Relu(), [y]), b.add(Tanh(), [y])).settles("fuse_activation")
    b = Chain()
    y = conv(b, b.x(1, 5, 5, 3))
    b.done(y, b.add(Relu(), [y])).settles("fuse_activation")


def quantized_conv(
    b: Chain, pads: tuple[int, int, int, int] = (0, 0, 0, 0), x: Value | None = None
) -> Value:
    wq = Quant.per_tensor(0.02)
    w = b.const(b.rng.integers(-127, 128, (4, 3, 3, 2)).astype(np.int8), "w", wq)
    bias = b.const(
        b.rng.integers(-99, 99, 4).astype(np.int32), "b", Quant.per_tensor(0.001)
    )
    return b.add(Conv2D(pads=pads), [x or b.x(1, 6, 6, 2, quant=Q), w, bias], quant=Q)


def test_int8_activations_are_fused_when_the_scale_stays() -> None:
    b = Chain()
    b.done(b.add(Relu(), [quantized_conv(b)], quant=Q)).run("fuse_activation").kinds(
        "conv2d"
    ).same()
    b = Chain()
    b.done(
        b.add(Relu(), [quantized_conv(b)], quant=Quant.per_tensor(0.04, -128))
    ).settles("fuse_activation")


def pad(
    b: Chain,
    x: Value,
    value: float = 0.0,
    pads: tuple[tuple[int, int], ...] = ((0, 0), (1, 2), (0, 1), (0, 0)),
) -> Value:
    return b.add(Pad(pads, "constant", value), [x])


@pytest.mark.parametrize("linear", [conv, depthwise])
def test_a_border_of_zeros_goes_into_the_convolution(
    linear: Callable[..., Value],
) -> None:
    b = Chain()
    b.done(linear(b, pad(b, b.x(1, 5, 5, 3)))).run("fold_pad").delta(
        pad=-1
    ).same().settles("fold_pad")


def test_an_int8_border_is_the_zero_point() -> None:
    b = Chain()
    x = b.x(1, 6, 6, 2, quant=Q)
    b.done(quantized_conv(b, (1, 0, 0, 1), pad(b, x))).run("fold_pad").kinds(
        "conv2d"
    ).same()


def test_a_maximum_takes_a_border_below_everything() -> None:
    b = Chain()
    b.done(b.add(MaxPool2D((3, 3)), [pad(b, b.x(1, 5, 5, 3), -math.inf)])).run(
        "fold_pad"
    ).delta(pad=-1).same(0)
    b = Chain()
    relu = b.add(Relu(), [b.x(1, 5, 5, 3)])
    b.done(b.add(MaxPool2D((3, 3)), [pad(b, relu)])).run("fold_pad").delta(pad=-1).same(
        0
    )


def test_a_mean_takes_a_border_that_counts() -> None:
    b = Chain()
    pool = AveragePool2D((3, 3), pads=(1, 0, 0, 0), count_pads=True)
    b.done(b.add(pool, [pad(b, b.x(1, 5, 5, 3))])).run("fold_pad").delta(pad=-1).same()


def test_other_borders_stay() -> None:
    for value, pads in (
        (1.0, ((0, 0), (1, 2), (0, 1), (0, 0))),
        (0.0, ((0, 0), (1, 1), (1, 1), (0, 1))),
    ):
        b = Chain()
        b.done(conv(b, pad(b, b.x(1, 5, 5, 3), value, pads))).settles("fold_pad")
    b = Chain()
    x = b.x(1, 5, 5, 3)
    pools = [b.add(MaxPool2D(), [pad(b, x)]), b.add(AveragePool2D(), [pad(b, x)])]
    b.done(*pools).settles("fold_pad")


@pytest.mark.filterwarnings("error")
def test_scales_that_overflow_stay_infinite() -> None:
    """Damaged files have them; what is not finite is told of elsewhere."""
    b = Chain()
    huge = [b.const(np.full(6, v, np.float32), "norm") for v in (1e38, 1e38, 1e38, 0)]
    b.done(b.add(BatchNorm(1e-12), [conv(b, b.x(1, 4, 4, 3)), *huge])).run(
        "fold_batch_norm"
    )


def plain(b: Chain, x: Value, bias: bool = True) -> Value:
    """A convolution with an activation."""
    return b.add(
        Conv2D(act="relu6"),
        [x, b.weights(4, 3, 3, 6), *([b.weights(4)] if bias else [])],
    )


def grouped(b: Chain, x: Value, bias: bool = True) -> Value:
    return b.add(
        Conv2D(), [x, b.weights(9, 3, 3, 2), *([b.weights(9)] if bias else [])]
    )


def several(b: Chain, x: Value, bias: bool = True) -> Value:
    """A depthwise convolution of two channels for each."""
    return b.add(
        DepthwiseConv2D(),
        [x, b.weights(1, 3, 3, 12), *([b.weights(12)] if bias else [])],
    )


def flat(b: Chain, x: Value, bias: bool = True) -> Value:
    """A fully connected layer whose rows are five pixels each."""
    return b.add(
        FullyConnected(keep_dims=False),
        [x, b.weights(4, 30), *([b.weights(4)] if bias else [])],
    )


AHEAD = pytest.mark.parametrize(
    "reader", [plain, grouped, depthwise, several, dense, flat]
)


@AHEAD
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(6,), (1, 1, 1, 6), ()])
def test_a_factor_and_a_term_go_into_the_weights_behind(
    reader: Callable[..., Value], bias: bool, shape: tuple[int, ...]
) -> None:
    b = Chain()
    x = b.add(Tanh(), [b.x(1, 5, 5, 6)])
    y = b.add(Add(), [b.weights(*shape), b.add(Mul(), [x, b.weights(*shape)])])
    check = (
        b.done(reader(b, y, bias), reader(b, y, bias))
        .run("fold_ahead", "fold_ahead")
        .delta(mul=-1, add=-1)
    )
    check.same(1e-4).settles("fold_ahead")


@pytest.mark.parametrize("shape", [(6,), ()])
def test_a_term_stays_where_there_are_zeros_around_the_image(
    shape: tuple[int, ...],
) -> None:
    b = Chain()
    x = b.add(Tanh(), [b.x(1, 5, 5, 6)])
    y = b.add(Add(), [b.add(Mul(), [x, b.weights(*shape)]), b.weights(*shape)])
    z = b.add(Conv2D(pads=(1, 1, 1, 1)), [y, b.weights(4, 3, 3, 6)])
    b.done(z).run("fold_ahead", "fold_ahead").kinds("tanh", "add", "conv2d").same(
        1e-4
    ).settles("fold_ahead")


def test_what_others_read_or_what_is_no_factor_is_not_folded() -> None:
    b = Chain()
    x = b.x(1, 5, 5, 6)
    read = b.add(Mul(), [x, b.weights(6)])
    bounded = b.add(Mul("relu"), [x, b.weights(6)])
    rows = b.add(Mul(), [x, b.weights(5, 1)])
    zero = b.number(0.0)
    exchanged = b.add(Add(), [b.add(Mul(), [x, zero]), b.number(1.0)])
    outputs = [plain(b, v) for v in (read, bounded, rows)]
    padded = b.add(
        DepthwiseConv2D(pads=(1, 1, 1, 1)), [exchanged, b.weights(1, 3, 3, 6)]
    )
    huge = b.add(
        FullyConnected(),
        [
            b.add(Mul(), [x, b.number(1e3)]),
            b.const(np.full((4, 6), 1e38, np.float32), "w"),
        ],
    )
    b.done(*outputs, padded, huge, b.add(Tanh(), [read])).settles("fold_ahead")
