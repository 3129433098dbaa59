"""Division, of integers as C has it.

Semantics: the ONNX and TFLite operators of the same names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import Array, QuantRule, Sample, TensorType
from edgec.ir.opdef import Arg
from edgec.ops.binary import Binary, Fused
from edgec.ops.common import ARITHMETIC_KERNELS, INTEGERS
from edgec.ops.elementwise_kernels import binary_kernels


def _div(a: Array, b: Array) -> Array:
    """Return a / b; integer quotients are cut off towards zero, as C does.

    An integer divided by 0 gives 0, and the least integer by -1 wraps.
    """
    if a.dtype.kind == "f":
        return np.asarray(a / b)

    divisor = np.where(b == 0, b.dtype.type(1), b)

    # numpy's quotient is rounded down: one more where it is negative and inexact.
    is_negative = (a < 0) != (divisor < 0)
    is_inexact = a % divisor != 0
    quotient = a // divisor + (is_inexact & is_negative)

    return np.where(b == 0, 0, quotient)


class Division(Binary):
    """A binary op of integers too, whose sampled divisors are not 0."""

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield samples as all binary ops, and integers by divisors of both signs."""
        yield from super().samples()
        signed = np.array([-7, -2, -1, 1, 2, 3])
        for dtype in INTEGERS:
            # Unsigned types have no negative divisors.
            divisors = signed if dtype.startswith("i") else np.abs(signed)
            divisor = Arg(TensorType((6,), dtype), True, divisors.astype(dtype))
            dividend = Arg(TensorType((2, 50, 6), dtype))
            yield Sample(cls(), (dividend, divisor), label=dtype)


@dataclass(frozen=True)
class Div(Division, Fused):
    """y = a / b; integers towards zero."""

    kind = "div"
    kernels = binary_kernels("div", ARITHMETIC_KERNELS)
    onnx = ("Div",)
    tflite = ("DIV",)
    options = "DivOptions"
    fn = staticmethod(_div)
    tflite_types: ClassVar[tuple[str, ...]] = ("float32", "int32")
    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    sampled: ClassVar[tuple[str, ...]] = ("float32",)
