"""Reductions over axes: mean, sum, product, maximum, minimum.

Semantics: ONNX's Reduce* and Global* operators; TFLite MEAN, SUM, REDUCE_MAX,
REDUCE_MIN, REDUCE_PROD, REDUCE_ANY and REDUCE_ALL (reference/reduce.h).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from edgec.ir import (
    Array,
    Builder,
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
from edgec.ops.activation import Clamp
from edgec.ops.binary import Add, Sub
from edgec.ops.common import INTEGERS, axis_of, ints, kernel_suffix, plain_suffix
from edgec.ops.fixed_point import (
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    round_half_away,
)
from edgec.ops.limits import within
from edgec.ops.shape import Reshape
from edgec.ops.unary import Abs, Exp, Log, Sqrt, Square

MEAN_SIZES = (62_720, 98_304)
"""(mapped, refused): elements of the largest MEAN seen mapped, [1,7,7,1280], and of the
one seen refused, [1,256,128,3].
"""

MAX_GROUPS = 3
"""Groups of kept axes, and of reduced axes, in the struct ek_reduce_t."""

Groups = list[tuple[int, int]]
"""(elements, element stride) of each group of neighbouring axes."""


@dataclass(frozen=True)
class _Reduce(OpDef):
    """A reduction over some axes.

    Attributes:
        axes: reduced axes, counted from the front
        keep_dims: whether a reduced axis stays with a size of 1
    """

    axes: tuple[int, ...]
    keep_dims: bool = True

    fn: ClassVar[Callable[..., Any]]
    integers: ClassVar[bool] = True
    """Whether there are kernels for plain integers too; their sums and products wrap as two's
    complement does.
    """
    edgetpu: ClassVar[bool] = True
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of the input without the reduced axes, or with 1 for each.

        Raises ValueError for axes that do not exist or alternate with others too often
        for the kernels.
        """
        rank = x[0].rank
        is_repeated = len(set(self.axes)) < len(self.axes)
        if is_repeated or any(not 0 <= axis < rank for axis in self.axes):
            raise ValueError(f"axes {self.axes} do not fit {x[0]}")

        kept, reduced = _axis_groups(x[0].shape, self.axes)
        if max(len(kept), len(reduced)) > MAX_GROUPS:
            raise ValueError(f"axes {self.axes} of {x[0]} alternate too often")

        shape: list[int] = []
        for axis, size in enumerate(x[0].shape):
            if axis not in self.axes:
                shape.append(size)
            elif self.keep_dims:
                shape.append(1)
        quant = x[0].quant if self.quant is QuantRule.SAME else None
        return (TensorType(tuple(shape), x[0].dtype, quant),)

    def count(self, x: TensorType) -> int:
        """Return the number of input elements that make one of the output."""
        return prod(x.shape[a] for a in self.axes)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute float reductions in double, rounded once to float32; integers wrap."""
        data = x[0]
        if data.dtype == np.float32:
            data = data.astype(np.float64)
        y = type(self).fn(data, axis=self.axes, keepdims=self.keep_dims)
        return [np.asarray(y).astype(yt[0].np_dtype)]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef | None:
        """Return the reduction over the permuted axes; None when they are dropped."""
        if not self.keep_dims:
            return None
        axes = sorted(perm.index(axis) for axis in self.axes)
        return replace(self, axes=tuple(axes))

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read the reduction; a global pool reduces all axes from the third on.

        The axes became an input in opset 13 for ReduceSum and 18 for the others.
        Without axes all are reduced, or none with noop_with_empty_axes.
        """
        b = node.build
        x = node.input(0)
        since = 13 if node.op_type == "ReduceSum" else 18
        axes = _onnx_axes(node, since)
        if axes is None:
            # Each element is a reduction of itself.
            node.attrs.ignore("keepdims")
            return cls.prepared(node, b, x)

        if node.op_type.startswith("Global"):
            axes = tuple(range(2, x.type.rank)) or axes
        keep_dims = bool(node.attrs.get("keepdims", 1))
        prepared = cls.prepared(node, b, x)
        return _reduced(b, cls(axes), prepared, keep_dims, node.name)

    @classmethod
    def prepared(cls, node: OnnxNode, b: Builder, x: Value) -> Value:
        """Return what is reduced, for an operator that does not reduce its input itself."""
        return x

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read the operator with constant axes."""
        x = op.input(0)
        axes = {axis_of(axis, x.type.rank) for axis in ints(op.const(1)) or ()}
        spec = cls(tuple(sorted(axes)), bool(op.options.keepDims))
        op.build.write(spec, [x], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return the operator; version 2 introduced int8.

        Of plain integers TFLite has int32 and int64, and no mean.
        """
        x = op.inputs[0].type
        is_real = x.is_quantized or x.dtype == "float32"
        is_integer = x.dtype in ("int32", "int64") and self.kind != "mean"
        if not is_real and not is_integer:
            return None

        version = 2 if x.dtype == "int8" else 1
        options = ("ReducerOptions", {"keepDims": self.keep_dims})
        axes = np.array(self.axes, np.int32)
        return TfliteCode(self.tflite[0], options, version, (op.inputs[0], axes))

    def c(self, op: Op) -> KernelCall:
        """Return ek_<kind>_<type> over up to three kept and three reduced groups."""
        x = op.inputs[0].type
        y = op.output.type
        kept, reduced = _axis_groups(x.shape, self.axes)

        # The kernel has a fixed number of loops: the outer ones run once.
        kept = [(1, 0)] * (MAX_GROUPS - len(kept)) + kept
        reduced = [(1, 0)] * (MAX_GROUPS - len(reduced)) + reduced
        shape = Struct(
            "ek_reduce_t",
            keep=[size for size, _ in kept],
            keep_stride=[stride for _, stride in kept],
            red=[size for size, _ in reduced],
            red_stride=[stride for _, stride in reduced],
            **self.c_fields(x, y),
        )
        if y.is_quantized:
            type_name = kernel_suffix(y, getattr(self, "even", False))
        else:
            type_name = plain_suffix(y)
        kernel = f"ek_{self.kind}_{type_name}"
        return KernelCall.of(kernel, op.inputs[0], op.output, shape)

    def c_fields(self, x: TensorType, y: TensorType) -> dict[str, float]:
        """Return the fields of ek_reduce_t that a quantized reduction has."""
        return {}

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield images, channels, all axes and scattered axes, kept and dropped.

        Each in float, in plain integers and in int8, where the kernels have them.
        """
        cases = (
            ("image", cls((1, 2)), (2, 7, 5, 18)),
            ("channels", cls((3,)), (1, 3, 4, 20)),
            ("drop", cls((1,), False), (3, 6, 7)),
            ("all", cls((0, 1), False), (4, 9)),
            ("scattered", cls((0, 2), False), (2, 3, 4, 5)),
        )
        output_quant = Quant.per_tensor(0.11 if cls.kind == "sum" else 0.03, 4)
        for label, spec, shape in cases:
            yield Sample(spec, (Arg(TensorType(shape)),), label=label)
            for dtype in INTEGERS if cls.integers else ():
                integers = Arg(TensorType(shape, dtype))
                yield Sample(spec, (integers,), label=f"{label}_{dtype}")
            if cls.quant is QuantRule.FLOAT:
                continue
            x = TensorType(shape, "int8", Quant.per_tensor(0.05, -9))
            quant = x.quant if cls.quant is QuantRule.SAME else output_quant
            yield Sample(spec, (Arg(x),), quant, f"{label}_s8")

    @edgetpu_rule(
        fix="run one image per inference, and reduce over height, width and channels alone"
    )
    def _not_over_batch(self, op: Op) -> str | None:
        """Reductions must leave the batch alone."""
        x = op.inputs[0].type
        if 0 in self.axes and x.shape[0] > 1:
            return f"axes {list(self.axes)} of {list(x.shape)}"
        return None


def _axis_groups(
    shape: tuple[int, ...],
    axes: tuple[int, ...],
) -> tuple[Groups, Groups]:
    """Return the groups of kept and of reduced axes of a dense tensor.

    Neighbouring axes of one kind are a group; axes of 1 belong to none.
    """
    kept: Groups = []
    reduced: Groups = []
    previous: Groups | None = None
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        stride = prod(shape[axis + 1 :])
        groups = reduced if axis in axes else kept
        if groups is previous:
            outer_size, _ = groups[-1]
            groups[-1] = (outer_size * size, stride)
        else:
            groups.append((size, stride))
        previous = groups
    return kept, reduced


def _onnx_axes(node: OnnxNode, since: int) -> tuple[int, ...] | None:
    """Return the reduced axes of an ONNX node, None where none is reduced.

    since: the opset in which the axes became an input. Without axes all are reduced,
    unless noop_with_empty_axes is set.
    """
    if node.opset >= since:
        axes = ints(node.const(1))
    else:
        axes = node.attrs.get("axes")
    if node.attrs.get("noop_with_empty_axes", 0) and not axes:
        return None
    rank = node.input(0).type.rank
    return tuple(sorted(axis_of(axis, rank) for axis in axes or range(rank)))


def _mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    """Return the mean; of integers it is cut off towards zero, and 0 of no elements."""
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
    """Return the maximum; of no elements the least value of the type."""
    lowest: float
    if x.dtype.kind == "f":
        lowest = -np.inf
    elif x.dtype == bool:
        lowest = False
    else:
        lowest = np.iinfo(x.dtype).min
    return np.asarray(np.max(x, axis=axis, keepdims=keepdims, initial=lowest))


def _smallest(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    """Return the minimum; of no elements the greatest value of the type."""
    highest: float
    if x.dtype.kind == "f":
        highest = np.inf
    elif x.dtype == bool:
        highest = True
    else:
        highest = np.iinfo(x.dtype).max
    return np.asarray(np.min(x, axis=axis, keepdims=keepdims, initial=highest))


def _reduced(b: Builder, spec: _Reduce, x: Value, keep: bool, name: str) -> Value:
    """Return the reduction with its axes kept, and dropped by a reshape unless `keep`.

    Layout changes can pass through a reduction that keeps its axes.
    """
    y = b.add(spec, [x], name)
    if keep:
        return y
    return _without_axes(b, y, spec.axes, name)


def _without_axes(b: Builder, y: Value, axes: Sequence[int], name: str) -> Value:
    """Return `y` without the given axes, which have a size of 1."""
    shape = tuple(size for i, size in enumerate(y.type.shape) if i not in axes)
    return b.add(Reshape(shape), [y], name)


@dataclass(frozen=True)
class _SumReduction(_Reduce):
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
        """Compute the sum, in int8 exact in int32 and then rescaled and clamped."""
        if not yt[0].is_quantized:
            return super().ref(x, xt, yt)
        total = x[0].sum(axis=self.axes, keepdims=self.keep_dims, dtype=np.int32)
        y = self.rescale(total, xt[0], yt[0])
        return [np.clip(y, -128, 127).astype(yt[0].np_dtype)]


@dataclass(frozen=True)
class Mean(_SumReduction):
    """The arithmetic mean Σ x / count."""

    even: bool = False
    """Whether int8 results are scaled in float32 and rounded half to even, as onnxruntime
    does.
    """

    kind = "mean"
    onnx = ("ReduceMean", "GlobalAveragePool")
    tflite = ("MEAN",)
    edgetpu_versions = {"MEAN": Versions(2)}
    fn = staticmethod(_mean)

    def rescale(self, total: Array, x: TensorType, y: TensorType) -> Array:
        """Return the sum of x - zero_x times the multiplier, plus zero_y.

        This is TFLite's reference Mean; with `even` the product is in float32.
        """
        centred = (total - self.count(x) * x.zero_point).astype(np.int32)
        if self.even:
            real = (centred.astype(np.float32) * self.scale(x, y)).astype(np.float32)
            return np.asarray(np.rint(real).astype(np.int64) + y.zero_point)

        multiplier, shift = self.multiplier(x, y)
        mean = multiply_by_quantized_multiplier(centred, multiplier, shift)
        return mean.astype(np.int64) + y.zero_point

    def scale(self, x: TensorType, y: TensorType) -> np.float32:
        """Return scale_x / (scale_y * count) in float32, as onnxruntime computes it."""
        divisor = np.float32(np.float32(y.scale) * np.float32(self.count(x)))
        return np.float32(np.float32(x.scale) / divisor)

    def multiplier(self, x: TensorType, y: TensorType) -> tuple[int, int]:
        """Return (multiplier, shift) for scale_x / scale_y / count.

        TFLite divides the integer multiplier by the count, after it has taken as many
        bits from the shift as it can.
        """
        multiplier, shift = quantize_multiplier(x.scale / y.scale)
        count = self.count(x)
        extra_bits = min(count.bit_length() - 1, 32, 31 + shift)
        return (multiplier << extra_bits) // count, shift - extra_bits

    def c_fields(self, x: TensorType, y: TensorType) -> dict[str, float]:
        """Return the zero points, and the multiplier or the float scale."""
        if not y.is_quantized:
            return {}
        zeros = {"x_zero": x.zero_point, "y_zero": y.zero_point}
        if self.even:
            return {**zeros, "scale": float(self.scale(x, y))}
        multiplier, shift = self.multiplier(x, y)
        return {**zeros, "mul": multiplier, "shift": shift}

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield the samples of every reduction, and one rounded half to even."""
        yield from super().samples()
        x = TensorType((1, 7, 5, 18), "int8", Quant.per_tensor(0.05, -9))
        even = cls((1, 2), even=True)
        yield Sample(even, (Arg(x),), Quant.per_tensor(0.013, 4), "even_s8")

    @edgetpu_rule(fix="use an average pool over the whole image, or pool in two steps")
    def _mean_size(self, op: Op) -> str | None:
        """MEAN: at most 62720 elements; refused from 98304 on."""
        x = op.inputs[0].type
        seen = f"input {list(x.shape)} has {x.size} elements"
        return within(x.size, *MEAN_SIZES, seen)

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

    def c_fields(self, x: TensorType, y: TensorType) -> dict[str, float]:
        """Return the zero point of the output, scale and offset."""
        if not y.is_quantized:
            return {}
        scale, offset = self.factors(x, y)
        return {
            "y_zero": y.zero_point,
            "scale": float(scale),
            "offset": float(offset),
        }

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read the sum, and the function that ReduceL2 and ReduceLogSum apply to it."""
        y = super().from_onnx(node)
        functions = {"ReduceL2": Sqrt, "ReduceLogSum": Log}
        function = functions.get(node.op_type)
        if function is None:
            return y
        return node.build.add(function(), [y], node.name)

    @classmethod
    def prepared(cls, node: OnnxNode, b: Builder, x: Value) -> Value:
        """Return |x| for ReduceL1, x² for ReduceL2 and ReduceSumSquare, else x."""
        functions = {"ReduceL1": Abs, "ReduceL2": Square, "ReduceSumSquare": Square}
        function = functions.get(node.op_type)
        if function is None:
            return x
        return b.add(function(), [x], node.name)


@dataclass(frozen=True)
class ReduceLogSumExp(OpDef):
    """log Σ e^x, read as log Σ e^(x - max) + max, which no large x takes to infinity."""

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
        axes = _onnx_axes(node, 18)
        if axes is None:
            return x

        largest = b.add(ReduceMax(axes), [x])
        info = np.finfo(np.float32)
        top = b.add(Clamp(float(info.min), float(info.max)), [largest])

        difference = b.add(Sub(), [x, top], name)
        exponentials = b.add(Exp(), [difference], name)
        total = b.add(Sum(axes), [exponentials], name)
        logarithm = b.add(Log(), [total], name)
        y = b.add(Add(), [logarithm, top], name)
        if keep_dims:
            return y
        return _without_axes(b, y, axes, name)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield nothing: the op is read as others and never part of a graph."""
        return iter(())


@dataclass(frozen=True)
class ReduceMax(_Reduce):
    """The largest element; of bools whether any is true (TFLite REDUCE_ANY)."""

    kind = "reduce_max"
    onnx = ("ReduceMax", "GlobalMaxPool")
    tflite = ("REDUCE_MAX", "REDUCE_ANY")
    edgetpu_versions = {"REDUCE_MAX": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.SAME
    fn = staticmethod(_largest)


@dataclass(frozen=True)
class ReduceMin(_Reduce):
    """The smallest element; of bools whether all are true (TFLite REDUCE_ALL)."""

    kind = "reduce_min"
    onnx = ("ReduceMin",)
    tflite = ("REDUCE_MIN", "REDUCE_ALL")
    edgetpu_versions = {"REDUCE_MIN": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.SAME
    fn = staticmethod(_smallest)


@dataclass(frozen=True)
class ReduceProd(_Reduce):
    """The product Π x, in floats and plain integers."""

    kind = "reduce_prod"
    onnx = ("ReduceProd",)
    tflite = ("REDUCE_PROD",)
    fn = staticmethod(np.prod)
    edgetpu: ClassVar[bool] = False
