"""Softmax and its logarithm over the last axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import frexp, prod
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    KernelCall,
    OnnxNode,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Sample,
    Struct,
    Table,
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ir.opdef import Arg
from edgec.ops.common import axis_of, real_types, suffix
from edgec.ops.fixed_point import saturating_rounding_doubling_high_mul
from edgec.ops.gemmlowp import exp_on_negative_values, reciprocal_of_one_plus
from edgec.ops.limits import within
from edgec.ops.shape import Reshape, transpose

SOFTMAX_QUANT = Quant.per_tensor(1 / 256, -128)
LOG_SOFTMAX_QUANT = Quant.per_tensor(16 / 256, 127)
"""The output scales that TFLite's specification prescribes."""

_DIFF_BITS = 5  # integer bits of beta * (x - max)
_SUM_BITS = 12  # integer bits of the sum of exponentials
# elements of the longest row seen mapped, where the documentation says 16000
_ROW_MAPPED = 16_384


@dataclass(frozen=True)
class _Softmax(OpDef):
    """Over the last axis."""

    prescribed: ClassVar[Quant]
    int8: ClassVar[bool]

    def fixed_quant(self) -> Quant:
        """The prescribed output scale."""
        return self.prescribed

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The type of the input."""
        if x[0].rank < 1:
            raise ValueError(f"softmax of {x[0]} has no axis")
        real_types(self, x[0], int8=self.int8)
        return (
            TensorType(
                x[0].shape,
                x[0].dtype,
                self.prescribed if x[0].dtype == "int8" else None,
            ),
        )

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Before opset 13 the dimensions from `axis` on (default 1) are one; later
        `axis` (default -1) is alone.
        """
        b = node.build
        x = node.input(0)
        shape = x.type.shape
        axis = axis_of(node.attrs.get("axis", 1 if node.opset < 13 else -1), len(shape))
        if node.opset < 13 and prod(shape[axis:]) != shape[-1]:
            flat = b.add(Reshape((prod(shape[:axis]), prod(shape[axis:]))), [x], x.name)
            return b.add(Reshape(shape), [b.add(cls(), [flat], node.name)], node.name)
        if prod(shape[axis:]) == shape[-1] and (
            node.opset < 13 or axis == len(shape) - 1
        ):
            return b.add(cls(), [x], node.name)
        perm = (*(i for i in range(len(shape)) if i != axis), axis)
        y = b.add(cls(), [transpose(b, x, perm)], node.name)
        return transpose(b, y, tuple(perm.index(i) for i in range(len(shape))))

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef | None:
        """Only what leaves the last axis where it is."""
        return self if perm[-1] == len(perm) - 1 else None


