"""More elementwise ops of two inputs: extrema, powers, squared differences, quotients.

Semantics: the ONNX and TFLite operators of the same names. int8 follows TFLite's
reference kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    Builder,
    CStruct,
    OnnxNode,
    Op,
    QuantRule,
    TensorType,
    TfliteCode,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ops.binary import Binary
from edgec.ops.binary_scales import fits_litert, scaled_struct
from edgec.ops.broadcast import aligned
from edgec.ops.cast import Cast
from edgec.ops.common import ARITHMETIC_KERNELS, NUMBER_KERNELS, real_types
from edgec.ops.division import Division
from edgec.ops.elementwise_kernels import binary_kernels
from edgec.ops.fixed_point import multiply_by_quantized_multiplier, quantize_multiplier

SQUARE_HEADROOM = 7
"""Bits by which TFLite's squared difference shifts both inputs to the left."""


@dataclass(frozen=True)
class _Extremum(Binary):
    """The larger or smaller of two.

    int8 compares the integers, so that all scales must be one.
    """

    options: ClassVar[str] = "MaximumMinimumOptions"
    quant: ClassVar[QuantRule] = QuantRule.SAME
    edgetpu: ClassVar[bool] = True

    def ref_s8(
        self,
        a: Array,
        b: Array,
        at: TensorType,
        bt: TensorType,
        yt: TensorType,
    ) -> Array:
        """Compare the integers (reference/maximum_minimum.h of TFLite)."""
        return np.asarray(type(self).fn(a, b))

    @edgetpu_rule(fix="quantize both operands and the result to one scale")
    def _one_scale(self, op: Op) -> str | None:
        """MAXIMUM and MINIMUM: the operands and the result must have one scale and zero
        point.
        """
        quants = {value.type.quant for value in (*op.inputs, op.output)}
        if len(quants) > 1:
            return f"{len(quants)} different scales"

        return None


@dataclass(frozen=True)
class Maximum(_Extremum):
    """y = max(a, b)."""

    kind = "maximum"
    kernels = binary_kernels("maximum", (*ARITHMETIC_KERNELS, "s8"))
    onnx = ("Max",)
    tflite = ("MAXIMUM",)
    edgetpu_versions = {"MAXIMUM": Versions(2)}
    fn = staticmethod(np.maximum)


@dataclass(frozen=True)
class Minimum(_Extremum):
    """y = min(a, b)."""

    kind = "minimum"
    kernels = binary_kernels("minimum", (*ARITHMETIC_KERNELS, "s8"))
    onnx = ("Min",)
    tflite = ("MINIMUM",)
    edgetpu_versions = {"MINIMUM": Versions(2)}
    fn = staticmethod(np.minimum)


@dataclass(frozen=True)
class SquaredDifference(Binary):
    """y = (a - b)²."""

    kind = "squared_difference"
    kernels = binary_kernels("squared_difference", (*ARITHMETIC_KERNELS, "s8"))
    edgetpu: ClassVar[bool] = True
    tflite = ("SQUARED_DIFFERENCE",)
    edgetpu_versions = {"SQUARED_DIFFERENCE": Versions(2)}
    options = "SquaredDifferenceOptions"
    tflite_types: ClassVar[tuple[str, ...]] = ("float32", "int8", "int32")
    fn = staticmethod(lambda a, b: np.square(a - b))

    def _scales(
        self,
        a: TensorType,
        b: TensorType,
        y: TensorType,
    ) -> list[tuple[int, int]]:
        """Return the fixed-point multipliers of a, of b and of the result.

        They are scale_a / s, scale_b / s and s² / (2^14 scale_y), s twice the larger
        input scale.
        """
        twice = 2.0 * max(a.scale, b.scale)

        # A square of differences is in units of the square of the scale.
        result = twice * twice / ((1 << (2 * SQUARE_HEADROOM)) * y.scale)
        reals = (a.scale / twice, b.scale / twice, result)

        return [quantize_multiplier(real) for real in reals]

    def ref_s8(
        self,
        a: Array,
        b: Array,
        at: TensorType,
        bt: TensorType,
        yt: TensorType,
    ) -> Array:
        """Compute the difference at a common scale, and its square, in fixed point.

        Source: tensorflow/lite/kernels/squared_difference.cc.
        """
        a_multiplier, b_multiplier, y_multiplier = self._scales(at, bt, yt)
        a_steps = (a - at.zero_point) << SQUARE_HEADROOM
        b_steps = (b - bt.zero_point) << SQUARE_HEADROOM
        left = multiply_by_quantized_multiplier(a_steps, *a_multiplier)
        right = multiply_by_quantized_multiplier(b_steps, *b_multiplier)

        squared = np.square(left - right)
        scaled: Array = multiply_by_quantized_multiplier(squared, *y_multiplier)
        result: Array = scaled + np.int32(yt.zero_point)

        return result

    def c_requant(self, a: TensorType, b: TensorType, y: TensorType) -> CStruct:
        """Return ek_fixed_point_sum_t."""
        return scaled_struct(self._scales(a, b, y), (a, b, y), self.clamp(y))

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return the operator; None when LiteRT cannot hold the result's multiplier."""
        return super().to_tflite(op) if fits_litert(op, self._scales) else None


