"""exp, 1 / (1 + x), logistic and tanh in gemmlowp's fixed-point arithmetic, as TFLite's
reference kernels use them.

A number with i integer bits is stored as an int32 of 31 - i fractional bits (SOFTMAX),
or as an int16 of 15 - i (LSTM); `bits` says which. Source:
gemmlowp/fixedpoint/fixedpoint.h. Arrays are int64 within.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Array
from edgec.ops.fixed_point import rounding_divide_by_pot

_EXP_EIGHTH = 1895147668  # exp(-1/8)
_THIRD = 715827883
_EXP_STEPS = (
    (-2, 1672461947),
    (-1, 1302514674),
    (0, 790015084),
    (1, 290630308),
    (2, 39332535),
    (3, 720401),
    (4, 242),
)
"""exp(-2^e) for each bit of the argument."""
_48_17 = 1515870810
_MINUS_32_17 = -1010580540  # two integer bits


def _constant(value: int, bits: int) -> int:
    """A constant of 32 bits in as many."""
    return int(rounding_divide_by_pot(np.array(value), 32 - bits))


def _clip(x: Array, bits: int) -> Array:
    return np.clip(x, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _mul(a: Array, b: Array | int, bits: int) -> Array:
    """The high half of 2ab, ties away from zero; saturating."""
    ab = np.asarray(a, np.int64) * b
    total = ab + np.where(ab >= 0, 1 << (bits - 2), 1 - (1 << (bits - 2)))
    return _clip(
        np.where(total >= 0, total >> (bits - 1), -((-total) >> (bits - 1))), bits
    )


def _half(x: Array) -> Array:
    return rounding_divide_by_pot(x, 1).astype(np.int64)


def exp_on_negative_values(a: Array, integer_bits: int = 5, bits: int = 32) -> Array:
    """exp(a) with no integer bits, for a <= 0 with up to 5 integer bits."""
    a64 = np.asarray(a, np.int64)
    fraction = bits - 1 - integer_bits
    quarter = 1 << (fraction - 2)
    rest = (a64 & (quarter - 1)) - quarter
    result = _exp_near_zero(_clip(rest << integer_bits, bits), bits)
    remainder = rest - a64
    for exponent, factor in _EXP_STEPS:
        if exponent < integer_bits:
            bit = (remainder >> (fraction + exponent)) & 1
            result = np.where(
                bit == 1, _mul(result, _constant(factor, bits), bits), result
            )
    return np.where(a64 == 0, (1 << (bits - 1)) - 1, result).astype(np.int32)


def _exp_near_zero(a: Array, bits: int) -> Array:
    """exp on [-1/4, 0): a polynomial around -1/8."""
    x = a + (1 << (bits - 4))
    x2 = _mul(x, x, bits)
    x3 = _mul(x2, x, bits)
    x4 = _mul(x2, x2, bits)
    sum34 = rounding_divide_by_pot(x4, 2).astype(np.int64) + x3
    tail = _half(_mul(sum34, _constant(_THIRD, bits), bits) + x2)
    whole = _constant(_EXP_EIGHTH, bits)
    return _clip(whole + _mul(x + tail, whole, bits), bits)


def _reciprocal(a: Array, bits: int) -> Array:
    """2 / (1 + a) for a in [0, 1) with no integer bits, with two of them: three Newton
    steps.
    """
    # of a + one, which is 2^(bits - 1) - 1, rounded
    half = (np.asarray(a, np.int64) + (1 << (bits - 1))) // 2
    x = _constant(_48_17, bits) + _mul(half, _constant(_MINUS_32_17, bits), bits)
    for _ in range(3):
        error = (1 << (bits - 3)) - _mul(half, x, bits)
        x = x + _clip(_mul(x, error, bits) << 2, bits)
    return x


def reciprocal_of_one_plus(a: Array, bits: int = 32) -> Array:
    """1 / (1 + a) for a in [0, 1), both with no integer bits."""
    return _clip(_reciprocal(a, bits) << 1, bits).astype(np.int32)


def logistic_16(a: Array, integer_bits: int) -> Array:
    """int16 with integer bits to int16 without."""
    a64 = np.asarray(a, np.int64)
    one = (1 << 15) - 1
    positive = reciprocal_of_one_plus(
        exp_on_negative_values(-np.abs(a64), integer_bits, 16), 16
    )
    y = np.where(a64 > 0, positive, one - positive)
    return np.where(a64 == 0, 1 << 14, y).astype(np.int16)


def tanh_16(a: Array, integer_bits: int) -> Array:
    """int16 with integer bits to int16 without."""
    a64 = np.asarray(a, np.int64)
    # of twice the argument
    e = exp_on_negative_values(-np.abs(a64), integer_bits + 1, 16)
    t = _clip((_reciprocal(e, 16) - (1 << 13)) << 2, 16)
    return np.where(a64 == 0, 0, np.where(a64 < 0, -t, t)).astype(np.int16)
