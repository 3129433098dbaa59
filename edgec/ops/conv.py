"""Convolutions with a constant layout: images NHWC, weights OHWI (depthwise: 1HWO), as
TFLite stores them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    KernelCall,
    OnnxNode,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Sample,
    Struct,
    Table,
    TensorType,
    TfliteCode,
    TfliteOp,
    Uncertain,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ir.opdef import Arg
from edgec.ops.common import (
    bias_operand,
    constant,
    kernel_suffix,
    real_types,
    requantize,
    requantize_struct,
    scale_channels,
    with_float_weights,
)
from edgec.ops.fixed_point import TFLITE_ACTIVATIONS, clamp_float, tflite_activation
from edgec.ops.ranks import conv_in_planes, of_one_row
from edgec.ops.shape import from_nhwc, to_nhwc, transpose
from edgec.ops.window import (
    Pads,
    Pair,
    kernel_of,
    onnx_pads,
    out_size,
    pad_image,
    pair,
    patches,
    tflite_padding,
    tflite_pads,
)
from edgec.ops.windows_nd import conv_by_taps

_WIDEST = 1 << 16
"""Pixels: a dilated window as wide as this is no window of an image."""

_COLUMNS = 1 << 22
"""Elements of patches at a time: the next cache holds them, and a large image takes no
gigabytes.
"""


@dataclass(frozen=True)
class _Conv(OpDef):
    """What both convolutions share.

    Inputs: image [N,H,W,C], weights, bias [O] (int32 when quantized; optional).
    """

    stride: Pair = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    act: str = "none"
    uint8: bool = False
    """Whether it was uint8 in the file."""
    even: bool = False
    """Whether int8 results are scaled in float32 and rounded once, ties to even, as
    onnxruntime does it.
    """

    roles: ClassVar[tuple[str, ...]] = ("act", "weight", "bias")
    quant: ClassVar[QuantRule] = QuantRule.FREE
    edgetpu: ClassVar[bool] = True
    table: ClassVar[str]

    def channels(self, x: TensorType, w: TensorType) -> int:
        """Output channels; raises ValueError when the weights do not fit the image."""
        raise NotImplementedError

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """[N, OH, OW, O]."""
        image, w, *bias = x
        if image.rank != 4 or w.rank != 4:
            raise ValueError(f"image and weights must have rank 4, not {image} and {w}")
        real_types(self, image, w)
        o = self.channels(image, w)
        if bias and bias[0].shape != (o,):
            raise ValueError(f"bias {bias[0]} does not fit {o} output channels")
        h, wd = self.out_hw((image.shape[1], image.shape[2]), (w.shape[1], w.shape[2]))
        return (TensorType((image.shape[0], h, wd, o), image.dtype),)

    def out_hw(self, size: Pair, kernel: Pair) -> Pair:
        """Output height and width."""
        t, b, left, r = self.pads
        if (
            max((k - 1) * d for k, d in zip(kernel, self.dilation, strict=True))
            >= _WIDEST
        ):
            raise ValueError(f"dilation {self.dilation} of a window {kernel}")
        h = out_size(size[0], kernel[0], self.stride[0], self.dilation[0], t, b)
        w = out_size(size[1], kernel[1], self.stride[1], self.dilation[1], left, r)
        if min(h, w) < 1:
            raise ValueError(f"window {kernel} is larger than the padded image {size}")
        return h, w

    def macs(self, op: Op) -> int:
        """One per weight and output position."""
        w = op.inputs[1].type
        y = op.output.type
        return y.size * (
            w.size // w.shape[0] if self.kind == "conv2d" else w.shape[1] * w.shape[2]
        )

    def accumulate(self, p: Array, w: Array) -> Array:
        """Sum of products over patches [N,OH,OW,C,KH,KW]."""
        raise NotImplementedError

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """Float: float32 sums. int8: exact int32 sums, then one multiplier per channel
        (TFLite's reference).
        """
        w = x[1]
        wt = xt[1]
        kernel = (w.shape[1], w.shape[2])
        if xt[0].dtype == "float32":
            image = pad_image(x[0], self.pads, 0)
            y = self.accumulate(patches(image, kernel, self.stride, self.dilation), w)
            y = y + x[2] if len(x) > 2 else y
            return [clamp_float(y.astype(np.float32), self.act)]
        # float64 holds these integer sums exactly, and numpy multiplies floats far
        # faster than integers
        image = pad_image(x[0].astype(np.float64) - xt[0].zero_point, self.pads, 0)
        assert wt.quant is not None
        weights = w.astype(np.float64) - wt.quant.broadcast(4)[1]
        acc = self.accumulate(
            patches(image, kernel, self.stride, self.dilation), weights
        ).astype(np.int64)
        acc = acc + x[2] if len(x) > 2 else acc
        return [
            requantize(
                acc.astype(np.int32),
                xt[0],
                wt,
                yt[0],
                self.act,
                self.float_product(wt),
                self.even,
            )
        ]

    def tflite_needs_uint8(self, op: Op) -> bool:
        """The scales' product."""
        return self.uint8

    def float_product(self, w: TensorType) -> bool:
        """Whether TFLite rounds the product of the scales to float32: its uint8 kernels
        do, and only they take asymmetric weights.
        """
        return self.uint8 or (w.quant is not None and any(w.quant.zero_point))

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """CONV_2D and DEPTHWISE_CONV_2D; the depth multiplier follows from the shapes."""
        x = op.input(0).type
        w = op.input(1).type
        o = op.options
        dilation = (o.dilationHFactor, o.dilationWFactor)
        # both follow from the weights and the bias
        op.ignore("depthMultiplier", "quantizedBiasType")
        pads = tflite_pads(
            o, (x.shape[1], x.shape[2]), (w.shape[1], w.shape[2]), dilation
        )
        act = TFLITE_ACTIVATIONS[o.fusedActivationFunction]
        spec = cls((o.strideH, o.strideW), pads, dilation, act, op.uint8)
        op.build.write(spec, with_float_weights(op, op.input(0)), op.outputs)

    def tflite_padding(self, op: Op) -> int | None:
        """TFLite's code for the padding (SAME, VALID), None when it has none for it."""
        x = op.inputs[0].type
        w = op.inputs[1].type
        size = (x.shape[1], x.shape[2])
        kernel = (w.shape[1], w.shape[2])
        return tflite_padding(self.pads, size, kernel, self.stride, self.dilation)

    def tflite_options(self, op: Op) -> dict[str, int]:
        """The fields that the options tables of both convolutions share."""
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

    def c(self, op: Op) -> KernelCall:
        """ek_conv2d_* or ek_dwconv2d_*; weights packed with the output channel
        innermost.
        """
        x = op.inputs[0].type
        w = op.inputs[1]
        y = op.output.type
        weights = constant(op, 1)
        kh = w.type.shape[1]
        kw = w.type.shape[2]
        o = y.shape[3]
        args = (
            op.inputs[0],
            Table(self.pack(weights), "w"),
            bias_operand(op),
            op.output,
        )
        shape = Struct(
            "ek_conv2d_t",
            n=x.shape[0],
            ih=x.shape[1],
            iw=x.shape[2],
            ic=x.shape[3],
            oh=y.shape[1],
            ow=y.shape[2],
            oc=o,
            kh=kh,
            kw=kw,
            sh=self.stride[0],
            sw=self.stride[1],
            dh=self.dilation[0],
            dw=self.dilation[1],
            pt=self.pads[0],
            pl=self.pads[2],
            group_ic=w.type.shape[3] if self.kind == "conv2d" else 1,
        )
        last = requantize_struct(op, self.act, self.float_product(w.type), self.even)
        return KernelCall.of(
            f"{self.table}_{kernel_suffix(x, self.even)}", *args, shape, last
        )

    def pack(self, w: Array) -> Array:
        """Weights as the kernels read them."""
        raise NotImplementedError

    @edgetpu_rule(fix="give weights and bias as constants of the model file")
    def _constant_weights(self, op: Op) -> str | None:
        """Weights and bias must be constant."""
        return next(
            (f"{v.name} is computed" for v in op.inputs[1:] if v.const is None), None
        )

    @edgetpu_rule(
        fix="pad by a separate operation, or choose a size that the stride divides"
    )
    def _same_or_valid_padding(self, op: Op) -> str | None:
        """Padding must be none (VALID) or make ceil(size / stride) windows fit, the odd
        element after (SAME).
        """
        return f"pads {self.pads}" if self.tflite_padding(op) is None else None


@dataclass(frozen=True)
class Conv2D(_Conv):
    """Dense or grouped convolution; weights [O,KH,KW,C/groups], the group count
    following from the shapes.
    """

    kind = "conv2d"
    table = "ek_conv2d"
    onnx = ("Conv",)
    tflite = ("CONV_2D",)
    edgetpu_versions = {"CONV_2D": Versions(3, aborts=6)}

    def channels(self, x: TensorType, w: TensorType) -> int:
        """O; C must be a multiple of the weights' depth and O of the group count."""
        if (
            0 in (x.shape[3], *w.shape)
            or x.shape[3] % w.shape[3]
            or w.shape[0] % (x.shape[3] // w.shape[3])
        ):
            raise ValueError(f"weights {w} do not fit {x.shape[3]} input channels")
        return w.shape[0]

    def accumulate(self, p: Array, w: Array) -> Array:
        """One matrix product per group and some rows: the columns of all are as many
        times larger as the kernel.
        """
        n, h, wd, c = p.shape[:4]
        o = w.shape[0]
        depth = w.shape[3]
        groups = c // depth
        out = np.empty((n, h, wd, o), np.result_type(p, w))
        step = max(1, _COLUMNS // (wd * w[0].size))
        for i, g, top in product(range(n), range(groups), range(0, h, step)):
            part = p[i, top : top + step, :, g * depth : (g + 1) * depth]
            cols = part.transpose(0, 1, 3, 4, 2).reshape(len(part) * wd, -1)
            rows = w[g * o // groups : (g + 1) * o // groups].reshape(o // groups, -1)
            made = (cols @ rows.T).reshape(len(part), wd, -1)
            out[i, top : top + step, :, g * o // groups : (g + 1) * o // groups] = made
        return out

    def pack(self, w: Array) -> Array:
        """[KH, KW, C/groups, O]: the output channel innermost, for the compiler to
        vectorise.
        """
        return np.ascontiguousarray(w.transpose(1, 2, 3, 0))

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """ONNX Conv: image NCHW, weights OIHW; depthwise when every group has one input
        channel.
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
        depthwise = groups == channels and groups > 1
        if channels != groups * w.type.shape[1]:
            raise ValueError(
                f"weights {w.type} with group={groups} do not fit {channels} input channels"
            )
        spec: OpDef = (DepthwiseConv2D if depthwise else Conv2D)(stride, pads, dilation)
        weights = transpose(b, w, (1, 2, 3, 0) if depthwise else (0, 2, 3, 1))
        bias = node.optional(2)
        y = b.add(spec, [to_nhwc(b, x), weights, *([bias] if bias else [])], node.name)
        return from_nhwc(b, y)

    def to_tflite(self, op: Op) -> TfliteCode:
        """CONV_2D; version 3 is int8, 2 dilation in float and uint8."""
        version = 3 if _is_int8(op) else 1
        return TfliteCode(
            "CONV_2D",
            ("Conv2DOptions", dict(self.tflite_options(op))),
            version,
            _with_bias(op),
        )

    @edgetpu_rule(fix="use one group, or as many as channels (depthwise)")
    def _one_group(self, op: Op) -> str | None:
        """CONV_2D must be dense: grouped ones are version 6, at which the Edge TPU
        compiler gives up the model.
        """
        groups = op.inputs[0].type.shape[3] // op.inputs[1].type.shape[3]
        return f"{groups} groups" if groups > 1 else None

    @edgetpu_rule(fix="use the same dilation in both directions")
    def _square_dilation(self, op: Op) -> str | None:
        """CONV_2D: the same dilation in x and y, but for kernels of one row or column;
        3x1 was mapped with (4, 1).
        """
        kernel = op.inputs[1].type.shape[1:3]
        if self.dilation[0] == self.dilation[1] or 1 in kernel:
            return None
        return Uncertain(
            f"dilation {self.dilation} of a kernel of {kernel[0]}x{kernel[1]}"
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Strides, pads, dilation, groups, activations; float, per-tensor and
        per-channel int8.
        """
        for label, spec, size, w in (
            ("3x3", cls(pads=(1, 1, 1, 1)), (1, 6, 5, 3), (4, 3, 3, 3)),
            (
                "stride",
                cls((2, 2), (0, 1, 0, 1), act="relu6"),
                (1, 8, 8, 3),
                (5, 3, 3, 3),
            ),
            ("1x1", cls(act="relu"), (1, 4, 4, 8), (16, 1, 1, 8)),
            (
                "dilated",
                cls(dilation=(2, 2), pads=(2, 2, 2, 2)),
                (1, 7, 7, 2),
                (3, 3, 3, 2),
            ),
            ("grouped", cls(pads=(1, 1, 1, 1)), (1, 5, 5, 6), (4, 3, 3, 3)),
            ("batch", cls(), (2, 4, 4, 3), (2, 2, 2, 3)),
        ):
            yield from conv_samples(spec, size, w, w[0], label)


@dataclass(frozen=True)
class DepthwiseConv2D(_Conv):
    """One filter set per channel; weights [1,KH,KW,O] with O = C * multiplier."""

    kind = "depthwise_conv2d"
    table = "ek_dwconv2d"
    tflite = ("DEPTHWISE_CONV_2D",)
    edgetpu_versions = {"DEPTHWISE_CONV_2D": Versions(3)}
    weight_axis: ClassVar[int] = 3

    def channels(self, x: TensorType, w: TensorType) -> int:
        """O, a multiple of C."""
        if w.shape[0] != 1 or 0 in (x.shape[3], *w.shape) or w.shape[3] % x.shape[3]:
            raise ValueError(f"weights {w} do not fit {x.shape[3]} input channels")
        return w.shape[3]

    def accumulate(self, p: Array, w: Array) -> Array:
        """Tap by tap: small windows, many channels."""
        multiplier = w.shape[3] // p.shape[3]
        out = np.zeros((*p.shape[:3], w.shape[3]), np.result_type(p, w))
        for i in range(w.shape[1]):
            for j in range(w.shape[2]):
                tap = p[..., i, j]
                out += (
                    np.repeat(tap, multiplier, axis=3) if multiplier > 1 else tap
                ) * w[0, i, j]
        return out

    def c(self, op: Op) -> KernelCall:
        """ek_dwconv2d_*; ek_scale_channels_f32 where a window is one pixel."""
        x = op.inputs[0].type
        w = constant(op, 1)
        bias = bias_operand(op)
        one = (
            w.shape[:3] == (1, 1, 1)
            and self.stride == (1, 1)
            and not any(self.pads)
            and self.act == "none"
        )
        if not (
            one
            and w.shape[3] == x.shape[3]
            and x.dtype == "float32"
            and isinstance(bias, Table)
        ):
            return super().c(op)
        return scale_channels(op, Table(w.reshape(-1), "w"), bias)

    def pack(self, w: Array) -> Array:
        """[KH, KW, O] as it is."""
        taps: Array = w[0]
        return taps

    def to_tflite(self, op: Op) -> TfliteCode:
        """DEPTHWISE_CONV_2D; version 3 is int8, 2 dilation."""
        multiplier = op.output.type.shape[3] // op.inputs[0].type.shape[3]
        options = {**self.tflite_options(op), "depthMultiplier": multiplier}
        version = 3 if _is_int8(op) else 2 if self.dilation != (1, 1) else 1
        return TfliteCode(
            "DEPTHWISE_CONV_2D",
            ("DepthwiseConv2DOptions", options),
            version,
            _with_bias(op),
        )

    @edgetpu_rule(fix="use the same dilation in both directions")
    def _square_dilation(self, op: Op) -> str | None:
        """DEPTHWISE_CONV_2D: the dilation must be the same in x and y."""
        if self.dilation[0] == self.dilation[1]:
            return None
        return f"dilation {self.dilation}"

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Multipliers, strides, dilation, activations; float and int8."""
        for label, spec, size, w in (
            ("3x3", cls(pads=(1, 1, 1, 1), act="relu6"), (1, 6, 5, 8), (1, 3, 3, 8)),
            ("stride", cls((2, 2), (0, 1, 0, 1)), (1, 8, 8, 3), (1, 3, 3, 3)),
            ("multiplier", cls(pads=(1, 1, 1, 1)), (1, 4, 4, 3), (1, 3, 3, 6)),
            (
                "dilated",
                cls(dilation=(2, 2), pads=(2, 2, 2, 2)),
                (1, 7, 7, 2),
                (1, 3, 3, 2),
            ),
            ("7x7", cls(pads=(3, 3, 3, 3)), (1, 8, 9, 10), (1, 7, 7, 10)),
            ("1x1", cls(), (2, 4, 5, 6), (1, 1, 1, 6)),
        ):
            yield from conv_samples(spec, size, w, w[3], label)


def _is_int8(op: Op) -> bool:
    return op.inputs[0].type.dtype == "int8"


def _with_bias(op: Op) -> tuple[Value, ...]:
    """The inputs; TFLite's quantized kernels want a bias even where it is zero."""
    x = op.inputs[0].type
    w = op.inputs[1].type
    if len(op.inputs) > 2 or w.quant is None:
        return tuple(op.inputs)
    scales = tuple(float(np.float32(x.scale) * np.float32(s)) for s in w.quant.scale)
    quant = Quant(scales, (0,) * len(scales), 0 if w.quant.axis is not None else None)
    zeros = np.zeros(op.output.type.shape[3], np.int32)
    return (
        *op.inputs,
        Value(f"{op.output.name}/bias", TensorType(zeros.shape, "int32", quant), zeros),
    )


def conv_samples(
    spec: OpDef, size: tuple[int, ...], w: tuple[int, ...], o: int, label: str
) -> Iterator[Sample]:
    """A float, a per-tensor and a per-channel int8 sample of one convolution-like op."""
    yield Sample(
        spec,
        (Arg(TensorType(size)), Arg(TensorType(w), True), Arg(TensorType((o,)), True)),
        label=label,
    )
    x = TensorType(size, "int8", Quant.per_tensor(0.05, -3))
    scales = tuple(float(np.float32(0.01 + 0.003 * i)) for i in range(o))
    for name, quant in (
        ("s8", Quant.per_tensor(0.02)),
        ("s8_per_channel", Quant(scales, (0,) * o, spec.weight_axis)),
    ):
        bias = Quant(
            tuple(float(np.float32(0.05) * np.float32(s)) for s in quant.scale),
            (0,) * len(quant.scale),
            0,
        )
        args = (
            Arg(x),
            Arg(TensorType(w, "int8", quant), True),
            Arg(TensorType((o,), "int32", bias), True),
        )
        yield Sample(spec, args, Quant.per_tensor(0.09, 5), f"{label}_{name}")
        even = replace(spec, even=True)  # type: ignore[call-arg]
        yield Sample(even, args, Quant.per_tensor(0.09, 5), f"{label}_{name}_even")
        if label == "3x3":
            yield Sample(
                spec, args[:2], Quant.per_tensor(0.09, 5), f"{label}_{name}_no_bias"
            )
