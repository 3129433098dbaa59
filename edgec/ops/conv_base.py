"""The base of dense and depthwise convolutions: shapes, arithmetic, TFLite options, C.

Images are NHWC and weights OHWI (depthwise: 1HWO), as TFLite stores them. Semantics:
ONNX Conv in float, TFLite's reference kernels (reference/conv.h, integer_ops/conv.h,
reference/depthwiseconv_uint8.h) for int8 and uint8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    KernelCall,
    KernelFamily,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Rounding,
    Sample,
    Table,
    TensorType,
    TfliteOp,
    Value,
    edgetpu_rule,
)
from edgec.ir.c_structs import Conv2dParams
from edgec.ir.opdef import Arg
from edgec.ops.common import (
    bias_operand,
    constant,
    real_types,
    requantize,
    requantize_struct,
    rounded_kernel,
    with_float_weights,
)
from edgec.ops.fixed_point import clamp_float, tflite_activation
from edgec.ops.fused_activation import fused_activation
from edgec.ops.window import (
    Pads,
    Pair,
    out_size,
    pad_image,
    patches,
    tflite_padding,
    tflite_pads,
)

MAX_WINDOW_SPAN = 1 << 16
"""Pixels of a dilated window along one axis; no window of an image is as large."""


@dataclass(frozen=True)
class ConvBase(OpDef):
    """What dense and depthwise convolutions share.

    y[n, i, j, o] = act(bias[o] + Σ x[n, i s + k d - pads, …] w[o, k, …]) over the
    window k, with stride s and dilation d. Inputs: image [N, H, W, C], weights,
    optional bias [O] (int32 when quantized).

    Attributes:
        stride, dilation: (vertical, horizontal), in pixels
        pads: zeros (top, bottom, left, right), in pixels
        act: fused activation
    """

    stride: Pair = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    act: str = "none"
    rounding: Rounding = Rounding.TFLITE
    """The arithmetic of int8; TFLite's uint8 kernel rounds the product of the scales."""

    roles: ClassVar[tuple[str, ...]] = ("act", "weight", "bias")
    quant: ClassVar[QuantRule] = QuantRule.FREE
    edgetpu: ClassVar[bool] = True
    edgetpu_rounding: ClassVar[bool] = True
    kernels: ClassVar[KernelFamily]
    """The plain kernels, by the element type."""

    def channels(self, x: TensorType, w: TensorType) -> int:
        """Return the output channels; raises ValueError when the weights do not fit."""
        raise NotImplementedError

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the output image [N, OH, OW, O], with the element type of the input.

        Raises ValueError when weights or bias do not fit, or no window does.
        """
        image, weights, *bias = x
        if image.rank != 4 or weights.rank != 4:
            raise ValueError(
                f"image and weights must have rank 4, not {image} and {weights}"
            )

        real_types(self, image, weights)

        out_channels = self.channels(image, weights)
        if bias and bias[0].shape != (out_channels,):
            raise ValueError(
                f"bias {bias[0]} does not fit {out_channels} output channels"
            )

        # The window has the weights' spatial size.
        height, width = self.out_hw(_height_width(image), _height_width(weights))
        shape = (image.shape[0], height, width, out_channels)

        return (TensorType(shape, image.dtype),)

    def out_hw(self, size: Pair, kernel: Pair) -> Pair:
        """Return the output's height and width.

        Raises ValueError when the dilated window is too large, for any image or for
        this padded one.
        """
        spans = [(k - 1) * d for k, d in zip(kernel, self.dilation, strict=True)]
        if max(spans) >= MAX_WINDOW_SPAN:
            raise ValueError(f"dilation {self.dilation} of a window {kernel}")

        top, bottom, left, right = self.pads
        height = out_size(
            size[0],
            kernel[0],
            self.stride[0],
            self.dilation[0],
            top,
            bottom,
        )
        width = out_size(
            size[1],
            kernel[1],
            self.stride[1],
            self.dilation[1],
            left,
            right,
        )
        if min(height, width) < 1:
            raise ValueError(f"window {kernel} is larger than the padded image {size}")

        return height, width

    def border(self) -> float | None:
        """Return zero where the op has pads."""
        return 0.0 if any(self.pads) else None

    def macs(self, op: Op) -> int:
        """Return a multiplication for each output element and weight of its channel."""
        weights = op.inputs[1].type

        # Each weight of an output channel is used once for each output pixel.
        if self.kind == "conv2d":
            per_output = weights.size // weights.shape[0]
        else:
            per_output = weights.shape[1] * weights.shape[2]

        return op.output.type.size * per_output

    def accumulate(self, p: Array, w: Array) -> Array:
        """Return the sums [N, OH, OW, O] over patches [N, OH, OW, C, KH, KW]."""
        raise NotImplementedError

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the convolution: float32 sums, or exact int32 sums requantized.

        int8: acc = Σ (x - zero_x)(w - zero_w) + bias, then `requantize` with one
        multiplier for each channel, as TFLite's reference kernel does.
        """
        if xt[0].dtype == "float32":
            y = self._sums(x[0], x[1])
            if len(x) > 2:
                y = y + x[2]
            return [clamp_float(y.astype(np.float32), self.act)]

        # float64 holds these integer sums exactly, and numpy multiplies matrices of
        # floats far faster than of integers.
        weights_type = xt[1]
        assert weights_type.quant is not None
        _, weights_zero = weights_type.quant.broadcast(4)
        image = x[0].astype(np.float64) - xt[0].zero_point
        weights = x[1].astype(np.float64) - weights_zero

        # TFLite accumulates in int32.
        acc = self._sums(image, weights).astype(np.int64)
        if len(x) > 2:
            acc = acc + x[2]

        y = requantize(
            acc.astype(np.int32),
            (xt[0], weights_type, yt[0]),
            self.act,
            self.rounding,
            self.float_product(weights_type),
        )

        return [y]

    def _sums(self, image: Array, weights: Array) -> Array:
        """Return the sums of products of the zero-padded image with the weights.

        image: [N, H, W, C]. weights: [O, KH, KW, C / groups], or [1, KH, KW, O] of a
        depthwise convolution.
        """
        kernel = (weights.shape[1], weights.shape[2])

        # Zeros stand for the zero point, which was subtracted before.
        padded = pad_image(image, self.pads, 0)
        windows = patches(padded, kernel, self.stride, self.dilation)
        return self.accumulate(windows, weights)

    def tflite_needs_uint8(self, op: Op) -> bool:
        """Return whether the scales' product rounds as in the uint8 kernel alone."""
        return self.rounding is Rounding.TFLITE_UINT8

    def float_product(self, w: TensorType) -> bool:
        """Return whether TFLite rounds the product of the scales to float32.

        Its uint8 kernels do, and only these take asymmetric weights.
        """
        is_asymmetric = w.quant is not None and any(w.quant.zero_point)
        return self.rounding is Rounding.TFLITE_UINT8 or is_asymmetric

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read CONV_2D and DEPTHWISE_CONV_2D.

        Strides, dilation and activation are options; padding is SAME or VALID.
        """
        x = op.input(0).type
        weights = op.input(1).type
        options = op.options

        # Both follow from the shapes of the weights and the type of the bias.
        op.ignore("depthMultiplier", "quantizedBiasType")

        # TFLite has the padding by name; the IR has it in pixels.
        stride = (options.strideH, options.strideW)
        dilation = (options.dilationHFactor, options.dilationWFactor)
        size = _height_width(x)
        pads = tflite_pads(options, size, _height_width(weights), dilation)
        act = fused_activation(op)
        spec = cls(stride, pads, dilation, act, op.rounding)
        op.build.write(spec, with_float_weights(op, op.input(0)), op.outputs)

    def tflite_padding(self, op: Op) -> int | None:
        """Return TFLite's Padding (0 SAME, 1 VALID) for the pads; None: neither.

        Other pads must become an op of their own before a TFLite file is written.
        """
        size = _height_width(op.inputs[0].type)
        kernel = _height_width(op.inputs[1].type)
        return tflite_padding(self.pads, size, kernel, self.stride, self.dilation)

    def tflite_options(self, op: Op) -> dict[str, int]:
        """Return the option fields of both Conv2DOptions and DepthwiseConv2DOptions."""
        padding = self.tflite_padding(op)
        assert padding is not None, (
            f"{op!r}: pads {self.pads} must be legalised before TFLite is written"
        )

        return {
            "padding": padding,
            "strideH": self.stride[0],
            "strideW": self.stride[1],
            "dilationHFactor": self.dilation[0],
            "dilationWFactor": self.dilation[1],
            "fusedActivationFunction": tflite_activation(self.act, op.output.type),
        }

    def window(self, op: Op) -> tuple[Pair, Pair]:
        """Return the size and the stride of the windows."""
        return _height_width(op.inputs[1].type), self.stride

    def c(self, op: Op) -> KernelCall:
        """Return ek_conv2d_* or ek_dwconv2d_*.

        Operands: image, packed weights, bias, output, shape, requantization.
        """
        x = op.inputs[0].type
        weights = op.inputs[1].type
        y = op.output.type
        shape = Conv2dParams(
            n=x.shape[0],
            ih=x.shape[1],
            iw=x.shape[2],
            ic=x.shape[3],
            oh=y.shape[1],
            ow=y.shape[2],
            oc=y.shape[3],
            kh=weights.shape[1],
            kw=weights.shape[2],
            sh=self.stride[0],
            sw=self.stride[1],
            dh=self.dilation[0],
            dw=self.dilation[1],
            pt=self.pads[0],
            pl=self.pads[2],
            group_ic=weights.shape[3] if self.kind == "conv2d" else 1,
        )

        # The weights are packed when the C is written, at no cost at run time.
        packed = Table(self.pack(constant(op, 1)), "w")
        float_product = self.float_product(weights)
        requantization = requantize_struct(op, self.act, self.rounding, float_product)

        return KernelCall.of(
            rounded_kernel(self.kernels, x, self.rounding),
            op.inputs[0],
            packed,
            bias_operand(op),
            op.output,
            shape,
            requantization,
        )

    def pack(self, w: Array) -> Array:
        """Return the weights in the order in which the C kernel reads them."""
        raise NotImplementedError

    @edgetpu_rule(fix="give weights and bias as constants of the model file")
    def _constant_weights(self, op: Op) -> str | None:
        """Weights and bias must be constant."""
        for value in op.inputs[1:]:
            if value.const is None:
                return f"{value.name} is computed"
        return None

    @edgetpu_rule(
        fix="pad by a separate operation, or choose a size that the stride divides"
    )
    def _same_or_valid_padding(self, op: Op) -> str | None:
        """Padding must be none (VALID) or make ceil(size / stride) windows fit, the odd
        element after (SAME).
        """
        if self.tflite_padding(op) is None:
            return f"pads {self.pads}"

        return None


def _height_width(image: TensorType) -> Pair:
    """Return the height and width of an image, or of the window of weights."""
    return image.shape[1], image.shape[2]


def is_int8(op: Op) -> bool:
    """Return whether the op's image is int8."""
    return op.inputs[0].type.dtype == "int8"


