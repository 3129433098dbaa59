"""The index of the largest or smallest element along an axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

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
)
from edgec.ir.opdef import Arg
from edgec.ops.common import axis_of, suffix
from edgec.ops.shape import Reshape

_TFLITE_TYPES = {"int32": 2, "int64": 4}


@dataclass(frozen=True)
class _ArgExtreme(OpDef):
    """The axis is dropped; of equal elements the first counts, or the last if `last`."""

    axis: int
    dtype: str = "int64"
    last: bool = False

    quant: ClassVar[QuantRule] = QuantRule.FREE
    sign: ClassVar[int]
    options: ClassVar[str]

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The shape without the axis."""
        if self.dtype not in ("int32", "int64"):
            raise ValueError(f"places of type {self.dtype}; edgec has int32 and int64")
        if not 0 <= self.axis < x[0].rank or x[0].shape[self.axis] == 0:
            raise ValueError(f"axis {self.axis} of {x[0]}")
        return (
            TensorType(
                x[0].shape[: self.axis] + x[0].shape[self.axis + 1 :], self.dtype
            ),
        )

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """numpy.argmax, on integers as they are.

        As with TFLite, what is not a number is never larger than another, and if it
        comes first, nothing is larger than it.
        """
        score = self.sign * (x[0] if x[0].dtype.kind == "f" else x[0].astype(np.int64))
        if score.dtype.kind == "f":
            none = np.isnan(score)
            best = np.where(none, -np.inf, score).max(self.axis, keepdims=True)
            leads = np.take(none, [0], self.axis)
            at_0 = np.indices(none.shape, sparse=True)[self.axis] == 0
            score = np.where(leads, at_0, (score == best) & ~none)
        score = np.flip(score, self.axis) if self.last else score
        found = np.asarray(np.argmax(score, self.axis))
        return [
            (x[0].shape[self.axis] - 1 - found if self.last else found).astype(
                self.dtype
            )
        ]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """int64; the axis is kept as 1 unless keepdims is 0."""
        x = node.input(0)
        axis = axis_of(node.attrs.get("axis", 0), x.type.rank)
        y = node.build.add(
            cls(axis, last=bool(node.attrs.get("select_last_index", 0))), [x], node.name
        )
        if not node.attrs.get("keepdims", 1):
            return y
        return node.build.add(
            Reshape((*x.type.shape[:axis], 1, *x.type.shape[axis + 1 :])),
            [y],
            node.name,
        )

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """A constant axis; the declared output has the type."""
        x = op.input(0)
        y = op.outputs[0]
        axis = axis_of(int(op.const(1).reshape(-1)[0]), x.type.rank)
        op.ignore("outputType")
        op.build.write(cls(axis, y.type.dtype), [x], [y])

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Version 2 is int8; TFLite always takes the first."""
        if self.last:
            return None
        options = (self.options, {"outputType": _TFLITE_TYPES[self.dtype]})
        version = 2 if op.inputs[0].type.dtype == "int8" else 1
        return TfliteCode(
            self.tflite[0],
            options,
            version,
            (op.inputs[0], np.array(self.axis, np.int32)),
        )

    def c(self, op: Op) -> KernelCall:
        """[outer, n, inner] to [outer, inner]."""
        x = op.inputs[0].type
        y = op.output.type
        dims = Struct(
            "ek_arg_t",
            outer=prod(x.shape[: self.axis]),
            n=x.shape[self.axis],
            inner=prod(x.shape[self.axis + 1 :]),
            sign=self.sign,
            last=self.last,
        )
        return KernelCall.of(
            f"ek_arg_{suffix(x)}_{suffix(y)}", op.inputs[0], op.output, dims
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Channels and a middle axis; float and int8 (with many equal elements); both
        index types.
        """
        s8 = TensorType((1, 5, 9, 30), "int8", Quant.per_tensor(0.1, 3))
        for axis, dtype, last in (
            (3, "int64", False),
            (1, "int32", False),
            (3, "int64", True),
        ):
            for t in (TensorType(s8.shape), s8):
                yield Sample(
                    cls(axis, dtype, last),
                    (Arg(t),),
                    label=f"axis{axis}_{dtype}_{last}_{t.dtype}",
                )


@dataclass(frozen=True)
class ArgMax(_ArgExtreme):
    """The largest."""

    kind = "arg_max"
    onnx = ("ArgMax",)
    tflite = ("ARG_MAX",)
    options = "ArgMaxOptions"
    sign = 1


@dataclass(frozen=True)
class ArgMin(_ArgExtreme):
    """The smallest."""

    kind = "arg_min"
    onnx = ("ArgMin",)
    tflite = ("ARG_MIN",)
    options = "ArgMinOptions"
    sign = -1
