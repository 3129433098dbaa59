"""The numbers of a SOFTMAX on the tiles: what its steps and its parameters have.

The steps are those of docs/edgetpu-chip.md. Where the classes lie on several tiles, two
more steps gather them, and the scale of the inputs is not in a step but, once for each
class, among the parameters. That all three files with this form of it (MobileNet v1 with
1001 classes) follow from these formulas is the evidence for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgec.edgetpu_file.reuse import packing
from edgec.edgetpu_file.reuse.program import Numbers, Step
from edgec.ops.edgetpu_law import MOST, clamps, f32, product

_UNIT = 65535.0
"""e^0 in the 16 bits of the powers."""
_LEAST_EXPONENT = -13.038098335266113
"""The curve of e^d is clamped to it."""
_LARGEST_INVERSE = 32768.0
"""The reciprocal of the sum, 32767 / t, is clamped to it."""
_SHARE = 1.1921416387394856e-07
"""The multiplier of the product of a power and that reciprocal, in all files."""
_ROW = 16
"""Numbers of 4 bytes for each four classes, of which the first four are factors."""


def softmax_steps(
    scale: float, factor: float, zero_point: int, by_class: bool
) -> Sequence[Numbers]:
    """Return the numbers of the steps, in their order.

    Args:
        scale: of the inputs
        factor: the scale times beta
        zero_point: of the inputs
        by_class: whether the factor is among the parameters
    """
    inputs = clamps(scale, zero_point)
    bound = clamps(scale, 0).most
    largest = Numbers(
        1.0, inputs.most, inputs.least, 0, zero_point, zero_point, -zero_point
    )
    below = Numbers(1.0, 0.0, -bound, 0, 1, MOST, 0)
    powers = Numbers(1.0 if by_class else factor, 0.0, _LEAST_EXPONENT, MOST, 0, 0, 0)
    shares = (
        Numbers(f32(1 / _UNIT), math.inf, -math.inf, 0, 0, 0, 0),
        Numbers(f32(1 / _UNIT), _LARGEST_INVERSE, 0.0, 0, 0, 0, 0),
        Numbers(_SHARE, float(MOST), 0.0, 0, 0, 0, 0),
    )
    if not by_class:
        return largest, below, powers, *shares
    gathered = Numbers(1.0, inputs.most, inputs.least, zero_point, 0, zero_point, 0)
    moved = Numbers(1.0, 0.0, -bound, MOST, 0, MOST, 0)
    joined = Numbers(1.0, _UNIT, 0.0, 0, 0, 0, 0)
    return gathered, largest, below, moved, powers, joined, *shares


def is_by_class(step: Step) -> bool:
    """Return whether a first step gathers the classes of several tiles.

    Only files with a zero point are known, in which it differs from the next step.
    """
    return step.numbers.in_zero != 0


def factors(factor: float, classes: int) -> bytes:
    """Return the parameters with a factor for each class.

    Those of classes that are not there have the factor times the largest float32.
    """
    with np.errstate(over="ignore"):  # infinite for factors above 1
        unused = product(factor, float(np.finfo(np.float32).max))
    values = np.full(packing.up(classes, packing.DEPTH), unused, "<f4")
    values[:classes] = factor
    return rows(values.view("<i4"))


def rows(values: NDArray[np.int32]) -> bytes:
    """Return numbers as the first four of each row."""
    table = np.zeros((len(values) // packing.DEPTH, _ROW), "<i4")
    table[:, : packing.DEPTH] = values.reshape(-1, packing.DEPTH)
    return table.tobytes()


def factor_of(parameters: bytes) -> float:
    """Return the factor of the first class."""
    return float(np.frombuffer(parameters, "<f4", 1)[0])