def with_bias(op: Op) -> tuple[Value, ...]:
    """Return the op's inputs, with a zero bias when quantized weights come without one.

    TFLite's quantized kernels require a bias. Its scale is the scale of the products.
    """
    x = op.inputs[0].type
    weights = op.inputs[1].type
    if len(op.inputs) > 2 or weights.quant is None:
        return tuple(op.inputs)

    quant = _bias_quant(x.scale, weights.quant)
    if weights.quant.axis is None:
        quant = replace(quant, axis=None)

    # TFLite counts the bias in units of the products.
    zeros = np.zeros(op.output.type.shape[3], np.int32)
    bias_type = TensorType(zeros.shape, "int32", quant)
    bias = Value(f"{op.output.name}/bias", bias_type, zeros)

    return (*op.inputs, bias)


def _bias_quant(x_scale: float, weights: Quant) -> Quant:
    """Return the quantization of an int32 bias: scale_x * scale_w in float32.

    There are as many scales as the weights have, all with a zero point of 0.
    """
    scales: list[float] = []
    for weights_scale in weights.scale:
        product = np.float32(x_scale) * np.float32(weights_scale)
        scales.append(float(product))

    return Quant(tuple(scales), (0,) * len(scales), 0)


@dataclass(frozen=True)
class ConvCase:
    """One case of a convolution's samples: a spec, the shapes of image and weights."""

    label: str
    spec: OpDef
    image: tuple[int, ...]
    weights: tuple[int, ...]