def _power(a: Array, b: Array) -> Array:
    """Return a^b; integers by way of double, cut off towards zero as onnxruntime does.

    An integer power that does not fit becomes 0.
    """
    if a.dtype.kind == "f":
        return np.asarray(np.power(a, b))

    # onnxruntime computes integer powers in double.
    power = np.power(a.astype(np.float64), b.astype(np.float64))
    whole = np.trunc(power)

    # The largest int64 is no double, the number after it is.
    info = np.iinfo(a.dtype)
    is_inside = (whole >= info.min) & (whole < float(info.max) + 1)
    integers = np.where(is_inside, whole, 0).astype(a.dtype)

    return np.where(is_inside, integers, 0)


@dataclass(frozen=True)
class Pow(Binary):
    """y = a^b, in floats or plain integers."""

    kind = "pow"
    kernels = binary_kernels("pow", NUMBER_KERNELS)
    onnx = ("Pow",)
    tflite = ("POW",)
    options = "PowOptions"
    tflite_types: ClassVar[tuple[str, ...]] = ("float32",)
    fn = staticmethod(_power)
    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    sampled: ClassVar[tuple[str, ...]] = ("float32",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value | list[Value]:
        """Read Pow, whose exponent may have another type than the base.

        A constant exponent takes the type of the base when its values allow it;
        otherwise both are computed as floats.
        """
        b = node.build
        x = node.input(0)
        y = node.input(1)

        # The result has the type of the base.
        dtype = x.type.dtype
        if y.const is not None and _is_exact(y.const, dtype):
            if y.type.dtype != dtype:
                y = b.const(y.const.astype(dtype), y.name)
        elif y.type.dtype != dtype:
            x = _as_float(b, x)
            y = _as_float(b, y)

        z = b.add(cls(), aligned(b, [x, y], node.name), node.name)
        if z.type.dtype == dtype:
            return z

        return b.add(Cast(dtype), [z], node.name)


def _is_exact(exponent: Array, dtype: str) -> bool:
    """Return whether an exponent keeps its values in the type of the base."""
    return dtype == "float32" or bool((exponent == np.trunc(exponent)).all())


def _as_float(b: Builder, x: Value) -> Value:
    """Return `x` as float32.

    A value that is float32 already needs no op.
    """
    if x.type.dtype == "float32":
        return x
    return b.add(Cast("float32"), [x], x.name)


@dataclass(frozen=True)
class Atan2(Binary):
    """The angle of the point (x = b, y = a), in radians."""

    kind = "atan2"
    kernels = binary_kernels("atan2", ("f32",))
    tflite = ("ATAN2",)
    options = "ATan2Options"
    tflite_types: ClassVar[tuple[str, ...]] = ("float32",)
    fn = staticmethod(np.arctan2)
    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    sampled: ClassVar[tuple[str, ...]] = ("float32",)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return float32 of the broadcast shape; raises ValueError for other types."""
        real_types(self, *x, int8=False)
        return super().infer(*x)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return ATAN2, which does not broadcast; None where it would have to."""
        # TFLite's kernel takes equal shapes.
        a, b = op.inputs
        if a.type.shape != b.type.shape:
            return None
        return super().to_tflite(op)


@dataclass(frozen=True)
class FloorDiv(Division):
    """y = floor(a / b)."""

    kind = "floor_div"
    kernels = binary_kernels("floor_div", NUMBER_KERNELS)
    tflite = ("FLOOR_DIV",)
    options = "FloorDivOptions"
    tflite_types: ClassVar[tuple[str, ...]] = ("float32", "int32")
    fn = staticmethod(np.floor_divide)
    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    sampled: ClassVar[tuple[str, ...]] = ("float32",)


@dataclass(frozen=True)
class FloorMod(Division):
    """y = a - b * floor(a / b), with the sign of b."""

    kind = "floor_mod"
    kernels = binary_kernels("floor_mod", NUMBER_KERNELS)
    onnx = ("Mod",)
    tflite = ("FLOOR_MOD",)
    options = "FloorModOptions"
    fn = staticmethod(np.mod)
    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    sampled: ClassVar[tuple[str, ...]] = ("float32",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value | list[Value]:
        """Read Mod, which has the sign of a with fmod=1."""
        spec = Remainder() if node.attrs.get("fmod", 0) else cls()
        operands = aligned(node.build, [node.input(0), node.input(1)], node.name)
        return node.build.add(spec, operands, node.name)


def _remainder(a: Array, b: Array) -> Array:
    """Return the remainder with the sign of a; of integers by 0 it is 0.

    This is C's fmod for floats, and C's % for integers.
    """
    if a.dtype.kind == "f":
        return np.asarray(np.fmod(a, b))

    # C leaves the remainder by 0 undefined.
    divisor = np.where(b == 0, b.dtype.type(1), b)
    return np.where(b == 0, 0, np.fmod(a, divisor))


@dataclass(frozen=True)
class Remainder(Division):
    """y = a - b * trunc(a / b), with the sign of a, as C's fmod."""

    kind = "fmod"
    kernels = binary_kernels("fmod", NUMBER_KERNELS)
    options: ClassVar[str] = ""
    fn = staticmethod(_remainder)
    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    sampled: ClassVar[tuple[str, ...]] = ("float32",)
