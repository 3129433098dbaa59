"""The index of the largest or smallest element along an axis.

Semantics: ONNX ArgMax and ArgMin, TFLite ARG_MAX and ARG_MIN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    Kernel,
    KernelCall,
    KernelFamily,
    OnnxNode,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Sample,
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
)
from edgec.ir.c_structs import ArgParams
from edgec.ir.opdef import Arg
from edgec.ops.common import INTEGERS, NUMBER_KERNELS, axis_of, plain_suffix, suffix
from edgec.ops.shape import Reshape

_ARG_TYPES = tuple(
    f"{source}_{index}"
    for source in (*NUMBER_KERNELS, "s8")
    for index in ("s32", "s64")
)

ARG = KernelFamily(Kernel("arg", "ek_arg.h"), _ARG_TYPES)
"""The index of the largest or smallest element of a run."""

_TFLITE_TYPES = {"int32": 2, "int64": 4}
"""TFLite's TensorType of each index type."""
_TFLITE_ELEMENTS = ("float32", "int8", "uint8", "int32", "bool")
"""Element types of TFLite's ARG_MAX and ARG_MIN."""


@dataclass(frozen=True)
class _ArgExtreme(OpDef):
    """The index of an extreme element along an axis, which is dropped.

    Attributes:
        axis: counted from the front
        dtype: element type of the index
        last: whether the last of equal elements counts, not the first
    """

    axis: int
    dtype: str = "int64"
    last: bool = False

    quant: ClassVar[QuantRule] = QuantRule.FREE
    plain_int8: ClassVar[bool] = True
    sign: ClassVar[int]
    """1 for the largest element, -1 for the smallest."""
    options: ClassVar[str]
    """Name of TFLite's options table."""

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the shape without the axis, with the type of the indices.

        Raises ValueError for other index types, and for an axis without elements.
        """
        if self.dtype not in ("int32", "int64"):
            raise ValueError(f"places of type {self.dtype}; edgec has int32 and int64")

        if not 0 <= self.axis < x[0].rank or x[0].shape[self.axis] == 0:
            raise ValueError(f"axis {self.axis} of {x[0]}")

        # The axis is dropped.
        shape = list(x[0].shape)
        del shape[self.axis]

        return (TensorType(tuple(shape), self.dtype),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute numpy.argmax of the elements, with their sign for the smallest.

        int8 elements count as they are, since one scale keeps their order. The
        complement of an integer reverses the order, and does not overflow.
        """
        data = x[0]
        if data.dtype.kind == "f":
            score = self._float_score(self.sign * data)
        else:
            score = data if self.sign > 0 else ~data

        # The last of equal elements is the first of the reversed ones.
        if self.last:
            score = np.flip(score, self.axis)

        place = np.asarray(np.argmax(score, self.axis))
        if self.last:
            place = data.shape[self.axis] - 1 - place

        return [place.astype(self.dtype)]

    def _float_score(self, data: Array) -> Array:
        """Return scores whose maximum is where TFLite finds it.

        An element that is not a number is never larger than another, and if it comes
        first, no other is larger than it.
        """
        is_nan = np.isnan(data)
        numbers = np.where(is_nan, -np.inf, data)
        best = numbers.max(self.axis, keepdims=True)
        is_best = (data == best) & ~is_nan

        starts_with_nan = np.take(is_nan, [0], self.axis)
        places: Array = np.indices(is_nan.shape, sparse=True)[self.axis]

        return np.asarray(np.where(starts_with_nan, places == 0, is_best))

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read the node, whose indices are int64.

        The axis stays with a size of 1 unless keepdims is 0.
        """
        x = node.input(0)
        axis = axis_of(node.attrs.get("axis", 0), x.type.rank)
        is_last = bool(node.attrs.get("select_last_index", 0))

        # The op drops the axis.
        y = node.build.add(cls(axis, last=is_last), [x], node.name)
        if not node.attrs.get("keepdims", 1):
            return y

        shape = list(x.type.shape)
        shape[axis] = 1

        return node.build.add(Reshape(tuple(shape)), [y], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read the operator with a constant axis.

        The declared output has the type of the indices.
        """
        x = op.input(0)
        y = op.outputs[0]
        axis = axis_of(int(op.const(1).reshape(-1)[0]), x.type.rank)
        op.ignore("outputType")
        op.build.write(cls(axis, y.type.dtype), [x], [y])

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return the operator; None for the last of equal elements, and other types.

        Version 2 introduced int8.
        """
        x = op.inputs[0]
        if self.last or x.type.dtype not in _TFLITE_ELEMENTS:
            return None

        # TFLite has the type of the indices as an option.
        options = (self.options, {"outputType": _TFLITE_TYPES[self.dtype]})
        version = 2 if x.type.dtype == "int8" else 1
        axis = np.array(self.axis, np.int32)

        return TfliteCode(self.tflite[0], options, version, (x, axis))

    def c(self, op: Op) -> KernelCall:
        """Return ek_arg_<type>_<index type> from [outer, n, inner] to [outer, inner].

        The kernel walks `n` elements for each of outer * inner places, with a stride of
        inner.
        """
        x = op.inputs[0].type
        y = op.output.type
        dims = ArgParams(
            outer=prod(x.shape[: self.axis]),
            n=x.shape[self.axis],
            inner=prod(x.shape[self.axis + 1 :]),
            sign=self.sign,
            last=self.last,
        )
        kernel = ARG.of(suffix(y), source=plain_suffix(x))

        return KernelCall.of(kernel, op.inputs[0], op.output, dims)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield channels and a middle axis, both index types, first and last elements.

        Each in float, and in int8, which has many equal elements.
        """
        shape = (1, 5, 9, 30)
        types = (
            TensorType(shape),
            TensorType(shape, "int8", Quant.per_tensor(0.1, 3)),
        )
        specs = (
            cls(3, "int64", False),
            cls(1, "int32", False),
            cls(3, "int64", True),
        )
        for spec in specs:
            for x in types:
                label = f"axis{spec.axis}_{spec.dtype}_{spec.last}_{x.dtype}"
                yield Sample(spec, (Arg(x),), label=label)

        for dtype in INTEGERS:
            integers = Arg(TensorType((3, 4, 5), dtype))
            yield Sample(cls(1), (integers,), label=f"plain_{dtype}")


@dataclass(frozen=True)
class ArgMax(_ArgExtreme):
    """The index of the largest element."""

    kind = "arg_max"
    onnx = ("ArgMax",)
    tflite = ("ARG_MAX",)
    options = "ArgMaxOptions"
    sign = 1


@dataclass(frozen=True)
class ArgMin(_ArgExtreme):
    """The index of the smallest element."""

    kind = "arg_min"
    onnx = ("ArgMin",)
    tflite = ("ARG_MIN",)
    options = "ArgMinOptions"
    sign = -1
