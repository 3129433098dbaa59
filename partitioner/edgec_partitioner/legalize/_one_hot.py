"""Convolutions that only pick input elements.

Their weights have a single 1 per output channel.

Exact on int8: the weight 1 has scale 1, so the accumulator is q - zero_point of the
element picked, and input and output have one scale, so the multiplier is 1.0: in
TFLite's fixed point (2^30, shift 1), with which MultiplyByQuantizedMultiplier gives
round(2 acc * 2^30 / 2^31) = acc.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from edgec.ir import Array, ChannelFlow, Op, OpDef, Quant, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import Conv2D
from edgec.ops.pad import Pad
from edgec.ops.slice import Range, slice_axes
from edgec.ops.window import Pads, Pair, tflite_padding

ONE = Quant.per_tensor(1.0, 0)
"""The quantization of weights that are 0 and 1."""
MOST_WEIGHTS = 1 << 20
"""A megabyte of zeros is more than a transfer costs."""
MAX_TAPS = 81
"""The largest kernel that was seen to map is 9x9."""


@dataclass(frozen=True)
class Pick:
    """A strided selection of elements of an image.

    out[y, x, c] = in[stride[0] * y + rows[c], stride[1] * x + columns[c], channels[c]]

    Attributes:
        stride: the vertical and horizontal distance of neighbours.
        rows: the vertical offset of each output channel.
        columns: the horizontal offset of each output channel.
        channels: the input channel of each output channel.
    """

    stride: Pair
    rows: Array
    columns: Array
    channels: Array

    @property
    def kernel(self) -> Pair:
        """The size of the window from the stride's grid on that holds all offsets."""
        return int(self.rows.max()) + 1, int(self.columns.max()) + 1

    @classmethod
    def of(cls, index: Array, root: TensorType) -> Pick | None:
        """Return the pick with the element numbers `index` of an image of type `root`.

        None if the numbers follow no such rule, or either is no single image.
        """
        if index.ndim != 4 or root.rank != 4 or index.size == 0:
            return None
        if index.shape[0] != 1 or root.shape[0] != 1:
            return None

        # Row, column and channel of each element in the root.
        _, _, width, depth = root.shape
        y = index[0] // (width * depth)
        x = index[0] // depth % width
        c = index[0] % depth
        # The distance of the first two pixels; the others are compared below.
        stride = (_step(y[:, 0, 0]), _step(x[0, :, 0]))
        if min(stride) < 1:
            return None

        # The first pixel gives the offsets; all others must have the same.
        pick = cls(stride, y[0, 0], x[0, 0], c[0, 0])
        grid_y = np.arange(y.shape[0])[:, None, None]
        grid_x = np.arange(y.shape[1])[None, :, None]
        if (y != grid_y * stride[0] + pick.rows).any():
            return None
        if (x != grid_x * stride[1] + pick.columns).any():
            return None
        return pick if (c == pick.channels).all() else None


def _step(places: Array) -> int:
    return int(places[1] - places[0]) if len(places) > 1 else 1


def pick_by_convolution(r: Rewriter, move: Op, root: Value, pick: Pick) -> bool:
    """Replace `move` by a convolution of `root` that picks the same elements.

    The convolutions that read its result take over the pick where they can (see
    `fold_into_readers`). Return False, with the graph unchanged, if the weights would
    be too many.
    """
    value = move.output
    _, height, width, channels = value.type.shape
    kernel_h, kernel_w = pick.kernel
    if channels * kernel_h * kernel_w * root.type.shape[3] > MOST_WEIGHTS:
        return False

    # A convolution without pads begins at the first element of the image.
    x, pick = _cropped(r, move, root, pick, (height, width))
    weights = np.zeros((channels, *pick.kernel, x.type.shape[3]), np.int8)
    weights[np.arange(channels), pick.rows, pick.columns, pick.channels] = 1
    macs = weights.size * height * width
    if fold_into_readers(r, move, x, pick, macs):
        return True
    picked = one_hot(r, move, Conv2D(pick.stride), x, weights, value)
    return r.forward(move, picked)


