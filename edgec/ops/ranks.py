"""Convolutions and pools of one and three dimensions, and transposed convolutions, read
as two-dimensional ones.

One dimension is an image of one row. A three-dimensional convolution is a sum of
two-dimensional ones, one for each depth of the weights; a three-dimensional pool is a
pool along height and width and then along depth. A transposed convolution is a
convolution of the image with zeros between its elements by the mirrored weights.

Semantics: ONNX Conv, ConvTranspose, MaxPool and AveragePool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from edgec.ir import Builder, OnnxNode, Value, fold
from edgec.ir.attributes import Attributes
from edgec.ops.binary import Add
from edgec.ops.pad import Pad
from edgec.ops.shape import Reshape, transpose
from edgec.ops.slice import Slice
from edgec.ops.windows_nd import Pads, SlidingWindow

Reader = Callable[[OnnxNode], "Value | list[Value]"]
"""A `from_onnx` that reads a node of images."""

WINDOW_ATTRIBUTES = (
    "kernel_shape",
    "strides",
    "dilations",
    "pads",
    "auto_pad",
    "group",
    "ceil_mode",
    "count_include_pad",
)
"""Attributes of the outer node that the inner nodes' attributes replace."""

ROW_DEFAULTS = {
    "kernel_shape": 1,
    "strides": 1,
    "dilations": 1,
    "output_padding": 0,
    "output_shape": 1,
}
"""List attributes that get an entry for the height of an image of one row, with the
value that has no effect there.
"""


def as_image(b: Builder, x: Value) -> Value:
    """Return [N, C, L] as an image of one row, [N, C, 1, L].

    The same serves weights [O, C, K], whose window gets one row.
    """
    # Weights are [O, C, K] as well.
    n, channels, length = x.type.shape
    return b.add(Reshape((n, channels, 1, length)), [x], x.name)


def _read_inner(
    node: OnnxNode,
    inputs: list[Value | None],
    attrs: Mapping[str, Any],
    read: Reader,
) -> list[Value]:
    """Return the outputs of `read` for the node with other inputs and attributes.

    Raises ValueError when `read` leaves one of the new attributes unread.
    """
    node.attrs.ignore(*WINDOW_ATTRIBUTES)

    # The reader looks at the new attributes, and not at those of the outer node.
    attributes = Attributes(attrs)
    outputs = read(replace(node, attrs=attributes, inputs=inputs))
    attributes.check()

    return outputs if isinstance(outputs, list) else [outputs]


def of_one_row(node: OnnxNode, read: Reader) -> list[Value]:
    """Read a node on [N, C, L] by `read`, as a node on images [N, C, 1, L].

    The reader sees attributes with an entry for the height, and gives images of one
    row.
    """
    b = node.build
    image, *others = node.inputs
    assert image is not None

    # Weights get a row as well; a bias is a vector in any rank.
    inputs: list[Value | None] = []
    for value in others:
        if value is not None and value.type.rank == 3:
            # Readers take weights that are no constant for computed ones.
            inputs.append(as_constant(b, as_image(b, value)))
        else:
            inputs.append(value)

    attrs = _row_attributes(node.attrs)
    node.attrs.ignore(*attrs)

    # The height of 1 is dropped again.
    outputs = _read_inner(node, [as_image(b, image), *inputs], attrs, read)

    rows: list[Value] = []
    for y in outputs:
        n, channels, _, length = y.type.shape
        rows.append(b.add(Reshape((n, channels, length)), [y], node.name))

    return rows


