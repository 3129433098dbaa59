"""Random layers of floats with weights, and elementwise ops that follow them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgec.ir import Builder, OpDef, TensorType, Value
from edgec.ops.activation import Clamp, LeakyRelu
from edgec.ops.binary import Add
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.matmul import BatchMatMul, FullyConnected
from edgec.ops.prelu import PRelu
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.ops.unary import HardSwish, Logistic, Relu
from tests.harness import random_inputs
from tests.schedule.layers import Layer, Pick

_LEADS: tuple[tuple[int, ...], ...] = ((), (2,), (2, 3))
_ACTS = ("none", "relu", "relu6")
_UNARY = {
    "relu": Relu(),
    "logistic": Logistic(),
    "hard_swish": HardSwish(),
    "leaky": LeakyRelu(0.3),
    "clamp": Clamp(-0.5, 2.0),
}
_CHAINS = (
    "",
    "",
    "",
    "add",
    "add relu",
    "prelu",
    "add prelu",
    "hard_swish",
    "add hard_swish",
    "leaky",
    "clamp",
    "relu add clamp",
    "prelu add",
    "add add",
)


def _layer(
    one: Pick,
    family: str,
    spec: OpDef,
    *shapes: tuple[int, ...],
    weights: int = 2,
    chain: str = "",
    fan: int = 1,
    zeros: float = 0.0,
) -> Layer:
    """An op, of whose inputs the first is none of `weights` constants; then the ops
    that a chain names.

    fan: products of a sum, where sums are to be near one, as networks have them. zeros:
    part of the weights that are.
    """
    build = Builder("layer")
    values = list[Value]()
    for i, shape in enumerate(shapes):
        data = (one.rng.normal(size=shape) / (np.sqrt(fan) if i == 1 else 1)).astype(
            np.float32
        )
        if i == 1 and zeros:
            data[one.rng.random(shape) < zeros] = 0
        values.append(
            build.const(data, f"c{i}")
            if 0 < i <= weights
            else build.input(f"x{i}", TensorType(shape))
        )
    y = build.add(spec, values, "y")
    for i, name in enumerate(chain.split()):
        y = followed(one, build, y, name, i)
    build.graph.outputs = [y]
    return Layer(
        family, build.graph, random_inputs(build.graph, int(one.rng.integers(1 << 30)))
    )


def followed(one: Pick, build: Builder, y: Value, name: str, i: int = 0) -> Value:
    """One more op on a result."""
    if name == "add":
        return build.add(
            Add(one(*_ACTS)), [build.input(f"other{i}", y.type), y], f"y{i}"
        )
    if name == "concat":
        return build.add(Concat(3), [build.input("other", y.type), y], f"y{i}")
    if name == "prelu":
        slope = one.rng.normal(size=y.type.shape[-1:]).astype(np.float32)
        return build.add(PRelu(), [y, build.const(slope, "slope")], f"y{i}")
    return build.add(_UNARY[name], [y], f"y{i}")


def _size(one: Pick, extent: int, pads: int) -> int:
    return max(extent - pads, 1) + one(0, 1, 2, 5, 9, 14)


def dense(one: Pick) -> Layer:
    """A convolution with the edges that matter: pads beyond the kernel, strides,
    dilation, groups, odd channels.
    """
    (kh, kw), (dh, dw) = (
        (one(1, 1, 2, 3, 3, 5), one(1, 1, 2, 3, 3, 5)),
        (one(1, 1, 2, 3), one(1, 1, 2, 3)),
    )
    pads = (one(0, 0, 1, 2), one(0, 1, 2), one(0, 0, 1, 2), one(0, 1, 2))
    h = _size(one, (kh - 1) * dh + 1, pads[0] + pads[1])
    w = _size(one, (kw - 1) * dw + 1, pads[2] + pads[3])
    step = one((1, 1), (1, 1), (2, 2), (1, 2), (3, 2))
    groups = one(1, 1, 1, 2, 3, 8)
    depth = one(1, 2, 3, 4, 7, 16, 21)
    per = one(1, 2, 3, 4, 8, 9, 17, 24, 33)
    x = (one(1, 1, 2), h, w, depth * groups)
    o = per * groups
    spec = Conv2D(step, pads, (dh, dw), one(*_ACTS))
    weights = (o, kh, kw, depth)
    return _layer(
        one,
        "dense float",
        spec,
        x,
        weights,
        (o,),
        chain=one(*_CHAINS),
        fan=kh * kw * depth,
    )


def square(one: Pick) -> Layer:
    """3x3 of stride 1, which may be done by Winograd's transforms: sizes around those
    of their tiles.
    """
    dilation = (one(1, 1, 1, 2), one(1, 1, 1, 3))
    pads = (one(0, 1, 1, 2), one(0, 1, 1), one(0, 1, 1, 2), one(0, 1, 1))
    h = _size(one, 2 * dilation[0] + 1, pads[0] + pads[1])
    w = _size(one, 2 * dilation[1] + 1, pads[2] + pads[3])
    x = (one(1, 1, 2), h, w, one(3, 4, 7, 8, 12, 16, 16, 33))
    o = one(1, 4, 6, 8, 16, 16, 24, 33)
    spec = Conv2D((1, 1), pads, dilation, one(*_ACTS))
    return _layer(
        one,
        "square float",
        spec,
        x,
        (o, 3, 3, x[3]),
        (o,),
        chain=one(*_CHAINS),
        fan=9 * x[3],
    )


def sparse(one: Pick) -> Layer:
    """1x1 of which most weights are zeros: pixels around whole blocks, result channels
    without a weight.
    """
    x = (
        one(1, 1, 2),
        one(1, 3, 8),
        one(1, 4, 5, 11, 32, 33),
        one(1, 3, 4, 7, 16, 33, 130),
    )
    o = one(1, 2, 4, 7, 16, 33)
    spec = Conv2D((1, 1), (0, 0, 0, 0), (1, 1), one(*_ACTS))
    zeros = one(0.6, 0.75, 0.9, 0.99)
    chain = one(*_CHAINS)
    return _layer(
        one,
        "sparse float",
        spec,
        x,
        (o, 1, 1, x[3]),
        (o,),
        chain=chain,
        fan=x[3],
        zeros=zeros,
    )


def depthwise(one: Pick) -> Layer:
    """Those that have tiles of their own, and others; depth multipliers."""
    kh, kw = one((3, 3), (3, 3), (3, 3), (5, 5), (7, 7), (2, 3), (1, 1), (1, 7), (7, 4))
    d = one(1, 1, 1, 2, 3)
    pads = (one(0, 0, 1, 2, 3), one(0, 1, 2), one(0, 0, 1, 2, 3), one(0, 1, 2, 3))
    h = _size(one, (kh - 1) * d + 1, pads[0] + pads[1])
    w = _size(one, (kw - 1) * d + 1, pads[2] + pads[3])
    c = one(1, 3, 4, 7, 8, 12, 16, 24, 33)
    times = one(1, 1, 1, 1, 2, 3)
    spec = DepthwiseConv2D(
        one((1, 1), (1, 1), (2, 2), (2, 1)), pads, (d, d), one(*_ACTS)
    )
    x = (one(1, 1, 2), h, w, c)
    o = c * times
    return _layer(
        one, "depthwise float", spec, x, (1, kh, kw, o), (o,), chain=one(*_CHAINS)
    )


def transposed(one: Pick) -> Layer:
    """Kernels smaller and larger than the stride."""
    kh = one(1, 2, 3, 4, 5)
    kw = one(1, 2, 3, 4)
    stride = (one(1, 2, 2, 3), one(1, 2, 2, 3))
    pads = (
        one(0, 1) * (kh > 2),
        one(0, 1) * (kh > 2),
        one(0, 1) * (kw > 2),
        one(0, 1) * (kw > 2),
    )
    o = one(1, 3, 8, 17)
    x = (one(1, 2), one(1, 2, 5, 9), one(1, 3, 7, 12), one(1, 4, 9))
    spec = TransposeConv2D(stride, pads, act=one(*_ACTS))
    return _layer(
        one, "transposed float", spec, x, (o, kh, kw, x[3]), (o,), chain=one(*_CHAINS)
    )


def connected(one: Pick) -> Layer:
    """Few rows and many."""
    k = one(1, 3, 4, 17, 64, 130)
    o = one(1, 3, 4, 8, 9, 31, 100)
    spec = FullyConnected(one(*_ACTS))
    chain = one(*_CHAINS)
    return _layer(
        one,
        "connected float",
        spec,
        (one(1, 1, 2, 7, 33), k),
        (o, k),
        (o,),
        chain=chain,
    )


def product(one: Pick) -> Layer:
    """Of two inputs, either of them transposed, the second perhaps shared; of a layer
    whose weights are an input.
    """
    m = one(1, 3, 8, 17)
    n = one(1, 4, 9, 40)
    k = one(1, 5, 16, 33)
    lead = one(*_LEADS)
    if one(False, False, True):
        return _layer(
            one,
            "product float",
            FullyConnected(one("none", "none", "relu")),
            (m, k),
            (n, k),
            weights=0,
        )
    adj_x = one(False, True)
    adj_y = one(False, True)
    a = (*lead, k, m) if adj_x else (*lead, m, k)
    b = (n, k) if adj_y else (k, n)
    spec = BatchMatMul(adj_x, adj_y)
    return _layer(
        one,
        "product float",
        spec,
        a,
        (*lead, *b)[one(0, 0, 1) * len(lead) :],
        weights=0,
    )


MAKERS: tuple[Callable[[Pick], Layer], ...] = (
    dense,
    square,
    sparse,
    depthwise,
    transposed,
    connected,
    product,
)
