"""Integer arithmetic of TFLite's reference kernels, in numpy; ek_fixed_point.h is the
same in C.

Source: tensorflow/lite/kernels/internal/{common.h,quantization_util.cc} and
gemmlowp/fixedpoint, whose names the functions have. Results are int32 unless their
function declares another type.
"""

from __future__ import annotations

import math

import numpy as np

from edgec.ir import Array, TensorType

ACTIVATIONS = {
    "none": (-math.inf, math.inf),
    "relu": (0.0, math.inf),
    "relu6": (0.0, 6.0),
    "relu_n1_to_1": (-1.0, 1.0),
}
"""Fused activation functions and the range that each clamps to."""

TFLITE_ACTIVATIONS = ("none", "relu", "relu_n1_to_1", "relu6")
"""Fused activation functions in the order of TFLite's ActivationFunctionType."""


MAX_BOUND_STEPS = 1 << 30
"""Largest activation bound in steps of the output scale: int32 holds it with room for
the zero point.
"""

INT32_MAX = (1 << 31) - 1
INT32_MIN = -(1 << 31)
"""The range of int32."""


def tflite_activation(act: str, y: TensorType) -> int:
    """Return TFLite's ActivationFunctionType for the fused activation of an op.

    y: type of the op's output. TFLite refuses a bound that overflows int32 when it is
    counted in steps of a tiny scale. Such a bound clamps nothing, since it is far
    beyond the range of int8, so it is left out.
    """
    if y.quant is None:
        return TFLITE_ACTIVATIONS.index(act)

    low, high = ACTIVATIONS[act]
    farthest = MAX_BOUND_STEPS * y.quant.scale[0]
    if any(math.isfinite(bound) and abs(bound) > farthest for bound in (low, high)):
        act = "relu" if low == 0 else "none"

    return TFLITE_ACTIVATIONS.index(act)


def quantize_multiplier(real: float) -> tuple[int, int]:
    """Return (m, shift) with real = m * 2^(shift - 31) and m in [2^30, 2^31).

    This is TFLite's QuantizeMultiplier: too small reals become 0, too large ones
    saturate.
    """
    saturated = (INT32_MAX, 30)
    if real == 0.0:
        return 0, 0

    # Two scales may have a quotient that float32 does not hold.
    if real == math.inf:
        return saturated

    # C's round() takes ties away from zero.
    fraction, shift = math.frexp(real)
    fixed = math.floor(abs(fraction) * (1 << 31) + 0.5)
    if fraction < 0:
        fixed = -fixed

    # A fraction just below 1 may round up to 1.
    if fixed == 1 << 31:
        fixed = fixed // 2
        shift = shift + 1

    # A smaller shift would move all bits out.
    if shift < -31:
        return 0, 0

    # TFLite's multiplication supports no larger shift.
    if shift > 30:
        return saturated

    return fixed, shift


def quantize_multipliers(real: Array) -> tuple[Array, Array]:
    """Return the multipliers and the shifts of `quantize_multiplier` for each element.

    Both arrays are int32 vectors, whatever the shape of `real`.
    """
    multipliers: list[int] = []
    shifts: list[int] = []
    for element in real.reshape(-1):
        multiplier, shift = quantize_multiplier(float(element))
        multipliers.append(multiplier)
        shifts.append(shift)

    return np.array(multipliers, np.int32), np.array(shifts, np.int32)


def saturating_rounding_doubling_high_mul(a: Array, b: Array | int) -> Array:
    """Return the high 32 bits of 2ab, ties away from zero.

    This is gemmlowp's SaturatingRoundingDoublingHighMul: -2^31 * -2^31, the only
    product that does not fit, saturates.
    """
    a64 = np.asarray(a, np.int64)
    b64 = np.asarray(b, np.int64)
    product = a64 * b64
    half = np.int64(1 << 30)
    total = product + np.where(product >= 0, half, 1 - half)

    # C's division by 2^31 truncates towards zero; a shift rounds down.
    high = np.where(total >= 0, total >> 31, -((-total) >> 31))
    is_overflow = (a64 == INT32_MIN) & (b64 == INT32_MIN)

    return np.where(is_overflow, INT32_MAX, high).astype(np.int32)


def rounding_divide_by_pot(x: Array, exponent: Array | int) -> Array:
    """Return x / 2^exponent, ties away from zero: gemmlowp's RoundingDivideByPOT."""
    x64 = np.asarray(x, np.int64)
    bits = np.asarray(exponent, np.int64)
    mask = (np.int64(1) << bits) - 1

    # A shift rounds down, so that a negative half must not be rounded up.
    remainder = x64 & mask
    threshold = (mask >> 1) + (x64 < 0)
    quotient = x64 >> bits

    return (quotient + (remainder > threshold)).astype(np.int32)


def multiply_by_quantized_multiplier(
    x: Array,
    multiplier: Array | int,
    shift: Array | int,
) -> Array:
    """Return x * multiplier * 2^(shift - 31), rounded twice.

    This is TFLite's MultiplyByQuantizedMultiplier: a rounding high multiplication and
    then a rounding right shift.
    """
    signed_shift = np.asarray(shift, np.int64)
    left = np.maximum(signed_shift, 0)
    right = np.maximum(-signed_shift, 0)

    # The left shift wraps as the C code's does.
    shifted = (np.asarray(x, np.int64) << left).astype(np.int32)
    product = saturating_rounding_doubling_high_mul(shifted, multiplier)

    return rounding_divide_by_pot(product, right)


def round_half_away(x: Array) -> Array:
    """Return x rounded as C's round() and roundf() do: ties away from zero.

    numpy.round takes ties to even.
    """
    whole = np.trunc(x)
    is_up = np.abs(x - whole) >= 0.5
    away = whole + np.copysign(x.dtype.type(1), x)

    return np.where(is_up, away, whole)


def activation_range(act: str, t: TensorType) -> tuple[int, int]:
    """Return the (lowest, highest) integers that a fused activation clamps to.

    This is TFLite's CalculateActivationRangeQuantized: zero_point + round(bound /
    scale) in float32, within the range of the type.
    """
    info = np.iinfo(t.np_dtype)
    low, high = ACTIVATIONS[act]

    def quantized(bound: float) -> int:
        steps = np.float32(bound) / np.float32(t.scale)
        return t.zero_point + int(round_half_away(np.array(steps))[()])

    # A bound outside of the type clamps nothing.
    lowest = info.min
    if not math.isinf(low):
        lowest = max(info.min, quantized(low))

    highest = info.max
    if not math.isinf(high):
        highest = min(info.max, quantized(high))

    return lowest, highest


def clamp_float(y: Array, act: str) -> Array:
    """Return float results clamped to the range of their fused activation.

    An activation without bounds leaves them as they are.
    """
    low, high = ACTIVATIONS[act]
    if math.isinf(low) and math.isinf(high):
        return y

    not_below = np.maximum(y, np.float32(low))
    clamped = np.minimum(not_below, np.float32(high))

    return clamped.astype(np.float32)
