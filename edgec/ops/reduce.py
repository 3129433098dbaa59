"""Reductions over axes: mean, sum, product, maximum, minimum.

Semantics: ONNX's Reduce* and Global* operators; TFLite MEAN, SUM, REDUCE_MAX,
REDUCE_MIN, REDUCE_PROD, REDUCE_ANY and REDUCE_ALL (reference/reduce.h).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    Builder,
    ChannelFlow,
    Kernel,
    KernelFamily,
    OnnxNode,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Rounding,
    Sample,
    TensorType,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ir.c_structs import ReduceParams
from edgec.ir.opdef import Arg
from edgec.ops import edgetpu_law
from edgec.ops.activation import Clamp
from edgec.ops.binary import Add, Sub
from edgec.ops.cast import Cast, in_floats
from edgec.ops.common import ARITHMETIC_KERNELS, NUMBER_KERNELS
from edgec.ops.fixed_point import (
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    round_half_away,
)
from edgec.ops.limits import size_evidence
from edgec.ops.reduce_base import Reduction, onnx_axes, without_axes
from edgec.ops.unary import Abs, Exp, Log, Sqrt, Square

MEAN_SIZES = (62_720, 98_304)
"""(mapped, refused): elements of the largest MEAN seen mapped, [1,7,7,1280], and of the
one seen refused, [1,256,128,3].
"""


def _mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    """Return the mean; of integers it is cut off towards zero, and 0 of no elements."""
    # The mean of no floats is not a number.
    count = prod(x.shape[a] for a in axis)
    if x.dtype.kind == "f":
        with np.errstate(all="ignore"):
            total = np.sum(x, axis=axis, keepdims=keepdims)
            return np.asarray(total / count)
    dtype = np.uint64 if x.dtype.kind == "u" else np.int64
    total = np.sum(x, axis=axis, keepdims=keepdims, dtype=dtype)
    divisor = total.dtype.type(max(1, count))
    # numpy's quotient is rounded down: one more where it is negative and inexact.
    is_below = (total < 0) & (total % divisor != 0)

    return np.asarray(total // divisor + is_below)


def _largest(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    """Return the maximum; of no elements the least value of the type.

    ONNX defines it so for an empty set.
    """
    lowest: float
    if x.dtype.kind == "f":
        lowest = -np.inf
    elif x.dtype == bool:
        lowest = False
    else:
        lowest = np.iinfo(x.dtype).min

    return np.asarray(np.max(x, axis=axis, keepdims=keepdims, initial=lowest))


def _smallest(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    """Return the minimum; of no elements the greatest value of the type.

    ONNX defines it so for an empty set.
    """
    highest: float
    if x.dtype.kind == "f":
        highest = np.inf
    elif x.dtype == bool:
        highest = True
    else:
        highest = np.iinfo(x.dtype).max

    return np.asarray(np.min(x, axis=axis, keepdims=keepdims, initial=highest))


@dataclass(frozen=True)
class _SumReduction(Reduction):
    """A reduction by sums, which are exact in int8 and then rescaled."""

    quant: ClassVar[QuantRule] = QuantRule.FREE

    def rescale(self, total: Array, x: TensorType, y: TensorType) -> Array:
        """Return the int8 output of an exact int32 sum, before the clamp."""
        raise NotImplementedError(f"{self.kind} has no int8 form")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type as every reduction does.

        Raises ValueError for a quantized input without elements.
        """
        if x[0].is_quantized and 0 in x[0].shape:
            raise ValueError(f"axes {self.axes} of {x[0]} have no element")

        return super().infer(*x)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the sum, in int8 exact in int32 and then rescaled and clamped.

        The clamp is that of int8 without an activation.
        """
        if not yt[0].is_quantized:
            return super().ref(x, xt, yt)

        # int32 holds the sum of 2^24 elements of int8.
        total = x[0].sum(axis=self.axes, keepdims=self.keep_dims, dtype=np.int32)
        y = self.rescale(total, xt[0], yt[0])

        return [np.clip(y, -128, 127).astype(yt[0].np_dtype)]


@dataclass(frozen=True)
class Mean(_SumReduction):
    """The arithmetic mean Σ x / count.

    Attributes:
        rounding: the arithmetic of int8
    """

    rounding: Rounding = Rounding.TFLITE

    kind = "mean"
    kernels = KernelFamily(
        Kernel("mean", "ek_reduce.h"), (*ARITHMETIC_KERNELS, "s8"), even=("s8",)
    )
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.KEEPS
    homogeneous: ClassVar[bool] = True
    onnx = ("ReduceMean", "GlobalAveragePool")
    tflite = ("MEAN",)
    edgetpu_versions = {"MEAN": Versions(2)}
    fn = staticmethod(_mean)

    def keeps_channels(self, op: Op) -> bool:
        """Return whether the mean is not over the channels."""
        last = op.inputs[0].type.rank - 1
        return last not in self.axes and super().keeps_channels(op)

    def rescale(self, total: Array, x: TensorType, y: TensorType) -> Array:
        """Return the sum of x - zero_x times the multiplier, plus zero_y.

        This is TFLite's reference Mean; onnxruntime's product is in float32, and the
        Edge TPU's of an average pool.
        """
        centred = (total - self.count(x) * x.zero_point).astype(np.int32)
        if self.rounding.sums_in_float:
            real = (centred.astype(np.float32) * self.scale(x, y)).astype(np.float32)
            return np.asarray(np.rint(real).astype(np.int64) + y.zero_point)

        # TFLite's own order: the sum is exact until here.
        multiplier, shift = self.multiplier(x, y)
        mean = multiply_by_quantized_multiplier(centred, multiplier, shift)

        return mean.astype(np.int64) + y.zero_point

    def scale(self, x: TensorType, y: TensorType) -> np.float32:
        """Return scale_x / (scale_y * count) in float32, as onnxruntime computes it.

        The Edge TPU has the factor of an average pool.
        """
        if self.rounding.is_edgetpu:
            count = self.count(x)
            return np.float32(edgetpu_law.mean_multiplier(count, x.scale, y.scale))
        divisor = np.float32(np.float32(y.scale) * np.float32(self.count(x)))
        return np.float32(np.float32(x.scale) / divisor)

    def multiplier(self, x: TensorType, y: TensorType) -> tuple[int, int]:
        """Return (multiplier, shift) for scale_x / scale_y / count.

        TFLite divides the integer multiplier by the count, after it has taken as many
        bits from the shift as it can.
        """
        multiplier, shift = quantize_multiplier(x.scale / y.scale)
        count = self.count(x)

        # At most 32 bits, and no more than the shift can give back.
        extra_bits = min(count.bit_length() - 1, 32, 31 + shift)

        return (multiplier << extra_bits) // count, shift - extra_bits

    def with_scales(
        self, p: ReduceParams, x: TensorType, y: TensorType
    ) -> ReduceParams:
        """Return the zero points, and the multiplier or the float scale."""
        if not y.is_quantized:
            return p

        zeros = replace(p, x_zero=x.zero_point, y_zero=y.zero_point)
        if self.rounding.sums_in_float:
            return replace(zeros, scale=float(self.scale(x, y)))

        multiplier, shift = self.multiplier(x, y)

        return replace(zeros, mul=multiplier, shift=shift)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield the samples of every reduction, and one rounded half to even.

        The axes are height and width of an image.
        """
        yield from super().samples()
        x = TensorType((1, 7, 5, 18), "int8", Quant.per_tensor(0.05, -9))
        even = cls((1, 2), rounding=Rounding.ONNXRUNTIME)
        yield Sample(even, (Arg(x),), Quant.per_tensor(0.013, 4), "even_s8")

    @edgetpu_rule(fix="use an average pool over the whole image, or pool in two steps")
    def _mean_size(self, op: Op) -> str | None:
        """MEAN: at most 62720 elements; refused from 98304 on."""
        x = op.inputs[0].type
        evidence = f"input {list(x.shape)} has {x.size} elements"
        return size_evidence(x.size, *MEAN_SIZES, evidence)

    @edgetpu_rule(
        fix="pad the channels to a multiple of 4, or reduce over height and width alone"
    )
    def _mean_channels(self, op: Op) -> str | None:
        """MEAN over channels: their number must be a multiple of 4."""
        x = op.inputs[0].type
        if x.rank - 1 in self.axes and x.shape[-1] % 4:
            return f"{x.shape[-1]} channels"
        return None


