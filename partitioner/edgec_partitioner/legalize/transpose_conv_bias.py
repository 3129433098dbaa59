"""A transposed convolution with a bias or an activation becomes zeros between the
pixels and a convolution.

Pattern: a transposed convolution of an int8 model in a version above 2. Condition:
constant weights; the added multiplications take less than a transfer. Replacement: with
a stride, TRANSPOSE_CONV with the identity as its weights, which spreads the pixels and
fills in zero points; PAD where SAME does not fit; then CONV_2D with the filters turned
around, and with the bias and the activation, which it has in every version. Proof: 64
steps of a scale of 1/64 make the identity exact, and each sum of the convolution has
the terms of the transposed one, and zeros. Pays where the rest of the model would be
cut: the convolution takes stride² times the multiplications.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgec.ir import Builder, Graph, Op, Quant, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import Conv2D
from edgec.ops.pad import Pad
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.ops.window import Pads, same_pads
from edgec_partitioner.legalize._weights import array, constant_weights

KINDS = ("transpose_conv2d",)
BOUND = 0.0

_MAX_ADDED_MACS = 1_000_000_000
"""About a millisecond of the Edge TPU, what two transfers of 16 KB take."""
_ONE = 64
"""The element, at a scale of 1 / 64, that stands for 1 in the identity."""


def rewrite(r: Rewriter, op: Op) -> bool:
    """Spread the pixels, then convolve."""
    spec, (x, w, *bias) = op.spec, op.inputs
    if (
        not isinstance(spec, TransposeConv2D)
        or not constant_weights(op)
        or x.type.dtype != "int8"
    ):
        return False
    if not bias and spec.act == "none":
        return False
    if w.type.quant is None or any(w.type.quant.zero_point):
        return False
    axes = [_axis(spec, op, i) for i in (0, 1)]
    if (
        min(p for a in axes for p in a.pads) < 0
        or _added_macs(spec, op, axes) > _MAX_ADDED_MACS
    ):
        return False
    image = x if spec.stride == (1, 1) else _spread(r, op, spec, axes)
    pads: Pads = (*axes[0].pads, *axes[1].pads)
    if not all(a.same for a in axes):
        border = Pad(((0, 0), *(a.pads for a in axes), (0, 0)))
        image = r.add(op, border, [image], f"{x.name}_padded", x.type.quant)
        pads = (0, 0, 0, 0)
    turned = r.const(array(w)[:, ::-1, ::-1], f"{w.name}_turned", w.type.quant)
    r.update(
        op, Conv2D((1, 1), pads, act=spec.act, uint8=spec.uint8), [image, turned, *bias]
    )
    return True


@dataclass(frozen=True)
class _Axis:
    """Along one axis: the tap of the identity that is 1, of how many, and the pads of
    the convolution behind.

    same: whether these are SAME's.
    """

    tap: int
    taps: int
    pads: tuple[int, int]
    same: bool


def _axis(spec: TransposeConv2D, op: Op, i: int) -> _Axis:
    """The place of the pixels among the zeros that gives the convolution SAME padding,
    or else the least cropping.
    """
    size, kernel, out = (
        v.type.shape[1 + i] for v in (op.inputs[0], op.inputs[1], op.output)
    )
    stride = spec.stride[i]
    pad = spec.pads[2 * i]
    taps = 2 * stride - 1 if stride <= 2 else stride  # 3 of stride 2 were seen to map
    spread = size * stride
    same = same_pads((spread, 1), (kernel, 1), (1, 1), (1, 1))[:2]
    found: list[_Axis] = []
    # pixel j lies at stride * j + at; no pad is negative
    for at in range(max(1, min(stride, kernel - pad))):
        before = kernel - 1 - pad - at
        pads = (before, out - spread - before + kernel - 1)
        found.append(_Axis(at + (taps - stride) // 2, taps, pads, pads == same))
    return max(found, key=lambda a: (a.same, min(a.pads)))


def _added_macs(spec: TransposeConv2D, op: Op, axes: list[_Axis]) -> int:
    """What the convolution and the identity compute beyond the transposed convolution."""
    x = op.inputs[0].type
    y = op.output.type
    weights = op.inputs[1].type
    if spec.stride == (1, 1):
        identity = 0
    else:
        identity = x.size * x.shape[3] * axes[0].taps * axes[1].taps
    return y.size * (weights.size // weights.shape[0]) - spec.macs(op) + identity


def _spread(r: Rewriter, op: Op, spec: TransposeConv2D, axes: list[_Axis]) -> Value:
    """The image with stride - 1 zero points between its pixels."""
    x = op.inputs[0]
    c = x.type.shape[3]
    identity = np.zeros((c, axes[0].taps, axes[1].taps, c), np.int8)
    identity[np.arange(c), axes[0].tap, axes[1].tap, np.arange(c)] = _ONE
    weights = r.const(identity, f"{x.name}_identity", Quant.per_tensor(1 / _ONE))
    pads = [p for a, s in zip(axes, spec.stride, strict=True) for p in _same(a.taps, s)]
    spread = TransposeConv2D(
        spec.stride, (pads[0], pads[1], pads[2], pads[3]), uint8=spec.uint8
    )
    return r.add(op, spread, [x, weights], f"{x.name}_spread", x.type.quant)


def _same(taps: int, stride: int) -> tuple[int, int]:
    """The pads that make stride outputs for each pixel."""
    return (taps - stride) // 2, taps - stride - (taps - stride) // 2


def example(rng: np.random.Generator) -> Graph:
    """Kernels, strides, SAME and VALID, per tensor and per channel, with a bias, an
    activation or both.
    """
    build = Builder("transpose_conv_bias")
    stride = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    kernel = (stride[0] + int(rng.integers(0, 3)), stride[1] + int(rng.integers(0, 3)))
    q = Quant.per_tensor(0.05, int(rng.integers(-128, 128)))
    x = build.input(
        "x",
        TensorType((1, int(rng.integers(2, 6)), int(rng.integers(2, 6)), 3), "int8", q),
    )
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.001, 0.02, 4))
    quant = Quant(scales, (0,) * 4, 0) if rng.random() < 0.5 else Quant.per_tensor(0.01)
    w = build.const(
        rng.integers(-127, 128, (4, *kernel, 3)).astype(np.int8), "w", quant
    )
    of_bias = Quant(
        tuple(float(np.float32(0.05) * np.float32(s)) for s in quant.scale),
        quant.zero_point,
        quant.axis,
    )
    bias = [build.const(rng.integers(-3000, 3000, 4).astype(np.int32), "b", of_bias)]
    act = str(rng.choice(["none", "relu", "relu6"]))
    if act != "none" and rng.random() < 0.3:
        bias = []
    pads: Pads = (
        (*_same(kernel[0], stride[0]), *_same(kernel[1], stride[1]))
        if rng.random() < 0.5
        else (0, 0, 0, 0)
    )
    spec = TransposeConv2D(stride, pads, act)
    build.graph.outputs = [
        build.add(spec, [x, w, *bias], quant=Quant.per_tensor(0.1, 3))
    ]
    return build.graph
