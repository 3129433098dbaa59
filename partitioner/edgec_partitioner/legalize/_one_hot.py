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
from edgec.ops.slice import Range, slice_axes
from edgec.ops.window import Pads, Pair, tflite_padding
from edgec_partitioner.legalize._images import padded_image

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
        numbers = index[0]
        y = numbers // (width * depth)
        x = numbers // depth % width
        c = numbers % depth

        # The distance of the first two pixels; the others are compared below.
        step_y = _step(y[:, 0, 0])
        step_x = _step(x[0, :, 0])
        if step_y < 1 or step_x < 1:
            return None

        # The first pixel gives the offsets; all others must have the same.
        rows = y[0, 0]
        columns = x[0, 0]
        channels = c[0, 0]
        grid_y = np.arange(y.shape[0])[:, None, None]
        grid_x = np.arange(y.shape[1])[None, :, None]
        if (y != grid_y * step_y + rows).any():
            return None
        if (x != grid_x * step_x + columns).any():
            return None
        if (c != channels).any():
            return None
        return cls((step_y, step_x), rows, columns, channels)


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
    filter_size = kernel_h * kernel_w * root.type.shape[3]
    if channels * filter_size > MOST_WEIGHTS:
        return False

    # A convolution without pads begins at the first element of the image.
    x, pick = _cropped(r, move, root, pick, (height, width))
    depth = x.type.shape[3]
    weights = np.zeros((channels, *pick.kernel, depth), np.int8)
    outputs = np.arange(channels)
    weights[outputs, pick.rows, pick.columns, pick.channels] = 1

    macs = weights.size * height * width
    if fold_into_readers(r, move, x, pick, macs):
        return True

    spec = Conv2D(pick.stride)
    picked = one_hot(r, move, spec, x, weights, value)
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

    # A copy: the users of the result change as they are replaced.
    readers = [*r.users(move.output)]
    folds: list[_Folded] = []
    for op in readers:
        # All or none: else the picked image is needed anyway.
        fold = _fold(op, x, pick)
        if fold is None:
            return False
        folds.append(fold)

        y = op.output.type
        positions = y.size // y.shape[3]
        macs += op.spec.macs(op) - fold.taps.size * positions
    # The folded kernels are larger, and partly zero.
    if macs < 0:
        return False

    for op, fold in zip(readers, folds, strict=True):
        _convolve_unpicked(r, op, x, fold)
    return True


def _convolve_unpicked(r: Rewriter, op: Op, x: Value, fold: _Folded) -> None:
    """Replace a convolution of a picked image by one of the image `x` before it."""
    _, w, *bias = op.inputs
    weights = r.const(fold.taps, f"{w.name}_picked", w.type.quant)
    image, spec = _padded(r, op, x, fold.spec, weights)
    inputs = [image, weights, *bias]

    y = op.output
    result = r.add(op, spec, inputs, y.name, y.type.quant)
    r.forward(op, result)


def _padded(
    r: Rewriter, before: Op, x: Value, spec: Conv2D, w: Value
) -> tuple[Value, Conv2D]:
    """Return the image and convolution, with pads moved to a PAD if need be.

    TFLite names only the paddings SAME and VALID.
    """
    height, width = x.type.shape[1:3]
    kernel_h, kernel_w = w.type.shape[1:3]
    named = tflite_padding(
        spec.pads,
        (height, width),
        (kernel_h, kernel_w),
        spec.stride,
        spec.dilation,
    )
    if named is not None:
        return x, spec

    image = padded_image(r, before, x, spec.pads)
    bare = replace(spec, pads=(0, 0, 0, 0))
    return image, bare


def one_hot(
    r: Rewriter, before: Op, spec: OpDef, x: Value, weights: Array, value: Value
) -> Value:
    """Add an op with weights that are 0 and 1, and return its result.

    It stands before another op, and its result equals `value`.

    weights: int8, the output channels along the first axis.
    """
    name = value.name
    inputs = [x, r.const(weights, f"{name}_pick", ONE)]

    # A TRANSPOSE_CONV with a bias has a version that does not map.
    if spec.channel_flow is ChannelFlow.SUMS:
        quant = Quant.per_tensor(x.type.scale, 0)
        zeros = np.zeros(len(weights), np.int32)
        no_bias = r.const(zeros, f"{name}_no_bias", quant)
        inputs.append(no_bias)

    return r.add(before, spec, inputs, f"{name}_picked", value.type.quant)


