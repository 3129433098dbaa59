"""Running sums and products along an axis, and the largest or smallest elements.

Semantics: ONNX CumSum, CumProd and TopK; TFLite CUMSUM and TOPK_V2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from edgec.ir import (
    Array,
    Kernel,
    KernelCall,
    KernelFamily,
    OnnxNode,
    Op,
    OpDef,
    QuantRule,
    Sample,
    TensorType,
    TfliteOp,
    Value,
)
from edgec.ir.c_structs import ScanParams, TopkParams
from edgec.ir.opdef import Arg
from edgec.ops.cast import Cast
from edgec.ops.common import INTEGERS, NUMBER_KERNELS, axis_of, plain_suffix, suffix

_TOPK = KernelFamily(Kernel("topk", "ek_scan.h"), (*NUMBER_KERNELS, "s8"))


def _check_axis(axis: int, x: TensorType) -> None:
    """Raise ValueError unless the tensor has the axis."""
    if not 0 <= axis < x.rank:
        raise ValueError(f"axis {axis} of {x}")


@dataclass(frozen=True)
class _Cumulative(OpDef):
    """Each element combined with all elements before it along an axis.

    Attributes:
        axis: counted from the front
        exclusive: whether the element itself is left out
        reverse: whether it is combined with the elements after it
    """

    axis: int
    exclusive: bool = False
    reverse: bool = False

    fn: ClassVar[Callable[..., Any]]
    """numpy's cumulative function."""
    neutral: ClassVar[int]
    """The result of no elements."""
    kernels: ClassVar[KernelFamily]
    """The plain kernels, by the element type."""
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the shape and element type of x."""
        _check_axis(self.axis, x[0])
        return (TensorType(x[0].shape, x[0].dtype),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute floats in double, rounded for each element; integers wrap.

        A reversed run is the run of the flipped elements.
        """
        data = np.flip(x[0], self.axis) if self.reverse else x[0]
        if self.exclusive:
            data = self._shifted(data)

        dtype = np.float64 if data.dtype.kind == "f" else data.dtype
        with np.errstate(all="ignore"):
            y = type(self).fn(data, axis=self.axis, dtype=dtype)
            y = y.astype(yt[0].np_dtype)

        if self.reverse:
            y = np.flip(y, self.axis)

        return [np.ascontiguousarray(y)]

    def _shifted(self, data: Array) -> Array:
        """Return the data moved one step along the axis, behind a neutral element.

        The last element falls off.
        """
        size = data.shape[self.axis]

        # An empty axis has no first element.
        first = data.take([0], self.axis) if size else data
        neutral = np.full_like(first, self.neutral)
        others = data.take(range(size - 1), self.axis)

        return np.concatenate([neutral, others], self.axis)

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef:
        """Return the op along the permuted axis."""
        axis = perm.index(self.axis)
        return type(self)(axis, self.exclusive, self.reverse)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read the node, whose axis is a constant input.

        Its attributes are 0 by default: forwards, with the element itself.
        """
        x = node.input(0)
        axis = node.const(1)
        assert axis is not None
        spec = cls(
            axis=axis_of(int(axis.reshape(-1)[0]), x.type.rank),
            exclusive=bool(node.attrs.get("exclusive", 0)),
            reverse=bool(node.attrs.get("reverse", 0)),
        )

        return node.build.add(spec, [x], node.name)

    def c(self, op: Op) -> KernelCall:
        """Return ek_<kind>_<type> over [outer, n, inner].

        Each of outer * inner places is a run of `n` elements.
        """
        x = op.inputs[0].type
        spec = ScanParams(
            outer=prod(x.shape[: self.axis]),
            n=x.shape[self.axis],
            inner=prod(x.shape[self.axis + 1 :]),
            exclusive=self.exclusive,
            reverse=self.reverse,
        )
        kernel = self.kernels.of(plain_suffix(x))

        return KernelCall.of(kernel, op.inputs[0], op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield every direction and every element type."""
        specs = (cls(0), cls(1, True), cls(2, False, True), cls(1, True, True))
        for i, spec in enumerate(specs):
            yield Sample(spec, (Arg(TensorType((3, 4, 5))),), label=f"{i}")

        for dtype in INTEGERS:
            integers = Arg(TensorType((2, 6, 3), dtype))
            yield Sample(cls(1), (integers,), label=dtype)


