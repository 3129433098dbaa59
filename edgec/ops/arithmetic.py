"""More elementwise ops of two inputs: extrema, powers, squared differences, whole
quotients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    OnnxNode,
    Op,
    QuantRule,
    Struct,
    TensorType,
    TfliteCode,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ops.binary import Binary, Division, fits_litert, scaled_struct
from edgec.ops.cast import Cast
from edgec.ops.common import real_types
from edgec.ops.fixed_point import multiply_by_quantized_multiplier, quantize_multiplier

SQUARE_HEADROOM = 7  # bits that TFLite's squared difference gives both inputs


@dataclass(frozen=True)
class _Extremum(Binary):
    """The larger or smaller of two; int8 compares the integers, so that all scales must
    be one.
    """

    options: ClassVar[str] = "MaximumMinimumOptions"
    quant: ClassVar[QuantRule] = QuantRule.SAME
    edgetpu: ClassVar[bool] = True

    def ref_s8(
        self, a: Array, b: Array, at: TensorType, bt: TensorType, yt: TensorType
    ) -> Array:
        """tensorflow/lite/kernels/internal/reference/maximum_minimum.h."""
        return np.asarray(type(self).fn(a, b))

    @edgetpu_rule(fix="quantize both operands and the result to one scale")
    def _one_scale(self, op: Op) -> str | None:
        """MAXIMUM and MINIMUM: the operands and the result must have one scale and zero
        point.
        """
        quants = {v.type.quant for v in (*op.inputs, op.output)}
        return f"{len(quants)} different scales" if len(quants) > 1 else None


@dataclass(frozen=True)
class Maximum(_Extremum):
    """The larger."""

    kind = "maximum"
    onnx = ("Max",)
    tflite = ("MAXIMUM",)
    edgetpu_versions = {"MAXIMUM": Versions(2)}
    fn = staticmethod(np.maximum)


@dataclass(frozen=True)
class Minimum(_Extremum):
    """The smaller."""

    kind = "minimum"
    onnx = ("Min",)
    tflite = ("MINIMUM",)
    edgetpu_versions = {"MINIMUM": Versions(2)}
    fn = staticmethod(np.minimum)


@dataclass(frozen=True)
class SquaredDifference(Binary):
    """(a - b)²."""

    kind = "squared_difference"
    edgetpu: ClassVar[bool] = True
    tflite = ("SQUARED_DIFFERENCE",)
    edgetpu_versions = {"SQUARED_DIFFERENCE": Versions(2)}
    options = "SquaredDifferenceOptions"
    tflite_types: ClassVar[tuple[str, ...]] = ("float32", "int8", "int32")
    fn = staticmethod(lambda a, b: np.square(a - b))

    def _scales(
        self, a: TensorType, b: TensorType, y: TensorType
    ) -> list[tuple[int, int]]:
        twice = 2.0 * max(a.scale, b.scale)
        real = (
            a.scale / twice,
            b.scale / twice,
            twice * twice / ((1 << (2 * SQUARE_HEADROOM)) * y.scale),
        )
        return [quantize_multiplier(r) for r in real]

    def ref_s8(
        self, a: Array, b: Array, at: TensorType, bt: TensorType, yt: TensorType
    ) -> Array:
        """tensorflow/lite/kernels/squared_difference.cc."""
        ka, kb, ky = self._scales(at, bt, yt)
        left = multiply_by_quantized_multiplier(
            (a - at.zero_point) << SQUARE_HEADROOM, *ka
        )
        right = multiply_by_quantized_multiplier(
            (b - bt.zero_point) << SQUARE_HEADROOM, *kb
        )
        squared = np.square(left - right)
        result: Array = multiply_by_quantized_multiplier(squared, *ky) + np.int32(
            yt.zero_point
        )
        return result

    def c_requant(self, a: TensorType, b: TensorType, y: TensorType) -> Struct:
        """ek_add_t."""
        return scaled_struct(self._scales(a, b, y), (a, b, y), self.clamp(y))

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """A result's scale that leaves none of the headroom has no form."""
        return super().to_tflite(op) if fits_litert(op, self._scales) else None


