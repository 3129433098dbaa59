"""int8 functions of one int8 number as tables of 256 entries, which is all that such a
function is.

Each maker returns the outputs for the inputs -128 … 127, as TFLite's reference kernels
compute them: some through a table of reals, some in fixed point.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgec.ir import Array, TensorType
from edgec.ops.fixed_point import (
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    round_half_away,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)

Real = Callable[[Array], Array]
INPUTS = np.arange(-128, 128, dtype=np.int32)
_F32 = np.float32


def clamp8(y: Array, low: int = -128, high: int = 127) -> Array:
    """Saturated to a range of int8."""
    return np.clip(y, low, high).astype(np.int8)


def real_table(fn: Real, x: TensorType, y: TensorType) -> Array:
    """round(fn(x) / scale) + zero point in float32 steps, ties away from zero;
    not-a-number becomes the least output.

    `fn` is taken in double and rounded to float32, as a good C library does. Source:
    TFLite's LUTPopulate.
    """
    real = (_F32(x.scale) * (INPUTS - x.zero_point).astype(_F32)).astype(_F32)
    with np.errstate(all="ignore"):
        value = np.asarray(fn(real.astype(np.float64)), np.float64).astype(_F32)
        scaled = round_half_away((value * (_F32(1) / _F32(y.scale))).astype(_F32))
    return clamp8(
        np.nan_to_num(scaled, nan=-1e6, posinf=1e6, neginf=-1e6).astype(np.float64)
        + y.zero_point
    )


def clamp_table(
    low: float | None, high: float | None, x: TensorType, y: TensorType
) -> Array:
    """min(max(x, low), high) on the output's scale; TFLite's QuantizedReluX."""
    multiplier = quantize_multiplier(float(_F32(x.scale) / _F32(y.scale)))
    out = (
        multiply_by_quantized_multiplier(INPUTS - x.zero_point, *multiplier).astype(
            np.int64
        )
        + y.zero_point
    )

    def bound(real: float | None, default: int) -> int:
        if real is None:
            return default
        return int(
            np.clip(
                y.zero_point
                + int(round_half_away(np.array(_F32(real) / _F32(y.scale)))),
                -128,
                127,
            )
        )

    return clamp8(out, bound(low, -128), bound(high, 127))


def leaky_relu_table(alpha: float, x: TensorType, y: TensorType) -> Array:
    """One multiplier for each sign; TFLite's QuantizeLeakyRelu.

    With a negative slope ties go the other way (seen in LiteRT 2.3), as if its
    magnitude were applied and negated.
    """
    centred = INPUTS - x.zero_point
    slope = quantize_multiplier(abs(float(_F32(x.scale) * _F32(alpha) / _F32(y.scale))))
    identity = quantize_multiplier(float(_F32(x.scale) / _F32(y.scale)))
    positive = multiply_by_quantized_multiplier(centred, *identity)
    negative = multiply_by_quantized_multiplier(centred, *slope) * (
        -1 if alpha < 0 else 1
    )
    return clamp8(
        np.where(centred >= 0, positive, negative).astype(np.int64) + y.zero_point
    )


def abs_table(x: TensorType, y: TensorType) -> Array:
    """|x| rescaled; TFLite's AbsEvalQuantized."""
    magnitude = np.abs(INPUTS - x.zero_point)
    if x.scale != y.scale:
        multiplier = quantize_multiplier(float(_F32(x.scale) / _F32(y.scale)))
        magnitude = multiply_by_quantized_multiplier(magnitude, *multiplier)
    return clamp8(magnitude.astype(np.int64) + y.zero_point)


def log_table(x: TensorType, y: TensorType) -> Array:
    """The natural logarithm; where it has no value, the least output."""
    return real_table(lambda v: np.where(v > 0, np.log(v), -np.inf), x, y)


def _high_mul_16(a: Array, b: Array | int) -> Array:
    """High 16 bits of 2ab, ties away from zero; the operands are int16 and b is not
    negative.
    """
    ab = np.asarray(a, np.int64) * b
    nudged = ab + np.where(ab >= 0, 1 << 14, 1 - (1 << 14))
    return np.trunc(nudged / (1 << 15)).astype(np.int64)


def _multiplier_16(real: float) -> tuple[int, int]:
    """A 16-bit multiplier and exponent."""
    fixed, exponent = quantize_multiplier(real)
    limit = (1 << 31) - 1
    return (
        (1 << 15) - 1 if fixed >= limit - (1 << 15) else (fixed + (1 << 15)) >> 16
    ), exponent


