"""Maximum and average of sliding windows of NHWC images.

Semantics: ONNX MaxPool and AveragePool, TFLite MAX_POOL_2D and AVERAGE_POOL_2D
(reference/pooling.h and reference/integer_ops/pooling.h), onnxruntime's QLinearAveragePool.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

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
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ir.opdef import Arg
from edgec.ir.types import dequantize
from edgec.ops.common import kernel_suffix
from edgec.ops.fixed_point import (
    ACTIVATIONS,
    TFLITE_ACTIVATIONS,
    activation_range,
    clamp_float,
    tflite_activation,
)
from edgec.ops.ranks import of_one_row, pool_in_planes
from edgec.ops.reduce import Mean
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
from edgec.ops.windows_nd import (
    SlidingWindow,
    average_by_taps,
    max_by_taps,
)


@dataclass(frozen=True)
class _PoolOp(OpDef):
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

    quant: ClassVar[QuantRule] = QuantRule.SAME
    edgetpu: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the output image [N, OH, OW, C].

        Raises ValueError when no window fits, or when one would lie in the padding alone.
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
        """Return the windows [N, OH, OW, C, KH, KW] of the image padded with `value`."""
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
    def with_onnx_attrs(cls, spec: _PoolOp, node: OnnxNode) -> _PoolOp:
        """Return `spec` with the attributes that only one of the pools has."""
        return spec

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read MAX_POOL_2D and AVERAGE_POOL_2D."""
        x = op.input(0).type
        options = op.options
        kernel = (options.filterHeight, options.filterWidth)
        stride = (options.strideH, options.strideW)
        pads = tflite_pads(options, (x.shape[1], x.shape[2]), kernel)
        act = TFLITE_ACTIVATIONS[options.fusedActivationFunction]

        spec = cls(kernel, stride, pads, act).with_tflite_attrs(op)
        op.build.write(spec, [op.input(0)], op.outputs)

    def with_tflite_attrs(self, op: TfliteOp) -> _PoolOp:
        """Return the spec with the attributes that only one of the pools has."""
        return self

    def tflite_padding(self, op: Op) -> int | None:
        """Return TFLite's Padding (0 SAME, 1 VALID) for the pads; None: neither."""
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

        shape = Struct(
            "ek_pool_t",
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
            **self.c_fields(y),
            low=low,
            high=high,
        )
        type_name = kernel_suffix(y, getattr(self, "even", False))
        kernel = f"ek_{self.kind}_{type_name}"

        return KernelCall.of(kernel, op.inputs[0], op.output, shape)

    def c_fields(self, y: TensorType) -> dict[str, int | float]:
        """Return the fields of ek_pool_t that only one of the pools has."""
        return {}

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