@dataclass(frozen=True)
class _Folded:
    """A convolution that has taken over a pick.

    Attributes:
        spec: its attributes, with stride and pads for the image before the pick.
        taps: its int8 weights [O, KH, KW, C].
    """

    spec: Conv2D
    taps: Array


def fold_into_readers(r: Rewriter, move: Op, x: Value, pick: Pick, macs: int) -> bool:
    """Let the users of `move`'s output read `x`, with the pick in their weights.

    Return False, with the graph unchanged, if one of them is no suitable convolution,
    or if they would need more than `macs` additional multiply-accumulates.
    """
    if move.output in r.graph.outputs:
        return False
    folded: list[tuple[Op, _Folded]] = []
    for op in r.users(move.output):
        # All or none: else the picked image is needed anyway.
        fold = _fold(op, x, pick)
        if fold is None:
            return False
        folded.append((op, fold))
        positions = op.output.type
        folded_macs = fold.taps.size * positions.size // positions.shape[3]
        macs += op.spec.macs(op) - folded_macs
    # The folded kernels are larger, and partly zero.
    if macs < 0:
        return False

    for op, fold in folded:
        w = op.inputs[1]
        weights = r.const(fold.taps, f"{w.name}_picked", w.type.quant)
        image, spec = _padded(r, op, x, fold.spec, weights)
        inputs = [image, weights, *op.inputs[2:]]
        y = r.add(op, spec, inputs, op.output.name, op.output.type.quant)
        r.forward(op, y)
    return True


def _padded(
    r: Rewriter, before: Op, x: Value, spec: Conv2D, w: Value
) -> tuple[Value, Conv2D]:
    """Return the image and convolution, with pads moved to a PAD if need be.

    TFLite names only the paddings SAME and VALID.
    """
    size = x.type.shape[1:3]
    kernel = w.type.shape[1:3]
    named = tflite_padding(
        spec.pads,
        (size[0], size[1]),
        (kernel[0], kernel[1]),
        spec.stride,
        spec.dilation,
    )
    if named is not None:
        return x, spec

    top, bottom, left, right = spec.pads
    pad = Pad(((0, 0), (top, bottom), (left, right), (0, 0)))
    image = r.add(before, pad, [x], f"{x.name}_padded", x.type.quant)
    return image, replace(spec, pads=(0, 0, 0, 0))


def one_hot(
    r: Rewriter, before: Op, spec: OpDef, x: Value, weights: Array, value: Value
) -> Value:
    """Add an op with weights that are 0 and 1, and return its result.

    It stands before another op, and its result equals `value`.
    """
    inputs = [x, r.const(weights, f"{value.name}_pick", ONE)]
    # A TRANSPOSE_CONV with a bias has a version that does not map.
    if spec.channel_flow is ChannelFlow.SUMS:
        quant = Quant.per_tensor(x.type.scale, 0)
        zeros = np.zeros(len(weights), np.int32)
        inputs.append(r.const(zeros, f"{value.name}_no_bias", quant))
    return r.add(before, spec, inputs, f"{value.name}_picked", value.type.quant)


def _cropped(
    r: Rewriter, before: Op, root: Value, pick: Pick, size: Pair
) -> tuple[Value, Pick]:
    """Return the part of `root` on which a convolution gives `size` positions.

    The second result is the pick from that part.
    """
    ranges: dict[int, Range] = {}
    start = [0, 0]
    for i, places in enumerate((pick.rows, pick.columns)):
        available = root.type.shape[i + 1]
        stride = pick.stride[i]
        low = int(places.min())
        high = int(places.max())
        # The number of positions of a window without pads.
        positions = (available - high - 1) // stride + 1
        if low >= stride or positions != size[i]:
            start[i] = low
            length = stride * (size[i] - 1) + high - low + 1
            ranges[i + 1] = (low, length, 1)
    if not ranges:
        return root, pick

    cut = slice_axes(root.type, ranges)
    part = r.add(before, cut, [root], f"{root.name}_part")
    rows = pick.rows - start[0]
    columns = pick.columns - start[1]
    return part, replace(pick, rows=rows, columns=columns)


