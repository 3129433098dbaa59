"""The Edge TPU's arithmetic: what its instructions hold for scales and zero points.

The formulas are those of docs/isa/eltwise.md in FrederikRogalski/tinycoral, which found
them in edgetpu_compiler's files: every step is rounded to float32, and instead of a
division by a scale there is a product with its rounded reciprocal. An integer sum is
multiplied by one such number, clamped and rounded half to even (NOTES.md there).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from edgec.ir import Array, TensorType
from edgec.ops.fixed_point import TFLITE_ACTIVATIONS

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


def mean_multiplier(count: int, scale_in: float, scale_out: float) -> float:
    """Return what the sum of an average pool is multiplied by.

    The pool is a convolution whose weights are 1 of the scale 1 / count. For equal scales
    this can be the next float32 of 1 / count, as in edgetpu_compiler's file of
    mobilenet_v1_0.75_192_quant.
    """
    return multiplier(scale_in, reciprocal(count), scale_out)


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


def element_range(act: str, y: TensorType) -> tuple[int, int]:
    """Return the (lowest, highest) int8 elements of an output.

    The chip clamps before it rounds, which is the same as clamping to rounded bounds.
    """
    unsigned_zero = y.zero_point + 128
    bounds = clamps(y.scale, unsigned_zero, TFLITE_ACTIVATIONS.index(act))
    lowest = y.zero_point + int(np.rint(np.float32(bounds.least)))
    highest = y.zero_point + int(np.rint(np.float32(bounds.most)))
    return max(lowest, -128), min(highest, 127)


@dataclass(frozen=True)
class Curve:
    """A function of a real in eight pieces, each a polynomial of degree 4.

    Attributes:
        pieces: the coefficients of each, of x^0 first, of the function in units of
            1 / `unit`
        borders: where the second to eighth piece begin
        bound: the input is clamped to plus and minus this
        unit: steps of the function in 1
        is_odd: whether f(-x) = -f(x), and the pieces are of positive x
    """

    pieces: tuple[tuple[float, ...], ...]
    borders: tuple[float, ...]
    bound: float
    unit: float
    is_odd: bool = False

    def __call__(self, x: Array) -> Array:
        """Return the function of float32 numbers, rounded to float32 at each step.

        The order of the steps on the chip is not known; this is Horner's.
        """
        clamped = np.clip(x, np.float32(-self.bound), np.float32(self.bound))
        inside = np.abs(clamped) if self.is_odd else clamped
        borders = np.array(self.borders, np.float32)
        piece = np.searchsorted(borders, inside, side="right")
        factors = np.array(self.pieces, np.float32)[piece]
        y = factors[..., 4]
        for power in (3, 2, 1, 0):
            y = (y * inside + factors[..., power]).astype(np.float32)
        y = np.copysign(y, clamped) if self.is_odd else y
        return np.asarray(y / np.float32(self.unit), np.float32)


LOGISTIC = Curve(
    (
        (32.082626, 13.857367, 2.2672386, 0.16598408, 0.0045760125),
        (132.63097, 85.70315, 21.859444, 2.58, 0.117780134),
        (135.45853, 82.20974, 16.430658, 0.5211197, -0.12966941),
        (128.00162, 63.97225, -0.32965082, -6.311217, -1.1621366),
        (128.0028, 63.92499, 0.47345105, -6.475306, 1.2242033),
        (110.89018, 98.711784, -26.890657, 3.4358993, -0.17184),
        (195.84106, 29.966818, -5.7082276, 0.49032992, -0.015962048),
        (244.7982, 4.166754, -0.58794147, 0.037229694, -0.00089129084),
    ),
    (-5.639855, -2.965404, -1.34088, 0.08613962, 1.805656, 4.8011794, 8.472422),
    10.396732,
    256.0,
)
"""1 / (1 + e^-x), as instructions of movenet_single_pose_lightning_ptq_edgetpu have it."""
TANH = Curve(
    (
        (-7.96238e-15, 127.482574, 0.45138776, -46.327126, 13.320709),
        (-0.10468256, 128.0749, 0.21384406, -50.053852, 19.04534),
        (-5.8727136, 156.68355, -53.640965, -4.41331, 4.346742),
        (-19.198586, 202.18408, -112.36351, 29.530245, -3.0652459),
        (11.196679, 143.1826, -69.21146, 15.435577, -1.3304117),
        (61.947273, 67.66893, -26.90433, 4.85829, -0.3348069),
        (105.66881, 17.958296, -5.616523, 0.789512, -0.041999277),
        (124.617516, 1.7870325, -0.41762617, 0.043554857, -0.0017088093),
    ),
    (0.3597914, 0.78073186, 1.1744751, 2.0300643, 2.6845171, 3.5472608, 4.83642),
    6.8748,
    127.5,
    is_odd=True,
)
"""The hyperbolic tangent, as instructions of keras_lstm_mnist_ptq_edgetpu have it."""