def _row_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a node on lines as those of one on images of one row."""
    attrs: dict[str, Any] = {}
    for attribute, value in attributes.items():
        if attribute in ROW_DEFAULTS and len(value) == 1:
            attrs[attribute] = [ROW_DEFAULTS[attribute], *value]
        elif attribute == "pads":
            before, after = value[0], value[1]
            attrs[attribute] = [0, before, 0, after]
        else:
            attrs[attribute] = value

    return attrs


def conv_in_planes(node: OnnxNode, read: Reader) -> Value:
    """Read a convolution of [N, C, D, H, W] as a sum of convolutions of images.

    y[d] = Σ_k conv2d(x[d stride + k dilation], w[k]) over the depths k of the weights;
    the output depths are a batch of images.
    """
    b = node.build
    x = node.input(0)
    weights = node.input(1)
    name = node.name
    kernel_depth = weights.type.shape[2]
    windows = SlidingWindow.of(node, x.type.shape[2:], weights.type.shape[2:])

    depth_pads, row_pads, column_pads = windows.pads
    if any(depth_pads):
        spec = Pad(((0, 0), (0, 0), depth_pads, (0, 0), (0, 0)))
        x = b.add(spec, [x], name)

    attrs: dict[str, Any] = {
        "strides": windows.stride[1:],
        "dilations": windows.dilation[1:],
        "pads": _onnx_order(row_pads, column_pads),
        "group": int(node.attrs.get("group", 1)),
    }
    total: Value | None = None
    for depth in range(kernel_depth):
        # All depths of the output at once, as a batch.
        images = _images_at_depth(b, x, windows, depth, name)
        plane = _weights_at_depth(b, weights, depth, name)
        # The bias is added once.
        bias = None if total else node.optional(2)
        (y,) = _read_inner(node, [images, plane, bias], attrs, read)
        total = y if total is None else b.add(Add(), [total, y], name)

    assert total is not None

    # [N * depth, O, H, W] to [N, O, depth, H, W].
    n = x.type.shape[0]
    stacked = Reshape((n, windows.out[0], *total.type.shape[1:]))

    return transpose(b, b.add(stacked, [total], name), (0, 2, 1, 3, 4))


def _onnx_order(rows: tuple[int, int], columns: tuple[int, int]) -> list[int]:
    """Return ONNX's pads [top, left, bottom, right] from two (before, after) pairs.

    ONNX lists all starts before all ends.
    """
    top, bottom = rows
    left, right = columns
    return [top, left, bottom, right]


def _images_at_depth(
    b: Builder,
    x: Value,
    windows: SlidingWindow,
    depth: int,
    name: str,
) -> Value:
    """Return the planes of `x` below depth `depth` of the weights, [N * D', C, H, W].

    Each output depth is an image; the batch has the depths of one input after another.
    """
    n, channels, _, height, width = x.type.shape
    count = windows.out[0]
    planes = Slice(
        begin=(0, 0, depth * windows.dilation[0], 0, 0),
        shape=(n, channels, count, height, width),
        step=(1, 1, windows.stride[0], 1, 1),
    )
    cut = transpose(b, b.add(planes, [x], name), (0, 2, 1, 3, 4))

    return b.add(Reshape((n * count, channels, height, width)), [cut], name)


def _weights_at_depth(b: Builder, weights: Value, depth: int, name: str) -> Value:
    """Return plane `depth` of weights [O, C, D, H, W] as [O, C, H, W].

    They are constant when the weights are.
    """
    out_channels, channels, _, *kernel = weights.type.shape
    plane = Slice(
        begin=(0, 0, depth, 0, 0),
        shape=(out_channels, channels, 1, *kernel),
        step=(1,) * 5,
    )
    cut = b.add(plane, [weights], name)
    flat = b.add(Reshape((out_channels, channels, *kernel)), [cut], name)

    return as_constant(b, flat)


def as_constant(b: Builder, value: Value) -> Value:
    """Return `value`, computed now and its op removed when all operands are constant.

    The readers take weights only as constants.
    """
    producer = b.graph.producers().get(value)
    if producer is None or value.const is not None:
        return value

    if all(as_constant(b, x).const is not None for x in producer.inputs):
        fold(producer)
        b.graph.ops.remove(producer)

    return value


def pool_in_planes(node: OnnxNode, windows: SlidingWindow, read: Reader) -> Value:
    """Read a pool of [N, C, D, H, W] along height and width, then along depth."""
    b = node.build
    name = node.name
    n, channels, depth, *size = node.input(0).type.shape
    no_pads = (0, 0)

    # Height and width: the depths are further channels.
    planes = b.add(Reshape((n, channels * depth, *size)), [node.input(0)], name)
    attrs = {
        "kernel_shape": windows.kernel[1:],
        "strides": windows.stride[1:],
        "pads": _onnx_order(*windows.pads[1:]),
    }
    (planes,) = _read_inner(node, [planes], attrs, read)

    # Depth: an image of the depths as rows and the pixels as columns.
    pixels = prod(planes.type.shape[2:])
    columns = b.add(Reshape((n, channels, depth, pixels)), [planes], name)
    attrs = {
        "kernel_shape": (windows.kernel[0], 1),
        "strides": (windows.stride[0], 1),
        "pads": _onnx_order(windows.pads[0], no_pads),
    }
    (columns,) = _read_inner(node, [columns], attrs, read)

    return b.add(Reshape((n, channels, *windows.out)), [columns], name)


# ---- transposed convolutions
# --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _TransposedWindow:
    """The window attributes of a ConvTranspose node, an entry for each spatial axis."""

    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: Sequence[int]
    output_padding: Sequence[int]
    output_shape: Sequence[int] | None
    auto_pad: str

    @classmethod
    def of(cls, node: OnnxNode, rank: int) -> _TransposedWindow:
        """Return the attributes of the node, with ONNX's defaults."""
        attrs = node.attrs
        ones = (1,) * rank
        zeros = (0,) * rank
        auto_pad = attrs.get("auto_pad", "NOTSET")
        stride = tuple(attrs.get("strides") or ones)
        dilation = tuple(attrs.get("dilations") or ones)

        return cls(
            stride=stride,
            dilation=dilation,
            output_padding=attrs.get("output_padding") or zeros,
            output_shape=attrs.get("output_shape"),
            pads=attrs.get("pads") or zeros + zeros,
            auto_pad=auto_pad,
        )

    def crop(self, axis: int, size: int, span: int) -> tuple[int, int]:
        """Return (before, after) elements cut from the full output along one axis.

        size: of the input. span: (kernel - 1) * dilation. An output shape, or SAME,
        which stands for size * stride, determines the total: ONNX's formula is
        total = (size - 1) stride + output_padding + span + 1 - output.
        """
        rank = len(self.stride)
        if self.output_shape is None and not self.auto_pad.startswith("SAME"):
            return self.pads[axis], self.pads[rank + axis]

        # The output is prescribed: the crop is what is left over.
        stride = self.stride[axis]
        out = size * stride
        if self.output_shape is not None:
            out = self.output_shape[axis - rank]

        full = (size - 1) * stride + self.output_padding[axis] + span + 1
        total = full - out

        # The odd element is cut before the image, unless SAME_UPPER puts it after.
        smaller = total // 2
        larger = total - smaller
        if self.auto_pad in ("NOTSET", "SAME_LOWER"):
            return larger, smaller

        return smaller, larger


def transposed_conv(node: OnnxNode, conv: Reader) -> Value:
    """Read a transposed convolution as a convolution by the mirrored weights.

    The image gets stride - 1 zeros between its elements and a border of the window's
    span less the pads.
    """
    b = node.build
    x = node.input(0)
    weights = node.input(1)
    name = node.name
    size = x.type.shape[2:]
    kernel = weights.type.shape[2:]
    rank = len(size)
    groups = int(node.attrs.get("group", 1))
    window = _TransposedWindow.of(node, rank)

    pads = Pads()
    for axis in range(rank):
        x = _with_zeros_between(b, x, axis + 2, window.stride[axis], name)
        span = (kernel[axis] - 1) * window.dilation[axis]
        before, after = window.crop(axis, size[axis], span)
        pads.append((span - before, span - after + window.output_padding[axis]))

    x = _padded_or_cropped(b, x, pads, name)

    # Stride and pads are in the image now.
    attrs = {
        "group": groups,
        "dilations": window.dilation,
        "strides": (1,) * rank,
        "pads": (0,) * (2 * rank),
    }
    mirrored = _mirrored_weights(b, weights, groups, name)

    return _read_inner(node, [x, mirrored, node.optional(2)], attrs, conv)[0]


def _mirrored_weights(b: Builder, weights: Value, groups: int, name: str) -> Value:
    """Return weights [C, O/groups, …] of ConvTranspose as Conv's, mirrored.

    They are constant when the weights are.
    """
    channels, group_outputs, *kernel = weights.type.shape
    depth = channels // groups
    rank = len(kernel)

    # Input and output channels change places within each group.
    split = Reshape((groups, depth, group_outputs, *kernel))
    by_group = b.add(split, [weights], name)
    swapped = transpose(b, by_group, (0, 2, 1, *range(3, 3 + rank)))
    joined = Reshape((groups * group_outputs, depth, *kernel))
    flat = b.add(joined, [swapped], name)

    mirror = Slice(
        begin=(0, 0, *(k - 1 for k in kernel)),
        shape=flat.type.shape,
        step=(1, 1, *(-1 for _ in kernel)),
    )

    return as_constant(b, b.add(mirror, [flat], name))


def _with_zeros_between(
    b: Builder,
    x: Value,
    axis: int,
    stride: int,
    name: str,
) -> Value:
    """Return `x` with stride - 1 zeros between its elements along an axis.

    A stride of 1 leaves none between.
    """
    if stride == 1:
        return x

    shape = x.type.shape
    before = shape[:axis]
    after = shape[axis + 1 :]

    # Zeros after each element: a pad of a dimension of 1.
    elements = prod(shape[: axis + 1])
    rows = b.add(Reshape((elements, 1, prod(after))), [x], name)
    wide = b.add(Pad(((0, 0), (0, stride - 1), (0, 0))), [rows], name)

    # The zeros after the last element are cut off.
    spread = b.add(Reshape((*before, shape[axis] * stride, *after)), [wide], name)
    cut = Slice(
        begin=(0,) * len(shape),
        shape=(*before, (shape[axis] - 1) * stride + 1, *after),
        step=(1,) * len(shape),
    )

    return b.add(cut, [spread], name)


def _padded_or_cropped(b: Builder, x: Value, pads: Pads, name: str) -> Value:
    """Return `x` [N, C, …] with zeros around it; negative pads crop it.

    pads: (before, after) elements of each spatial axis.
    """
    # Batch and channels stay as they are.
    begin = [0, 0]
    shape = [*x.type.shape[:2]]
    borders = [(0, 0), (0, 0)]
    for size, (before, after) in zip(x.type.shape[2:], pads, strict=True):
        first = max(0, -before)
        last = size - max(0, -after)
        begin.append(first)
        shape.append(last - first)
        borders.append((max(0, before), max(0, after)))

    if tuple(shape) != x.type.shape:
        crop = Slice(
            begin=tuple(begin),
            shape=tuple(shape),
            step=(1,) * len(shape),
        )
        x = b.add(crop, [x], name)

    return b.add(Pad(tuple(borders)), [x], name)
