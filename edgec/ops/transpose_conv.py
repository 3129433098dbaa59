"""Transposed convolution of images: every input pixel adds its filter to the output.

Images are NHWC and weights OHWI, as in TFLite. Semantics: ONNX ConvTranspose, TFLite
TRANSPOSE_CONV (reference/transpose_conv.h) and MediaPipe's operator of the same name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    QuantRule,
    Rounding,
    Sample,
    Table,
    TensorType,
    TfliteCode,
    TfliteOp,
    Uncertain,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ir.c_structs import TransposeConv2dParams
from edgec.ops.common import (
    REAL_KERNELS,
    bias_operand,
    constant,
    real_types,
    requantize,
    requantize_struct,
    rounded_kernel,
    with_float_weights,
)
from edgec.ops.conv import Conv2D
from edgec.ops.conv_base import ConvCase, conv_samples
from edgec.ops.fixed_point import clamp_float, tflite_activation
from edgec.ops.fused_activation import fused_activation
from edgec.ops.limits import size_evidence
from edgec.ops.ranks import transposed_conv
from edgec.ops.shape import from_nhwc, to_nhwc, transpose
from edgec.ops.window import Pads, Pair, check_steps, kernel_of, pair, same_pads

TRANSPOSE_CONV2D = KernelFamily(
    Kernel("transpose_conv2d", "ek_transpose_conv.h"),
    (*REAL_KERNELS, "s8"),
    even=("s8",),
)

MEDIAPIPE = "custom Convolution2DTransposeBias"
"""MediaPipe's operator, always with a bias. Its options are a C struct of int32:
padding (1 SAME, 2 VALID), horizontal stride, vertical stride.
"""

MAX_MAPPED_ELEMENTS = 524_288
"""Elements of the largest output seen mapped, [1,128,128,32].

