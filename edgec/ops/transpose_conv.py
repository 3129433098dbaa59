"""Transposed convolution: every input pixel adds its filter to the output.

Image NHWC, weights OHWI as in TFLite.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    KernelCall,
    OnnxNode,
    Op,
    OpDef,
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
from edgec.ops.common import (
    bias_operand,
    constant,
    kernel_suffix,
    real_types,
    requantize,
    requantize_struct,
    with_float_weights,
)
from edgec.ops.conv import Conv2D, conv_samples
from edgec.ops.fixed_point import TFLITE_ACTIVATIONS, clamp_float, tflite_activation
from edgec.ops.limits import within
from edgec.ops.ranks import transposed_conv
from edgec.ops.shape import from_nhwc, to_nhwc, transpose
from edgec.ops.window import Pads, Pair, check_steps, kernel_of, pair, same_pads

MEDIAPIPE = "custom Convolution2DTransposeBias"
"""MediaPipe's operator: always with a bias, its options a C struct (padding: 1 SAME, 2
VALID; stride x, stride y).
"""

_MAPPED = 524_288
"""Elements of the largest output seen mapped, [1,128,128,32].

Users report [1,64,64,512] as refused, and one of the four of a U-Net of 512 pixels.
"""


@dataclass(frozen=True)
class TransposeConv2D(OpDef):
    """y[i * stride - pads + k] += x[i] * w[k].

    Inputs: image, weights [O,KH,KW,C], optional bias [O] (int8: int32).

    The output has (size - 1) * stride + kernel - pads rows and columns; negative pads
    at the end add zeros there.
    """

    stride: Pair = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    act: str = "none"
    uint8: bool = False
    even: bool = False
    """As that of a convolution."""

    kind = "transpose_conv2d"
    onnx = ("ConvTranspose",)
    tflite = ("TRANSPOSE_CONV", MEDIAPIPE)
    edgetpu_versions = {"TRANSPOSE_CONV": Versions(2, aborts=4)}
    roles: ClassVar[tuple[str, ...]] = ("act", "weight", "bias")
    quant: ClassVar[QuantRule] = QuantRule.FREE
    edgetpu: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """[N, OH, OW, O]."""
        image, w, *bias = x
        if (
            image.rank != 4
            or w.rank != 4
            or image.shape[3] != w.shape[3]
            or 0 in w.shape
        ):
            raise ValueError(f"weights {w} do not fit the image {image}")
        real_types(self, image, w)
        if bias and bias[0].shape != (w.shape[0],):
            raise ValueError(
                f"bias {bias[0]} does not fit {w.shape[0]} output channels"
            )
        h, wd = self.out_hw((image.shape[1], image.shape[2]), (w.shape[1], w.shape[2]))
        return (TensorType((image.shape[0], h, wd, w.shape[0]), image.dtype),)

    def out_hw(self, size: Pair, kernel: Pair) -> Pair:
        """Output height and width."""
        check_steps(*self.stride)
        t, b, left, r = self.pads
        h = (size[0] - 1) * self.stride[0] + kernel[0] - t - b
        w = (size[1] - 1) * self.stride[1] + kernel[1] - left - r
        if min(h, w) < 1 or min(t, left) < 0:
            raise ValueError(
                f"pads {self.pads} leave nothing of image {size} and window {kernel}"
            )
        return h, w

    def macs(self, op: Op) -> int:
        """One per weight and input position."""
        x = op.inputs[0].type
        w = op.inputs[1].type
        return x.shape[0] * x.shape[1] * x.shape[2] * w.size

    def scatter(self, x: Array, w: Array, size: Pair) -> Array:
        """The sums, tap by tap."""
        n, h, wd, _ = x.shape
        o, kh, kw, _ = w.shape
        (sh, sw), (t, _, left, _) = self.stride, self.pads
        rows = max((h - 1) * sh + kh, t + size[0])
        cols = max((wd - 1) * sw + kw, left + size[1])
        full = np.zeros((n, rows, cols, o), x.dtype)
        for i in range(kh):
            for j in range(kw):
                full[:, i : i + h * sh : sh, j : j + wd * sw : sw] += x @ w[:, i, j].T
        return full[:, t : t + size[0], left : left + size[1]]

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """Float: float32 sums. int8: exact int32 sums, then one multiplier per channel
        (TFLite's reference).
        """
        size = (yt[0].shape[1], yt[0].shape[2])
        wt = xt[1]
        if xt[0].dtype == "float32":
            y = self.scatter(x[0], x[1], size)
            y = y + x[2] if len(x) > 2 else y
            return [clamp_float(y.astype(np.float32), self.act)]
        # float64 holds these integer sums exactly, and numpy multiplies floats far
        # faster than integers
        assert wt.quant is not None
        weights = x[1].astype(np.float64) - wt.quant.broadcast(4)[1]
        acc = self.scatter(
            x[0].astype(np.float64) - xt[0].zero_point, weights, size
        ).astype(np.int64)
        acc = acc + x[2] if len(x) > 2 else acc
        return [
            requantize(
                acc.astype(np.int32), xt[0], wt, yt[0], self.act, self.uint8, self.even
            )
        ]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """ONNX ConvTranspose: image NCHW, weights [C,O/group,KH,KW]; groups become
        zeros in dense weights.
        """
        b = node.build
        x = node.input(0)
        w = node.input(1)
        if (
            x.type.rank != 4
            or w.const is None
            or any(d != 1 for d in node.attrs.get("dilations", ()))
        ):
            return transposed_conv(node, Conv2D.from_onnx)
        groups = int(node.attrs.get("group", 1))
        if groups > 1:
            w = b.const(_ungrouped(node, groups), w.name)
        stride = pair(node.attrs.get("strides"))
        pads = _onnx_pads(
            node, (x.type.shape[2], x.type.shape[3]), kernel_of(node, w.type), stride
        )
        bias = node.optional(2)
        inputs = [
            to_nhwc(b, x),
            transpose(b, w, (1, 2, 3, 0)),
            *([bias] if bias else []),
        ]
        return from_nhwc(b, b.add(cls(stride, pads), inputs, node.name))

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """TRANSPOSE_CONV has the output's shape as its first input; MediaPipe's
        operator has not.
        """
        if op.name == MEDIAPIPE:
            padding, stride_x, stride_y = struct.unpack("<3i", bytes(op.options)[:12])
            x, w, *bias = with_float_weights(op, op.input(0))
            stride = (stride_y, stride_x)
            same = padding == 1
            act = "none"
        else:
            o = op.options
            op.ignore("quantizedBiasType")
            w, x, *bias = with_float_weights(op, op.input(2))[1:]
            stride = (o.strideH, o.strideW)
            same = o.padding == 0
            act = TFLITE_ACTIVATIONS[o.fusedActivationFunction]
        size, out, kernel = (_hw(v) for v in (x, op.outputs[0], w))
        top, _, left, _ = (
            same_pads(out, kernel, stride, (1, 1)) if same else (0, 0, 0, 0)
        )
        bottom, right = (
            (s - 1) * t + k - d
            for s, t, k, d in zip(size, stride, kernel, out, strict=True)
        )
        spec = cls(stride, (top, bottom - top, left, right - left), act, op.uint8)
        op.build.write(spec, [x, w, *bias], op.outputs)

    def tflite_padding(self, op: Op) -> int | None:
        """TFLite's enum: a convolution with this padding must bring the output back to
        the input's size.
        """
        (h, w), (kh, kw), size = _hw(op.output), _hw(op.inputs[1]), _hw(op.inputs[0])
        (sh, sw), before = self.stride, (self.pads[0], self.pads[2])
        top, _, left, _ = same_pads((h, w), (kh, kw), self.stride, (1, 1))
        if before == (0, 0) and ((h - kh) // sh + 1, (w - kw) // sw + 1) == size:
            return 1
        if before == (top, left) and (-(-h // sh), -(-w // sw)) == size:
            return 0
        return None

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Version 2 is int8, 3 has a bias, 4 an activation; other padding has no form."""
        padding = self.tflite_padding(op)
        if padding is None:
            return None
        x, w, *bias = op.inputs
        options = {
            "padding": padding,
            "strideH": self.stride[0],
            "strideW": self.stride[1],
        }
        options["fusedActivationFunction"] = tflite_activation(self.act, op.output.type)
        if self.act != "none":
            version = 4
        else:
            version = 3 if bias else 2 if x.type.dtype == "int8" else 1
        inputs: tuple[Value | Array, ...] = (
            np.array(op.output.type.shape, np.int32),
            w,
            x,
            *bias,
        )
        return TfliteCode(
            "TRANSPOSE_CONV", ("TransposeConvOptions", options), version, inputs
        )

    def tflite_needs_uint8(self, op: Op) -> bool:
        """The scales' product."""
        return self.uint8

    def c(self, op: Op) -> KernelCall:
        """ek_transpose_conv2d_<type>; weights packed with the output channel innermost."""
        x = op.inputs[0].type
        w = op.inputs[1]
        y = op.output.type
        o, kh, kw, _ = w.type.shape
        packed = np.ascontiguousarray(constant(op, 1).transpose(1, 2, 3, 0))
        args = (op.inputs[0], Table(packed, "w"), bias_operand(op), op.output)
        shape = Struct(
            "ek_transpose_conv2d_t",
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
            pt=self.pads[0],
            pl=self.pads[2],
        )
        last = requantize_struct(op, self.act, self.uint8, self.even)
        return KernelCall.of(
            f"ek_transpose_conv2d_{kernel_suffix(x, self.even)}", *args, shape, last
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Strides, kernels, padding, output padding, activations."""
        for label, spec, size, w in (
            ("2x2", cls((2, 2)), (1, 4, 3, 5), (6, 2, 2, 5)),
            ("3x3s2", cls((2, 2), (0, 1, 0, 1), "relu"), (1, 4, 4, 3), (4, 3, 3, 3)),
            ("4x4s2", cls((2, 2), (1, 1, 1, 1)), (1, 3, 4, 3), (18, 4, 4, 3)),
            ("3x3s1", cls((1, 1), (1, 1, 1, 1)), (2, 4, 4, 3), (2, 3, 3, 3)),
            ("output_padding", cls((3, 2), (0, -1, 0, -1)), (1, 3, 3, 2), (3, 2, 1, 2)),
        ):
            for sample in conv_samples(spec, size, w, w[0], label):
                yield sample
                if label == "2x2":
                    yield Sample(
                        spec,
                        sample.args[:2],
                        sample.output_quant,
                        f"{sample.label}_no_bias",
                    )

    @edgetpu_rule(fix="give weights and bias as constants of the model file")
    def _constant_weights(self, op: Op) -> str | None:
        """Weights and bias must be constant."""
        return next(
            (f"{v.name} is computed" for v in op.inputs[1:] if v.const is None), None
        )

    @edgetpu_rule(
        fix="crop or pad by a separate operation, or upsample by RESIZE and a convolution"
    )
    def _same_or_valid_padding(self, op: Op) -> str | None:
        """TRANSPOSE_CONV: padding must be TFLite's SAME or VALID."""
        return f"pads {self.pads}" if self.tflite_padding(op) is None else None

    @edgetpu_rule(fix="upsample by RESIZE_NEAREST_NEIGHBOR and a convolution")
    def _upsampling(self, op: Op) -> str | None:
        """TRANSPOSE_CONV: a window that is not 2x2, and at most 524288 elements; others
        mapped in some models alone.
        """
        y = op.output.type
        kernel = _hw(op.inputs[1])
        if kernel == (2, 2):
            return Uncertain("window 2x2")
        return within(
            y.size, _MAPPED, None, f"output {list(y.shape)} has {y.size} elements"
        )

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


def _hw(v: Value) -> Pair:
    """Height and width of an image or of weights."""
    return v.type.shape[1], v.type.shape[2]


def _ungrouped(node: OnnxNode, groups: int) -> Array:
    """Grouped weights [C,O/group,KH,KW] as dense ones [C,O,KH,KW] that are zero between
    groups.
    """
    w = node.const(1)
    assert w is not None
    c, o = w.shape[:2]
    dense = np.zeros((c, o * groups, *w.shape[2:]), w.dtype)
    for g in range(groups):
        rows = slice(g * c // groups, (g + 1) * c // groups)
        dense[rows, g * o : (g + 1) * o] = w[rows]
    return dense


def _onnx_pads(node: OnnxNode, size: Pair, kernel: Pair, stride: Pair) -> Pads:
    """Pads from `pads` and `output_padding`, or such that the output has `output_shape`
    or size * stride (SAME).
    """
    auto = node.attrs.get("auto_pad", "NOTSET")
    extra = node.attrs.get("output_padding", (0, 0))
    wanted = node.attrs.get("output_shape")
    node.attrs.ignore("pads")  # without effect beside auto_pad and output_shape
    if wanted is None and auto in ("NOTSET", "VALID"):
        top, left, bottom, right = (
            node.attrs.get("pads", (0, 0, 0, 0)) if auto == "NOTSET" else (0, 0, 0, 0)
        )
        return (top, bottom - extra[0], left, right - extra[1])
    if wanted is not None:
        out = [int(d) for d in wanted[-2:]]
    else:
        out = [size[i] * stride[i] for i in (0, 1)]
    pads: list[int] = []
    for i in (0, 1):
        total = (size[i] - 1) * stride[i] + kernel[i] + extra[i] - out[i]
        before = total // 2 if auto == "SAME_UPPER" else total - total // 2
        pads += [before, total - before - extra[i]]
    return (pads[0], pads[1], pads[2], pads[3])
