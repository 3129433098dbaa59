"""Dense, grouped and depthwise convolutions of images.

Semantics: ONNX Conv; TFLite CONV_2D and DEPTHWISE_CONV_2D.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    ChannelFlow,
    Kernel,
    KernelCall,
    KernelFamily,
    OnnxNode,
    Op,
    OpDef,
    Sample,
    Table,
    TensorType,
    TfliteCode,
    Uncertain,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ops.common import (
    REAL_KERNELS,
    bias_operand,
    constant,
    scale_channels,
)
from edgec.ops.conv_base import (
    ConvBase,
    ConvCase,
    conv_samples,
    is_int8,
    with_bias,
)
from edgec.ops.ranks import conv_in_planes, of_one_row
from edgec.ops.shape import from_nhwc, to_nhwc, transpose
from edgec.ops.window import (
    kernel_of,
    onnx_pads,
    pair,
)
from edgec.ops.windows_nd import conv_by_taps

CONV2D = KernelFamily(
    Kernel("conv2d", "ek_conv2d.h"), (*REAL_KERNELS, "s8"), even=("s8",)
)

DEPTHWISE_CONV2D = KernelFamily(
    Kernel("dwconv2d", "ek_conv2d.h"), (*REAL_KERNELS, "s8"), even=("s8",)
)

MAX_IM2COL_ELEMENTS = 1 << 22
"""Elements of im2col columns at a time in the reference.

