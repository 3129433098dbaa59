"""exp, log, 1 / (1 + x), logistic and tanh in gemmlowp's fixed-point arithmetic.

TFLite's reference kernels of SOFTMAX, LOG_SOFTMAX and LSTM use these functions. A number with i
integer bits is an int32 of 31 - i fractional bits (SOFTMAX), or an int16 of 15 - i
fractional bits (LSTM); the argument `bits` is 32 or 16. Intermediate arrays are int64.
Source: gemmlowp/fixedpoint/fixedpoint.h and, of log, TFLite's
kernels/internal/common.h, whose constants these are.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Array
from edgec.ops.fixed_point import rounding_divide_by_pot

_EXP_EIGHTH = 1895147668
"""exp(-1/8) with no integer bits."""
_THIRD = 715827883
"""1/3 with no integer bits."""
_EXP_STEPS = (
    (-2, 1672461947),
    (-1, 1302514674),
    (0, 790015084),
    (1, 290630308),
    (2, 39332535),
    (3, 720401),
    (4, 242),
)
"""(e, exp(-2^e)) for each bit of the argument, the factors with no integer bits."""
_48_17 = 1515870810
"""48/17 with two integer bits: the start of Newton's reciprocal is 48/17 - 32/17 x."""
_MINUS_32_17 = -1010580540
"""-32/17 with two integer bits."""
_LOG_2 = 1488522236
"""ln 2 with no integer bits."""
_ROOT_HALF = 1518500250
"""2^(-1/2) with no integer bits."""
_FOURTH_ROOT_HALF = 1805811301
"""2^(-1/4) with no integer bits."""
_LOG_SQUARE = 117049297
"""11/240 * 2^(1/4), of the numerator of log, with no integer bits."""
_LOG_DENOMINATOR = (1057819769, 127690142, 638450708)
"""2 * 2^(-1/4) - 2^(1/4), 2^(1/4) / 20 and 2^(1/4) / 4, with no integer bits."""


def _constant(value: int, bits: int) -> int:
    """Return a 32-bit fixed-point constant rounded to `bits` bits."""
    return int(rounding_divide_by_pot(np.array(value), 32 - bits))


def _clip(x: Array, bits: int) -> Array:
    """Return `x` saturated to a signed integer of `bits` bits."""
    limit = 1 << (bits - 1)
    return np.clip(x, -limit, limit - 1)


def _mul(a: Array, b: Array | int, bits: int) -> Array:
    """Return the high half of 2ab, ties away from zero, saturated.

    This is gemmlowp's SaturatingRoundingDoublingHighMul for 16 and 32 bits.
    """
    product = np.asarray(a, np.int64) * b
    half = 1 << (bits - 2)
    total = product + np.where(product >= 0, half, 1 - half)

    # C's division by 2^(bits - 1) truncates towards zero; a shift rounds down.
    shift = bits - 1
    high = np.where(total >= 0, total >> shift, -((-total) >> shift))

    return _clip(high, bits)


def _half(x: Array) -> Array:
    """Return x / 2 as int64, ties away from zero."""
    return rounding_divide_by_pot(x, 1).astype(np.int64)


def exp_on_negative_values(a: Array, integer_bits: int = 5, bits: int = 32) -> Array:
    """Return exp(a) with no integer bits, for a <= 0 with up to 5 integer bits.

    The argument is split as a = r - Σ 2^e with r in [-1/4, 0). exp(r) is a polynomial,
    and each remaining bit multiplies the result by the constant exp(-2^e).
    """
    a64 = np.asarray(a, np.int64)
    fraction_bits = bits - 1 - integer_bits
    quarter = 1 << (fraction_bits - 2)

    # The lowest bits are the part in [-1/4, 0).
    near_zero = (a64 & (quarter - 1)) - quarter
    result = _exp_near_zero(_clip(near_zero << integer_bits, bits), bits)

    # What is left is a sum of the powers of two.
    remainder = near_zero - a64
    for exponent, factor in _EXP_STEPS:
        if exponent >= integer_bits:
            continue
        bit = (remainder >> (fraction_bits + exponent)) & 1
        product = _mul(result, _constant(factor, bits), bits)
        result = np.where(bit == 1, product, result)

    largest = (1 << (bits - 1)) - 1

    return np.where(a64 == 0, largest, result).astype(np.int32)


def _exp_near_zero(a: Array, bits: int) -> Array:
    """Return exp(a) on [-1/4, 0) by its Taylor polynomial of degree 4 around -1/8.

    exp(a) = exp(-1/8) (1 + x + x²/2 + x³/6 + x⁴/24) with x = a + 1/8; the last three
    terms are computed as ((x⁴/4 + x³)/3 + x²)/2.
    """
    x = a + (1 << (bits - 4))
    x2 = _mul(x, x, bits)
    x3 = _mul(x2, x, bits)
    x4 = _mul(x2, x2, bits)

    # Each division by a small number is a shift or a product.
    cubic = rounding_divide_by_pot(x4, 2).astype(np.int64) + x3
    tail = _half(_mul(cubic, _constant(_THIRD, bits), bits) + x2)

    factor = _constant(_EXP_EIGHTH, bits)

    return _clip(factor + _mul(x + tail, factor, bits), bits)


