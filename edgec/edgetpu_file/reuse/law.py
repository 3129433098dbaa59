"""The numbers of an instruction for a tensor's scale and zero point, in float32.

The formulas are those of docs/isa/eltwise.md in FrederikRogalski/tinycoral, which found
them in edgetpu_compiler's files: every step is rounded to float32, and instead of a
division by a scale there is a product with its rounded reciprocal.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

_NONE, _RELU, _RELU_N1_TO_1, _RELU6 = range(4)
MOST = 255
"""The largest integer of a tensor."""
LARGEST_WEIGHT = 32767
"""The largest integer weight of an addition, which computes with 16 bits."""


@dataclass(frozen=True)
class Clamps:
    """Bounds of an output, relative to its zero point."""

    least: float
    most: float


def f32(value: float) -> float:
    """Return the nearest float32."""
    return float(np.float32(value))


def product(a: float, b: float) -> float:
    """Return the float32 product of two float32."""
    return float(np.float32(a) * np.float32(b))


def reciprocal(scale: float) -> float:
    """Return the float32 reciprocal of a float32."""
    return float(np.float32(1.0) / np.float32(scale))


def multiplier(scale_in: float, scale_weight: float, scale_out: float) -> float:
    """Return what an accumulator of a convolution is multiplied by."""
    return product(product(scale_in, scale_weight), reciprocal(scale_out))


def clamps(scale: float, zero_point: int, activation: int = _NONE) -> Clamps:
    """Return the bounds of an output.

    Raises ValueError: the activation has no formula.
    """
    least = product(0 - zero_point, scale)
    most = product(MOST - zero_point, scale)
    if activation == _RELU:
        least = max(least, 0.0)
    elif activation == _RELU6:
        least, most = max(least, 0.0), min(most, 6.0)
    elif activation == _RELU_N1_TO_1:
        least, most = max(least, -1.0), min(most, 1.0)
    elif activation != _NONE:
        raise ValueError(f"the activation {activation} is not understood")
    inverse = reciprocal(scale)
    return Clamps(product(least, inverse), product(most, inverse))


def addition_weights(scale_a: float, scale_b: float) -> tuple[int, int]:
    """Return the integers by which the inputs of an addition are multiplied.

    Their ratio is the best approximation of that of the scales.
    """
    ratio = Fraction(f32(scale_b)) / Fraction(f32(scale_a))
    if ratio <= 1:
        nearest = ratio.limit_denominator(LARGEST_WEIGHT)
        return nearest.denominator, nearest.numerator
    nearest = (1 / ratio).limit_denominator(LARGEST_WEIGHT)
    return nearest.numerator, nearest.denominator


def addition_multiplier(scale_a: float, scale_b: float, scale_out: float) -> float:
    """Return what the weighted sum of an addition is multiplied by.

    It is that of the input with the larger scale, and so the larger weight: this holds
    in all files seen, and the first input in its place does not.
    """
    largest = max(scale_a, scale_b)
    weight = max(addition_weights(scale_a, scale_b))
    return product(f32(f32(largest) / weight), reciprocal(scale_out))
