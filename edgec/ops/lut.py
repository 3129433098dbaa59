"""Tables of int8 functions of one element: the outputs for the inputs -128 … 127.

They are those of TFLite's reference kernels: some are computed from reals, some in
fixed point. A function of one int8 number is fully described by such a table.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erfc, pi, sqrt

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
"""A function of float64 arrays."""
INPUTS = np.arange(-128, 128, dtype=np.int32)
"""The inputs, in the order of the entries of a table."""
_F32 = np.float32


def clamp8(y: Array, low: int = -128, high: int = 127) -> Array:
    """Return integers saturated to a range of int8."""
    return np.clip(y, low, high).astype(np.int8)


def real_table(fn: Real, x: TensorType, y: TensorType) -> Array:
    """Return round(fn(x) / scale_y) + zero_y in float32 steps, ties away from zero.

    fn is taken in double and rounded to float32, as a good C library does. A result
    that is not a number becomes the least output. Source: TFLite's LUTPopulate.
    """
    steps = (INPUTS - x.zero_point).astype(_F32)
    real = (_F32(x.scale) * steps).astype(_F32)

    # TFLite multiplies by the inverse scale.
    inverse_scale = _F32(1) / _F32(y.scale)
    with np.errstate(all="ignore"):
        value = np.asarray(fn(real.astype(np.float64)), np.float64).astype(_F32)
        scaled = round_half_away((value * inverse_scale).astype(_F32))

    # Far outside of int8, so that infinities saturate.
    finite = np.nan_to_num(scaled, nan=-1e6, posinf=1e6, neginf=-1e6)

    return clamp8(finite.astype(np.float64) + y.zero_point)


def clamp_table(
    low: float | None,
    high: float | None,
    x: TensorType,
    y: TensorType,
) -> Array:
    """Return min(max(x, low), high) at the output's scale; None: no bound.

    This is TFLite's QuantizedReluX: x is rescaled, and clamped to the rounded bounds.
    """
    multiplier = quantize_multiplier(float(_F32(x.scale) / _F32(y.scale)))
    scaled = multiply_by_quantized_multiplier(INPUTS - x.zero_point, *multiplier)
    out = scaled.astype(np.int64) + y.zero_point

    # A bound is quantized as the output is.
    def quantized(bound: float | None, default: int) -> int:
        if bound is None:
            return default
        steps = np.array(_F32(bound) / _F32(y.scale))
        element = y.zero_point + int(round_half_away(steps))
        return int(np.clip(element, -128, 127))

    return clamp8(out, quantized(low, -128), quantized(high, 127))


def leaky_relu_table(alpha: float, x: TensorType, y: TensorType) -> Array:
    """Return x where x >= 0, else alpha * x, with a multiplier for each sign.

    This is TFLite's QuantizeLeakyRelu. With a negative slope ties go the other way
    (seen in LiteRT 2.3), as if its magnitude were applied and negated.
    """
    centred = INPUTS - x.zero_point
    slope = float(_F32(x.scale) * _F32(alpha) / _F32(y.scale))
    ratio = float(_F32(x.scale) / _F32(y.scale))
    sign = -1 if alpha < 0 else 1

    # A multiplier is not negative: the sign is applied after it.
    slope_multiplier = quantize_multiplier(abs(slope))
    identity_multiplier = quantize_multiplier(ratio)
    positive = multiply_by_quantized_multiplier(centred, *identity_multiplier)
    negative = multiply_by_quantized_multiplier(centred, *slope_multiplier) * sign
    out = np.where(centred >= 0, positive, negative)

    return clamp8(out.astype(np.int64) + y.zero_point)


def abs_table(x: TensorType, y: TensorType) -> Array:
    """Return |x| at the output's scale: TFLite's AbsEvalQuantized.

    Equal scales need no multiplier.
    """
    # The magnitude of int8 needs a ninth bit.
    magnitude = np.abs(INPUTS - x.zero_point)
    if x.scale != y.scale:
        multiplier = quantize_multiplier(float(_F32(x.scale) / _F32(y.scale)))
        magnitude = multiply_by_quantized_multiplier(magnitude, *multiplier)

    return clamp8(magnitude.astype(np.int64) + y.zero_point)


def log_table(x: TensorType, y: TensorType) -> Array:
    """Return the natural logarithm; the least output where it has no value."""
    return real_table(lambda v: np.where(v > 0, np.log(v), -np.inf), x, y)


def _erfc(x: Array) -> Array:
    """Return the complement of the error function, rounded to float32."""
    return np.array([erfc(v) for v in x.tolist()], _F32)


def logistic_table(x: TensorType, y: TensorType) -> Array:
    """Return 1 / (1 + e^-x), each step of which TFLite rounds to float32."""

    def logistic(v: Array) -> Array:
        power = np.exp(-v).astype(_F32)
        return np.asarray(_F32(1) / (_F32(1) + power))

    return real_table(logistic, x, y)


def gelu_table(approximate: bool, x: TensorType, y: TensorType) -> Array:
    """Return the Gaussian error linear unit in TFLite's steps of float32.

    Source: GeluTransform and GeluTransformApproximate of the reference kernels.
    """

    def gelu(v: Array) -> Array:
        real = v.astype(_F32)
        half = _F32(0.5) * real
        if not approximate:
            return np.asarray(half * _erfc(real * -_F32(sqrt(0.5))))

        cubic = real + _F32(0.044715) * real * real * real
        inner = _F32(sqrt(2 / pi)) * cubic
        bent = np.tanh(inner.astype(np.float64)).astype(_F32)
        return np.asarray(half * (_F32(1) + bent))

    return real_table(gelu, x, y)


def _high_mul_16(a: Array, b: Array | int) -> Array:
    """Return the high 16 bits of 2ab, ties away from zero.

    The operands are int16 and b is not negative. This is gemmlowp's
    SaturatingRoundingDoublingHighMul for int16.
    """
    product = np.asarray(a, np.int64) * b
    half = 1 << 14
    nudged = product + np.where(product >= 0, half, 1 - half)

    return np.trunc(nudged / (1 << 15)).astype(np.int64)


def _multiplier_16(real: float) -> tuple[int, int]:
    """Return a 16-bit multiplier and an exponent for a real.

    This is TFLite's DownScaleInt32ToInt16Multiplier of a 32-bit multiplier.
    """
    fixed, exponent = quantize_multiplier(real)
    half = 1 << 15
    largest = (1 << 31) - 1
    if fixed >= largest - half:
        return half - 1, exponent

    return (fixed + half) >> 16, exponent


def _divide_by_pot_16(x: Array, exponent: int) -> Array:
    """Return x / 2^exponent of int16, ties away from zero, as gemmlowp computes it.

    gemmlowp's mask has 16 bits, so that from 2^16 on a number that is not negative
    becomes 1, and a negative one -1.
    """
    if exponent < 16:
        return rounding_divide_by_pot(x, exponent).astype(np.int64)

    return np.where(x < 0, -1, 1)


def hard_swish_table(x: TensorType, y: TensorType) -> Array:
    """Return x * relu6(x + 3) / 6 in 16-bit fixed point: TFLite's reference HardSwish.

    The gate relu6(x + 3) / 6 is computed as (x / 3 saturated to [-1, 1) + 1) / 2.
    """
    # x with 7 more bits, in units of 1/128 of its scale.
    fine_scale = _F32(1 / 128) * _F32(x.scale)
    out_multiplier, out_exponent = _multiplier_16(float(fine_scale / _F32(y.scale)))
    gate_ratio = float(fine_scale / _F32(3 / 32768))
    gate_multiplier, gate_exponent = _multiplier_16(gate_ratio)
    fine = (INPUTS - x.zero_point).astype(np.int64) * 128
    scaled = _high_mul_16(fine, out_multiplier)

    # TFLite shifts to the left before the multiplication as far as a saturation there
    # has no effect on the result, and by the last bit after it.
    lowest = -(1 << 15)
    highest = (1 << 15) - 1
    gate = fine
    if gate_exponent > 0:
        gate = np.clip(gate << (gate_exponent - 1), lowest, highest)

    gate = _high_mul_16(gate, gate_multiplier)
    if gate_exponent > 0:
        gate = np.clip(gate * 2, lowest, highest)

    if gate_exponent < 0:
        gate = _divide_by_pot_16(gate, -gate_exponent)

    gate = (gate + (1 << 15)) >> 1

    product = np.trunc(gate * scaled / (1 << 15)).astype(np.int64)

    return clamp8(_divide_by_pot_16(product, -out_exponent) + y.zero_point)


def rsqrt_table(x: TensorType, y: TensorType) -> Array:
    """Return 1 / sqrt(x) in fixed point: TFLite's RsqrtEvalQuantized.

    Zero and negative numbers give the greatest output.
    """
    ratio = 1.0 / (float(np.sqrt(_F32(x.scale))) * float(_F32(y.scale)))
    scale_multiplier, scale_shift = quantize_multiplier(ratio)
    table = np.full(256, 127, np.int64)
    one = np.array([1])
    # 20 more bits between both multiplications.
    extra_bits = 20
    for i, q in enumerate(INPUTS - x.zero_point):
        if q <= 0:
            continue
        multiplier, shift = _inverse_sqrt(int(q))
        root = multiply_by_quantized_multiplier(one, multiplier, shift + extra_bits)
        final_shift = scale_shift - extra_bits
        out = multiply_by_quantized_multiplier(root, scale_multiplier, final_shift)
        table[i] = int(out[0]) + y.zero_point

    return clamp8(table)


def _inverse_sqrt(x: int) -> tuple[int, int]:
    """Return (multiplier, left shift) of 1 / sqrt(x) by Newton's method.

    This is TFLite's GetInvSqrtQuantizedMultiplierExp for the positive numbers of int8.
    """
    if x <= 1:
        return (1 << 31) - 1, 0

    # A factor of 4 in x is a factor of 2 in the root.
    shift = 11
    while x >= 1 << 29:
        x = x // 4
        shift = shift + 1

    # Leading zeros without the sign's, in pairs.
    pairs = (32 - x.bit_length() - 1) // 2 - 1
    shift = shift - pairs
    x = x << (2 * pairs)

    root = np.array([_newton(x >> 1)])
    half_sqrt_2 = 1518500250
    multiplier = int(saturating_rounding_doubling_high_mul(root, half_sqrt_2)[0])
    if shift < 0:
        multiplier = multiplier << -shift
        shift = 0

    return multiplier, -shift


def _newton(x: int) -> int:
    """Return 1 / sqrt(x) with three integer bits, after five Newton steps from 1.

    A step is y ← 1.5 y - x/2 y³.
    """
    three_halves = (1 << 28) + (1 << 27)
    half_x = int(rounding_divide_by_pot(np.array([x]), 1)[0])
    root = 1 << 28

    def multiply(a: int, b: int) -> int:
        return int(saturating_rounding_doubling_high_mul(np.array([a]), b)[0])

    def saturate(v: int) -> int:
        return max(-(1 << 31), min((1 << 31) - 1, v))

    # A product of numbers with three integer bits is shifted back by three.
    for _ in range(5):
        squared = multiply(root, root)
        cube = saturate(multiply(squared, root) << 6)
        step = multiply(root, three_halves) * 8 - multiply(half_x, cube) * 8
        root = saturate(step)

    return root


def sqrt_table(x: TensorType, y: TensorType) -> Array:
    """Return the square root, cut off towards zero: TFLite's SqrtEvalQuantized.

    Negative numbers give the root of zero.
    """
    steps = np.maximum(INPUTS - x.zero_point, 0).astype(_F32)
    real = (_F32(x.scale) * steps).astype(_F32)
    root = np.trunc(np.sqrt(real) / _F32(y.scale))

    return clamp8(root.astype(np.int64) + y.zero_point)