@dataclass(frozen=True)
class CumSum(_Cumulative):
    """The running sum: y[i] = Σ x[j] over j <= i."""

    kind = "cum_sum"
    kernels = KernelFamily(Kernel("cum_sum", "ek_scan.h"), NUMBER_KERNELS)
    onnx = ("CumSum",)
    tflite = ("CUMSUM",)
    fn = staticmethod(np.cumsum)
    neutral = 0

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read CUMSUM, whose axis is a constant input.

        Both flags are options.
        """
        x = op.input(0)
        axis = int(op.const(1).reshape(-1)[0])
        spec = cls(
            axis=axis_of(axis, x.type.rank),
            exclusive=bool(op.options.exclusive),
            reverse=bool(op.options.reverse),
        )
        op.build.write(spec, [x], op.outputs)


@dataclass(frozen=True)
class CumProd(_Cumulative):
    """The running product: y[i] = Π x[j] over j <= i."""

    kind = "cum_prod"
    kernels = KernelFamily(Kernel("cum_prod", "ek_scan.h"), NUMBER_KERNELS)
    onnx = ("CumProd",)
    fn = staticmethod(np.cumprod)
    neutral = 1


@dataclass(frozen=True)
class TopK(OpDef):
    """The k largest or smallest elements along an axis in order, and their indices.

    Of equal elements the first comes first. NaN is larger than all numbers.

    Attributes:
        k: number of elements
        largest: whether they are the largest
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
        """Return the types of the values and of their int64 indices.

        Raises ValueError when the axis has fewer than k elements.
        """
        _check_axis(self.axis, x[0])
        if not 0 <= self.k <= x[0].shape[self.axis]:
            raise ValueError(f"the first {self.k} of axis {self.axis} of {x[0]}")

        shape = list(x[0].shape)
        shape[self.axis] = self.k
        values = TensorType(tuple(shape), x[0].dtype, x[0].quant)

        return (values, TensorType(tuple(shape), "int64"))

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute a stable sort, with NaN above all numbers as onnxruntime has it."""
        data = x[0]
        key = data
        if data.dtype.kind != "f":
            key = data.astype(np.uint64 if data.dtype.kind == "u" else np.int64)

        if self.largest:
            # Negation would overflow; the bitwise not reverses the order of integers.
            key = -key if data.dtype.kind == "f" else ~key

        # A stable sort keeps the first of equal elements first.
        is_number = data == data
        order = np.lexsort((key, is_number == self.largest), self.axis)
        first = order.take(range(self.k), self.axis)
        values = np.take_along_axis(data, first, self.axis)

        return [values, first.astype(np.int64)]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef:
        """Return the op along the permuted axis."""
        return TopK(self.k, perm.index(self.axis), self.largest)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> list[Value]:
        """Read TopK; unsorted results come sorted.

        k is an attribute before opset 10, a constant input from there on.
        """
        x = node.input(0)
        node.attrs.ignore("sorted")
        if node.opset < 10:
            k = node.attrs["k"]
        else:
            k = np.asarray(node.const(1)).item()

        spec = cls(
            k=int(k),
            axis=axis_of(node.attrs.get("axis", -1), x.type.rank),
            largest=bool(node.attrs.get("largest", 1)),
        )

        return node.build.add_multi(spec, [x], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read TOPK_V2 along the last axis, with a constant k.

        The declared output has the element type of the indices.
        """
        x = op.input(0)
        values, indices = op.outputs
        spec = cls(int(op.const(1).reshape(-1)[0]), x.type.rank - 1)
        _, index_type = spec.infer(x.type)

        # TFLite's indices are int32, those of the kernel int64.
        wide = op.build.value(f"{indices.name}_s64", index_type)
        op.build.write(spec, [x], [values, wide])
        op.build.write(Cast(indices.type.dtype), [wide], [indices])

    def c(self, op: Op) -> KernelCall:
        """Return ek_topk_<type> over [outer, n, inner].

        The kernel returns the values and their indices.
        """
        x = op.inputs[0].type
        spec = TopkParams(
            outer=prod(x.shape[: self.axis]),
            n=x.shape[self.axis],
            inner=prod(x.shape[self.axis + 1 :]),
            k=self.k,
            largest=self.largest,
        )
        type_name = suffix(x) if x.is_quantized else plain_suffix(x)

        return KernelCall.of(_TOPK.of(type_name), op.inputs[0], *op.outputs, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield some elements, all and none, and every element type.

        Integers of 8 bits have equal elements among them.
        """
        specs = (
            cls(3, 1),
            cls(1, 0, False),
            cls(6, 2),
            cls(0, 1),
            cls(4, 2, False),
        )
        for i, spec in enumerate(specs):
            yield Sample(spec, (Arg(TensorType((3, 5, 6))),), label=f"{i}")

        for dtype in INTEGERS:
            integers = Arg(TensorType((2, 40), dtype))
            for largest in (True, False):
                label = f"{dtype}_{largest}"
                yield Sample(cls(9, 1, largest), (integers,), label=label)