Users report [1,64,64,512] as refused, and one of the four of a U-Net of 512 pixels.
"""


@dataclass(frozen=True)
class TransposeConv2D(OpDef):
    """A transposed convolution: y[i * stride - pads + k] += x[i] * w[k].

    Inputs: image [N, H, W, C], weights [O, KH, KW, C], optional bias [O] (int32 when
    quantized). The output has (size - 1) * stride + kernel - pads rows and columns.

    Attributes:
        stride: (vertical, horizontal), in output pixels
        pads: output pixels cut off at (top, bottom, left, right); negative ones at the
            bottom or right add zeros
        act: fused activation
        rounding: the arithmetic of int8, as that of `ConvBase`
    """

    stride: Pair = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    act: str = "none"
    rounding: Rounding = Rounding.TFLITE

    kind = "transpose_conv2d"
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.SCATTERS
    onnx = ("ConvTranspose",)
    tflite = ("TRANSPOSE_CONV", MEDIAPIPE)
    edgetpu_versions = {"TRANSPOSE_CONV": Versions(2, aborts=4)}
    roles: ClassVar[tuple[str, ...]] = ("act", "weight", "bias")
    quant: ClassVar[QuantRule] = QuantRule.FREE
    edgetpu: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the output image [N, OH, OW, O].

        Raises ValueError when weights or bias do not fit, or the pads leave nothing.
        """
        image, weights, *bias = x
        is_fitting = image.rank == weights.rank == 4
        is_fitting = is_fitting and image.shape[3] == weights.shape[3]
        if not is_fitting or 0 in weights.shape:
            raise ValueError(f"weights {weights} do not fit the image {image}")

        real_types(self, image, weights)

        out_channels, kernel_height, kernel_width, _ = weights.shape
        if bias and bias[0].shape != (out_channels,):
            raise ValueError(
                f"bias {bias[0]} does not fit {out_channels} output channels"
            )

        # An input pixel adds to as many output pixels as the window has.
        n, height, width, _ = image.shape
        size = self.out_hw((height, width), (kernel_height, kernel_width))

        return (TensorType((n, *size, out_channels), image.dtype),)

    def out_hw(self, size: Pair, kernel: Pair) -> Pair:
        """Return the output's height and width.

        Raises ValueError when the pads leave nothing of the image.
        """
        check_steps(*self.stride)
        top, bottom, left, right = self.pads
        full_height = (size[0] - 1) * self.stride[0] + kernel[0]
        full_width = (size[1] - 1) * self.stride[1] + kernel[1]
        height = full_height - top - bottom
        width = full_width - left - right
        if min(height, width) < 1 or min(top, left) < 0:
            raise ValueError(
                f"pads {self.pads} leave nothing of image {size} and window {kernel}"
            )

        return height, width

    def macs(self, op: Op) -> int:
        """Return one multiplication for each weight and input pixel.

        Pixels of the output that the pads cut off are counted too.
        """
        n, height, width, _ = op.inputs[0].type.shape
        weights = op.inputs[1].type
        return n * height * width * weights.size

    def scatter(self, x: Array, w: Array, size: Pair) -> Array:
        """Return the sums [N, *size, O], added up element by element of the window.

        Element (i, j) of all windows is every stride-th pixel of the full output.
        """
        n, height, width, _ = x.shape
        out_channels, kernel_height, kernel_width, _ = w.shape
        stride_y, stride_x = self.stride
        top, _, left, _ = self.pads

        # Negative pads reach beyond the last window.
        rows = max((height - 1) * stride_y + kernel_height, top + size[0])
        columns = max((width - 1) * stride_x + kernel_width, left + size[1])

        # The pads are cut off at the end.
        full = np.zeros((n, rows, columns, out_channels), x.dtype)

        # Each element of the window adds to every stride-th pixel.
        for i in range(kernel_height):
            row_places = slice(i, i + height * stride_y, stride_y)
            for j in range(kernel_width):
                column_places = slice(j, j + width * stride_x, stride_x)
                full[:, row_places, column_places] += x @ w[:, i, j].T

        return full[:, top : top + size[0], left : left + size[1]]

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute float32 sums, or exact int32 sums requantized for each channel.

        int8: TFLite's reference kernel, as `ConvBase.ref`.
        """
        size = (yt[0].shape[1], yt[0].shape[2])
        weights_type = xt[1]
        if xt[0].dtype == "float32":
            y = self.scatter(x[0], x[1], size)
            if len(x) > 2:
                y = y + x[2]
            return [clamp_float(y.astype(np.float32), self.act)]

        # float64 holds these integer sums exactly, and numpy multiplies matrices of
        # floats far faster than of integers.
        assert weights_type.quant is not None
        _, weights_zero = weights_type.quant.broadcast(4)
        image = x[0].astype(np.float64) - xt[0].zero_point
        weights = x[1].astype(np.float64) - weights_zero
        acc = self.scatter(image, weights, size).astype(np.int64)
        if len(x) > 2:
            acc = acc + x[2]

        y = requantize(
            acc.astype(np.int32),
            (xt[0], weights_type, yt[0]),
            self.act,
            self.rounding,
            self.rounding is Rounding.TFLITE_UINT8,
        )

        return [y]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read ConvTranspose: image NCHW, weights [C, O / groups, KH, KW].

        Groups become dense weights with zeros between the groups. Other ranks, dilation
        and computed weights are read as a convolution.
        """
        b = node.build
        x = node.input(0)
        w = node.input(1)
        is_dilated = any(d != 1 for d in node.attrs.get("dilations", ()))
        if x.type.rank != 4 or w.const is None or is_dilated:
            return transposed_conv(node, Conv2D.from_onnx)

        groups = int(node.attrs.get("group", 1))
        if groups > 1:
            w = b.const(_ungrouped(node, groups), w.name)

        # Weights are [C, O, KH, KW] in ONNX and [O, KH, KW, C] here.
        stride = pair(node.attrs.get("strides"))
        size = (x.type.shape[2], x.type.shape[3])
        pads = _onnx_pads(node, size, kernel_of(node, w.type), stride)

        bias = node.optional(2)
        inputs = [to_nhwc(b, x), transpose(b, w, (1, 2, 3, 0))]
        if bias:
            inputs.append(bias)

        return from_nhwc(b, b.add(cls(stride, pads), inputs, node.name))

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read TRANSPOSE_CONV and MediaPipe's operator.

        TRANSPOSE_CONV has the output's shape as its first input, then the weights and
        the image; MediaPipe's operator has the image, the weights and a bias.
        """
        if op.name == MEDIAPIPE:
            padding, stride_x, stride_y = struct.unpack("<3i", bytes(op.options)[:12])
            x, weights, *bias = with_float_weights(op, op.input(0))
            stride = (stride_y, stride_x)
            is_same = padding == 1
            act = "none"
        else:
            options = op.options
            op.ignore("quantizedBiasType")
            _, weights, x, *bias = with_float_weights(op, op.input(2))
            stride = (options.strideH, options.strideW)
            is_same = options.padding == 0
            act = fused_activation(op)

        pads = _tflite_pads(x, weights, op.outputs[0], stride, is_same)
        spec = cls(stride, pads, act, op.rounding)
        op.build.write(spec, [x, weights, *bias], op.outputs)

    def tflite_padding(self, op: Op) -> int | None:
        """Return TFLite's Padding (0 SAME, 1 VALID) for the pads; None: neither.

        A convolution with that padding must take the output's size to the input's.
        """
        size = _height_width(op.inputs[0])
        kernel = _height_width(op.inputs[1])
        out = _height_width(op.output)
        stride = self.stride
        before = (self.pads[0], self.pads[2])

        valid_size = [(out[i] - kernel[i]) // stride[i] + 1 for i in (0, 1)]
        if before == (0, 0) and tuple(valid_size) == size:
            return 1

        top, _, left, _ = same_pads(out, kernel, stride, (1, 1))
        same_size = [-(-out[i] // stride[i]) for i in (0, 1)]
        if before == (top, left) and tuple(same_size) == size:
            return 0

        return None

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return TRANSPOSE_CONV; None for pads that are neither SAME nor VALID.

        Version 2 added int8, 3 the bias and 4 the activation.
        """
        padding = self.tflite_padding(op)
        if padding is None:
            return None

        x, weights, *bias = op.inputs
        fields = {
            "padding": padding,
            "strideH": self.stride[0],
            "strideW": self.stride[1],
            "fusedActivationFunction": tflite_activation(self.act, op.output.type),
        }

        version = 2 if x.type.dtype == "int8" else 1
        if bias:
            version = 3

        if self.act != "none":
            version = 4

        # TFLite cannot tell the output's size from the input's.
        shape = np.array(op.output.type.shape, np.int32)
        inputs: tuple[Value | Array, ...] = (shape, weights, x, *bias)
        options = ("TransposeConvOptions", fields)

        return TfliteCode("TRANSPOSE_CONV", options, version, inputs)

    def tflite_needs_uint8(self, op: Op) -> bool:
        """Return whether the scales' product rounds as in the uint8 kernel alone."""
        return self.rounding is Rounding.TFLITE_UINT8

    def window(self, op: Op) -> tuple[Pair, Pair]:
        """Return the size and the stride of the windows."""
        return _height_width(op.inputs[1]), self.stride

    def c(self, op: Op) -> KernelCall:
        """Return ek_transpose_conv2d_<type>.

        The weights are packed as [KH, KW, C, O]: the output channel is innermost, so
        that the C compiler vectorises over it.
        """
        x = op.inputs[0].type
        y = op.output.type
        out_channels, kernel_height, kernel_width, _ = op.inputs[1].type.shape
        packed = np.ascontiguousarray(constant(op, 1).transpose(1, 2, 3, 0))
        bias = bias_operand(op)
        shape = TransposeConv2dParams(
            n=x.shape[0],
            ih=x.shape[1],
            iw=x.shape[2],
            ic=x.shape[3],
            oh=y.shape[1],
            ow=y.shape[2],
            oc=out_channels,
            kh=kernel_height,
            kw=kernel_width,
            sh=self.stride[0],
            sw=self.stride[1],
            pt=self.pads[0],
            pl=self.pads[2],
        )
        is_uint8 = self.rounding is Rounding.TFLITE_UINT8
        requantization = requantize_struct(op, self.act, self.rounding, is_uint8)

        return KernelCall.of(
            rounded_kernel(TRANSPOSE_CONV2D, x, self.rounding),
            op.inputs[0],
            Table(packed, "w"),
            bias,
            op.output,
            shape,
            requantization,
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield strides, kernels, padding, output padding and activations.

        The case "2x2" also comes without a bias.
        """
        same = (1, 1, 1, 1)
        relu = cls((2, 2), (0, 1, 0, 1), "relu")
        output_padding = cls((3, 2), (0, -1, 0, -1))
        cases = (
            ConvCase("2x2", cls((2, 2)), (1, 4, 3, 5), (6, 2, 2, 5)),
            ConvCase("3x3s2", relu, (1, 4, 4, 3), (4, 3, 3, 3)),
            ConvCase("4x4s2", cls((2, 2), same), (1, 3, 4, 3), (18, 4, 4, 3)),
            ConvCase("3x3s1", cls((1, 1), same), (2, 4, 4, 3), (2, 3, 3, 3)),
            ConvCase("output_padding", output_padding, (1, 3, 3, 2), (3, 2, 1, 2)),
        )
        for case in cases:
            for sample in conv_samples(case, case.weights[0]):
                yield sample
                if case.label == "2x2":
                    label = f"{sample.label}_no_bias"
                    args = sample.args[:2]
                    yield Sample(case.spec, args, sample.output_quant, label)

    @edgetpu_rule(fix="give weights and bias as constants of the model file")
    def _constant_weights(self, op: Op) -> str | None:
        """Weights and bias must be constant."""
        for value in op.inputs[1:]:
            if value.const is None:
                return f"{value.name} is computed"
        return None

    @edgetpu_rule(
        fix="crop or pad by a separate operation, or upsample by RESIZE and a convolution"
    )
    def _same_or_valid_padding(self, op: Op) -> str | None:
        """TRANSPOSE_CONV: padding must be TFLite's SAME or VALID."""
        if self.tflite_padding(op) is None:
            return f"pads {self.pads}"
        return None

    @edgetpu_rule(fix="upsample by RESIZE_NEAREST_NEIGHBOR and a convolution")
    def _upsampling(self, op: Op) -> str | None:
        """TRANSPOSE_CONV: a window that is not 2x2, and at most 524288 elements; others
        mapped in some models alone.
        """
        y = op.output.type
        if _height_width(op.inputs[1]) == (2, 2):
            return Uncertain("window 2x2")

        evidence = f"output {list(y.shape)} has {y.size} elements"

        return size_evidence(y.size, MAX_MAPPED_ELEMENTS, None, evidence)

    @edgetpu_rule(
        fix="quantize the float model with edgec: bias and activation become "
        "operations of their own"
    )
    def _old_version(self, op: Op) -> str | None:
        """TRANSPOSE_CONV: at most version 2, which has neither a bias nor an
        activation.
        """
        code = self.to_tflite(op)
        if code is not None and code.version > 2:
            return f"version {code.version}"

        return None


def _height_width(v: Value) -> Pair:
    """Return the height and width of an image, or of the window of weights."""
    return v.type.shape[1], v.type.shape[2]


def _tflite_pads(
    x: Value,
    weights: Value,
    out: Value,
    stride: Pair,
    is_same: bool,
) -> Pads:
    """Return the pads that give the declared output.

    SAME pads as the convolution does that takes the output back to the input; what
    the declared size lacks beyond that is cut at the bottom and right.
    """
    size = _height_width(x)
    kernel = _height_width(weights)
    out_size = _height_width(out)
    top = 0
    left = 0
    if is_same:
        top, _, left, _ = same_pads(out_size, kernel, stride, (1, 1))

    vertical, horizontal = (
        (size[i] - 1) * stride[i] + kernel[i] - out_size[i] for i in (0, 1)
    )

    return (top, vertical - top, left, horizontal - left)


def _ungrouped(node: OnnxNode, groups: int) -> Array:
    """Return grouped weights [C, O / groups, KH, KW] as dense ones [C, O, KH, KW].

    The weights between channels of different groups are zero.
    """
    w = node.const(1)
    assert w is not None
    channels, group_outputs = w.shape[:2]
    dense = np.zeros((channels, group_outputs * groups, *w.shape[2:]), w.dtype)
    for group in range(groups):
        first = group * channels // groups
        last = (group + 1) * channels // groups
        outputs = slice(group * group_outputs, (group + 1) * group_outputs)
        dense[first:last, outputs] = w[first:last]

    return dense


def _onnx_pads(node: OnnxNode, size: Pair, kernel: Pair, stride: Pair) -> Pads:
    """Return the output pixels cut off at each side.

    They come from `pads` and `output_padding`; with `output_shape`, or with SAME, which
    stands for size * stride, they are those that give the output's size.
    """
    auto_pad = node.attrs.get("auto_pad", "NOTSET")
    output_padding = node.attrs.get("output_padding", (0, 0))
    output_shape = node.attrs.get("output_shape")
    # They have no effect beside auto_pad and output_shape.
    node.attrs.ignore("pads")

    if output_shape is None and auto_pad in ("NOTSET", "VALID"):
        explicit = (0, 0, 0, 0)
        if auto_pad == "NOTSET":
            explicit = node.attrs.get("pads", explicit)
        top, left, bottom, right = explicit
        return (top, bottom - output_padding[0], left, right - output_padding[1])

    if output_shape is not None:
        out = [int(d) for d in output_shape[-2:]]
    else:
        out = [size[i] * stride[i] for i in (0, 1)]

    # The output's size is given: the pads follow from it.
    pads: list[int] = []
    for i in (0, 1):
        full = (size[i] - 1) * stride[i] + kernel[i] + output_padding[i]
        total = full - out[i]
        # ONNX cuts the odd pixel at the end for SAME_UPPER only.
        before = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        pads += [before, total - before - output_padding[i]]

    return (pads[0], pads[1], pads[2], pads[3])
