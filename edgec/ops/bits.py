"""Bitwise operators of integers, and predicates of floats.

Semantics: ONNX BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot, BitShift, IsNaN and
IsInf; TFLite BITWISE_XOR.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgec.ir import Array, OnnxNode, QuantRule, Sample, TensorType, Value
from edgec.ir.opdef import Arg
from edgec.ops.binary import Binary
from edgec.ops.common import INTEGER_KERNELS, INTEGERS
from edgec.ops.elementwise_kernels import binary_kernels, unary_kernels
from edgec.ops.unary import Unary


@dataclass(frozen=True)
class _OfIntegers(Binary):
    """A binary op of plain integers alone."""

    options: ClassVar[str] = ""
    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    sampled: ClassVar[tuple[str, ...]] = INTEGERS

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of both operands.

        Raises ValueError for other element types than integers.
        """
        if x[0].dtype not in self.sampled:
            raise ValueError(f"{self.kind} takes {', '.join(self.sampled)}, not {x[0]}")

        return super().infer(*x)


@dataclass(frozen=True)
class BitwiseAnd(_OfIntegers):
    """a & b."""

    kind = "bitwise_and"
    kernels = binary_kernels("bitwise_and", INTEGER_KERNELS)
    onnx = ("BitwiseAnd",)
    fn = staticmethod(np.bitwise_and)


@dataclass(frozen=True)
class BitwiseOr(_OfIntegers):
    """a | b."""

    kind = "bitwise_or"
    kernels = binary_kernels("bitwise_or", INTEGER_KERNELS)
    onnx = ("BitwiseOr",)
    fn = staticmethod(np.bitwise_or)


@dataclass(frozen=True)
class BitwiseXor(_OfIntegers):
    """a ^ b."""

    kind = "bitwise_xor"
    kernels = binary_kernels("bitwise_xor", INTEGER_KERNELS)
    onnx = ("BitwiseXor",)
    tflite = ("BITWISE_XOR",)
    tflite_types: ClassVar[tuple[str, ...]] = ()
    fn = staticmethod(np.bitwise_xor)


def _shifted(a: Array, b: Array, shift: Any) -> Array:
    """Return `shift(a, b)` by numpy.left_shift or numpy.right_shift.

    By as many bits as the type has, or more, or by a negative number, only the sign is
    left: -1 for a negative number shifted to the right, else 0.
    """
    bits = 8 * a.dtype.itemsize
    is_inside = (b >= 0) & (b < bits)

    # Operands keep their type: numpy would make int64 and uint64 float64.
    is_minus_one = (a < 0) & (shift is np.right_shift)
    beyond = np.where(is_minus_one, -1, 0).astype(a.dtype)

    distance = np.where(is_inside, b, 0).astype(a.dtype)

    return np.where(is_inside, shift(a, distance), beyond)


@dataclass(frozen=True)
class ShiftLeft(_OfIntegers):
    """a * 2^b."""

    kind = "shift_left"
    kernels = binary_kernels("shift_left", INTEGER_KERNELS)
    onnx = ("BitShift",)
    fn = staticmethod(lambda a, b: _shifted(a, b, np.left_shift))

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read BitShift, whose direction is an attribute.

        The direction is LEFT or RIGHT.
        """
        # One operator of ONNX has both directions.
        specs = {"LEFT": ShiftLeft, "RIGHT": ShiftRight}
        spec = specs[node.attrs["direction"]]()
        return node.build.add(spec, [node.input(0), node.input(1)], node.name)


@dataclass(frozen=True)
class ShiftRight(_OfIntegers):
    """a / 2^b, rounded down."""

    kind = "shift_right"
    kernels = binary_kernels("shift_right", INTEGER_KERNELS)
    fn = staticmethod(lambda a, b: _shifted(a, b, np.right_shift))


@dataclass(frozen=True)
class BitwiseNot(Unary):
    """~x: every bit inverted."""

    kind = "bitwise_not"
    kernels = unary_kernels("bitwise_not", INTEGER_KERNELS)
    onnx = ("BitwiseNot",)
    fn = staticmethod(np.invert)
    quant: ClassVar[QuantRule] = QuantRule.FLOAT

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield every integer type."""
        for dtype in INTEGERS:
            yield Sample(cls(), (Arg(TensorType((3, 5), dtype)),), label=dtype)


@dataclass(frozen=True)
class _Predicate(Unary):
    """A bool for each float."""

    quant: ClassVar[QuantRule] = QuantRule.FLOAT

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return bool of the input's shape.

        Raises ValueError for other element types than float32.
        """
        if x[0].dtype != "float32":
            raise ValueError(f"{self.kind} takes floats, not {x[0]}")

        return (TensorType(x[0].shape, "bool"),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield infinities and elements that are not a number, and random floats."""
        data = np.array([1.0, np.nan, np.inf, -np.inf, 0.0], np.float32)

        # Random floats are never special.
        special = Arg(TensorType(data.shape), True, data)
        usual = Arg(TensorType((3, 5)))
        for i, spec in enumerate(cls.variants()):
            yield Sample(spec, (special,), label=f"{i}_special")
            yield Sample(spec, (usual,), label=f"{i}")


@dataclass(frozen=True)
class IsNan(_Predicate):
    """Whether an element is not a number."""

    kind = "is_nan"
    kernels = unary_kernels("is_nan", ("f32",))
    onnx = ("IsNaN",)
    fn = staticmethod(np.isnan)


@dataclass(frozen=True)
class IsInf(_Predicate):
    """Whether an element is infinite.

    Attributes:
        positive, negative: the infinities that count
    """

    positive: bool = True
    negative: bool = True

    kind = "is_inf"
    kernels = unary_kernels("is_inf", ("f32",))
    onnx = ("IsInf",)
    fn = staticmethod(
        lambda x, positive, negative: (
            (positive & np.isposinf(x)) | (negative & np.isneginf(x))
        )
    )

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read IsInf; both infinities count unless an attribute is 0.

        Both attributes are 1 by default.
        """
        spec = cls(
            positive=bool(node.attrs.get("detect_positive", 1)),
            negative=bool(node.attrs.get("detect_negative", 1)),
        )
        return node.build.add(spec, [node.input(0)], node.name)

    def coefficients(self) -> tuple[float, ...]:
        """Return both attributes as numbers."""
        return (float(self.positive), float(self.negative))

    @classmethod
    def variants(cls) -> Iterator[Unary]:
        """Yield both infinities, each alone, and none."""
        yield from (cls(), cls(True, False), cls(False, True), cls(False, False))
