"""exp and 1 / (1 + x) in gemmlowp's fixed-point arithmetic, as TFLite's reference SOFTMAX uses them.

A number with i integer bits is stored as an int32 of 31 - i fractional bits. Source: gemmlowp/fixedpoint/fixedpoint.h.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Array
from edgec.ops.fixed_point import rounding_divide_by_pot, saturating_rounding_doubling_high_mul

_LOW, _HIGH = -(1 << 31), (1 << 31) - 1
_mul = saturating_rounding_doubling_high_mul

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
_48_17, _MINUS_32_17 = 1515870810, -1010580540  # two integer bits


def _shift_left(x: Array, bits: int) -> Array:
    """Saturating."""
    saturated: Array = np.clip(np.asarray(x, np.int64) << bits, _LOW, _HIGH)
    return saturated.astype(np.int32)


def exp_on_negative_values(a: Array, integer_bits: int = 5) -> Array:
    """exp(a) with no integer bits, for a <= 0 with up to 5 integer bits."""
    a64, fraction = np.asarray(a, np.int64), 31 - integer_bits
    quarter = 1 << (fraction - 2)
    rest = (a64 & (quarter - 1)) - quarter
    result = _exp_near_zero(_shift_left(rest, integer_bits))
    remainder = rest - a64
    for exponent, factor in _EXP_STEPS:
        if exponent < integer_bits:
            bit = (remainder >> (fraction + exponent)) & 1
            result = np.where(bit == 1, _mul(result, factor), result)
    return np.where(a64 == 0, _HIGH, result).astype(np.int32)


def _exp_near_zero(a: Array) -> Array:
    """exp on [-1/4, 0): a polynomial around -1/8."""
    x = np.asarray(a, np.int64) + (1 << 28)
    x2 = _mul(x, x)
    x3, x4 = _mul(x2, x), _mul(x2, x2)
    sum34 = rounding_divide_by_pot(x4, 2).astype(np.int64) + x3
    tail = rounding_divide_by_pot(_mul(sum34, _THIRD).astype(np.int64) + x2, 1)
    return (_EXP_EIGHTH + _mul(x + tail, _EXP_EIGHTH).astype(np.int64)).astype(np.int32)


def reciprocal_of_one_plus(a: Array) -> Array:
    """1 / (1 + a) for a in [0, 1), both with no integer bits: three Newton steps."""
    total = np.asarray(a, np.int64) + _HIGH
    half = (total + 1) // 2
    x = _48_17 + _mul(half, _MINUS_32_17).astype(np.int64)
    for _ in range(3):
        error = (1 << 29) - _mul(half, x).astype(np.int64)
        x = x + _shift_left(_mul(x, error), 2)
    return _shift_left(x, 1)
