"""Deformable convolution, read as sampling at the places of every element of the
window, and a matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from edgec.ir import OnnxNode, Value
from edgec.ops.binary import Add, Mul
from edgec.ops.composed import Composed
from edgec.ops.concat import Concat
from edgec.ops.grid_sample import GridSample
from edgec.ops.matmul import BatchMatMul
from edgec.ops.shape import Reshape, from_nhwc, to_nhwc, transpose
from edgec.ops.slice import Slice
from edgec.ops.windows_nd import SlidingWindow


@dataclass(frozen=True)
class DeformConv(Composed):
    """Each element of the window is taken at a place of its own: bilinear, zeros
    outside, times a mask.
    """

    kind = "deform_conv"
    onnx = ("DeformConv",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Offsets are [N, groups * window * 2, OH, OW], y before x; the mask is [N,
        groups * window, OH, OW].
        """
        b = node.build
        x = node.input(0)
        w = node.input(1)
        name = node.name
        if x.type.rank != 4:
            raise ValueError(
                f"image has shape {list(x.type.shape)}; edgec compiles two spatial "
                "dimensions"
            )
        node.attrs.ignore("kernel_shape")
        (n, _, *size), (o, per, *kernel) = x.type.shape, w.type.shape
        groups = int(node.attrs.get("group", 1))
        parts = int(node.attrs.get("offset_group", 1))
        windows = SlidingWindow.of(node, size, kernel)
        count = prod(kernel)
        sampled = [
            [_sampled(node, windows, g, i, at) for i, at in enumerate(windows.taps())]
            for g in range(parts)
        ]
        taps = [
            _joined(node, [sampled[g][i] for g in range(parts)]) for i in range(count)
        ]
        rows = [
            b.add(Reshape((n, groups, per, 1, prod(windows.out))), [t], name)
            for t in taps
        ]
        columns = b.add(Concat(3), rows, name) if count > 1 else rows[0]
        flat = b.add(
            Reshape((n, groups, per * count, prod(windows.out))), [columns], name
        )
        weights = b.add(Reshape((1, groups, o // groups, per * count)), [w], name)
        y = b.add(
            Reshape((n, o, *windows.out)),
            [b.add(BatchMatMul(), [weights, flat], name)],
            name,
        )
        bias = node.optional(3)
        if bias is None:
            return y
        return b.add(Add(), [y, b.add(Reshape((1, o, 1, 1)), [bias], name)], name)


def _joined(node: OnnxNode, values: list[Value]) -> Value:
    if len(values) > 1:
        return node.build.add(Concat(1), values, node.name)
    return values[0]


def _sampled(
    node: OnnxNode, windows: SlidingWindow, group: int, i: int, at: tuple[int, ...]
) -> Value:
    """[N, channels of the group, OH, OW] at one element of the window."""
    b = node.build
    x = node.input(0)
    offsets = node.input(2)
    mask = node.optional(4)
    name = node.name
    _, c, *size = x.type.shape
    parts = int(node.attrs.get("offset_group", 1))
    count = prod(windows.kernel)

    def cut(v: Value, first: int, channels: int) -> Value:
        shape = (v.type.shape[0], channels, *v.type.shape[2:])
        return b.add(Slice((0, first, 0, 0), shape, (1, 1, 1, 1)), [v], name)

    image = cut(x, group * (c // parts), c // parts)
    # [N, OH, OW, (y, x)]
    moved = transpose(b, cut(offsets, 2 * (group * count + i), 2), (0, 2, 3, 1))
    start = [
        np.arange(out) * s - before + k * r
        for out, s, (before, _), k, r in zip(
            windows.out, windows.stride, windows.pads, at, windows.dilation, strict=True
        )
    ]
    # a place v becomes (2 v + 1) / size - 1 of the grid
    grid = np.stack(np.meshgrid(*start, indexing="ij"), -1)
    base = (2 * grid + 1) / np.array(size) - 1
    factor = b.const((2 / np.array(size)).astype(np.float32), "factor")
    places = b.add(Mul(), [moved, factor], name)
    places = b.add(
        Add(), [places, b.const(base[None].astype(np.float32), "places")], name
    )
    flipped = b.add(
        Slice((0, 0, 0, 1), places.type.shape, (1, 1, 1, -1)), [places], name
    )
    y = from_nhwc(
        b,
        b.add(
            GridSample("bilinear", "zeros", False), [to_nhwc(b, image), flipped], name
        ),
    )
    if mask is None:
        return y
    return b.add(Mul(), [y, cut(mask, group * count + i, 1)], name)
