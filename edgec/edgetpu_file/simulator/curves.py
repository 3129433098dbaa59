"""The curves that a computing unit applies: eight polynomials of degree 4."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgec.edgetpu_file.fields import bits_float
from edgec.edgetpu_file.simulator.chip import Array, Chip, NotUnderstoodError, Work
from edgec.edgetpu_file.stream import Instruction

_PIECES = 8
_TERMS = 5


@dataclass(frozen=True)
class LoadedCurve:
    """A function of a real.

    Attributes:
        pieces: the coefficients of each piece, of x^0 first [8, 5]
        borders: where the second to eighth piece begin [7]
    """

    pieces: Array
    borders: Array

    def of(self, i: Instruction, x: Array) -> Array:
        """Return the function of numbers, in float32 as Horner's scheme rounds it.

        With `powers` it is 1 / sqrt(x) up to a factor: x is m * 4^k with m from 1 to 4,
        and the function of m is divided by 2^k.

        Raises:
            NotUnderstoodError: such a number is negative
        """
        if not i.value("powers"):
            return self._polynomial(x)
        if not ((x >= 0) & np.isfinite(x)).all():
            raise NotUnderstoodError(i, "it has powers of a negative number")
        exponent = (np.frexp(x)[1] - 1) // 2
        scaled = self._polynomial(np.ldexp(x, -2 * exponent))
        # Channels without inputs have sums of 0; their results are not read.
        return np.where(x > 0, np.ldexp(scaled, -exponent), np.float32(0))

    def _polynomial(self, x: Array) -> Array:
        terms = self.pieces[np.searchsorted(self.borders, x, side="right")]
        y = terms[..., _TERMS - 1]
        for k in range(_TERMS - 2, -1, -1):
            y = y * x + terms[..., k]
        return y


def load_curve(chip: Chip, tile: int, i: Instruction) -> Work:
    """Load a curve for the computing instructions that follow."""
    pieces = [
        [bits_float(i.value(f"piece{p}.x{k}")) for k in range(_TERMS)]
        for p in range(_PIECES)
    ]
    borders = [bits_float(i.value(f"border{k}")) for k in range(_PIECES - 1)]
    chip.curves[tile] = LoadedCurve(
        np.array(pieces, np.float32), np.array(borders, np.float32)
    )
    yield from ()
