"""Scales of int8 binary ops: TFLite's fixed-point multipliers, onnxruntime's factors.

Source: tensorflow/lite/kernels/internal/reference/{add,mul}.h; onnxruntime's
QLinearAdd and QLinearMul.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgec.ir import Array, Op, Rounding, TensorType
from edgec.ir.c_structs import FixedPointSumParams
from edgec.ops import edgetpu_law
from edgec.ops.fixed_point import quantize_multiplier


@dataclass(frozen=True)
class Linear:
    """A linear function of two int8 elements: (a * u + (b * v + rest)) * scale.

    onnxruntime's vector kernels add quantized tensors so, in float32 steps of fused
    multiply-adds, with a scale of 1; the Edge TPU has integers for a, b and rest, whose
    sums are exact. The result is in units of the output.

    Attributes:
        a, b: factors of the elements
        rest: the constant
        shift: added to the elements first, and taken from the rounded result: 128 for
            tensors that were uint8 in the file
        scale: of the sum
    """

    a: float
    b: float
    rest: float
    shift: int
    scale: float = 1.0

    @classmethod
    def of_scales(
        cls,
        a: TensorType,
        b: TensorType,
        y: TensorType,
        sign: int,
        shift: int,
    ) -> Linear:
        """Return a function that computes a + sign * b in int8, for these scales.

        `rest` is zero_y - (scale_a zero_a + sign scale_b zero_b) / scale_y, rounded as
        fused multiply-adds round it.
        """
        a_ratio = np.float32(np.float32(a.scale) / np.float32(y.scale))
        b_ratio = np.float32(np.float32(b.scale) / np.float32(y.scale))
        a_zero = np.float32(a.zero_point + shift)
        b_zero = np.float32(b.zero_point + shift)
        y_zero = np.float32(y.zero_point + shift)

        # A product in double is exact, so that its sum is rounded once.
        b_offset = np.float64(np.float32(b_ratio * b_zero))
        a_offset = np.float64(a_ratio) * np.float64(a_zero)
        offset = np.float32(a_offset + sign * b_offset)
        rest = float(np.float32(y_zero - offset))

        return cls(float(a_ratio), sign * float(b_ratio), rest, shift)

    @classmethod
    def on_edgetpu(cls, a: TensorType, b: TensorType, y: TensorType) -> Linear:
        """Return the function that computes a + b in int8 as the Edge TPU does."""
        a_weight, b_weight = edgetpu_law.addition_weights(a.scale, b.scale)
        # The output's zero point is added after rounding.
        shift = -y.zero_point
        a_rest = a_weight * (a.zero_point + shift)
        b_rest = b_weight * (b.zero_point + shift)
        scale = edgetpu_law.addition_multiplier(a.scale, b.scale, y.scale)
        rest = float(-a_rest - b_rest)
        return cls(float(a_weight), float(b_weight), rest, shift, scale)

    def of(self, u: Array, v: Array) -> Array:
        """Return the function of int8 elements u and v in float32.

        The result still has `shift` in it.
        """
        u_file = (u + self.shift).astype(np.float64)
        v_file = (v + self.shift).astype(np.float64)

        # Each fused multiply-add rounds once, as its double is exact.
        inner = (self.b * v_file + self.rest).astype(np.float32)
        outer = (self.a * u_file + inner).astype(np.float32)

        return np.asarray(outer * np.float32(self.scale))


def fits_litert(op: Op, scales: Callable[..., list[tuple[int, int]]]) -> bool:
    """Return whether the result's multiplier is below one.

    Where it is not, LiteRT ends its process or wraps differences. scales: a function of
    the types of the operands and the output that returns the multipliers, the result's
    last.
    """
    y = op.output.type
    if not y.is_quantized:
        return True

    # The shift of a multiplier below one is not positive.
    multipliers = scales(*(v.type for v in op.inputs), y)
    _, shift = multipliers[-1]

    return shift <= 0


def scaled_struct(
    scales: Sequence[tuple[int, int]],
    types: Sequence[TensorType],
    clamp: tuple[int, int],
) -> FixedPointSumParams:
    """Return ek_fixed_point_sum_t: zero points, clamp range and three fixed-point multipliers.

    scales: (multiplier, shift) of both inputs and of the result. types: of both inputs
    and of the output. clamp: (lowest, highest) element.
    """
    a_scale, b_scale, y_scale = scales
    a, b, y = types
    low, high = clamp

    return FixedPointSumParams(
        a_zero=a.zero_point,
        b_zero=b.zero_point,
        y_zero=y.zero_point,
        low=low,
        high=high,
        a_mul=a_scale[0],
        a_shift=a_scale[1],
        b_mul=b_scale[0],
        b_shift=b_scale[1],
        y_mul=y_scale[0],
        y_shift=y_scale[1],
    )


def product_multiplier(a: TensorType, b: TensorType, y: TensorType) -> tuple[int, int]:
    """Return the (multiplier, shift) of a product: scale_a * scale_b / scale_y.

    TFLite multiplies and divides the scales in float32.
    """
    return quantize_multiplier(float(even_factor(a, b, y)))


def even_factor(
    a: TensorType,
    b: TensorType,
    y: TensorType,
    rounding: Rounding = Rounding.TFLITE,
) -> np.float32:
    """Return scale_a * scale_b / scale_y in float32 steps, at most float32's largest.

    The factor takes a product of centred elements to steps of the output. The Edge TPU
    multiplies by the last scale's reciprocal.
    """
    if rounding.is_edgetpu:
        return np.float32(edgetpu_law.multiplier(a.scale, b.scale, y.scale))
    with np.errstate(over="ignore"):
        # Damaged scales may overflow.
        product = np.float32(a.scale) * np.float32(b.scale)
        factor = np.float32(product / np.float32(y.scale))
    return min(factor, np.finfo(np.float32).max)


def product_shift(y: TensorType, rounding: Rounding) -> int:
    """Return what is added to the output's zero point before a product in float32 is
    rounded, and taken from the result.
    """
    return -y.zero_point if rounding.is_edgetpu else rounding.offset