def _fold(op: Op, x: Value, pick: Pick) -> _Folded | None:
    """Return the convolution of `x` that picks and then convolves like `op`.

    Its tap (i, j) of channel c reads the place stride * (i, j) of the pick's channel
    c. None if `op` is no such convolution.
    """
    spec = op.spec
    if not isinstance(spec, Conv2D) or not _foldable(op, spec, pick):
        return None
    pads = _folded_pads(spec, op, x, pick)
    taps = _folded_taps(op, x, pick)
    if pads is None or taps is None:
        return None
    stride_y, stride_x = spec.stride
    stride = (stride_y * pick.stride[0], stride_x * pick.stride[1])
    return _Folded(replace(spec, stride=stride, pads=pads), taps)


def _foldable(op: Op, spec: Conv2D, pick: Pick) -> bool:
    """Return whether a convolution has weights that can contain a pick.

    They are constant, symmetric and of one group. A dilation allows only picks of
    channels.
    """
    w = op.inputs[1]
    if w.const is None or w.type.shape[3] != op.inputs[0].type.shape[3]:
        return False
    # A zero tap must be the integer 0.
    quant = w.type.quant
    if quant is None or any(quant.zero_point):
        return False
    only_channels = pick.kernel == pick.stride == (1, 1)
    return only_channels or spec.dilation == (1, 1)


def _folded_taps(op: Op, x: Value, pick: Pick) -> Array | None:
    """Return the weights of `op` for the image before the pick, None if too many."""
    w = op.inputs[1].const
    assert w is not None
    o, kh, kw, _ = w.shape
    stride_y, stride_x = pick.stride
    pick_h, pick_w = pick.kernel

    # The window in the image before the pick.
    height = stride_y * (kh - 1) + pick_h
    width = stride_x * (kw - 1) + pick_w
    shape = (o, height, width, x.type.shape[3])
    if height * width > MAX_TAPS or np.prod(shape) > MOST_WEIGHTS:
        return None

    taps = np.zeros(shape, np.int32)
    places = zip(pick.rows, pick.columns, pick.channels, strict=True)
    for c, (row, column, source) in enumerate(places):
        rows = slice(row, row + stride_y * kh, stride_y)
        columns = slice(column, column + stride_x * kw, stride_x)
        taps[:, rows, columns, source] += w[..., c]
    # An element picked twice has the sum of two weights, which may exceed int8.
    if np.abs(taps).max(initial=0) > 127:
        return None
    return taps.astype(np.int8)


def _folded_pads(spec: Conv2D, op: Op, x: Value, pick: Pick) -> Pads | None:
    """Return the pads around `x` with which the folded convolution has equal positions.

    None if an element outside of the picked image lies inside of `x`.
    """
    pads: list[int] = []
    for i, places in enumerate((pick.rows, pick.columns)):
        before = spec.pads[2 * i]
        after = spec.pads[2 * i + 1]
        size = op.inputs[0].type.shape[i + 1]
        stride = pick.stride[i]
        available = x.type.shape[i + 1]
        if before and places.max() >= stride:
            return None
        if after and stride * size + places.min() < available:
            return None

        taps = op.inputs[1].type.shape[i + 1]
        # Only a pick of stride 1 can be folded into a dilated kernel.
        spacing = spec.dilation[i] if pick.stride == (1, 1) else stride
        window = spacing * (taps - 1) + pick.kernel[i]
        positions = op.output.type.shape[i + 1]
        covered = stride * spec.stride[i] * (positions - 1) + window
        # One element of the border of the picked image is a stride here.
        pad_before = stride * before
        pads.append(pad_before)
        pads.append(max(0, covered - available - pad_before))
    return pads[0], pads[1], pads[2], pads[3]
