"""Random layers of whole numbers: edges, odd sizes, extremes of zero points, shifts and
sums, dead channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from edgec.ir import Array, Builder, Graph, OpDef, Quant, Rounding, TensorType
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.matmul import FullyConnected
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.schedule.kernels.gemm_s8 import TILE_SETS

T = TypeVar("T")

_SPECIAL = sorted(
    {t.depth for tiles in TILE_SETS for t in (*tiles.tiles, *tiles.zero) if t.depth}
)
"""Depths that have tiles of their own."""
_DEPTHS = (1, 2, 3, 4, 5, 8, 12, 16, 17, 20, 24, 31, 32, 40, 52, 64, 100)
_CHANNELS = (1, 2, 3, 7, 8, 9, 16, 17, 24, 30, 65)
_DEAD = (
    (0, 0),
    (1 << 30, -30),
    (1300000000, -24),
    (1900000000, -25),
    (2147483647, -23),
    (1 << 30, -31),
)
_ACTS = ("none", "none", "none", "relu", "relu6", "relu_n1_to_1")


@dataclass(frozen=True, eq=False)
class Layer:
    """A graph of one op (of floats: and what follows it), and its inputs."""

    family: str
    graph: Graph
    inputs: Mapping[str, Array]


class Pick:
    """Random choices from one seed."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def __call__(self, *options: T) -> T:
        """One of them."""
        return options[self.rng.integers(len(options))]

    def chance(self, p: float) -> bool:
        """True so often."""
        return bool(self.rng.random() < p)


def graph_of(
    spec: OpDef,
    x: tuple[TensorType, Array],
    *constants: tuple[TensorType, Array],
    y: Quant,
) -> Graph:
    """One op, whose other operands are constant."""
    build = Builder("layer")
    values = [
        build.input("x", x[0]),
        *(build.const(a, f"c{i}", t.quant) for i, (t, a) in enumerate(constants)),
    ]
    out = build.add(spec, values, "y")
    out.type = out.type.with_quant(y)
    build.graph.outputs = [out]
    return build.graph


def dense(one: Pick) -> Layer:
    """A convolution, of groups too, a transposed one, or a fully connected layer."""
    kind = one.rng.random()
    if kind < 0.2:
        return _special(one)
    if kind < 0.35:
        k = one(*_DEPTHS)
        o = one(*_CHANNELS)
        return _weighted(
            one, FullyConnected(one(*_ACTS)), (one(1, 2, 7, 13, 33), k), (o, k)
        )
    if kind < 0.5:
        size = (
            one(1, 1, 2),
            one(1, 1, 2, 7, 9),
            one(1, 2, 3, 7, 8, 13, 16),
            one(*_DEPTHS),
        )
        return _weighted(
            one, Conv2D(act=one(*_ACTS)), size, (one(*_CHANNELS), 1, 1, size[3])
        )
    return _transposed(one) if kind < 0.65 else _windows(one)


def _special(one: Pick) -> Layer:
    """What tiles that are made for one depth take: 1x1, and the first layer of an
    image, whose windows are gathered.
    """
    depth = one(*_SPECIAL)
    o = one(8, 16, 32, 48)
    if depth == 28 and one.chance(0.5):
        s = one(1, 2)
        spec = Conv2D((s, s), (one(0, 1), one(0, 1, 2), one(0, 1), one(0, 1, 2)))
        return _weighted(
            one,
            spec,
            (one(1, 2), one(3, 4, 8), one(8, 9, 17), 3),
            (o, 3, 3, 3),
            least=True,
        )
    depth -= one(0, 0, 1, 3)
    size = (one(1, 2), one(1, 3, 7), one(2, 7, 8, 13), depth)
    return _weighted(one, Conv2D(), size, (o, 1, 1, depth), least=True)


def _transposed(one: Pick) -> Layer:
    while True:
        kh = one(1, 2, 3, 4)
        kw = one(1, 2, 3, 5)
        sh = one(1, 2, 3)
        sw = one(1, 2, 2)
        pads = (one(0, 0, 1, 2), one(-2, 0, 0, 1), one(0, 0, 1, 2), one(-2, 0, 0, 1))
        spec, (h, w) = (
            TransposeConv2D((sh, sw), pads, one(*_ACTS)),
            (one(1, 3, 5), one(1, 4, 9)),
        )
        c = one(*_DEPTHS)
        if (
            min(
                (h - 1) * sh + kh - pads[0] - pads[1],
                (w - 1) * sw + kw - pads[2] - pads[3],
            )
            > 0
        ):
            return _weighted(
                one, spec, (one(1, 2), h, w, c), (one(*_CHANNELS), kh, kw, c)
            )


def _windows(one: Pick) -> Layer:
    groups, (kh, kw) = one(1, 1, 1, 2, 3), (one(1, 2, 3, 3, 5), one(1, 2, 3, 3))
    stride, (dh, dw) = (one(1, 1, 2, 3), one(1, 1, 2)), (one(1, 1, 2, 4), one(1, 1, 3))
    pads = (
        one(0, 0, 1, 2, 3),
        one(0, 0, 1, 2, 3),
        one(0, 0, 1, 2, 3),
        one(0, 0, 1, 2, 3),
    )
    h = (kh - 1) * dh + one(1, 2, 5, 9)
    w = (kw - 1) * dw + one(1, 2, 7, 12)
    depth = one(*_DEPTHS)
    spec = Conv2D(stride, pads, (dh, dw), one(*_ACTS))
    return _weighted(
        one,
        spec,
        (one(1, 1, 2), h, w, depth * groups),
        (one(*_CHANNELS) * groups, kh, kw, depth),
    )


