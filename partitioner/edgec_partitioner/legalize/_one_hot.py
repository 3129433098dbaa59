"""Convolutions that compute nothing: weights of a single 1 per output channel, so that
they pick input elements.

Exact on int8: the weight 1 has scale 1, so the accumulator is q - zero_point of the
element picked, and input and output have one scale, so the multiplier is 1.0: in
TFLite's fixed point (2^30, shift 1), with which MultiplyByQuantizedMultiplier gives
round(2 acc * 2^30 / 2^31) = acc.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from edgec.ir import Array, Op, OpDef, Quant, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import Conv2D
from edgec.ops.pad import Pad
from edgec.ops.slice import Range, slice_axes
from edgec.ops.window import Pads, Pair, tflite_padding

ONE = Quant.per_tensor(1.0, 0)
MOST_WEIGHTS = 1 << 20
"""A megabyte of zeros is more than a transfer costs."""
_MOST_TAPS = 81
"""The largest kernel that was seen to map is 9x9."""


@dataclass(frozen=True)
class Pick:
    """out[y, x, c] = in[stride[0] * y + rows[c], stride[1] * x + columns[c],
    channels[c]].
    """

    stride: Pair
    rows: Array
    columns: Array
    channels: Array

    @property
    def kernel(self) -> Pair:
        """The window that holds all places, from the stride's grid on."""
        return int(self.rows.max()) + 1, int(self.columns.max()) + 1

    @classmethod
    def of(cls, index: Array, root: TensorType) -> Pick | None:
        """The pick that an index of an image into another one is; None when it is none."""
        if (
            index.ndim != 4
            or root.rank != 4
            or index.shape[0] != 1
            or root.shape[0] != 1
            or index.size == 0
        ):
            return None
        _, _, width, depth = root.shape
        y = index[0] // (width * depth)
        x = index[0] // depth % width
        c = index[0] % depth
        stride = (_step(y[:, 0, 0]), _step(x[0, :, 0]))
        if min(stride) < 1:
            return None
        grid_y = np.arange(y.shape[0])[:, None, None]
        grid_x = np.arange(y.shape[1])[None, :, None]
        found = cls(stride, y[0, 0], x[0, 0], c[0, 0])
        same = (
            (y == grid_y * stride[0] + found.rows).all()
            and (x == grid_x * stride[1] + found.columns).all()
            and (c == found.channels).all()
        )
        return found if same else None


def _step(places: Array) -> int:
    return int(places[1] - places[0]) if len(places) > 1 else 1


def pick_by_convolution(r: Rewriter, move: Op, root: Value, pick: Pick) -> bool:
    """Let a convolution of `root` take the place of `move`, if not those that read it
    (see `fold_into_readers`).

    False, and nothing done, when it would take too many weights.
    """
    value = move.output
    _, height, width, channels = value.type.shape
    if channels * pick.kernel[0] * pick.kernel[1] * root.type.shape[3] > MOST_WEIGHTS:
        return False
    x, pick = _cropped(r, move, root, pick, (height, width))
    weights = np.zeros((channels, *pick.kernel, x.type.shape[3]), np.int8)
    weights[np.arange(channels), pick.rows, pick.columns, pick.channels] = 1
    if fold_into_readers(r, move, x, pick, weights.size * height * width):
        return True
    return r.forward(move, one_hot(r, move, Conv2D(pick.stride), x, weights, value))


def fold_into_readers(r: Rewriter, move: Op, x: Value, pick: Pick, macs: int) -> bool:
    """Let the readers of `move`'s output read `x`, if all are convolutions that can
    have the pick in their weights.

    False, and nothing done, if they cannot, or would need more than `macs`
    multiply-accumulates more.
    """
    if move.output in r.graph.outputs:
        return False
    folded: list[tuple[Op, Conv2D, Array]] = []
    for op in r.users(move.output):
        fold = _fold(op, x, pick)
        if fold is None:
            return False
        folded.append((op, *fold))
        macs += (
            op.spec.macs(op)
            - fold[1].size * op.output.type.size // op.output.type.shape[3]
        )
    if macs < 0:
        return False
    for op, spec, taps in folded:
        w = r.const(taps, f"{op.inputs[1].name}_picked", op.inputs[1].type.quant)
        image, spec = _padded(r, op, x, spec, w)
        r.forward(
            op,
            r.add(
                op,
                spec,
                [image, w, *op.inputs[2:]],
                op.output.name,
                op.output.type.quant,
            ),
        )
    return True