def _power(a: Array, b: Array) -> Array:
    """Integers by way of double, cut off towards zero: onnxruntime's way."""
    if a.dtype.kind == "f":
        return np.asarray(np.power(a, b))
    real = np.trunc(np.power(a.astype(np.float64), b.astype(np.float64)))
    info = np.iinfo(a.dtype)
    inside = (real >= info.min) & (real < float(info.max) + 1)
    return np.where(inside, np.where(inside, real, 0).astype(a.dtype), 0)


@dataclass(frozen=True)
class Pow(Binary):
    """a to the power b, in floats."""

    kind = "pow"
    onnx = ("Pow",)
    tflite = ("POW",)
    options = "PowOptions"
    tflite_types: ClassVar[tuple[str, ...]] = ("float32",)
    fn = staticmethod(_power)
    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    sampled: ClassVar[tuple[str, ...]] = ("float32",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value | list[Value]:
        """The exponent may have another type than the base: both are floats then."""
        b = node.build
        x = node.input(0)
        y = node.input(1)
        given = x.type.dtype
        if y.const is not None and (
            given == "float32" or (y.const == np.trunc(y.const)).all()
        ):
            y = y if y.type.dtype == given else b.const(y.const.astype(given), y.name)
        elif y.type.dtype != given:
            x, y = (
                v if v.type.dtype == "float32" else b.add(Cast("float32"), [v], v.name)
                for v in (x, y)
            )
        z = b.add(cls(), [x, y], node.name)
        return z if z.type.dtype == given else b.add(Cast(given), [z], node.name)


@dataclass(frozen=True)
class Atan2(Binary):
    """The angle of the point (b, a), in radians."""

    kind = "atan2"
    tflite = ("ATAN2",)
    options = "ATan2Options"
    tflite_types: ClassVar[tuple[str, ...]] = ("float32",)
    fn = staticmethod(np.arctan2)
    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    sampled: ClassVar[tuple[str, ...]] = ("float32",)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """float32."""
        real_types(self, *x, int8=False)
        return super().infer(*x)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """ATAN2 does not broadcast."""
        a, b = op.inputs
        return super().to_tflite(op) if a.type.shape == b.type.shape else None


@dataclass(frozen=True)
class FloorDiv(Division):
    """The largest whole number not above a / b."""

    kind = "floor_div"
    tflite = ("FLOOR_DIV",)
    options = "FloorDivOptions"
    tflite_types: ClassVar[tuple[str, ...]] = ("float32", "int32")
    fn = staticmethod(np.floor_divide)
    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    sampled: ClassVar[tuple[str, ...]] = ("float32",)


@dataclass(frozen=True)
class FloorMod(Division):
    """a - b * floor(a / b), with the sign of b."""

    kind = "floor_mod"
    onnx = ("Mod",)
    tflite = ("FLOOR_MOD",)
    options = "FloorModOptions"
    fn = staticmethod(np.mod)
    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    sampled: ClassVar[tuple[str, ...]] = ("float32",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value | list[Value]:
        """fmod=1 takes the sign of a."""
        spec = Remainder() if node.attrs.get("fmod", 0) else cls()
        return node.build.add(spec, [node.input(0), node.input(1)], node.name)


def _remainder(a: Array, b: Array) -> Array:
    """Of integers by 0: 0."""
    if a.dtype.kind == "f":
        return np.asarray(np.fmod(a, b))
    return np.where(b == 0, 0, np.fmod(a, np.where(b == 0, b.dtype.type(1), b)))


@dataclass(frozen=True)
class Remainder(Division):
    """a - b * trunc(a / b), with the sign of a, as C has it."""

    kind = "fmod"
    options: ClassVar[str] = ""
    fn = staticmethod(_remainder)
    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    sampled: ClassVar[tuple[str, ...]] = ("float32",)