@dataclass(frozen=True)
class MaxPool2D(_PoolOp):
    """The largest element of each window: y = max x[i], clamped by the activation."""

    kind = "max_pool2d"
    onnx = ("MaxPool",)
    tflite = ("MAX_POOL_2D",)
    edgetpu_versions = {"MAX_POOL_2D": Versions(2)}

    @classmethod
    def otherwise(cls, node: OnnxNode) -> Value | list[Value]:
        """Read a pool of three dimensions, with dilation or with indices."""
        size = node.input(0).type.shape[2:]
        windows = SlidingWindow.of(node, size, node.attrs["kernel_shape"])
        has_indices = node.n_outputs > 1
        is_dilated = any(d != 1 for d in windows.dilation)

        # The kernels return no indices and know no dilation.
        if has_indices or is_dilated or len(windows.size) != 3:
            return max_by_taps(node, windows, has_indices)

        return pool_in_planes(node, windows, cls.from_onnx)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the maxima element by element of the window.

        That is faster in numpy than one maximum over a six-dimensional view.
        """
        is_float = x[0].dtype.kind == "f"

        # Padding is below every element.
        lowest = -np.inf if is_float else np.iinfo(x[0].dtype).min
        windows = self.windows(x[0], lowest)
        y = windows[..., 0, 0].copy()
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                np.maximum(y, windows[..., i, j], out=y)

        # Input and output have one scale, so that integers compare as reals do.
        if yt[0].is_quantized:
            low, high = activation_range(self.act, yt[0])
            return [np.clip(y, low, high).astype(yt[0].np_dtype)]

        return [clamp_float(y, self.act)]


_IMAGE_MEAN = Mean((1, 2), keep_dims=True, even=True)
"""The mean of a whole image as onnxruntime computes it."""


@dataclass(frozen=True)
class AveragePool2D(_PoolOp):
    """The mean of each window: y = Σ x[i] / count, clamped by the activation.

    The count is of the elements inside the image, or with `count_pads` of all, padding
    being 0. int8 sums are divided with ties away from zero, as TFLite's int8 kernel does.

    Attributes:
        count_pads: whether padding counts
        uint8: whether the op was uint8 in the file, whose kernel rounds ties upwards
    """

    count_pads: bool = False
    uint8: bool = False
    even: bool = False
    """Whether int8 is computed as onnxruntime does: the mean of the reals in float32, rounded
    half to even; the mean of a whole image as `Mean` does.
    """

    kind = "average_pool2d"
    onnx = ("AveragePool",)
    tflite = ("AVERAGE_POOL_2D",)
    edgetpu_versions = {"AVERAGE_POOL_2D": Versions(2)}

    @classmethod
    def otherwise(cls, node: OnnxNode) -> Value | list[Value]:
        """Read a pool of three dimensions, with dilation or with counted partial windows."""
        size = node.input(0).type.shape[2:]
        windows = SlidingWindow.of(node, size, node.attrs["kernel_shape"])
        has_pads = any(map(any, windows.pads))
        is_dilated = set(windows.dilation) != {1}
        if len(windows.size) != 3 or has_pads or is_dilated:
            return average_by_taps(node, windows)

        # Without pads nothing but the image counts, and the mean of means is the mean.
        node.attrs.ignore("count_include_pad")

        return pool_in_planes(node, windows, cls.from_onnx)

    def is_mean(self, x: TensorType) -> bool:
        """Return whether it is one mean of the whole image.

        In int8 `Mean` also computes that, with a scale of its own.
        """
        return self.kernel == x.shape[1:3] and not any(self.pads) and self.act == "none"

    def counts(self, x: TensorType) -> Array:
        """Return the number of elements that count in each window, [1, OH, OW, 1]."""
        _, height, width, _ = x.shape
        ones = np.ones((1, height, width, 1), np.int64)
        windows = self.windows(ones, 1 if self.count_pads else 0)
        return np.asarray(windows.sum((4, 5)))

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute float32 sums in float, exact integer sums in int8.

        int8: (|sum| + count / 2) // count with the sign of the sum, as TFLite's
        reference AveragePool; uint8: (sum + count / 2) // count.
        """

        # Windows at the border hold fewer elements.
        count = self.counts(xt[0])
        y_type = yt[0]
        if not y_type.is_quantized:
            total = self.windows(x[0], 0).sum((4, 5), dtype=np.float32)
            mean = (total / count.astype(np.float32)).astype(np.float32)
            return [clamp_float(mean, self.act)]

        if self.even and self.is_mean(xt[0]):
            return _IMAGE_MEAN.ref(x, xt, yt)

        if self.even:
            return [self._ref_even(x[0], xt[0], y_type, count.astype(np.float32))]

        # A padding of 0 is stored as the zero point.
        zero = y_type.zero_point if self.count_pads else 0
        total = self.windows(x[0].astype(np.int64), zero).sum((4, 5))
        if self.uint8:
            y = (total + count // 2) // count
        else:
            magnitude = (np.abs(total) + count // 2) // count
            y = np.sign(total) * magnitude

        low, high = activation_range(self.act, y_type)

        return [np.clip(y, low, high).astype(y_type.np_dtype)]

    def _ref_even(
        self,
        x: Array,
        xt: TensorType,
        yt: TensorType,
        count: Array,
    ) -> Array:
        """Return the mean of the reals in float32, rounded half to even.

        The sum is taken element by element in the order of the window. What is rounded
        is mean / scale + zero point, with the zero point that the file has.
        """
        windows = self.windows(dequantize(x, xt), 0)
        total = windows[..., 0, 0].copy()
        for i, j in list(np.ndindex(*self.kernel))[1:]:
            total += windows[..., i, j]

        zero_point = np.float32(yt.zero_point + self._shift)
        steps = (total / count) / np.float32(yt.scale) + zero_point
        y = np.rint(steps).astype(np.int64) - self._shift
        low, high = activation_range(self.act, yt)

        return np.asarray(np.clip(y, low, high).astype(yt.np_dtype))

    @property
    def _shift(self) -> int:
        """The file's zero point less the int8 one: 128 for uint8."""
        return 128 if self.uint8 else 0

    @classmethod
    def with_onnx_attrs(cls, spec: _PoolOp, node: OnnxNode) -> _PoolOp:
        """Return `spec` with count_include_pad, which matters only with padding."""
        count = bool(node.attrs.get("count_include_pad", 0)) and any(spec.pads)
        return replace(spec, count_pads=count)  # type: ignore[call-arg]

    def with_tflite_attrs(self, op: TfliteOp) -> _PoolOp:
        """Return the spec with the rounding of the file's element type."""
        return replace(self, uint8=op.uint8)

    def tflite_needs_uint8(self, op: Op) -> bool:
        """Return whether the division rounds as only the uint8 kernel rounds it."""
        return self.uint8 and not self.even

    def as_tflite(self) -> OpDef:
        """Return the pool that rounds as TFLite's int8 kernel does."""
        return replace(self, even=False, uint8=False) if self.even else self

    def tflite_padding(self, op: Op) -> int | None:
        """Return TFLite's Padding; None where padding counts, which TFLite leaves out."""
        return None if self.count_pads else super().tflite_padding(op)

    def c(self, op: Op) -> KernelCall:
        """Return the pool's kernel, or that of `Mean` where onnxruntime has a mean."""
        if self.even and self.is_mean(op.inputs[0].type):
            return _IMAGE_MEAN.c(op)
        return super().c(op)

    def c_fields(self, y: TensorType) -> dict[str, int | float]:
        """Return whether padding counts, its element, and the rounding.

        Half to even takes the scale and the shift to the file's zero point instead of
        the direction of ties.
        """
        count_pads = int(self.count_pads)
        if self.even and y.is_quantized:
            return {
                "count_pads": count_pads,
                "pad": y.zero_point,
                "scale": float(y.scale),
                "shift": self._shift,
            }

        is_zero_point = self.count_pads and y.is_quantized

        return {
            "count_pads": count_pads,
            "round_up": int(self.uint8),
            "pad": y.zero_point if is_zero_point else 0,
        }

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield the samples of all pools, counted padding, and each rounding."""
        yield from super().samples()
        quant = Quant.per_tensor(0.05, -9)
        same = (1, 1, 1, 1)

        shape = (1, 4, 5, 6)
        counted = cls((3, 3), (1, 1), same, count_pads=True)
        for image in (TensorType(shape), TensorType(shape, "int8", quant)):
            yield Sample(counted, (Arg(image),), label=f"count_pads_{image.dtype}")

        # The first is the mean of the whole image, which has a kernel of its own.
        even_cases = {
            "even": cls((7, 5), (1, 1)),
            "even_pads": cls((2, 2), (1, 1), same),
            "even_count_pads": cls((2, 4), (1, 1), same, "relu", count_pads=True),
        }
        x = TensorType((1, 7, 5, 9), "int8", quant)
        for uint8, ending in ((False, ""), (True, "_u8")):
            for label, spec in even_cases.items():
                even = replace(spec, even=True, uint8=uint8)
                yield Sample(even, (Arg(x),), label=f"{label}{ending}")

        uint8_pool = cls((3, 3), (1, 1), same, uint8=True)
        x = TensorType((1, 8, 8, 16), "int8", quant)
        yield Sample(uint8_pool, (Arg(x),), label="u8")