def _padded(
    r: Rewriter, before: Op, x: Value, spec: Conv2D, w: Value
) -> tuple[Value, Conv2D]:
    """The image with its pads in a PAD, where TFLite has no name for them."""
    shape, (top, bottom, left, right) = x.type.shape, spec.pads
    kernel = (w.type.shape[1], w.type.shape[2])
    if (
        tflite_padding(
            spec.pads, (shape[1], shape[2]), kernel, spec.stride, spec.dilation
        )
        is not None
    ):
        return x, spec
    pad = Pad(((0, 0), (top, bottom), (left, right), (0, 0)))
    return r.add(before, pad, [x], f"{x.name}_padded", x.type.quant), replace(
        spec, pads=(0, 0, 0, 0)
    )


def one_hot(
    r: Rewriter, before: Op, spec: OpDef, x: Value, weights: Array, value: Value
) -> Value:
    """An op with weights that are 0 and 1, made before another; it gives what `value`
    holds.
    """
    inputs = [x, r.const(weights, f"{value.name}_pick", ONE)]
    if isinstance(spec, Conv2D):
        bias = Quant.per_tensor(x.type.scale, 0)
        inputs.append(
            r.const(np.zeros(len(weights), np.int32), f"{value.name}_no_bias", bias)
        )
    return r.add(before, spec, inputs, f"{value.name}_picked", value.type.quant)


def _cropped(
    r: Rewriter, before: Op, root: Value, pick: Pick, size: Pair
) -> tuple[Value, Pick]:
    """The part of `root` on which a convolution gives `size` positions, and the pick
    from that part.
    """
    ranges: dict[int, Range] = {}
    start = [0, 0]
    for i, places in enumerate((pick.rows, pick.columns)):
        have = root.type.shape[i + 1]
        stride = pick.stride[i]
        low = int(places.min())
        high = int(places.max())
        if low >= stride or (have - high - 1) // stride + 1 != size[i]:
            start[i] = low
            ranges[i + 1] = (low, stride * (size[i] - 1) + high - low + 1, 1)
    if not ranges:
        return root, pick
    part = r.add(before, slice_axes(root.type, ranges), [root], f"{root.name}_part")
    return part, replace(
        pick, rows=pick.rows - start[0], columns=pick.columns - start[1]
    )


def _fold(op: Op, x: Value, pick: Pick) -> tuple[Conv2D, Array] | None:
    """One convolution that picks and convolves: tap (i, j) of channel c reads place
    stride * (i, j) of the pick's c.
    """
    spec = op.spec
    value = op.inputs[0]
    if not isinstance(spec, Conv2D):
        return None
    w = op.inputs[1].const
    if w is None or w.shape[3] != value.type.shape[3]:
        return None
    quant = op.inputs[1].type.quant
    plain = pick.kernel == pick.stride == (1, 1)
    if (
        quant is None
        or any(quant.zero_point)
        or (spec.dilation != (1, 1) and not plain)
    ):
        return None
    pads = _folded_pads(spec, op, x, pick)
    o, kh, kw, _ = w.shape
    (sh, sw), (ph, pw) = pick.stride, pick.kernel
    taps = np.zeros(
        (o, sh * (kh - 1) + ph, sw * (kw - 1) + pw, x.type.shape[3]), np.int32
    )
    if (
        pads is None
        or taps.shape[1] * taps.shape[2] > _MOST_TAPS
        or taps.size > MOST_WEIGHTS
    ):
        return None
    for c, (row, column, source) in enumerate(
        zip(pick.rows, pick.columns, pick.channels, strict=True)
    ):
        taps[:, row : row + sh * kh : sh, column : column + sw * kw : sw, source] += w[
            ..., c
        ]
    if np.abs(taps).max(initial=0) > 127:  # an element picked twice
        return None
    return replace(
        spec, stride=(spec.stride[0] * sh, spec.stride[1] * sw), pads=pads
    ), taps.astype(np.int8)


def _folded_pads(spec: Conv2D, op: Op, x: Value, pick: Pick) -> Pads | None:
    """The pads around `x` that make the same positions, if what is outside of the one
    image is outside of the other.
    """
    pads: list[int] = []
    for i, places in enumerate((pick.rows, pick.columns)):
        before = spec.pads[2 * i]
        after = spec.pads[2 * i + 1]
        size = op.inputs[0].type.shape[i + 1]
        stride = pick.stride[i]
        have = x.type.shape[i + 1]
        if (before and places.max() >= stride) or (
            after and stride * size + places.min() < have
        ):
            return None
        window = stride * (op.inputs[1].type.shape[i + 1] - 1) + pick.kernel[i]
        if pick.stride == (1, 1):
            window = (
                (op.inputs[1].type.shape[i + 1] - 1) * spec.dilation[i]
                + 1
                + pick.kernel[i]
                - 1
            )
        last = stride * spec.stride[i] * (op.output.type.shape[i + 1] - 1) + window
        pads += [stride * before, max(0, last - have - stride * before)]
    return pads[0], pads[1], pads[2], pads[3]
