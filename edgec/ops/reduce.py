"""Reductions over axes: mean, sum, product, maximum, minimum."""

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
"""Elements of the largest MEAN seen mapped, [1,7,7,1280], and of the one refused,
[1,256,128,3].
"""


@dataclass(frozen=True)
class _Reduce(OpDef):
    """Over `axes`, counted from the front, which stay as 1 (`keep_dims`) or go."""

    axes: tuple[int, ...]
    keep_dims: bool = True

    fn: ClassVar[Callable[..., Any]]
    integers: ClassVar[bool] = True
    """Whether there are kernels for plain integers too, which wrap as two's complement
    does.
    """
    edgetpu: ClassVar[bool] = True
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The other axes, and the type of the input."""
        if any(not 0 <= a < x[0].rank for a in self.axes) or len(set(self.axes)) < len(
            self.axes
        ):
            raise ValueError(f"axes {self.axes} do not fit {x[0]}")
        kept, reduced = _walk(x[0].shape, self.axes)
        if max(len(kept), len(reduced)) > 3:
            raise ValueError(f"axes {self.axes} of {x[0]} alternate too often")
        shape = [1 if i in self.axes else d for i, d in enumerate(x[0].shape)]
        if not self.keep_dims:
            shape = [d for i, d in enumerate(x[0].shape) if i not in self.axes]
        same = self.quant is QuantRule.SAME
        return (TensorType(tuple(shape), x[0].dtype, x[0].quant if same else None),)

    def count(self, x: TensorType) -> int:
        """How many elements make one of the output."""
        return prod(x.shape[a] for a in self.axes)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """Float sums in float64, rounded once; integers wrap."""
        data = x[0].astype(np.float64) if x[0].dtype == np.float32 else x[0]
        y = type(self).fn(data, axis=self.axes, keepdims=self.keep_dims)
        return [np.asarray(y).astype(yt[0].np_dtype)]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef | None:
        """The axes move along."""
        if self.keep_dims:
            return replace(self, axes=tuple(sorted(perm.index(a) for a in self.axes)))
        return None

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Axes as an attribute, or as an input since opset 13 (ReduceSum) and 18 (the
        others).
        """
        b = node.build
        x = node.input(0)
        since = 13 if node.op_type == "ReduceSum" else 18
        given = ints(node.const(1)) if node.opset >= since else node.attrs.get("axes")
        if node.attrs.get("noop_with_empty_axes", 0) and not given:
            # no axis is reduced: each element is a reduction of itself
            node.attrs.ignore("keepdims")
            return cls.prepared(node, b, x)
        if node.op_type.startswith("Global"):
            given = list(range(2, x.type.rank))
        axes = tuple(
            sorted(axis_of(a, x.type.rank) for a in given or range(x.type.rank))
        )
        return _reduced(
            b,
            cls(axes),
            cls.prepared(node, b, x),
            bool(node.attrs.get("keepdims", 1)),
            node.name,
        )

    @classmethod
    def prepared(cls, node: OnnxNode, b: Builder, x: Value) -> Value:
        """What is reduced, where that is not the node's input."""
        return x

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Constant axes."""
        rank = op.input(0).type.rank
        axes = tuple(sorted({axis_of(a, rank) for a in ints(op.const(1)) or ()}))
        op.build.write(cls(axes, bool(op.options.keepDims)), [op.input(0)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Version 2 is int8.

        Of plain integers TFLite has int32 and int64, and no mean.
        """
        x = op.inputs[0].type
        if not (
            x.is_quantized
            or x.dtype == "float32"
            or (x.dtype in ("int32", "int64") and self.kind != "mean")
        ):
            return None
        version = 2 if op.inputs[0].type.dtype == "int8" else 1
        inputs = (op.inputs[0], np.array(self.axes, np.int32))
        return TfliteCode(
            self.tflite[0],
            ("ReducerOptions", {"keepDims": self.keep_dims}),
            version,
            inputs,
        )

    def c(self, op: Op) -> KernelCall:
        """ek_<kind>_<type> over up to three kept and three reduced groups of axes."""
        x = op.inputs[0].type
        y = op.output.type
        kept, reduced = (
            [(1, 0)] * (3 - len(walk)) + walk for walk in _walk(x.shape, self.axes)
        )
        shape = Struct(
            "ek_reduce_t",
            keep=[d for d, _ in kept],
            keep_stride=[s for _, s in kept],
            red=[d for d, _ in reduced],
            red_stride=[s for _, s in reduced],
            **self.c_fields(x, y),
        )
        if y.is_quantized:
            name = kernel_suffix(y, getattr(self, "even", False))
        else:
            name = plain_suffix(y)
        return KernelCall.of(f"ek_{self.kind}_{name}", op.inputs[0], op.output, shape)

    def c_fields(self, x: TensorType, y: TensorType) -> dict[str, float]:
        """What int8 sums need."""
        return {}

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Images, channels, everything, scattered axes; kept and dropped."""
        for label, spec, shape in (
            ("image", cls((1, 2)), (2, 7, 5, 18)),
            ("channels", cls((3,)), (1, 3, 4, 20)),
            ("drop", cls((1,), False), (3, 6, 7)),
            ("all", cls((0, 1), False), (4, 9)),
            ("scattered", cls((0, 2), False), (2, 3, 4, 5)),
        ):
            yield Sample(spec, (Arg(TensorType(shape)),), label=label)
            for dtype in INTEGERS if cls.integers else ():
                yield Sample(
                    spec, (Arg(TensorType(shape, dtype)),), label=f"{label}_{dtype}"
                )
            if cls.quant is QuantRule.FLOAT:
                continue
            x = TensorType(shape, "int8", Quant.per_tensor(0.05, -9))
            if cls.quant is QuantRule.SAME:
                quant = x.quant
            else:
                quant = Quant.per_tensor(0.11 if cls.kind == "sum" else 0.03, 4)
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


def _walk(
    shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(dimension, element stride) of the kept and the reduced axes, neighbours of one
    kind joined.
    """
    groups: list[tuple[bool, int, int]] = []
    for i, d in enumerate(shape):
        stride = prod(shape[i + 1 :])
        if d == 1:
            continue
        if groups and groups[-1][0] == (i in axes):
            groups[-1] = (i in axes, groups[-1][1] * d, stride)
        else:
            groups.append((i in axes, d, stride))
    return [(d, s) for reduced, d, s in groups if not reduced], [
        (d, s) for reduced, d, s in groups if reduced
    ]