def depthwise(one: Pick) -> Layer:
    """Strides, dilation, depth multipliers, pads beyond the window."""
    while True:
        square = one.chance(0.7)
        kh, kw = (3, 3) if square else (one(1, 2, 3, 5, 6, 7), one(1, 3, 4, 5))
        stride = (one(1, 1, 2),) * 2 if square else (one(1, 2, 3), one(1, 2, 3))
        same = one(1, 1, 2, 4)
        if stride == (1, 1):
            dilation = (same, one(same, same, 1, 3))
        else:
            dilation = (1, one(1, 1, 2))
        pads = (
            one(0, 1, 1, 2, 3),
            one(0, 1, 1, 2, 3),
            one(0, 1, 1, 2, 3),
            one(0, 1, 1, 2, 3),
        )
        h = one(1, 2, 3, 5, 8, 13)
        w = one(1, 2, 4, 7, 12)
        c = one(1, 2, 3, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 40, 64, 72, 96, 130)
        times = one(1, 1, 1, 1, 2, 3, 8) if c < 48 else 1
        rows = h + pads[0] + pads[1] - (kh - 1) * dilation[0]
        columns = w + pads[2] + pads[3] - (kw - 1) * dilation[1]
        if min(rows, columns) > 0:
            spec = DepthwiseConv2D((stride[0], stride[1]), pads, dilation, one(*_ACTS))
            return _weighted(one, spec, (one(1, 1, 2), h, w, c), (1, kh, kw, c * times))


def _weighted(
    one: Pick, spec: OpDef, x: tuple[int, ...], w: tuple[int, ...], least: bool = False
) -> Layer:
    """A layer with weights and bias. least: its result saturates, and its zero point is
    the least int8.
    """
    rng = one.rng
    axis = 3 if spec.kind == "depthwise_conv2d" else 0
    outputs = w[axis]
    wide = one.chance(0.3)
    most = one(3, 60, 127, 128)
    w_zero = one(0, 0, 0, 0, 3, 76, -128, 127)
    if one.chance(0.9):
        weights = rng.integers(-most, min(most, 127) + 1, w)
    else:
        weights = np.full(w, -128)
    image = rng.choice([-128, 127], x) if wide else rng.integers(-128, 128, x)
    if wide:
        bias = rng.integers(-(1 << 31), 1 << 31, outputs)
    else:
        bias = rng.integers(-9000, 9000, outputs)
    scales = _scales(one, 1 if spec.kind == "fully_connected" else outputs)
    quant = Quant(
        tuple(map(float, scales)),
        (w_zero,) * len(scales),
        axis if len(scales) > 1 else None,
    )
    if len(scales) == 1:
        quant = Quant.per_tensor(float(scales[0]), w_zero)
    types = TensorType(x, "int8", Quant.per_tensor(1.0, one(-128, -3, 0, 5, 127)))
    if one.chance(0.25):
        spec = replace(spec, rounding=Rounding.ONNXRUNTIME)  # type: ignore[call-arg]
    graph = graph_of(
        spec,
        (types, image.astype(np.int8)),
        (TensorType(w, "int8", quant), weights.astype(np.int8)),
        (TensorType((outputs,), "int32", Quant.per_tensor(1.0)), bias.astype(np.int32)),
        y=Quant.per_tensor(
            1.0, -128 if least else one(-128, -128, -128, -3, 0, 5, 127)
        ),
    )
    family = "depthwise int8" if spec.kind == "depthwise_conv2d" else "dense int8"
    return Layer(family, graph, {"x": image.astype(np.int8)})


def _scales(one: Pick, outputs: int) -> Array:
    """Of weights, where input and output have 1: what becomes right shifts, dead
    channels, or any shifts. Those of one fully connected layer are one number.
    """
    rng = one.rng
    kind = one("right", "right", "some", "dead", "any")
    if outputs == 1 and one.chance(0.5):
        return np.array([one(2.0**-9, 1e-3, 1e-38, 0.01, 1.5 * 2.0**-8)])
    shift = rng.integers(-14, -5, outputs)
    multiplier = rng.integers(1 << 30, 1 << 31, outputs)
    multiplier[rng.random(outputs) < 0.2] = 1 << 30
    if kind == "some":
        shift = np.where(rng.random(outputs) < 0.2, rng.integers(-3, 5, outputs), shift)
    if kind == "any":
        shift = rng.choice([-31, -24, -8, -1, 0, 0, 1, 5, 30], outputs)
    for m, s in _DEAD if kind == "dead" else ():
        chosen = rng.random(outputs) < 0.15
        multiplier[chosen], shift[chosen] = m, s
    return multiplier * 2.0 ** (shift - 31.0)


MAKERS: tuple[Callable[[Pick], Layer], ...] = (dense, depthwise)


def stream(makers: tuple[Callable[[Pick], Layer], ...], seed: int) -> Iterator[Layer]:
    """Layers by each maker in turn."""
    one = Pick(np.random.default_rng(seed))
    while True:
        for make in makers:
            yield make(one)
