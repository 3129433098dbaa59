"""int8 functions of one element as onnxruntime's quantized operators or the Edge TPU
round them.

y = round(fn(x) / scale_y) + zero_y, half to even, with any scales; TFLite prescribes
some scales and computes some functions in fixed point. The Edge TPU multiplies by a
reciprocal, and computes LOGISTIC and TANH by polynomials.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    KernelCall,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Rounding,
    Sample,
    Table,
    TensorType,
)
from edgec.ir.opdef import Arg
from edgec.ops import edgetpu_law
from edgec.ops.elementwise_kernels import LUT
from edgec.ops.lut import INPUTS, clamp8
from edgec.ops.quantize import Quantize
from edgec.ops.unary import LOGISTIC_QUANT, TANH_QUANT, Unary

IDENTITY = "identity"
"""Name of the function that only changes the scale."""
EDGETPU_CURVES = {"logistic": edgetpu_law.LOGISTIC, "tanh": edgetpu_law.TANH}
"""Functions that the Edge TPU computes by polynomials."""
EDGETPU_FUNCTIONS = (*EDGETPU_CURVES, "relu", "relu6", "relu_n1_to_1")
"""Functions of which its arithmetic is known."""
_EDGETPU_SAMPLES = (
    ("logistic", LOGISTIC_QUANT),
    ("tanh", TANH_QUANT),
    ("relu6", Quant.per_tensor(0.031, 5)),
    (IDENTITY, Quant.per_tensor(0.031, 5)),
)


@dataclass(frozen=True)
class Rounded(OpDef):
    """An int8 function by its table of 256 outputs.

    Attributes:
        fn: the kind of an operation of one input, or `IDENTITY`
        args: the attributes of that operation
        rounding: the arithmetic, onnxruntime's or the Edge TPU's
    """

    fn: str
    args: tuple[float | None, ...] = ()
    rounding: Rounding = Rounding.ONNXRUNTIME

    kind = "rounded"
    quant: ClassVar[QuantRule] = QuantRule.FREE
    elementwise: ClassVar[bool] = True

    def as_tflite(self) -> OpDef:
        """Return the operation itself, whose output may have a prescribed scale."""
        # A requantization without a function.
        if self.fn == IDENTITY:
            return Quantize()
        return OpDef.registry[self.fn](*self.args)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return int8 of the input's shape.

        Raises ValueError when the input is not int8.
        """
        if x[0].dtype != "int8":
            raise ValueError(f"{self.fn} of {x[0]}; it is a function of int8")

        return (TensorType(x[0].shape, "int8"),)

    def table(self, x: TensorType, y: TensorType) -> Array:
        """Return the outputs for -128 … 127.

        The function is taken in double and rounded to float32. A result that is not a
        number becomes the zero point; infinities saturate.
        """
        steps = (INPUTS - x.zero_point).astype(np.float32)
        if self.rounding.is_edgetpu:
            return self._edgetpu_table(steps, x, y)

        real = np.float32(x.scale) * steps

        # The identity has no function.
        spec = self.as_tflite()
        if isinstance(spec, Unary):
            value = spec.f(real.astype(np.float64)).astype(np.float32)
        else:
            value = real

        with np.errstate(all="ignore"):
            rounded = np.rint(value / np.float32(y.scale))
            finite = np.nan_to_num(rounded, posinf=1e6, neginf=-1e6)

        return clamp8(finite.astype(np.float64) + y.zero_point)

    def _edgetpu_table(self, steps: Array, x: TensorType, y: TensorType) -> Array:
        """Return the outputs for inputs less their zero point, as the chip has them."""
        curve = EDGETPU_CURVES.get(self.fn)
        if curve is not None:
            value = curve(np.float32(x.scale) * steps)
            result = np.rint(value / np.float32(y.scale))
            return clamp8(result.astype(np.float64) + y.zero_point)

        factor = edgetpu_law.product(x.scale, edgetpu_law.reciprocal(y.scale))
        result = np.rint(np.float32(factor) * steps)
        act = "none" if self.fn == IDENTITY else self.fn
        low, high = edgetpu_law.element_range(act, y)
        return clamp8(result.astype(np.float64) + y.zero_point, low, high)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute a look-up in the table, whose first entry is for -128."""
        # One look-up for each element.
        table = self.table(xt[0], yt[0])
        return [table[x[0].astype(np.int64) + 128]]

    def c(self, op: Op) -> KernelCall:
        """Return ek_lut_s8.

        All such functions share the kernel; the table differs.
        """
        x = op.inputs[0]
        y = op.output
        table = Table(self.table(x.type, y.type), "lut")
        return KernelCall.of(LUT, x, y, x.type.size, table)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield a function with a scale other than the prescribed one, one with an
        attribute, and the identity.
        """
        x = Arg(TensorType((1, 3, 4, 5), "int8", Quant.per_tensor(0.05, -3)))
        cases = (
            (cls("logistic"), Quant.per_tensor(0.0031, -120)),
            (cls("leaky_relu", (0.1,)), Quant.per_tensor(0.04, -70)),
            (cls(IDENTITY), Quant.per_tensor(0.031, 5)),
            *((cls(fn, (), Rounding.EDGETPU), quant) for fn, quant in _EDGETPU_SAMPLES),
        )
        for spec, output_quant in cases:
            yield Sample(spec, (x,), output_quant, f"{spec.fn}_{spec.rounding.value}")
