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

from edgec.ir import Builder, Graph, Op, Quant, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import Conv2D
from edgec.ops.pad import Pad
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.ops.window import Pads, same_pads
from edgec_partitioner.legalize._examples import (
    bias_quant,
    choice,
    int8_input,
    int8_weights,
    int32_bias,
    integer,
    integers,
    random_quant,
    weight_quant,
    with_output,
)
from edgec_partitioner.legalize._weights import array, constant_weights

OPS = (TransposeConv2D,)
BOUND = 0.0

MAX_ADDED_MACS = 1_000_000_000
"""About a millisecond of the Edge TPU, what two transfers of 16 KB take."""
IDENTITY_ELEMENT = 64
"""The element, at a scale of 1 / 64, that stands for 1 in the identity."""


def rewrite(r: Rewriter, op: Op, spec: TransposeConv2D) -> bool:
    """Spread the pixels, then convolve."""
    if not _needs_rewrite(op, spec):
        return False

    # A negative pad would be a crop, as a convolution has none.
    axes = [_axis(spec, op, i) for i in (0, 1)]
    vertical, horizontal = (axis.pads for axis in axes)
    if min(*vertical, *horizontal) < 0:
        return False
    if _added_macs(spec, op, axes) > MAX_ADDED_MACS:
        return False

    x, w, *bias = op.inputs
    # Without a stride, the pixels are neighbours already.
    image = x
    if spec.stride != (1, 1):
        image = _spread(r, op, spec, axes)

    # TFLite names only the paddings SAME and VALID.
    pads: Pads = (*vertical, *horizontal)
    if not all(axis.same for axis in axes):
        border = Pad(((0, 0), vertical, horizontal, (0, 0)))
        image = r.add(op, border, [image], f"{x.name}_padded", x.type.quant)
        pads = (0, 0, 0, 0)

    # A transposed convolution is a convolution with the filter turned by 180 degrees.
    filters = array(w)[:, ::-1, ::-1]
    turned = r.const(filters, f"{w.name}_turned", w.type.quant)
    conv = Conv2D((1, 1), pads, act=spec.act, rounding=spec.rounding)
    r.update(op, conv, [image, turned, *bias])
    return True


def _needs_rewrite(op: Op, spec: TransposeConv2D) -> bool:
    """Return whether an int8 transposed convolution has a bias or an activation.

    Its weights must be constant and symmetric.
    """
    x, w, *bias = op.inputs
    if not constant_weights(op) or x.type.dtype != "int8":
        return False
    if not bias and spec.act == "none":
        return False

    # The convolution multiplies the weights as they are.
    quant = w.type.quant
    return quant is not None and not any(quant.zero_point)


@dataclass(frozen=True)
class _Axis:
    """The identity and the convolution behind it, along one axis.

    Attributes:
        tap: the tap of the identity that is 1.
        taps: the number of taps of the identity.
        pads: the pads of the convolution, before and after.
        same: whether these are the pads of SAME.
    """

    tap: int
    taps: int
    pads: tuple[int, int]
    same: bool


def _axis(spec: TransposeConv2D, op: Op, i: int) -> _Axis:
    """Return the place of the pixels among the zeros along axis `i`.

    It is the one that gives the convolution SAME padding, or else the least cropping.
    """
    x, w, *_ = op.inputs
    axis = 1 + i
    size = x.type.shape[axis]
    kernel = w.type.shape[axis]
    out = op.output.type.shape[axis]
    stride = spec.stride[i]
    pad = spec.pads[2 * i]

    # 3 taps with stride 2 were seen to map.
    taps = 2 * stride - 1 if stride <= 2 else stride
    spread = size * stride
    same = same_pads((spread, 1), (kernel, 1), (1, 1), (1, 1))[:2]

    # Pixel j lies at stride * j + offset, where no pad is negative.
    candidates: list[_Axis] = []
    offsets = max(1, min(stride, kernel - pad))
    for offset in range(offsets):
        before = kernel - 1 - pad - offset
        after = out - spread - before + kernel - 1
        pads = (before, after)
        tap = offset + (taps - stride) // 2
        candidates.append(_Axis(tap, taps, pads, pads == same))
    return max(candidates, key=lambda place: (place.same, min(place.pads)))