def _mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    """Of integers cut off towards zero, and of none 0."""
    if x.dtype.kind == "f":
        with np.errstate(all="ignore"):
            return np.asarray(
                np.sum(x, axis=axis, keepdims=keepdims) / prod(x.shape[a] for a in axis)
            )
    total = np.sum(
        x,
        axis=axis,
        keepdims=keepdims,
        dtype=np.uint64 if x.dtype.kind == "u" else np.int64,
    )
    count = total.dtype.type(max(1, prod(x.shape[a] for a in axis)))
    return np.asarray(total // count + ((total < 0) & (total % count != 0)))


def _largest(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    """Of none, the least that there is."""
    if x.dtype.kind == "f":
        lowest = -np.inf
    else:
        lowest = False if x.dtype == bool else np.iinfo(x.dtype).min
    return np.asarray(np.max(x, axis=axis, keepdims=keepdims, initial=lowest))


def _smallest(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    """Of none, the most that there is."""
    if x.dtype.kind == "f":
        highest = np.inf
    else:
        highest = True if x.dtype == bool else np.iinfo(x.dtype).max
    return np.asarray(np.min(x, axis=axis, keepdims=keepdims, initial=highest))


def _reduced(b: Builder, spec: _Reduce, x: Value, keep: bool, name: str) -> Value:
    """The reduction with its axes kept, then dropped by a reshape: so that layouts can
    pass through it.
    """
    y = b.add(spec, [x], name)
    if keep:
        return y
    return b.add(
        Reshape(tuple(d for i, d in enumerate(y.type.shape) if i not in spec.axes)),
        [y],
        name,
    )


@dataclass(frozen=True)
class _SumReduction(_Reduce):
    """Sums, on int8 exact and then rescaled."""

    quant: ClassVar[QuantRule] = QuantRule.FREE

    def rescale(self, total: Array, x: TensorType, y: TensorType) -> Array:
        """The int8 output of an exact int32 sum, before the clamp."""
        raise NotImplementedError(f"{self.kind} has no int8 form")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Quantized elements, of which there is one at least."""
        if x[0].is_quantized and 0 in x[0].shape:
            raise ValueError(f"axes {self.axes} of {x[0]} have no element")
        return super().infer(*x)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """On int8 the exact sum, rescaled."""
        if not yt[0].is_quantized:
            return super().ref(x, xt, yt)
        total = x[0].sum(axis=self.axes, keepdims=self.keep_dims, dtype=np.int32)
        return [
            np.clip(self.rescale(total, xt[0], yt[0]), -128, 127).astype(yt[0].np_dtype)
        ]


@dataclass(frozen=True)
class Mean(_SumReduction):
    """The arithmetic mean."""

    even: bool = False
    """Whether int8 results are scaled in float32 and rounded with ties to even, as
    onnxruntime does it.
    """

    kind = "mean"
    onnx = ("ReduceMean", "GlobalAveragePool")
    tflite = ("MEAN",)
    edgetpu_versions = {"MEAN": Versions(2)}
    fn = staticmethod(_mean)

    def rescale(self, total: Array, x: TensorType, y: TensorType) -> Array:
        """The centred sum times the multiplier (TFLite's reference Mean)."""
        centred = (total - self.count(x) * x.zero_point).astype(np.int32)
        if self.even:
            real = (centred.astype(np.float32) * self.scale(x, y)).astype(np.float32)
            return np.asarray(np.rint(real).astype(np.int64) + y.zero_point)
        return (
            multiply_by_quantized_multiplier(centred, *self.multiplier(x, y)).astype(
                np.int64
            )
            + y.zero_point
        )

    def scale(self, x: TensorType, y: TensorType) -> np.float32:
        """What one unit of the sum is worth in units of the output, as onnxruntime has
        it.
        """
        return np.float32(
            np.float32(x.scale)
            / np.float32(np.float32(y.scale) * np.float32(self.count(x)))
        )

    def multiplier(self, x: TensorType, y: TensorType) -> tuple[int, int]:
        """The quotient of the scales, divided by the count in integers."""
        mul, shift = quantize_multiplier(x.scale / y.scale)
        count = self.count(x)
        extra = min(count.bit_length() - 1, 32, 31 + shift)
        return (mul << extra) // count, shift - extra

    def c_fields(self, x: TensorType, y: TensorType) -> dict[str, float]:
        """Zero points and multiplier."""
        if not y.is_quantized:
            return {}
        zeros = {"x_zero": x.zero_point, "y_zero": y.zero_point}
        if self.even:
            return {**zeros, "scale": float(self.scale(x, y))}
        mul, shift = self.multiplier(x, y)
        return {**zeros, "mul": mul, "shift": shift}

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Both roundings."""
        yield from super().samples()
        x = TensorType((1, 7, 5, 18), "int8", Quant.per_tensor(0.05, -9))
        yield Sample(
            cls((1, 2), even=True), (Arg(x),), Quant.per_tensor(0.013, 4), "even_s8"
        )

    @edgetpu_rule(fix="use an average pool over the whole image, or pool in two steps")
    def _mean_size(self, op: Op) -> str | None:
        """MEAN: at most 62720 elements; refused from 98304 on."""
        x = op.inputs[0].type
        return within(
            x.size, *MEAN_SIZES, f"input {list(x.shape)} has {x.size} elements"
        )

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
    """The sum. ONNX's sums of magnitudes and squares are read as such."""

    kind = "sum"
    onnx = ("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum")
    tflite = ("SUM",)
    edgetpu_versions = {"SUM": Versions(2)}
    fn = staticmethod(np.sum)

    def factors(self, x: TensorType, y: TensorType) -> tuple[np.float32, np.float32]:
        """Scale and offset of the raw sum, in float32 steps."""
        # of scales that only damage writes
        with np.errstate(over="ignore", invalid="ignore"):
            scale = np.float32(x.scale) / np.float32(y.scale)
            return scale, np.float32(-x.zero_point) * scale * np.float32(self.count(x))

    def rescale(self, total: Array, x: TensorType, y: TensorType) -> Array:
        """round(sum * scale + offset) in float32, ties away from zero: TFLite's
        QuantizedMeanOrSum.
        """
        scale, offset = self.factors(x, y)
        return round_half_away(total.astype(np.float32) * scale + offset) + y.zero_point

    def c_fields(self, x: TensorType, y: TensorType) -> dict[str, float]:
        """Scale and offset."""
        if not y.is_quantized:
            return {}
        scale, offset = self.factors(x, y)
        return {"y_zero": y.zero_point, "scale": float(scale), "offset": float(offset)}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """The root of the sum of squares is ReduceL2."""
        y = super().from_onnx(node)
        after = {"ReduceL2": Sqrt, "ReduceLogSum": Log}.get(node.op_type)
        return node.build.add(after(), [y], node.name) if after else y

    @classmethod
    def prepared(cls, node: OnnxNode, b: Builder, x: Value) -> Value:
        """|x| and x²."""
        before = {"ReduceL1": Abs, "ReduceL2": Square, "ReduceSumSquare": Square}.get(
            node.op_type
        )
        return b.add(before(), [x], node.name) if before else x


@dataclass(frozen=True)
class ReduceLogSumExp(OpDef):
    """log Σ e^x: read as the sum of e^(x - max), which no large x drives to infinity."""

    kind = "reduce_log_sum_exp"
    onnx = ("ReduceLogSumExp",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Five ops."""
        b = node.build
        x = node.input(0)
        given = ints(node.const(1)) if node.opset >= 18 else node.attrs.get("axes")
        keep = bool(node.attrs.get("keepdims", 1))
        if node.attrs.get("noop_with_empty_axes", 0) and not given:
            return x
        axes = tuple(
            sorted(axis_of(a, x.type.rank) for a in given or range(x.type.rank))
        )
        top = b.add(
            Clamp(float(np.finfo(np.float32).min), float(np.finfo(np.float32).max)),
            [b.add(ReduceMax(axes), [x])],
        )
        total = b.add(
            Sum(axes),
            [b.add(Exp(), [b.add(Sub(), [x, top], node.name)], node.name)],
            node.name,
        )
        y = b.add(Add(), [b.add(Log(), [total], node.name), top], node.name)
        if keep:
            return y
        return b.add(
            Reshape(tuple(d for i, d in enumerate(y.type.shape) if i not in axes)),
            [y],
            node.name,
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """None: it is read as others."""
        return iter(())


@dataclass(frozen=True)
class ReduceMax(_Reduce):
    """The largest element; of bools whether any is true."""

    kind = "reduce_max"
    onnx = ("ReduceMax", "GlobalMaxPool")
    tflite = ("REDUCE_MAX", "REDUCE_ANY")
    edgetpu_versions = {"REDUCE_MAX": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.SAME
    fn = staticmethod(_largest)


@dataclass(frozen=True)
class ReduceMin(_Reduce):
    """The smallest element; of bools whether all are true."""

    kind = "reduce_min"
    onnx = ("ReduceMin",)
    tflite = ("REDUCE_MIN", "REDUCE_ALL")
    edgetpu_versions = {"REDUCE_MIN": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.SAME
    fn = staticmethod(_smallest)


@dataclass(frozen=True)
class ReduceProd(_Reduce):
    """The product; floats and plain integers alone."""

    kind = "reduce_prod"
    onnx = ("ReduceProd",)
    tflite = ("REDUCE_PROD",)
    fn = staticmethod(np.prod)
    edgetpu: ClassVar[bool] = False
