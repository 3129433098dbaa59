"""Integer arithmetic of TFLite's reference kernels, in numpy; ek_fixed_point.h is the
same in C.

Source: tensorflow/lite/kernels/internal/{common.h,quantization_util.cc} and
gemmlowp/fixedpoint (names kept). All results are int32 unless said otherwise.
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
"""In the order of TFLite's ActivationFunctionType."""


_FAR = 1 << 30


def tflite_activation(act: str, y: TensorType) -> int:
    """TFLite's ActivationFunctionType for the fused activation of an op with this
    output.

    TFLite refuses a bound that overflows int32 when it is counted in steps of a tiny
    scale. Such a bound clamps nothing, since it is far beyond what int8 holds, so it is
    left out.
    """
    bounds = ACTIVATIONS[act]
    if y.quant is not None and any(
        math.isfinite(b) and abs(b) > _FAR * y.quant.scale[0] for b in bounds
    ):
        act = "relu" if bounds[0] == 0 else "none"
    return TFLITE_ACTIVATIONS.index(act)


def quantize_multiplier(real: float) -> tuple[int, int]:
    """real = m * 2^(shift - 31) with m in [2^30, 2^31); TFLite's QuantizeMultiplier."""
    if real == 0.0:
        return 0, 0
    if real == math.inf:  # of scales whose quotient float32 does not hold
        return (1 << 31) - 1, 30
    fraction, shift = math.frexp(real)
    # C round(): half away from zero
    fixed = math.floor(abs(fraction) * (1 << 31) + 0.5)
    fixed = -fixed if fraction < 0 else fixed
    if fixed == 1 << 31:
        fixed = fixed // 2
        shift = shift + 1
    if shift < -31:
        return 0, 0
    if shift > 30:
        return (1 << 31) - 1, 30
    return fixed, shift


def quantize_multipliers(real: Array) -> tuple[Array, Array]:
    """`quantize_multiplier` of each element."""
    pairs = [quantize_multiplier(float(r)) for r in real.reshape(-1)]
    return np.array([m for m, _ in pairs], np.int32), np.array(
        [s for _, s in pairs], np.int32
    )


def saturating_rounding_doubling_high_mul(a: Array, b: Array | int) -> Array:
    """High 32 bits of 2ab, ties away from zero (gemmlowp); -2^31 * -2^31 saturates."""
    a64 = np.asarray(a, np.int64)
    b64 = np.asarray(b, np.int64)
    ab = a64 * b64
    nudge = np.where(ab >= 0, np.int64(1 << 30), np.int64(1 - (1 << 30)))
    total = ab + nudge
    # C division truncates towards zero, numpy's floors
    high = np.where(total >= 0, total >> 31, -((-total) >> 31))
    low = np.int64(-(1 << 31))
    return np.where((a64 == low) & (b64 == low), np.int64((1 << 31) - 1), high).astype(
        np.int32
    )


def rounding_divide_by_pot(x: Array, exponent: Array | int) -> Array:
    """x / 2^exponent, ties away from zero (gemmlowp)."""
    x64 = np.asarray(x, np.int64)
    e = np.asarray(exponent, np.int64)
    mask = (np.int64(1) << e) - 1
    threshold = (mask >> 1) + (x64 < 0)
    return ((x64 >> e) + ((x64 & mask) > threshold)).astype(np.int32)


def multiply_by_quantized_multiplier(
    x: Array, multiplier: Array | int, shift: Array | int
) -> Array:
    """x * multiplier * 2^(shift - 31) with double rounding, as TFLite's
    MultiplyByQuantizedMultiplier.
    """
    s = np.asarray(shift, np.int64)
    left = np.maximum(s, 0)
    right = np.maximum(-s, 0)
    # wraps as the C code does
    shifted = (np.asarray(x, np.int64) << left).astype(np.int32)
    return rounding_divide_by_pot(
        saturating_rounding_doubling_high_mul(shifted, multiplier), right
    )


def round_half_away(x: Array) -> Array:
    """C round()/roundf(): ties away from zero; numpy's rounds them to even."""
    whole = np.trunc(x)
    return np.where(
        np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole
    )


def activation_range(act: str, t: TensorType) -> tuple[int, int]:
    """The int8 range that a fused activation clamps to; TFLite's
    CalculateActivationRangeQuantized.
    """
    info = np.iinfo(t.np_dtype)
    low, high = ACTIVATIONS[act]

    def quantized(real: float) -> int:
        return t.zero_point + int(
            round_half_away(np.array(np.float32(real) / np.float32(t.scale)))[()]
        )

    return (
        info.min if math.isinf(low) else max(info.min, quantized(low)),
        info.max if math.isinf(high) else min(info.max, quantized(high)),
    )


def clamp_float(y: Array, act: str) -> Array:
    """A float result under its fused activation."""
    low, high = ACTIVATIONS[act]
    if math.isinf(low) and math.isinf(high):
        return y
    return np.minimum(np.maximum(y, np.float32(low)), np.float32(high)).astype(
        np.float32
    )