The last-level cache holds them, and a large image takes no gigabytes.
"""


@dataclass(frozen=True)
class Conv2D(ConvBase):
    """A dense or grouped convolution; weights [O, KH, KW, C / groups].

    The number of groups follows from the shapes: output channel o reads the input
    channels of group o // (O / groups).
    """

    kind = "conv2d"
    kernels = CONV2D
    onnx = ("Conv",)
    tflite = ("CONV_2D",)
    edgetpu_versions = {"CONV_2D": Versions(3, aborts=6)}
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.SUMS

    def channels(self, x: TensorType, w: TensorType) -> int:
        """Return O.

        Raises ValueError unless C is a multiple of the weights' depth (the number of
        groups), and O a multiple of that number.
        """
        channels = x.shape[3]
        out_channels, _, _, depth = w.shape

        # An empty tensor has no number of groups.
        is_empty = 0 in (channels, *w.shape)
        if is_empty or channels % depth or out_channels % (channels // depth):
            raise ValueError(f"weights {w} do not fit {channels} input channels")

        return out_channels

    def accumulate(self, p: Array, w: Array) -> Array:
        """Return the sums by a matrix product for each group and block of rows, im2col.

        The columns are KH * KW times as large as the image, so that only a block of
        rows is unfolded at a time.
        """
        n, height, width, channels = p.shape[:4]
        out_channels, _, _, depth = w.shape
        groups = channels // depth
        group_outputs = out_channels // groups
        out = np.empty((n, height, width, out_channels), np.result_type(p, w))

        block = max(1, MAX_IM2COL_ELEMENTS // (width * w[0].size))
        blocks = product(range(n), range(groups), range(0, height, block))
        for image, group, top in blocks:
            rows = slice(top, top + block)
            inputs = slice(group * depth, (group + 1) * depth)
            outputs = slice(group * group_outputs, (group + 1) * group_outputs)

            windows = p[image, rows, :, inputs]
            count = len(windows)

            # Elements of a window in the order of the weights: rows, columns, channels.
            columns = windows.transpose(0, 1, 3, 4, 2).reshape(count * width, -1)
            filters = w[outputs].reshape(group_outputs, -1)
            sums = columns @ filters.T
            out[image, rows, :, outputs] = sums.reshape(count, width, -1)

        return out

    def pack(self, w: Array) -> Array:
        """Return the weights as [KH, KW, C / groups, O].

        The output channel is innermost, so that the C compiler vectorises over it.
        """
        return np.ascontiguousarray(w.transpose(1, 2, 3, 0))

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Conv: image NCHW, weights OIHW.

        It is a depthwise convolution when each group has one input channel. Other
        ranks and computed weights are read as other ops.
        """
        b = node.build
        x = node.input(0)
        w = node.input(1)
        if x.type.rank == 3:
            return of_one_row(node, cls.from_onnx)[0]

        if x.type.rank == 5:
            return conv_in_planes(node, cls.from_onnx)

        if x.type.rank != 4:
            raise ValueError(
                f"image has shape {list(x.type.shape)}; edgec compiles up to three "
                "spatial dimensions"
            )

        if w.const is None:
            return conv_by_taps(node)

        stride = pair(node.attrs.get("strides"))
        dilation = pair(node.attrs.get("dilations"))
        size = (x.type.shape[2], x.type.shape[3])
        kernel = kernel_of(node, w.type)
        pads = onnx_pads(node, size, kernel, stride, dilation)

        groups = node.attrs.get("group", 1)
        channels = x.type.shape[1]
        if channels != groups * w.type.shape[1]:
            raise ValueError(
                f"weights {w.type} with group={groups} do not fit {channels} input channels"
            )

        # A depthwise convolution has kernels of its own.
        spec: OpDef
        if groups == channels and groups > 1:
            spec = DepthwiseConv2D(stride, pads, dilation)
            weights = transpose(b, w, (1, 2, 3, 0))
        else:
            spec = Conv2D(stride, pads, dilation)
            weights = transpose(b, w, (0, 2, 3, 1))

        # Without a bias the kernels take zeros.
        bias = node.optional(2)
        biases = [bias] if bias else []
        y = b.add(spec, [to_nhwc(b, x), weights, *biases], node.name)

        return from_nhwc(b, y)

    def to_tflite(self, op: Op) -> TfliteCode:
        """Return CONV_2D; version 3 introduced int8.

        Its inputs are the image, the weights and the bias.
        """
        version = 3 if is_int8(op) else 1
        options = ("Conv2DOptions", self.tflite_options(op))
        return TfliteCode("CONV_2D", options, version, with_bias(op))

    @edgetpu_rule(fix="use one group, or as many as channels (depthwise)")
    def _one_group(self, op: Op) -> str | None:
        """CONV_2D must be dense: grouped ones are version 6, at which the Edge TPU
        compiler gives up the model.
        """
        channels = op.inputs[0].type.shape[3]
        depth = op.inputs[1].type.shape[3]
        groups = channels // depth

        return f"{groups} groups" if groups > 1 else None

    @edgetpu_rule(fix="use the same dilation in both directions")
    def _square_dilation(self, op: Op) -> str | None:
        """CONV_2D: the same dilation in x and y, but for kernels of one row or column;
        3x1 was mapped with (4, 1).
        """
        height, width = op.inputs[1].type.shape[1:3]
        if self.dilation[0] == self.dilation[1] or 1 in (height, width):
            return None

        return Uncertain(f"dilation {self.dilation} of a kernel of {height}x{width}")

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield strides, pads, dilation, groups and activations.

        Each in float and int8, per tensor and per channel.
        """
        same = (1, 1, 1, 1)
        stride = cls((2, 2), (0, 1, 0, 1), act="relu6")
        dilated = cls(dilation=(2, 2), pads=(2, 2, 2, 2))
        cases = (
            ConvCase("3x3", cls(pads=same), (1, 6, 5, 3), (4, 3, 3, 3)),
            ConvCase("stride", stride, (1, 8, 8, 3), (5, 3, 3, 3)),
            ConvCase("1x1", cls(act="relu"), (1, 4, 4, 8), (16, 1, 1, 8)),
            ConvCase("dilated", dilated, (1, 7, 7, 2), (3, 3, 3, 2)),
            ConvCase("grouped", cls(pads=same), (1, 5, 5, 6), (4, 3, 3, 3)),
            ConvCase("batch", cls(), (2, 4, 4, 3), (2, 2, 2, 3)),
        )
        for case in cases:
            yield from conv_samples(case, case.weights[0])


@dataclass(frozen=True)
class DepthwiseConv2D(ConvBase):
    """A convolution of each channel alone; weights [1, KH, KW, O], O = C * multiplier.

    Output channel o reads input channel o // multiplier.
    """

    kind = "depthwise_conv2d"
    kernels = DEPTHWISE_CONV2D
    tflite = ("DEPTHWISE_CONV_2D",)
    edgetpu_versions = {"DEPTHWISE_CONV_2D": Versions(3)}
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.DEPTHWISE
    weight_axis: ClassVar[int] = 3

    def channels(self, x: TensorType, w: TensorType) -> int:
        """Return O; raises ValueError unless it is a multiple of C.

        The weights have a leading dimension of 1.
        """
        channels = x.shape[3]
        is_empty = 0 in (channels, *w.shape)
        if w.shape[0] != 1 or is_empty or w.shape[3] % channels:
            raise ValueError(f"weights {w} do not fit {channels} input channels")

        return w.shape[3]

    def accumulate(self, p: Array, w: Array) -> Array:
        """Return the sums, added up element by element of the window.

        Windows are small and channels many, so that numpy multiplies whole images.
        """
        out_channels = w.shape[3]
        multiplier = out_channels // p.shape[3]
        out = np.zeros((*p.shape[:3], out_channels), np.result_type(p, w))
        for i in range(w.shape[1]):
            for j in range(w.shape[2]):
                # One element of all windows is an image.
                tap = p[..., i, j]
                if multiplier > 1:
                    tap = np.repeat(tap, multiplier, axis=3)
                out += tap * w[0, i, j]

        return out

    def c(self, op: Op) -> KernelCall:
        """Return ek_dwconv2d_*, or ek_scale_channels_f32 for a window of one pixel.

        With a stride of 1, no padding and no activation such a float convolution is
        x * w[c] + bias[c].
        """
        x = op.inputs[0].type
        w = constant(op, 1)
        bias = bias_operand(op)
        is_one_pixel = w.shape[:3] == (1, 1, 1) and w.shape[3] == x.shape[3]
        is_plain = self.stride == (1, 1) and not any(self.pads) and self.act == "none"
        is_constant_float = x.dtype == "float32" and isinstance(bias, Table)
        if is_one_pixel and is_plain and is_constant_float:
            assert isinstance(bias, Table)
            return scale_channels(op, Table(w.reshape(-1), "w"), bias)

        return super().c(op)

    def pack(self, w: Array) -> Array:
        """Return the weights as [KH, KW, O], the order of the file."""
        packed: Array = w[0]
        return packed

    def to_tflite(self, op: Op) -> TfliteCode:
        """Return DEPTHWISE_CONV_2D; version 2 added dilation, version 3 int8."""
        channels = op.inputs[0].type.shape[3]

        # Only depthwise convolutions have this option.
        fields = self.tflite_options(op)
        fields["depthMultiplier"] = op.output.type.shape[3] // channels

        if is_int8(op):
            version = 3
        else:
            version = 2 if self.dilation != (1, 1) else 1

        options = ("DepthwiseConv2DOptions", fields)

        return TfliteCode("DEPTHWISE_CONV_2D", options, version, with_bias(op))

    @edgetpu_rule(fix="use the same dilation in both directions")
    def _square_dilation(self, op: Op) -> str | None:
        """DEPTHWISE_CONV_2D: the dilation must be the same in x and y."""
        if self.dilation[0] == self.dilation[1]:
            return None
        return f"dilation {self.dilation}"

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield multipliers, strides, dilation and activations in float and int8."""
        same = (1, 1, 1, 1)
        stride = cls((2, 2), (0, 1, 0, 1))
        dilated = cls(dilation=(2, 2), pads=(2, 2, 2, 2))
        relu6 = cls(pads=same, act="relu6")
        cases = (
            ConvCase("3x3", relu6, (1, 6, 5, 8), (1, 3, 3, 8)),
            ConvCase("stride", stride, (1, 8, 8, 3), (1, 3, 3, 3)),
            ConvCase("multiplier", cls(pads=same), (1, 4, 4, 3), (1, 3, 3, 6)),
            ConvCase("doubled", stride, (1, 8, 8, 20), (1, 3, 3, 40)),
            ConvCase("dilated", dilated, (1, 7, 7, 2), (1, 3, 3, 2)),
            ConvCase("7x7", cls(pads=(3, 3, 3, 3)), (1, 8, 9, 10), (1, 7, 7, 10)),
            ConvCase("1x1", cls(), (2, 4, 5, 6), (1, 1, 1, 6)),
        )
        for case in cases:
            yield from conv_samples(case, case.weights[3])