def _cropped(
    r: Rewriter, before: Op, root: Value, pick: Pick, size: Pair
) -> tuple[Value, Pick]:
    """Return the part of `root` on which a convolution gives `size` positions.

    The second result is the pick from that part.
    """
    ranges: dict[int, Range] = {}
    start = [0, 0]
    for i, places in enumerate((pick.rows, pick.columns)):
        axis = i + 1
        available = root.type.shape[axis]
        stride = pick.stride[i]
        low = int(places.min())
        high = int(places.max())

        # The number of positions of a window without pads.
        positions = (available - high - 1) // stride + 1
        if low < stride and positions == size[i]:
            continue
        start[i] = low
        between_first = stride * (size[i] - 1)
        length = between_first + high - low + 1
        ranges[axis] = (low, length, 1)

    # The window fits as it is.
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
    if not isinstance(spec, Conv2D):
        return None
    if not _foldable(op, spec, pick):
        return None

    pads = _folded_pads(spec, op, x, pick)
    taps = _folded_taps(op, x, pick)
    if pads is None or taps is None:
        return None

    # A step of the convolution is a step of the pick in the image before.
    stride_y, stride_x = spec.stride
    pick_y, pick_x = pick.stride
    stride = (stride_y * pick_y, stride_x * pick_x)
    folded = replace(spec, stride=stride, pads=pads)
    return _Folded(folded, taps)


def _foldable(op: Op, spec: Conv2D, pick: Pick) -> bool:
    """Return whether a convolution has weights that can contain a pick.

    They are constant, symmetric and of one group. A dilation allows only picks of
    channels.
    """
    w = op.inputs[1]
    depth = op.inputs[0].type.shape[3]
    if w.const is None or w.type.shape[3] != depth:
        return False

    # A zero tap must be the integer 0.
    quant = w.type.quant
    if quant is None or any(quant.zero_point):
        return False

    if spec.dilation == (1, 1):
        return True
    return pick.kernel == (1, 1) and pick.stride == (1, 1)


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
    depth = x.type.shape[3]
    taps = height * width
    if taps > MAX_TAPS or o * taps * depth > MOST_WEIGHTS:
        return None

    # Sums are wider than int8 until they are known to fit.
    sums = np.zeros((o, height, width, depth), np.int32)
    for c, source in enumerate(pick.channels):
        row = pick.rows[c]
        column = pick.columns[c]
        rows = slice(row, row + stride_y * kh, stride_y)
        columns = slice(column, column + stride_x * kw, stride_x)
        sums[:, rows, columns, source] += w[..., c]

    # An element picked twice has the sum of two weights, which may exceed int8.
    largest = np.abs(sums).max(initial=0)
    if largest > 127:
        return None
    return sums.astype(np.int8)


def _folded_pads(spec: Conv2D, op: Op, x: Value, pick: Pick) -> Pads | None:
    """Return the pads around `x` with which the folded convolution has equal positions.

    None if an element outside of the picked image lies inside of `x`.
    """
    vertical = _folded_pads_along(spec, op, x, pick, 0)
    horizontal = _folded_pads_along(spec, op, x, pick, 1)
    if vertical is None or horizontal is None:
        return None
    return (*vertical, *horizontal)


def _folded_pads_along(
    spec: Conv2D, op: Op, x: Value, pick: Pick, i: int
) -> tuple[int, int] | None:
    """Return the pads of `_folded_pads` before and after one side of the image.

    i: 0 for the rows, 1 for the columns.
    """
    axis = i + 1
    offsets = (pick.rows, pick.columns)[i]
    stride = pick.stride[i]
    available = x.type.shape[axis]

    # A zero of the border must not become an element of `x`.
    before = spec.pads[2 * i]
    after = spec.pads[2 * i + 1]
    picked_size = op.inputs[0].type.shape[axis]
    if before and offsets.max() >= stride:
        return None
    if after and stride * picked_size + offsets.min() < available:
        return None

    # Only a pick of stride 1 can be folded into a dilated kernel.
    taps = op.inputs[1].type.shape[axis]
    spacing = spec.dilation[i] if pick.stride == (1, 1) else stride
    window = spacing * (taps - 1) + pick.kernel[i]
    positions = op.output.type.shape[axis]
    step = stride * spec.stride[i]
    covered = step * (positions - 1) + window

    # One element of the border of the picked image is a stride here.
    pad_before = stride * before
    pad_after = covered - available - pad_before
    return pad_before, max(0, pad_after)
