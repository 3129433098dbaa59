"""Deformable convolution, read as bilinear sampling and a matrix product.

Semantics: ONNX DeformConv (Dai et al. 2017, arXiv:1703.06211; with a mask, Zhu et al.
2018, arXiv:1811.11168).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from edgec.ir import Array, Builder, OnnxNode, Value
from edgec.ops.binary import Add, Mul
from edgec.ops.compositions import Composed
from edgec.ops.concat import Concat
from edgec.ops.grid_sample import GridSample
from edgec.ops.shape import from_nhwc, to_nhwc, transpose
from edgec.ops.slice import Slice
from edgec.ops.windows_nd import SlidingWindow, add_bias, product_with_taps


@dataclass(frozen=True)
class DeformConv(Composed):
    """A convolution whose window elements are each read at a learned place.

    y[p] = Σ_k w[k] mask[k, p] x(p stride + k dilation - pads + offset[k, p]), where
    x(…) is bilinear and 0 outside the image.
    """

    kind = "deform_conv"
    onnx = ("DeformConv",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read DeformConv as samples of the image and a matrix product.

        Offsets are [N, offset groups * window * 2, OH, OW], y before x; the optional
        mask is [N, offset groups * window, OH, OW].
        """
        x = node.input(0)
        weights = node.input(1)
        if x.type.rank != 4:
            raise ValueError(
                f"image has shape {list(x.type.shape)}; edgec compiles two spatial "
                "dimensions"
            )

        node.attrs.ignore("kernel_shape")
        _, _, *size = x.type.shape
        _, _, *kernel = weights.type.shape
        offset_groups = int(node.attrs.get("offset_group", 1))
        windows = SlidingWindow.of(node, size, kernel)

        # An offset group is a part of the channels with its own offsets.
        sampled: list[list[Value]] = []
        for group in range(offset_groups):
            taps = enumerate(windows.taps())
            sampled.append([_sampled(node, windows, group, i, at) for i, at in taps])

        # For each element of the window the channels of all offset groups.
        by_tap = zip(*sampled, strict=True)
        joined = [_joined_channels(node, list(tap)) for tap in by_tap]
        y = product_with_taps(node, joined, weights, windows.out)

        return add_bias(node.build, y, node.optional(3), node.name)


def _joined_channels(node: OnnxNode, values: list[Value]) -> Value:
    """Return the values concatenated along the channels.

    One value alone needs no op.
    """
    if len(values) > 1:
        return node.build.add(Concat(1), values, node.name)
    return values[0]


def _sampled(
    node: OnnxNode,
    windows: SlidingWindow,
    group: int,
    i: int,
    at: tuple[int, ...],
) -> Value:
    """Return the image sampled at one element of all windows, [N, C / groups, OH, OW].

    group: the offset group, whose channels are sampled. i, at: number and coordinates
    of the element in the window.
    """
    b = node.build
    x = node.input(0)
    offsets = node.input(2)
    mask = node.optional(4)
    name = node.name
    offset_groups = int(node.attrs.get("offset_group", 1))
    depth = x.type.shape[1] // offset_groups
    element = group * prod(windows.kernel) + i

    # Channels, offsets and mask of this group and element.
    image = _channels(node, x, group * depth, depth)
    offset = _channels(node, offsets, 2 * element, 2)
    places = _grid(b, windows, at, transpose(b, offset, (0, 2, 3, 1)), name)

    # GridSample takes x before y.
    flip = Slice((0, 0, 0, 1), places.type.shape, (1, 1, 1, -1))
    grid = b.add(flip, [places], name)
    sample = GridSample("bilinear", "zeros", False)
    y = from_nhwc(b, b.add(sample, [to_nhwc(b, image), grid], name))

    # The mask weights each sample.
    if mask is None:
        return y

    return b.add(Mul(), [y, _channels(node, mask, element, 1)], name)


def _channels(node: OnnxNode, value: Value, first: int, count: int) -> Value:
    """Return `count` channels of an NCHW tensor from channel `first` on."""
    # Offsets and masks have their own number of channels.
    n, _, *size = value.type.shape
    spec = Slice(
        begin=(0, first, 0, 0),
        shape=(n, count, *size),
        step=(1, 1, 1, 1),
    )
    return node.build.add(spec, [value], node.name)


def _grid(
    b: Builder,
    windows: SlidingWindow,
    at: tuple[int, ...],
    offset: Value,
    name: str,
) -> Value:
    """Return the sampled places [N, OH, OW, (y, x)] in GridSample's coordinates.

    A pixel v becomes (2 v + 1) / size - 1 (align_corners 0), so that an offset in
    pixels is multiplied by 2 / size.
    """
    size = np.array(windows.size)

    # The places without offsets, as in a plain convolution.
    axes: list[Array] = []
    for axis, place in enumerate(at):
        starts = np.arange(windows.out[axis]) * windows.stride[axis]
        before, _ = windows.pads[axis]
        axes.append(starts - before + place * windows.dilation[axis])

    pixels = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    base = (2 * pixels + 1) / size - 1

    factor = b.const((2 / size).astype(np.float32), "factor")
    scaled = b.add(Mul(), [offset, factor], name)
    bases = b.const(base[None].astype(np.float32), "places")

    return b.add(Add(), [scaled, bases], name)
