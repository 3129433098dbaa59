"""The base of pools: windows, file formats and the C kernel's struct.

The maximum and the average are in `pool`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from edgec.ir import (
    Array,
    ChannelFlow,
    KernelCall,
    KernelFamily,
    OnnxNode,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Rounding,
    Sample,
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
    edgetpu_rule,
)
from edgec.ir.c_structs import PoolParams
from edgec.ir.opdef import Arg
from edgec.ops.common import rounded_kernel
from edgec.ops.fixed_point import (
    ACTIVATIONS,
    activation_range,
    tflite_activation,
)
from edgec.ops.fused_activation import fused_activation
from edgec.ops.ranks import of_one_row
from edgec.ops.shape import from_nhwc, to_nhwc
from edgec.ops.window import (
    Pads,
    Pair,
    onnx_pads,
    out_size,
    pad_image,
    pair,
    patches,
    tflite_padding,
    tflite_pads,
)


@dataclass(frozen=True)
class PoolOp(OpDef):
    """A pool: y[n, i, j, c] over the window that starts at (i, j) * stride - pads.

    Padding never enters a maximum, and a mean only with `count_pads`.

    Attributes:
        kernel, stride: (vertical, horizontal), in pixels
        pads: (top, bottom, left, right), in pixels
        act: fused activation
    """

    kernel: Pair = (2, 2)
    stride: Pair = (2, 2)
    pads: Pads = (0, 0, 0, 0)
    act: str = "none"

    kernels: ClassVar[KernelFamily]
    """The plain kernels, by the element type."""

    quant: ClassVar[QuantRule] = QuantRule.SAME
    edgetpu: ClassVar[bool] = True
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.KEEPS
    homogeneous: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the output image [N, OH, OW, C].

        Raises ValueError when no window fits, or when one would lie in the padding
        alone.
        """
        image = x[0]
        if image.rank != 4 or 0 in image.shape[1:3]:
            raise ValueError(f"image must have rank 4 and pixels, not {image}")

        n, height, width, channels = image.shape
        kernel_height, kernel_width = self.kernel
        top, bottom, left, right = self.pads
        rows = out_size(height, kernel_height, self.stride[0], 1, top, bottom)
        columns = out_size(width, kernel_width, self.stride[1], 1, left, right)
        if min(rows, columns) < 1:
            raise ValueError(
                f"window {self.kernel} is larger than the padded image {image.shape[1:3]}"
            )

        # A maximum of no pixel, or a mean of none, has no value.
        if top >= kernel_height or left >= kernel_width:
            raise ValueError(
                f"window {self.kernel} can lie in the padding {self.pads} alone"
            )

        return (image.with_shape((n, rows, columns, channels)),)

    def windows(self, x: Array, value: float) -> Array:
        """Return the windows [N, OH, OW, C, KH, KW] of the image with a border."""
        padded = pad_image(x, self.pads, value)
        return patches(padded, self.kernel, self.stride)

    def moves(self) -> bool:
        """Return whether it is a maximum, whose elements are elements of the input."""
        return self.kind == "max_pool2d" and self.act == "none"

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value | list[Value]:
        """Read a pool of images with the kernels' window, other pools as other ops.

        Partial windows added by ceil_mode are made whole by padding at the end. Such
        padding never counts in a mean, so that a mean in which the node's own pads
        count is read as other ops.
        """
        x = node.input(0)

        # A line is an image of one row.
        if x.type.rank == 3:
            return of_one_row(node, cls.from_onnx)

        if not _is_kernel_pool(node):
            return cls.otherwise(node)

        # It orders the indices, which this node does not give.
        node.attrs.ignore("storage_order")
        size = (x.type.shape[2], x.type.shape[3])
        kernel = pair(node.attrs["kernel_shape"])
        stride = pair(node.attrs.get("strides"))
        pads = onnx_pads(node, size, kernel, stride)
        whole_pads = pads
        if _has_ceil_mode(node):
            whole_pads = _ceil_pads(size, kernel, stride, pads)

        # Padding after the image makes the partial windows of ceil_mode whole.
        spec = cls.with_onnx_attrs(cls(kernel, stride, whole_pads), node)
        if whole_pads != pads and getattr(spec, "count_pads", False):
            return cls.otherwise(node)

        y = node.build.add(spec, [to_nhwc(node.build, x)], node.name)

        return from_nhwc(node.build, y)

    @classmethod
    def otherwise(cls, node: OnnxNode) -> Value | list[Value]:
        """Read a pool whose window the kernels do not have, as other ops."""
        raise NotImplementedError(cls.kind)

    @classmethod
    def with_onnx_attrs(cls, spec: PoolOp, node: OnnxNode) -> PoolOp:
        """Return `spec` with the attributes that only one of the pools has."""
        return spec

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read MAX_POOL_2D and AVERAGE_POOL_2D."""
        x = op.input(0).type
        options = op.options

        # A pool's window is in the options, as it has no weights.
        kernel = (options.filterHeight, options.filterWidth)
        stride = (options.strideH, options.strideW)
        pads = tflite_pads(options, (x.shape[1], x.shape[2]), kernel)
        act = fused_activation(op)

        spec = cls(kernel, stride, pads, act).with_tflite_attrs(op)
        op.build.write(spec, [op.input(0)], op.outputs)

    def with_tflite_attrs(self, op: TfliteOp) -> PoolOp:
        """Return the spec with the attributes that only one of the pools has."""
        return self

    def tflite_padding(self, op: Op) -> int | None:
        """Return TFLite's Padding (0 SAME, 1 VALID) for the pads; None: neither.

        Other pads must become an op of their own before a TFLite file is written.
        """
        x = op.inputs[0].type
        size = (x.shape[1], x.shape[2])
        return tflite_padding(self.pads, size, self.kernel, self.stride)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return the operator; None for pads that are neither SAME nor VALID.

        Version 2 introduced int8.
        """
        padding = self.tflite_padding(op)
        if padding is None:
            return None

        # All pools share the options table.
        fields: dict[str, Any] = {
            "padding": padding,
            "strideH": self.stride[0],
            "strideW": self.stride[1],
            "filterHeight": self.kernel[0],
            "filterWidth": self.kernel[1],
            "fusedActivationFunction": tflite_activation(self.act, op.output.type),
        }
        version = 2 if op.inputs[0].type.dtype == "int8" else 1

        return TfliteCode(self.tflite[0], ("Pool2DOptions", fields), version)

    def window(self, op: Op) -> tuple[Pair, Pair]:
        """Return the size and the stride of the windows."""
        return self.kernel, self.stride

    def c(self, op: Op) -> KernelCall:
        """Return ek_max_pool2d_<type> or ek_average_pool2d_<type>.

        The clamp range is in integers for a quantized output, else in reals.
        """
        x = op.inputs[0].type
        y = op.output.type
        low: float
        high: float
        if y.is_quantized:
            low, high = activation_range(self.act, y)
        else:
            low, high = ACTIVATIONS[self.act]

        shape = PoolParams(
            n=x.shape[0],
            ih=x.shape[1],
            iw=x.shape[2],
            c=x.shape[3],
            oh=y.shape[1],
            ow=y.shape[2],
            kh=self.kernel[0],
            kw=self.kernel[1],
            sh=self.stride[0],
            sw=self.stride[1],
            pt=self.pads[0],
            pl=self.pads[2],
            low=low,
            high=high,
        )
        rounding = getattr(self, "rounding", Rounding.TFLITE)
        kernel = rounded_kernel(self.kernels, y, rounding)

        shape = self.with_rounding(shape, y)
        return KernelCall.of(kernel, op.inputs[0], op.output, shape)

    def with_rounding(self, p: PoolParams, y: TensorType) -> PoolParams:
        """Return the parameters with the fields that only some pools have."""
        return p

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield overlap, padding, strides, activations and a global window.

        Each in float and int8.
        """
        padded = cls((3, 3), (1, 1), (1, 1, 1, 1), "relu")
        strided = cls((3, 2), (2, 1), (0, 1, 0, 1), "relu6")
        cases = (
            ("2x2", cls(), (1, 6, 4, 3)),
            ("3x3", padded, (1, 5, 5, 20)),
            ("stride", strided, (2, 6, 5, 4)),
            ("global", cls((7, 5), (1, 1)), (1, 7, 5, 9)),
        )
        quant = Quant.per_tensor(0.05, -9)
        for label, spec, shape in cases:
            yield Sample(spec, (Arg(TensorType(shape)),), label=label)
            quantized = TensorType(shape, "int8", quant)
            yield Sample(spec, (Arg(quantized),), label=f"{label}_s8")

    @edgetpu_rule(fix="keep the activation as an operation of its own")
    def _no_fused_activation(self, op: Op) -> str | None:
        """Pooling must have no fused activation."""
        return None if self.act == "none" else f"activation {self.act}"

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


def _is_kernel_pool(node: OnnxNode) -> bool:
    """Return whether the C kernels have the node's window.

    They pool images of reals, without dilation and without indices.
    """
    x = node.input(0).type
    is_real = x.is_quantized or x.dtype == "float32"
    if x.rank != 4 or not is_real or node.n_outputs > 1:
        return False

    return all(d == 1 for d in node.attrs.get("dilations", ()))


def _has_ceil_mode(node: OnnxNode) -> bool:
    """Return whether ceil_mode adds a partial window at the end.

    SAME padding leaves none. Beside auto_pad=VALID ceil_mode counts as ONNX's shape
    inference and onnxruntime count it.
    """
    ceil_mode = bool(node.attrs.get("ceil_mode", 0))
    return ceil_mode and not str(node.attrs.get("auto_pad", "")).startswith("SAME")


def _ceil_pads(size: Pair, kernel: Pair, stride: Pair, pads: Pads) -> Pads:
    """Return the pads with which the last, partial window of ceil_mode is whole.

    A window that would start in the padding after the image is left out.
    """
    whole: list[int] = []
    for axis in (0, 1):
        before = pads[2 * axis]
        after = pads[2 * axis + 1]
        step = stride[axis]

        length = size[axis] + before
        count = -(-(length + after - kernel[axis]) // step) + 1
        if (count - 1) * step >= length:
            count -= 1
        needed = (count - 1) * step + kernel[axis] - length
        whole += [before, max(after, needed)]

    return (whole[0], whole[1], whole[2], whole[3])