@dataclass(frozen=True)
class Softmax(_Softmax):
    """exp(beta * x) / Σ exp(beta * x)."""

    beta: float = 1.0

    kind = "softmax"
    onnx = ("Softmax",)
    tflite = ("SOFTMAX",)
    edgetpu_versions = {"SOFTMAX": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.FIXED
    prescribed: ClassVar[Quant] = SOFTMAX_QUANT
    int8: ClassVar[bool] = True
    edgetpu: ClassVar[bool] = True

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """Float: shifted by the maximum. int8: TFLite's reference Softmax in gemmlowp's
        fixed point.
        """
        if not yt[0].is_quantized:
            e = np.exp((x[0] - x[0].max(-1, keepdims=True)) * np.float32(self.beta))
            return [(e / e.sum(-1, keepdims=True)).astype(np.float32)]
        e = self.exponentials(xt[0])[
            x[0].max(-1, keepdims=True).astype(np.int64) - x[0]
        ].astype(np.int64)
        # e is not negative
        sums = ((e + (1 << (_SUM_BITS - 1))) >> _SUM_BITS).sum(-1, keepdims=True)
        sums = np.minimum(sums, (1 << 31) - 1)
        headroom = 32 - np.ceil(np.log2(sums + 1.0)).astype(np.int64)
        scale = reciprocal_of_one_plus((sums << headroom) - (1 << 31))
        product = saturating_rounding_doubling_high_mul(scale, e).astype(np.int64)
        shift = _SUM_BITS - headroom + 31 - 8
        y = (product + (np.int64(1) << (shift - 1))) >> shift
        return [np.clip(y - 128, -128, 127).astype(yt[0].np_dtype)]

    def exponentials(self, x: TensorType) -> Array:
        """exp(-beta * scale * d) for d = 0 … 255 with no integer bits (int32); 0 where
        it is too small to count.
        """
        real = min(self.beta * x.scale * (1 << (31 - _DIFF_BITS)), (1 << 31) - 1.0)
        fraction, left = frexp(real)
        multiplier = int(fraction * (1 << 31) + 0.5)
        if multiplier == 1 << 31:
            multiplier = multiplier // 2
            left = left + 1
        radius = int(((1 << _DIFF_BITS) - 1) * (1 << (31 - _DIFF_BITS)) / (1 << left))
        d = -np.arange(256, dtype=np.int64)
        scaled = saturating_rounding_doubling_high_mul(
            np.where(d >= -radius, d << left, 0), multiplier
        )
        return np.where(
            d >= -radius, exp_on_negative_values(scaled, _DIFF_BITS), 0
        ).astype(np.int32)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """SOFTMAX."""
        op.build.write(cls(float(op.options.beta)), [op.input(0)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode:
        """Version 2 is int8."""
        version = 2 if op.inputs[0].type.dtype == "int8" else 1
        return TfliteCode("SOFTMAX", ("SoftmaxOptions", {"beta": self.beta}), version)

    def c(self, op: Op) -> KernelCall:
        """ek_softmax_<type>; the int8 exponentials are a table."""
        x = op.inputs[0]
        y = op.output
        n = x.type.shape[-1]
        args = (x, y, x.type.size // n, n)
        if y.type.is_quantized:
            return KernelCall.of(
                "ek_softmax_s8", *args, Table(self.exponentials(x.type), "exps")
            )
        return KernelCall.of(
            "ek_softmax_f32", *args, Struct("ek_softmax_t", beta=self.beta)
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Short and long rows, beta, wide and narrow scales."""
        for label, spec, shape, scale in (
            ("row", cls(), (1, 10), 0.1),
            ("rows", cls(0.5), (2, 3, 4, 21), 0.03),
            ("peaked", cls(), (8, 100), 0.9),
            ("flat", cls(), (8, 64), 0.001),
        ):
            yield Sample(spec, (Arg(TensorType(shape)),), label=label)
            x = TensorType(shape, "int8", Quant.per_tensor(scale, 3))
            yield Sample(spec, (Arg(x),), SOFTMAX_QUANT, f"{label}_s8")

    @edgetpu_rule(fix="keep the softmax on the CPU: it is a small part of the work")
    def _row_length(self, op: Op) -> str | None:
        """SOFTMAX: rows of at most 16384 elements."""
        x = op.inputs[0].type
        return within(x.shape[-1], _ROW_MAPPED, None, f"rows of {x.shape[-1]} elements")


@dataclass(frozen=True)
class LogSoftmax(_Softmax):
    """x - log Σ exp(x)."""

    kind = "log_softmax"
    onnx = ("LogSoftmax",)
    tflite = ("LOG_SOFTMAX",)
    prescribed: ClassVar[Quant] = LOG_SOFTMAX_QUANT
    int8: ClassVar[bool] = False

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """Shifted by the maximum."""
        shifted = x[0] - x[0].max(-1, keepdims=True)
        return [
            (shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))).astype(
                np.float32
            )
        ]

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """LOG_SOFTMAX."""
        op.build.write(cls(), [op.input(0)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode:
        """Version 1."""
        return TfliteCode("LOG_SOFTMAX", ("LogSoftmaxOptions", {}))

    def c(self, op: Op) -> KernelCall:
        """ek_log_softmax_f32."""
        x = op.inputs[0]
        y = op.output
        n = x.type.shape[-1]
        return KernelCall.of(
            f"ek_log_softmax_{suffix(y.type)}", x, y, x.type.size // n, n
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Rows."""
        yield Sample(cls(), (Arg(TensorType((1, 10))),))
        yield Sample(cls(), (Arg(TensorType((2, 3, 21))),), label="rows")