def _divide_by_pot_16(x: Array, exponent: int) -> Array:
    """x / 2^exponent of int16, ties away from zero, as gemmlowp computes it: its mask
    has 16 bits, so that beyond 2^15 what is not negative becomes 1.
    """
    if exponent < 16:
        return rounding_divide_by_pot(x, exponent).astype(np.int64)
    return np.where(x < 0, -1, 1)


def hard_swish_table(x: TensorType, y: TensorType) -> Array:
    """x * relu6(x + 3) / 6 in 16-bit fixed point; TFLite's reference HardSwish."""
    fine_scale = _F32(1 / 128) * _F32(x.scale)
    out_mul, out_exp = _multiplier_16(float(fine_scale / _F32(y.scale)))
    gate_mul, gate_exp = _multiplier_16(float(fine_scale / _F32(3 / 32768)))
    fine = (INPUTS - x.zero_point).astype(np.int64) * 128
    before_shift = _high_mul_16(fine, out_mul)
    gate = fine
    if gate_exp > 0:
        gate = np.clip(gate << (gate_exp - 1), -(1 << 15), (1 << 15) - 1)
    gate = _high_mul_16(gate, gate_mul)
    if gate_exp > 0:
        gate = np.clip(gate * 2, -(1 << 15), (1 << 15) - 1)
    if gate_exp < 0:
        gate = _divide_by_pot_16(gate, -gate_exp)
    gate = (gate + (1 << 15)) >> 1
    product = np.trunc(gate * before_shift / (1 << 15)).astype(np.int64)
    return clamp8(_divide_by_pot_16(product, -out_exp) + y.zero_point)


def rsqrt_table(x: TensorType, y: TensorType) -> Array:
    """1 / sqrt(x) in fixed point; zero and what is below it give the greatest output.

    TFLite's RsqrtEvalQuantized.
    """
    scale = quantize_multiplier(
        1.0 / (float(np.sqrt(_F32(x.scale))) * float(_F32(y.scale)))
    )
    table = np.full(256, 127, np.int64)
    for i, q in enumerate(INPUTS - x.zero_point):
        if q > 0:
            multiplier, shift = _inverse_sqrt(int(q))
            data = multiply_by_quantized_multiplier(
                np.array([1]), multiplier, shift + 20
            )
            out = multiply_by_quantized_multiplier(data, scale[0], scale[1] - 20)
            table[i] = int(out[0]) + y.zero_point
    return clamp8(table)


def _inverse_sqrt(x: int) -> tuple[int, int]:
    """1 / sqrt(x) as multiplier and (left) shift by Newton's steps; TFLite's
    GetInvSqrtQuantizedMultiplierExp.
    """
    if x <= 1:
        return (1 << 31) - 1, 0
    shift = 11
    while x >= 1 << 29:
        x = x // 4
        shift = shift + 1
    # leading zeros without the sign's, in pairs
    pairs = (32 - x.bit_length() - 1) // 2 - 1
    shift = shift - pairs
    x = x << (2 * pairs)
    value = _newton(x >> 1)
    half_sqrt_2 = 1518500250
    multiplier = int(
        saturating_rounding_doubling_high_mul(np.array([value]), half_sqrt_2)[0]
    )
    if shift < 0:
        multiplier = multiplier << -shift
        shift = 0
    return multiplier, -shift


def _newton(x: int) -> int:
    """Three bits of integer part, five steps from 1."""
    three_half = (1 << 28) + (1 << 27)
    half_x = int(rounding_divide_by_pot(np.array([x]), 1)[0])
    value = 1 << 28

    def times(a: int, b: int) -> int:
        return int(saturating_rounding_doubling_high_mul(np.array([a]), b)[0])

    def saturated(v: int) -> int:
        return max(-(1 << 31), min((1 << 31) - 1, v))

    for _ in range(5):
        cube = saturated(times(times(value, value), value) << 6)
        value = saturated(times(value, three_half) * 8 - times(half_x, cube) * 8)
    return value


def sqrt_table(x: TensorType, y: TensorType) -> Array:
    """The square root, cut off towards zero, not rounded; negative numbers give that of
    zero. SqrtEvalQuantized.
    """
    real = (_F32(x.scale) * np.maximum(INPUTS - x.zero_point, 0).astype(_F32)).astype(
        _F32
    )
    return clamp8(
        np.trunc(np.sqrt(real) / _F32(y.scale)).astype(np.int64) + y.zero_point
    )
