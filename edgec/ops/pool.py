"""Maximum and average of sliding windows of NHWC images.

Semantics: ONNX MaxPool and AveragePool, TFLite MAX_POOL_2D and AVERAGE_POOL_2D
(reference/pooling.h and reference/integer_ops/pooling.h), onnxruntime's
QLinearAveragePool.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgec.ir import (
    Array,
    Kernel,
    KernelCall,
    KernelFamily,
    OnnxNode,
    Op,
    Quant,
    Rounding,
    Sample,
    TensorType,
    TfliteOp,
    Value,
    Versions,
)
from edgec.ir.c_structs import PoolParams
from edgec.ir.opdef import Arg
from edgec.ir.types import dequantize
from edgec.ops import edgetpu_law
from edgec.ops.common import REAL_KERNELS, rounded_even
from edgec.ops.fixed_point import (
    activation_range,
    clamp_float,
)
from edgec.ops.pool_base import PoolOp
from edgec.ops.ranks import pool_in_planes
from edgec.ops.reduce import Mean
from edgec.ops.windows_nd import (
    SlidingWindow,
    average_by_taps,
    max_by_taps,
)


@dataclass(frozen=True)
class MaxPool2D(PoolOp):
    """The largest element of each window: y = max x[i], clamped by the activation."""

    kind = "max_pool2d"
    kernels = KernelFamily(Kernel("max_pool2d", "ek_pool.h"), (*REAL_KERNELS, "s8"))
    onnx = ("MaxPool",)
    tflite = ("MAX_POOL_2D",)
    edgetpu_versions = {"MAX_POOL_2D": Versions(2)}

    @classmethod
    def otherwise(cls, node: OnnxNode) -> Value | list[Value]:
        """Read a pool of three dimensions, with dilation or with indices.

        Other windows are maxima of slices.
        """
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


@dataclass(frozen=True)
class AveragePool2D(PoolOp):
    """The mean of each window: y = Σ x[i] / count, clamped by the activation.

    The count is of the elements inside the image, or with `count_pads` of all, padding
    being 0. TFLite divides int8 sums with ties away from zero, and uint8 sums with ties
    upwards. onnxruntime takes the mean of the reals in float32, rounded half to even,
    and the mean of a whole image as `Mean` does. The Edge TPU multiplies the integer sum
    (`edgec.ops.edgetpu_law`).

    Attributes:
        count_pads: whether padding counts
        rounding: the arithmetic of int8
    """

    count_pads: bool = False
    rounding: Rounding = Rounding.TFLITE

    kind = "average_pool2d"
    kernels = KernelFamily(
        Kernel("average_pool2d", "ek_pool.h"), (*REAL_KERNELS, "s8"), even=("s8",)
    )
    onnx = ("AveragePool",)
    tflite = ("AVERAGE_POOL_2D",)
    edgetpu_versions = {"AVERAGE_POOL_2D": Versions(2)}

    @classmethod
    def otherwise(cls, node: OnnxNode) -> Value | list[Value]:
        """Read a pool of three dimensions, with dilation or counted partial windows.

        Other windows are sums of slices, divided by counts.
        """
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

    def _image_mean(self) -> Mean:
        """Return the mean of a whole image with the pool's arithmetic."""
        return Mean((1, 2), keep_dims=True, rounding=self.rounding)

    def counts(self, x: TensorType) -> Array:
        """Return the number of elements that count in each window, [1, OH, OW, 1].

        It is the same for all images and channels.
        """
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

        if self.rounding.sums_in_float and self.is_mean(xt[0]):
            return self._image_mean().ref(x, xt, yt)

        if self.rounding.is_edgetpu:
            return [self._ref_edgetpu(x[0], xt[0], y_type)]

        if self.rounding.is_onnxruntime:
            return [self._ref_even(x[0], xt[0], y_type, count.astype(np.float32))]

        # A padding of 0 is stored as the zero point.
        zero = y_type.zero_point if self.count_pads else 0
        total = self.windows(x[0].astype(np.int64), zero).sum((4, 5))
        if self.rounding is Rounding.TFLITE_UINT8:
            y = (total + count // 2) // count
        else:
            magnitude = (np.abs(total) + count // 2) // count
            y = np.sign(total) * magnitude

        low, high = activation_range(self.act, y_type)

        return [np.clip(y, low, high).astype(y_type.np_dtype)]

    def _ref_edgetpu(self, x: Array, xt: TensorType, yt: TensorType) -> Array:
        """Return sums times the chip's factor, rounded half to even."""
        steps = x.astype(np.int64) - xt.zero_point
        sums = self.windows(steps, 0).sum((4, 5)).astype(np.float32)
        means = sums * np.float32(self._edgetpu_factor(xt, yt))
        y = rounded_even(means, yt, activation_range(self.act, yt))
        return y.astype(yt.np_dtype)

    def _edgetpu_factor(self, x: TensorType, y: TensorType) -> float:
        height, width = self.kernel
        return edgetpu_law.mean_multiplier(height * width, x.scale, y.scale)

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

        offset = self.rounding.offset
        zero_point = np.float32(yt.zero_point + offset)
        steps = (total / count) / np.float32(yt.scale) + zero_point
        y = np.rint(steps).astype(np.int64) - offset
        low, high = activation_range(self.act, yt)

        return np.asarray(np.clip(y, low, high).astype(yt.np_dtype))

    @classmethod
    def with_onnx_attrs(cls, spec: PoolOp, node: OnnxNode) -> PoolOp:
        """Return `spec` with count_include_pad, which matters only with padding."""
        count = bool(node.attrs.get("count_include_pad", 0)) and any(spec.pads)
        return replace(spec, count_pads=count)  # type: ignore[call-arg]

    def border(self) -> float | None:
        """Return zero where the pool has pads, whether or not they count."""
        return 0.0 if any(self.pads) else None

    def with_tflite_attrs(self, op: TfliteOp) -> PoolOp:
        """Return the spec with the rounding of the file's element type."""
        return replace(self, rounding=op.rounding)

    def tflite_needs_uint8(self, op: Op) -> bool:
        """Return whether the division rounds as only the uint8 kernel rounds it."""
        return self.rounding is Rounding.TFLITE_UINT8

    def tflite_padding(self, op: Op) -> int | None:
        """Return TFLite's Padding; None where padding counts, which TFLite lacks."""
        return None if self.count_pads else super().tflite_padding(op)

    def c(self, op: Op) -> KernelCall:
        """Return the pool's kernel, or that of `Mean` for a whole image in float sums.

        That mean has a kernel that does not slide a window.
        """
        if self.rounding.sums_in_float and self.is_mean(op.inputs[0].type):
            return self._image_mean().c(op)
        return super().c(op)

    def with_rounding(self, p: PoolParams, y: TensorType) -> PoolParams:
        """Return the parameters with the counting of padding, and the rounding.

        Half to even takes the scale and the shift to the file's zero point instead of
        the direction of ties.  The Edge TPU's input and output have one scale.
        """
        count_pads = int(self.count_pads)
        if self.rounding.is_edgetpu and y.is_quantized:
            factor = self._edgetpu_factor(y, y)
            return replace(p, pad=y.zero_point, scale=1.0, factor=factor)

        if self.rounding.is_onnxruntime and y.is_quantized:
            return replace(
                p,
                count_pads=count_pads,
                pad=y.zero_point,
                scale=float(y.scale),
                shift=self.rounding.offset,
            )

        is_zero_point = self.count_pads and y.is_quantized

        return replace(
            p,
            count_pads=count_pads,
            round_up=int(self.rounding is Rounding.TFLITE_UINT8),
            pad=y.zero_point if is_zero_point else 0,
        )

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
        roundings = {"": Rounding.ONNXRUNTIME, "_u8": Rounding.ONNXRUNTIME_UINT8}
        for ending, rounding in roundings.items():
            for label, spec in even_cases.items():
                even = replace(spec, rounding=rounding)
                yield Sample(even, (Arg(x),), label=f"{label}{ending}")

        # Windows of an odd number of elements have no ties.
        edgetpu_cases = {
            "edgetpu": (7, 5),
            "edgetpu_2x4": (2, 4),
            "edgetpu_6x5": (6, 5),
        }
        for label, kernel in edgetpu_cases.items():
            on_edgetpu = cls(kernel, (1, 1), rounding=Rounding.EDGETPU)
            yield Sample(on_edgetpu, (Arg(x),), label=label)

        uint8_pool = cls((3, 3), (1, 1), same, rounding=Rounding.TFLITE_UINT8)
        x = TensorType((1, 8, 8, 16), "int8", quant)
        yield Sample(uint8_pool, (Arg(x),), label="u8")
