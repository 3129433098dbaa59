"""Operators of integers' bits, and predicates of floats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgec.ir import Array, OnnxNode, QuantRule, Sample, TensorType, Value
from edgec.ir.opdef import Arg
from edgec.ops.binary import Binary
from edgec.ops.common import INTEGERS
from edgec.ops.unary import Unary


@dataclass(frozen=True)
class _OfIntegers(Binary):
    """Of plain integers alone."""

    options: ClassVar[str] = ""
    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    sampled: ClassVar[tuple[str, ...]] = INTEGERS

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The type of both."""
        if x[0].dtype not in self.sampled:
            raise ValueError(f"{self.kind} takes {', '.join(self.sampled)}, not {x[0]}")
        return super().infer(*x)


@dataclass(frozen=True)
class BitwiseAnd(_OfIntegers):
    """The bits that both have."""

    kind = "bitwise_and"
    onnx = ("BitwiseAnd",)
    fn = staticmethod(np.bitwise_and)


@dataclass(frozen=True)
class BitwiseOr(_OfIntegers):
    """The bits that either has."""

    kind = "bitwise_or"
    onnx = ("BitwiseOr",)
    fn = staticmethod(np.bitwise_or)


@dataclass(frozen=True)
class BitwiseXor(_OfIntegers):
    """The bits that one has."""

    kind = "bitwise_xor"
    onnx = ("BitwiseXor",)
    tflite = ("BITWISE_XOR",)
    tflite_types: ClassVar[tuple[str, ...]] = ()
    fn = staticmethod(np.bitwise_xor)


def _shifted(a: Array, b: Array, shift: Any) -> Array:
    """By as many bits as there are, or more, or by fewer than none: as numpy does, only
    the sign is left.
    """
    bits = 8 * a.dtype.itemsize
    inside = (b >= 0) & (b < bits)
    # int64 and uint64 would be float64
    beyond = np.where((a < 0) & (shift is np.right_shift), -1, 0).astype(a.dtype)
    return np.where(inside, shift(a, np.where(inside, b, 0).astype(a.dtype)), beyond)


@dataclass(frozen=True)
class ShiftLeft(_OfIntegers):
    """a times 2 to the power b."""

    kind = "shift_left"
    onnx = ("BitShift",)
    fn = staticmethod(lambda a, b: _shifted(a, b, np.left_shift))

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """BitShift says in which direction."""
        spec = {"LEFT": ShiftLeft, "RIGHT": ShiftRight}[node.attrs["direction"]]()
        return node.build.add(spec, [node.input(0), node.input(1)], node.name)


@dataclass(frozen=True)
class ShiftRight(_OfIntegers):
    """a divided by 2 to the power b."""

    kind = "shift_right"
    fn = staticmethod(lambda a, b: _shifted(a, b, np.right_shift))


@dataclass(frozen=True)
class BitwiseNot(Unary):
    """Every bit inverted."""

    kind = "bitwise_not"
    onnx = ("BitwiseNot",)
    fn = staticmethod(np.invert)
    quant: ClassVar[QuantRule] = QuantRule.FLOAT

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Every integer type."""
        for dtype in INTEGERS:
            yield Sample(cls(), (Arg(TensorType((3, 5), dtype)),), label=dtype)


@dataclass(frozen=True)
class _Predicate(Unary):
    """A bool for each float."""

    quant: ClassVar[QuantRule] = QuantRule.FLOAT

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """bool."""
        if x[0].dtype != "float32":
            raise ValueError(f"{self.kind} takes floats, not {x[0]}")
        return (TensorType(x[0].shape, "bool"),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Numbers, infinities, not-a-number."""
        data = np.array([1.0, np.nan, np.inf, -np.inf, 0.0], np.float32)
        for i, spec in enumerate(cls.variants()):
            yield Sample(
                spec, (Arg(TensorType(data.shape), True, data),), label=f"{i}_special"
            )
            yield Sample(spec, (Arg(TensorType((3, 5))),), label=f"{i}")


@dataclass(frozen=True)
class IsNan(_Predicate):
    """Whether it is not a number."""

    kind = "is_nan"
    onnx = ("IsNaN",)
    fn = staticmethod(np.isnan)


@dataclass(frozen=True)
class IsInf(_Predicate):
    """Whether it is infinite, in the directions that count."""

    positive: bool = True
    negative: bool = True

    kind = "is_inf"
    onnx = ("IsInf",)
    fn = staticmethod(
        lambda x, positive, negative: (
            (positive & np.isposinf(x)) | (negative & np.isneginf(x))
        )
    )

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Both directions unless told otherwise."""
        given = (
            bool(node.attrs.get(f"detect_{name}", 1))
            for name in ("positive", "negative")
        )
        return node.build.add(cls(*given), [node.input(0)], node.name)

    def coefficients(self) -> tuple[float, ...]:
        """As numbers."""
        return (float(self.positive), float(self.negative))

    @classmethod
    def variants(cls) -> Iterator[Unary]:
        """Both, one, none."""
        yield from (cls(), cls(True, False), cls(False, True), cls(False, False))