def _added_macs(spec: TransposeConv2D, op: Op, axes: list[_Axis]) -> int:
    """Return the multiply-accumulates beyond those of the transposed convolution.

    axes: the identity along the height and the width.
    """
    x = op.inputs[0].type
    y = op.output.type
    weights = op.inputs[1].type

    identity = 0
    if spec.stride != (1, 1):
        vertical, horizontal = axes
        taps = vertical.taps * horizontal.taps
        identity = x.size * x.shape[3] * taps

    # The convolution has a full filter at each output, the transposed one at each
    # input.
    filter_size = weights.size // weights.shape[0]
    convolution = y.size * filter_size
    return convolution - spec.macs(op) + identity


def _spread(r: Rewriter, op: Op, spec: TransposeConv2D, axes: list[_Axis]) -> Value:
    """Return the image with stride - 1 zero points between its pixels.

    axes: the identity along the height and the width.
    """
    x = op.inputs[0]
    depth = x.type.shape[3]
    vertical, horizontal = axes
    identity = np.zeros((depth, vertical.taps, horizontal.taps, depth), np.int8)

    # Each channel becomes itself.
    channels = np.arange(depth)
    identity[channels, vertical.tap, horizontal.tap, channels] = IDENTITY_ELEMENT
    quant = Quant.per_tensor(1 / IDENTITY_ELEMENT)
    weights = r.const(identity, f"{x.name}_identity", quant)

    stride_y, stride_x = spec.stride
    pads_y = _same(vertical.taps, stride_y)
    pads_x = _same(horizontal.taps, stride_x)
    pads = (*pads_y, *pads_x)
    spread = TransposeConv2D(spec.stride, pads, rounding=spec.rounding)

    inputs = [x, weights]
    return r.add(op, spread, inputs, f"{x.name}_spread", x.type.quant)


def _same(taps: int, stride: int) -> tuple[int, int]:
    """Return the pads with which there are `stride` outputs for each pixel."""
    before = (taps - stride) // 2
    return before, taps - stride - before


def example(rng: np.random.Generator) -> Graph:
    """Return a transposed convolution with a bias, an activation or both.

    Kernel, stride, padding and the scales vary.
    """
    build = Builder("transpose_conv_bias")
    stride_y = integer(rng, 1, 4)
    stride_x = integer(rng, 1, 4)
    kernel_h = stride_y + integer(rng, 0, 3)
    kernel_w = stride_x + integer(rng, 0, 3)
    q = random_quant(rng, 0.05)
    size = integers(rng, 2, 6, 2)
    x = int8_input(build, (1, *size, 3), q)

    quant = weight_quant(rng, 0.01, 0.001, 0.02, 4)
    w = int8_weights(build, rng, (4, kernel_h, kernel_w, 3), quant)
    bias_scale = bias_quant(0.05, quant)
    bias = [int32_bias(build, rng, 4, 3000, bias_scale)]

    # The pattern needs at least one of bias and activation.
    act = choice(rng, ["none", "relu", "relu6"])
    if act != "none" and rng.random() < 0.3:
        bias = []

    pads: Pads = (0, 0, 0, 0)
    if rng.random() < 0.5:
        vertical = _same(kernel_h, stride_y)
        horizontal = _same(kernel_w, stride_x)
        pads = (*vertical, *horizontal)
    spec = TransposeConv2D((stride_y, stride_x), pads, act)
    out_quant = Quant.per_tensor(0.1, 3)
    y = build.add(spec, [x, w, *bias], quant=out_quant)
    return with_output(build, y)