def _reciprocal(a: Array, bits: int) -> Array:
    """Return 2 / (1 + a) with two integer bits, for a in [0, 1) with none.

    Three Newton steps x ← x + x (1 - d x) refine 48/17 - 32/17 d, d = (1 + a) / 2.
    """
    # 1 is stored as 2^(bits - 1) - 1, and gemmlowp rounds (a + 1) / 2.
    half = (np.asarray(a, np.int64) + (1 << (bits - 1))) // 2

    # The line is within 1/17 of the reciprocal on [1/2, 1].
    slope = _constant(_MINUS_32_17, bits)
    x = _constant(_48_17, bits) + _mul(half, slope, bits)
    for _ in range(3):
        error = (1 << (bits - 3)) - _mul(half, x, bits)
        x = x + _clip(_mul(x, error, bits) << 2, bits)

    return x


def reciprocal_of_one_plus(a: Array, bits: int = 32) -> Array:
    """Return 1 / (1 + a) for a in [0, 1), both with no integer bits."""
    return _clip(_reciprocal(a, bits) << 1, bits).astype(np.int32)


def log_of_at_least_one(a: Array) -> Array:
    """Return ln(a) as int32 with 5 integer bits, for a >= 1 with 12 integer bits.

    a = 2^n r with n in quarters and r near 2^(-1/4): ln(a) = n ln 2 + ln(r), and ln(r)
    is a quotient of polynomials in q = 2 (r - 2^(-1/4)).
    """
    a64 = np.asarray(a, np.int64)
    # The zeros before the first bit of a, and before that of a * 2^(-1/2).
    zeros = 32 - np.frexp(a64.astype(np.float64))[1].astype(np.int64)
    lower_zeros = 31 - np.frexp(_mul(a64, _ROOT_HALF, 32).astype(np.float64))[1]
    lower_zeros = lower_zeros.astype(np.int64)
    scaled = _clip(_mul(a64 << (zeros - 1), _ROOT_HALF, 32) << 1, 32)
    r = np.minimum(scaled, _clip(a64 << lower_zeros, 32))

    # n has 6 integer bits.
    quarter = 1 << 23
    n = np.maximum(((12 - zeros) << 25) + quarter, ((12 - lower_zeros) << 25) - quarter)

    # r is positive, so that half up is half away from zero.
    middle = (r + _FOURTH_ROOT_HALF + 1) >> 1
    q = 2 * (r - _FOURTH_ROOT_HALF)
    square = _mul(q, q, 32)
    numerator = _mul(q, r, 32) + _mul(_mul(q, square, 32), _LOG_SQUARE, 32)
    one, of_square, of_q = _LOG_DENOMINATOR
    factor = one + q + _mul(square, of_square, 32)
    denominator = _mul(middle, factor, 32) + _mul(q, of_q, 32)
    reciprocal = reciprocal_of_one_plus(denominator)

    # The sum has one integer bit more than the result.
    log_r = _mul(rounding_divide_by_pot(numerator, 6), reciprocal, 32)
    log = _mul(n, _LOG_2, 32) + log_r

    return _clip(log << 1, 32).astype(np.int32)


def logistic_16(a: Array, integer_bits: int) -> Array:
    """Return 1 / (1 + exp(-a)) as int16 with no integer bits.

    logistic(a) = 1 / (1 + exp(-|a|)) for a > 0, and 1 minus that for a < 0.
    """
    a64 = np.asarray(a, np.int64)
    one = (1 << 15) - 1
    half = 1 << 14

    # The exponential of a negative number is at most 1.
    e = exp_on_negative_values(-np.abs(a64), integer_bits, 16)
    positive = reciprocal_of_one_plus(e, 16)
    y = np.where(a64 > 0, positive, one - positive)

    return np.where(a64 == 0, half, y).astype(np.int16)


def tanh_16(a: Array, integer_bits: int) -> Array:
    """Return tanh(a) as int16 with no integer bits.

    tanh(a) = (1 - e) / (1 + e) with e = exp(-2|a|), with the sign of a.
    """
    a64 = np.asarray(a, np.int64)

    # One more integer bit reads the same number as 2a.
    e = exp_on_negative_values(-np.abs(a64), integer_bits + 1, 16)
    magnitude = _clip((_reciprocal(e, 16) - (1 << 13)) << 2, 16)

    # The magnitude has the sign of the argument.
    signed = np.where(a64 < 0, -magnitude, magnitude)

    return np.where(a64 == 0, 0, signed).astype(np.int16)