def conv_samples(case: ConvCase, out_channels: int) -> Iterator[Sample]:
    """Yield a float, a per-tensor and a per-channel int8 sample of a convolution.

    int8 samples come with both roundings, and in the case "3x3" also without a bias.
    """
    spec = case.spec
    bias_shape = (out_channels,)
    real_args = (
        Arg(TensorType(case.image)),
        Arg(TensorType(case.weights), True),
        Arg(TensorType(bias_shape), True),
    )
    yield Sample(spec, real_args, label=case.label)

    x_scale = 0.05
    image = TensorType(case.image, "int8", Quant.per_tensor(x_scale, -3))

    # Activations, weights and outputs have scales that are no powers of two.
    output_quant = Quant.per_tensor(0.09, 5)
    scales = tuple(float(np.float32(0.01 + 0.003 * i)) for i in range(out_channels))
    weights_quants = {
        "s8": Quant.per_tensor(0.02),
        "s8_per_channel": Quant(scales, (0,) * out_channels, spec.weight_axis),
    }
    for name, quant in weights_quants.items():
        bias_type = TensorType(bias_shape, "int32", _bias_quant(x_scale, quant))
        args = (
            Arg(image),
            Arg(TensorType(case.weights, "int8", quant), True),
            Arg(bias_type, True),
        )
        label = f"{case.label}_{name}"
        yield Sample(spec, args, output_quant, label)

        even = replace(spec, rounding=Rounding.ONNXRUNTIME)  # type: ignore[call-arg]
        yield Sample(even, args, output_quant, f"{label}_even")
        chip = replace(spec, rounding=Rounding.EDGETPU)  # type: ignore[call-arg]
        yield Sample(chip, args, output_quant, f"{label}_edgetpu")

        if case.label == "3x3":
            yield Sample(spec, args[:2], output_quant, f"{label}_no_bias")
