"""Along one axis: running sums and products, and the largest or smallest elements in
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

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
    TensorType,
    TfliteOp,
    Value,
)
from edgec.ir.opdef import Arg
from edgec.ops.cast import Cast
from edgec.ops.common import INTEGERS, axis_of, plain_suffix, suffix


def _check_axis(axis: int, x: TensorType) -> None:
    if not 0 <= axis < x.rank:
        raise ValueError(f"axis {axis} of {x}")


@dataclass(frozen=True)
class _Cumulative(OpDef):
    """Each element combined with all before it (after it, if `reverse`), itself left
    out if `exclusive`.
    """

    axis: int
    exclusive: bool = False
    reverse: bool = False

    fn: ClassVar[Callable[..., Any]]
    neutral: ClassVar[int]
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The type of the input."""
        _check_axis(self.axis, x[0])
        return (TensorType(x[0].shape, x[0].dtype),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """Floats in double, rounded for each element; integers wrap."""
        data = np.flip(x[0], self.axis) if self.reverse else x[0]
        if self.exclusive:
            first = np.full_like(
                data.take([0], self.axis) if data.shape[self.axis] else data,
                self.neutral,
            )
            data = np.concatenate(
                [first, data.take(range(data.shape[self.axis] - 1), self.axis)],
                self.axis,
            )
        dtype = np.float64 if data.dtype.kind == "f" else data.dtype
        with np.errstate(all="ignore"):
            y = type(self).fn(data, axis=self.axis, dtype=dtype).astype(yt[0].np_dtype)
        return [np.ascontiguousarray(np.flip(y, self.axis) if self.reverse else y)]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef:
        """The axis moves along."""
        return type(self)(perm.index(self.axis), self.exclusive, self.reverse)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """A constant axis."""
        x = node.input(0)
        axis = node.const(1)
        assert axis is not None
        spec = cls(
            axis_of(int(axis.reshape(-1)[0]), x.type.rank),
            bool(node.attrs.get("exclusive", 0)),
            bool(node.attrs.get("reverse", 0)),
        )
        return node.build.add(spec, [x], node.name)

    def c(self, op: Op) -> KernelCall:
        """ek_<kind>_<type>."""
        x = op.inputs[0].type
        sizes = Struct(
            "ek_scan_t",
            outer=prod(x.shape[: self.axis]),
            n=x.shape[self.axis],
            inner=prod(x.shape[self.axis + 1 :]),
            exclusive=self.exclusive,
            reverse=self.reverse,
        )
        return KernelCall.of(
            f"ek_{self.kind}_{plain_suffix(x)}", op.inputs[0], op.output, sizes
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Every direction, and every type."""
        for i, spec in enumerate(
            (cls(0), cls(1, True), cls(2, False, True), cls(1, True, True))
        ):
            yield Sample(spec, (Arg(TensorType((3, 4, 5))),), label=f"{i}")
        for dtype in INTEGERS:
            yield Sample(cls(1), (Arg(TensorType((2, 6, 3), dtype)),), label=dtype)


@dataclass(frozen=True)
class CumSum(_Cumulative):
    """The running sum."""

    kind = "cum_sum"
    onnx = ("CumSum",)
    tflite = ("CUMSUM",)
    fn = staticmethod(np.cumsum)
    neutral = 0

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """A constant axis."""
        x = op.input(0)
        o = op.options
        spec = cls(
            axis_of(int(op.const(1).reshape(-1)[0]), x.type.rank),
            bool(o.exclusive),
            bool(o.reverse),
        )
        op.build.write(spec, [x], op.outputs)


@dataclass(frozen=True)
class CumProd(_Cumulative):
    """The running product."""

    kind = "cum_prod"
    onnx = ("CumProd",)
    fn = staticmethod(np.cumprod)
    neutral = 1


@dataclass(frozen=True)
class TopK(OpDef):
    """The k largest (or smallest) elements along an axis in order, and where they were;
    of equal ones the first.
    """

    k: int
    axis: int = -1
    largest: bool = True

    kind = "topk"
    onnx = ("TopK",)
    tflite = ("TOPK_V2",)
    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Values and int64 indices."""
        _check_axis(self.axis, x[0])
        if not 0 <= self.k <= x[0].shape[self.axis]:
            raise ValueError(f"the first {self.k} of axis {self.axis} of {x[0]}")
        shape = tuple(self.k if i == self.axis else d for i, d in enumerate(x[0].shape))
        return (TensorType(shape, x[0].dtype, x[0].quant), TensorType(shape, "int64"))

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """A stable sort; what is not a number comes last."""
        if x[0].dtype.kind == "f":
            key = x[0]
        else:
            key = x[0].astype(np.uint64 if x[0].dtype.kind == "u" else np.int64)
        if self.largest:
            # bitwise not reverses the order of integers
            key = -key if x[0].dtype.kind == "f" else ~key
        order = np.argsort(key, axis=self.axis, kind="stable").take(
            range(self.k), self.axis
        )
        return [np.take_along_axis(x[0], order, self.axis), order.astype(np.int64)]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef:
        """The axis moves along."""
        return TopK(self.k, perm.index(self.axis), self.largest)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> list[Value]:
        """k is an attribute before opset 10, a constant from there on.

        Unsorted ones come sorted.
        """
        x = node.input(0)
        node.attrs.ignore("sorted")
        k = node.attrs["k"] if node.opset < 10 else np.asarray(node.const(1)).item()
        spec = cls(
            int(k),
            axis_of(node.attrs.get("axis", -1), x.type.rank),
            bool(node.attrs.get("largest", 1)),
        )
        return node.build.add_multi(spec, [x], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Of the last axis; k is constant, and the declared output has the indices'
        type.
        """
        x, (values, indices) = op.input(0), op.outputs
        spec = cls(int(op.const(1).reshape(-1)[0]), x.type.rank - 1)
        wide = op.build.value(f"{indices.name}_s64", spec.infer(x.type)[1])
        op.build.write(spec, [x], [values, wide])
        op.build.write(Cast(indices.type.dtype), [wide], [indices])

    def c(self, op: Op) -> KernelCall:
        """ek_topk_<type>."""
        x = op.inputs[0].type
        sizes = Struct(
            "ek_topk_t",
            outer=prod(x.shape[: self.axis]),
            n=x.shape[self.axis],
            inner=prod(x.shape[self.axis + 1 :]),
            k=self.k,
            largest=self.largest,
        )
        name = suffix(x) if x.is_quantized else plain_suffix(x)
        return KernelCall.of(f"ek_topk_{name}", op.inputs[0], *op.outputs, sizes)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Ends, all, none; every type, with equal elements among integers of 8 bits."""
        for i, spec in enumerate(
            (cls(3, 1), cls(1, 0, False), cls(6, 2), cls(0, 1), cls(4, 2, False))
        ):
            yield Sample(spec, (Arg(TensorType((3, 5, 6))),), label=f"{i}")
        for dtype in INTEGERS:
            for largest in (True, False):
                t = TensorType((2, 40), dtype)
                yield Sample(cls(9, 1, largest), (Arg(t),), label=f"{dtype}_{largest}")
