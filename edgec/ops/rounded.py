"""int8 functions of one element as onnxruntime rounds them: any scales, the real result
to the nearest integer.
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
    Sample,
    Table,
    TensorType,
)
from edgec.ir.opdef import Arg
from edgec.ops.lut import INPUTS, clamp8
from edgec.ops.quantize import Quantize
from edgec.ops.unary import Unary

IDENTITY = "identity"
"""The function that only changes the scale."""


@dataclass(frozen=True)
class Rounded(OpDef):
    """fn(x, args…), the name of an operation, or `IDENTITY`."""

    fn: str
    args: tuple[float | None, ...] = ()

    kind = "rounded"
    quant: ClassVar[QuantRule] = QuantRule.FREE
    elementwise: ClassVar[bool] = True

    def as_tflite(self) -> OpDef:
        """The operation; its output may have a prescribed scale there."""
        if self.fn == IDENTITY:
            return Quantize()
        return OpDef.registry[self.fn](*self.args)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The shape of the input, which is int8."""
        if x[0].dtype != "int8":
            raise ValueError(f"{self.fn} of {x[0]}; it is a function of int8")
        return (TensorType(x[0].shape, "int8"),)

    def table(self, x: TensorType, y: TensorType) -> Array:
        """The outputs for -128 … 127; what is not a number becomes the zero point."""
        real = np.float32(x.scale) * (INPUTS - x.zero_point).astype(np.float32)
        spec = self.as_tflite()
        if isinstance(spec, Unary):
            value = spec.f(real.astype(np.float64)).astype(np.float32)
        else:
            value = real
        with np.errstate(all="ignore"):
            steps = np.nan_to_num(
                np.rint(value / np.float32(y.scale)), posinf=1e6, neginf=-1e6
            )
        return clamp8(steps.astype(np.float64) + y.zero_point)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """The table."""
        return [self.table(xt[0], yt[0])[x[0].astype(np.int64) + 128]]

    def c(self, op: Op) -> KernelCall:
        """ek_lut_s8."""
        x = op.inputs[0]
        y = op.output
        return KernelCall.of(
            "ek_lut_s8", x, y, x.type.size, Table(self.table(x.type, y.type), "lut")
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """A prescribed scale that is another, one with an attribute, and none but the
        scales.
        """
        x = TensorType((1, 3, 4, 5), "int8", Quant.per_tensor(0.05, -3))
        yield Sample(
            cls("logistic"), (Arg(x),), Quant.per_tensor(0.0031, -120), "logistic"
        )
        yield Sample(
            cls("leaky_relu", (0.1,)),
            (Arg(x),),
            Quant.per_tensor(0.04, -70),
            "leaky_relu",
        )
        yield Sample(cls(IDENTITY), (Arg(x),), Quant.per_tensor(0.031, 5), IDENTITY)