@dataclass(frozen=True)
class Sum(_SumReduction):
    """The sum Σ x; ONNX's norms and sums of squares and magnitudes are read as one.

    ReduceL1 is Σ |x|, ReduceL2 √Σ x², ReduceSumSquare Σ x², ReduceLogSum log Σ x.
    """

    kind = "sum"
    kernels = KernelFamily(Kernel("sum", "ek_reduce.h"), (*ARITHMETIC_KERNELS, "s8"))
    onnx = ("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum")
    tflite = ("SUM",)
    edgetpu_versions = {"SUM": Versions(2)}
    fn = staticmethod(np.sum)

    def factors(self, x: TensorType, y: TensorType) -> tuple[np.float32, np.float32]:
        """Return scale and offset of the raw sum in float32.

        scale_x / scale_y, and -zero_x * scale * count.
        """
        # A damaged file may hold scales whose quotient float32 does not.
        with np.errstate(over="ignore", invalid="ignore"):
            scale = np.float32(x.scale) / np.float32(y.scale)
            offset = np.float32(-x.zero_point) * scale * np.float32(self.count(x))
            return scale, offset

    def rescale(self, total: Array, x: TensorType, y: TensorType) -> Array:
        """Return round(sum * scale + offset) + zero_y in float32, ties away from zero.

        Source: TFLite's QuantizedMeanOrSum (reference/reduce.h).
        """
        scale, offset = self.factors(x, y)
        real = total.astype(np.float32) * scale + offset

        return round_half_away(real) + y.zero_point

    def with_scales(
        self, p: ReduceParams, x: TensorType, y: TensorType
    ) -> ReduceParams:
        """Return the zero point of the output, scale and offset."""
        if not y.is_quantized:
            return p

        scale, offset = self.factors(x, y)

        return replace(p, y_zero=y.zero_point, scale=float(scale), offset=float(offset))

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read the sum, and the function that ReduceL2 and ReduceLogSum apply to it."""
        y = super().from_onnx(node)

        # A norm is the root of the sum of squares.
        functions = {"ReduceL2": Sqrt, "ReduceLogSum": Log}
        function = functions.get(node.op_type)
        if function is None:
            return y

        def applied(real: Value) -> Value:
            return node.build.add(function(), [real], node.name)

        return in_floats(node, y, applied)

    @classmethod
    def prepared(cls, node: OnnxNode, b: Builder, x: Value) -> Value:
        """Return |x| for ReduceL1, x² for ReduceL2 and ReduceSumSquare, else x.

        ReduceLogSum is the logarithm of a plain sum.
        """
        functions = {"ReduceL1": Abs, "ReduceL2": Square, "ReduceSumSquare": Square}
        function = functions.get(node.op_type)
        if function is None:
            return x

        return b.add(function(), [x], node.name)


@dataclass(frozen=True)
class ReduceLogSumExp(OpDef):
    """log Σ e^x, read as log Σ e^(x - max) + max, which does not overflow."""

    kind = "reduce_log_sum_exp"
    onnx = ("ReduceLogSumExp",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read ReduceLogSumExp as a maximum, a difference, e^x, a sum and a logarithm.

        The maximum is clamped to finite floats, since inf - inf is not a number.
        """
        b = node.build
        x = node.input(0)
        name = node.name
        keep_dims = bool(node.attrs.get("keepdims", 1))
        axes = onnx_axes(node, 18)
        if axes is None:
            return x

        top = b.add(ReduceMax(axes), [x])
        if x.type.dtype == "float32":
            info = np.finfo(np.float32)
            top = b.add(Clamp(float(info.min), float(info.max)), [top])

        def exponential(real: Value) -> Value:
            real_top = top if real is x else b.add(Cast("float32"), [top], name)
            difference = b.add(Sub(), [real, real_top], name)
            return b.add(Exp(), [difference], name)

        def logarithmic(real: Value) -> Value:
            return b.add(Log(), [real], name)

        # Of integers onnxruntime cuts off each function, not the result.
        total = b.add(Sum(axes), [in_floats(node, x, exponential)], name)
        logarithm = in_floats(node, total, logarithmic)
        y = b.add(Add(), [logarithm, top], name)
        if keep_dims:
            return y

        return without_axes(b, y, axes, name)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield nothing: the op is read as others and never part of a graph."""
        return iter(())


@dataclass(frozen=True)
class ReduceMax(Reduction):
    """The largest element; of bools whether any is true (TFLite REDUCE_ANY)."""

    kind = "reduce_max"
    kernels = KernelFamily(
        Kernel("reduce_max", "ek_reduce.h"), (*ARITHMETIC_KERNELS, "s8")
    )
    onnx = ("ReduceMax", "GlobalMaxPool")
    tflite = ("REDUCE_MAX", "REDUCE_ANY")
    edgetpu_versions = {"REDUCE_MAX": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.SAME
    fn = staticmethod(_largest)


@dataclass(frozen=True)
class ReduceMin(Reduction):
    """The smallest element; of bools whether all are true (TFLite REDUCE_ALL)."""

    kind = "reduce_min"
    kernels = KernelFamily(
        Kernel("reduce_min", "ek_reduce.h"), (*ARITHMETIC_KERNELS, "s8")
    )
    onnx = ("ReduceMin",)
    tflite = ("REDUCE_MIN", "REDUCE_ALL")
    edgetpu_versions = {"REDUCE_MIN": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.SAME
    fn = staticmethod(_smallest)


@dataclass(frozen=True)
class ReduceProd(Reduction):
    """The product Π x, in floats and plain integers."""

    kind = "reduce_prod"
    kernels = KernelFamily(Kernel("reduce_prod", "ek_reduce.h"), NUMBER_KERNELS)
    onnx = ("ReduceProd",)
    tflite = ("REDUCE_PROD",)
    fn = staticmethod(np.prod)
    edgetpu: ClassVar[bool] = False
