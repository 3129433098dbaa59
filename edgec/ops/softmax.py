"""Softmax and its logarithm over the last axis.

Semantics: ONNX Softmax and LogSoftmax; TFLite SOFTMAX and LOG_SOFTMAX
(reference/softmax.h, log_softmax.h).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import frexp, prod
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    Kernel,
    KernelCall,
    KernelFamily,
    KernelRounding,
    OnnxNode,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Sample,
    Table,
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ir.c_structs import AffineParams, SoftmaxParams
from edgec.ir.opdef import Arg
from edgec.ops.common import (
    REAL_KERNELS,
    axis_of,
    real_types,
    rounded_even,
    suffix,
)
from edgec.ops.fixed_point import (
    INT32_MIN,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)
from edgec.ops.gemmlowp import (
    exp_on_negative_values,
    log_of_at_least_one,
    reciprocal_of_one_plus,
)
from edgec.ops.limits import size_evidence
from edgec.ops.shape import Reshape, transpose

_LOG_SOFTMAX = KernelFamily(Kernel("log_softmax", "ek_softmax.h"), ("f32", "s8"))

SOFTMAX = KernelFamily(
    Kernel("softmax", "ek_softmax.h"), (*REAL_KERNELS, "s8"), even=("s8",)
)

SOFTMAX_QUANT = Quant.per_tensor(1 / 256, -128)
"""Output scale of SOFTMAX in TFLite's quantization specification."""
LOG_SOFTMAX_QUANT = Quant.per_tensor(16 / 256, 127)
"""Output scale of LOG_SOFTMAX in TFLite's quantization specification."""

DIFF_BITS = 5
"""Integer bits of beta * (x - max) in TFLite's int8 kernel."""
LITERT_SUM = 512
"""The least sum of exponentials for which LiteRT ends its process."""
SUM_BITS = 12
"""Integer bits of the sum of exponentials in TFLite's int8 kernel."""
_LOG_SHIFT = 31 - DIFF_BITS - 4
"""Bits between int32 with 5 integer bits and TFLite's int8 logarithms, which have 4."""
ROW_MAPPED = 16_384
"""Elements of the longest row seen mapped, where the documentation says 16000."""


@dataclass(frozen=True)
class _Softmax(OpDef):
    """A function of the rows along the last axis."""

    prescribed: ClassVar[Quant]
    """The output scale in int8."""

    def fixed_quant(self) -> Quant:
        """Return the prescribed output scale."""
        return self.prescribed

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of the input, in int8 with the prescribed scale.

        Raises ValueError for a scalar.
        """
        if x[0].rank < 1:
            raise ValueError(f"softmax of {x[0]} has no axis")

        real_types(self, x[0])
        quant = self.prescribed if x[0].dtype == "int8" else None

        return (TensorType(x[0].shape, x[0].dtype, quant),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read the node along its axis.

        Before opset 13 the dimensions from `axis` on (default 1) are joined to one;
        later `axis` (default -1) is one dimension.
        """
        b = node.build
        x = node.input(0)
        shape = x.type.shape
        rank = len(shape)
        joins_axes = node.opset < 13
        axis = axis_of(node.attrs.get("axis", 1 if joins_axes else -1), rank)
        row = prod(shape[axis:])
        if joins_axes and row != shape[-1]:
            flat = b.add(Reshape((prod(shape[:axis]), row)), [x], x.name)
            y = b.add(cls(), [flat], node.name)
            return b.add(Reshape(shape), [y], node.name)

        is_last = joins_axes or axis == rank - 1
        if row == shape[-1] and is_last:
            return b.add(cls(), [x], node.name)

        # The kernels have the rows along the last axis.
        perm = (*(i for i in range(rank) if i != axis), axis)
        y = b.add(cls(), [transpose(b, x, perm)], node.name)

        return transpose(b, y, tuple(perm.index(i) for i in range(rank)))

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef | None:
        """Return the op itself where the last axis stays the last; else None."""
        return self if perm[-1] == len(perm) - 1 else None


@dataclass(frozen=True)
class Softmax(_Softmax):
    """y = exp(beta * x) / Σ exp(beta * x), over the last axis.

    Attributes:
        beta: factor of the exponent
    """

    beta: float = 1.0

    kind = "softmax"
    onnx = ("Softmax",)
    tflite = ("SOFTMAX",)
    edgetpu_versions = {"SOFTMAX": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.FIXED
    prescribed: ClassVar[Quant] = SOFTMAX_QUANT
    edgetpu: ClassVar[bool] = True

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the function shifted by the maximum, in int8 in fixed point.

        int8: TFLite's reference Softmax. Each exponential e has no integer bits, their
        sum 12; the sum is normalized to 1 + s with s in [0, 1), whose reciprocal is
        gemmlowp's one_over_one_plus_x.
        """
        if not yt[0].is_quantized:
            shifted = x[0] - x[0].max(-1, keepdims=True)
            e = np.exp(shifted * np.float32(self.beta))
            return [(e / e.sum(-1, keepdims=True)).astype(np.float32)]

        e, sums = self._terms(x[0], xt[0])
        headroom = 32 - np.ceil(np.log2(sums + 1.0)).astype(np.int64)
        scale = reciprocal_of_one_plus((sums << headroom) - (1 << 31))

        # e times the reciprocal of the sum.
        product = saturating_rounding_doubling_high_mul(scale, e).astype(np.int64)
        # The output has 8 bits.
        shift = SUM_BITS - headroom + 31 - 8
        y = (product + (np.int64(1) << (shift - 1))) >> shift

        return [np.clip(y - 128, -128, 127).astype(yt[0].np_dtype)]

    def _terms(self, x: Array, t: TensorType) -> tuple[Array, Array]:
        """Return the exponentials of int8 elements, and the sums of their rows."""
        e = self.exponentials(t)[_below_maximum(x)].astype(np.int64)

        # Exponentials are not negative, so that half up is half away from zero.
        rounded = (e + (1 << (SUM_BITS - 1))) >> SUM_BITS
        sums = np.minimum(rounded.sum(-1, keepdims=True), (1 << 31) - 1)

        return e, sums

    def ends_litert(self, x: Array, t: TensorType) -> bool:
        """Return whether LiteRT's reference kernel ends its process for these elements.

        It does where the exponentials of a row add up to `LITERT_SUM` or more: it
        asserts that it shifts an int32 by at most 31 bits.
        """
        if not t.is_quantized or t.dtype != "int8" or not x.size:
            return False
        _, sums = self._terms(x, t)
        return bool(sums.max() >= LITERT_SUM << (31 - SUM_BITS))

    def exponentials(self, x: TensorType) -> Array:
        """Return exp(-beta * scale * d) for d = 0 … 255, int32 with no integer bits.

        Differences that are too far to count give 0.
        """
        exponents = self.exponents(x)
        e = exp_on_negative_values(exponents, DIFF_BITS)
        return np.where(exponents == INT32_MIN, 0, e).astype(np.int32)

    def exponents(self, x: TensorType) -> Array:
        """Return -beta * scale * d for d = 0 … 255, int32 with 5 integer bits.

        It is INT32_MIN for differences beyond TFLite's CalculateInputRadius.
        """
        largest = (1 << 31) - 1.0
        real = min(self.beta * x.scale * (1 << (31 - DIFF_BITS)), largest)
        fraction, left_shift = frexp(real)
        multiplier = int(fraction * (1 << 31) + 0.5)
        # A fraction just below 1 may round up to 1.
        if multiplier == 1 << 31:
            multiplier = multiplier // 2
            left_shift = left_shift + 1

        # The largest difference whose product has no more than 5 integer bits.
        range_ = ((1 << DIFF_BITS) - 1) * (1 << (31 - DIFF_BITS))
        radius = int(range_ / (1 << left_shift))

        # Each row looks up the differences from its maximum.
        difference = -np.arange(256, dtype=np.int64)
        is_near = difference >= -radius
        shifted = np.where(is_near, difference << left_shift, 0)
        scaled = saturating_rounding_doubling_high_mul(shifted, multiplier)

        return np.where(is_near, scaled, INT32_MIN).astype(np.int32)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read SOFTMAX."""
        op.build.write(cls(float(op.options.beta)), [op.input(0)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode:
        """Return SOFTMAX; version 2 introduced int8."""
        version = 2 if op.inputs[0].type.dtype == "int8" else 1
        return TfliteCode("SOFTMAX", ("SoftmaxOptions", {"beta": self.beta}), version)

    def c(self, op: Op) -> KernelCall:
        """Return ek_softmax_<type>; the int8 exponentials are a table.

        Operands: x, output, rows, their length, and beta or the table.
        """
        x = op.inputs[0]
        y = op.output
        row = x.type.shape[-1]
        rows = x.type.size // row
        if y.type.is_quantized:
            table = Table(self.exponentials(x.type), "exps")
            return KernelCall.of(SOFTMAX.of("s8"), x, y, rows, row, table)

        spec = SoftmaxParams(beta=self.beta)

        return KernelCall.of(SOFTMAX.of("f32"), x, y, rows, row, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield short and long rows, a beta, and wide and narrow scales."""
        cases = (
            ("row", cls(), (1, 10), 0.1),
            ("rows", cls(0.5), (2, 3, 4, 21), 0.03),
            ("peaked", cls(), (8, 100), 0.9),
            ("flat", cls(), (8, 64), 0.001),
        )
        for label, spec, shape, scale in cases:
            yield Sample(spec, (Arg(TensorType(shape)),), label=label)
            x = Arg(TensorType(shape, "int8", Quant.per_tensor(scale, 3)))
            yield Sample(spec, (x,), SOFTMAX_QUANT, f"{label}_s8")

    @edgetpu_rule(fix="keep the softmax on the CPU: it is a small part of the work")
    def _row_length(self, op: Op) -> str | None:
        """SOFTMAX: rows of at most 16384 elements."""
        row = op.inputs[0].type.shape[-1]
        return size_evidence(row, ROW_MAPPED, None, f"rows of {row} elements")


@dataclass(frozen=True)
class RoundedSoftmax(OpDef):
    """An int8 softmax into any scale, as ONNX has it between conversions.

    The float32 softmax of dequantized integers is rounded half to even.

    Attributes:
        beta: factor of the exponent
    """

    beta: float = 1.0

    kind = "rounded_softmax"
    quant: ClassVar[QuantRule] = QuantRule.FREE

    def as_tflite(self) -> OpDef:
        """Return TFLite's softmax, whose output has a prescribed scale."""
        return Softmax(self.beta)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return int8 of the input's shape; raises ValueError for other types."""
        if x[0].rank < 1 or x[0].dtype != "int8":
            raise ValueError(f"{self.kind} of {x[0]}; it is a function of int8 rows")
        return (TensorType(x[0].shape, "int8"),)

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef | None:
        """Return the op itself where the last axis stays the last; else None."""
        return self if perm[-1] == len(perm) - 1 else None

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the quotients in double, and their steps in float32.

        The sums are of integers, so that they do not depend on the order.
        """
        e = self._exponentials(xt[0])[_below_maximum(x[0])]
        reciprocal = 1.0 / e.sum(-1, keepdims=True, dtype=np.int64)
        quotient = (e * reciprocal).astype(np.float32)
        steps = quotient / np.float32(yt[0].scale)

        return [rounded_even(steps, yt[0], (-128, 127)).astype(np.int8)]

    def _exponentials(self, x: TensorType) -> Array:
        """Return exp(-beta * scale * d) for d = 0 … 255, int32 with 30 fraction bits."""
        exponents = np.arange(256) * -(self.beta * x.scale)
        table: Array = np.rint(np.exp(exponents) * (1 << 30)).astype(np.int32)
        return table

    def c(self, op: Op) -> KernelCall:
        """Return ek_softmax_even_s8.

        Operands: x, output, rows, their length, exponentials, scale and zero point.
        """
        x = op.inputs[0]
        y = op.output
        row = x.type.shape[-1]
        rows = x.type.size // row
        table = Table(self._exponentials(x.type), "exps")
        affine = AffineParams(scale=float(y.type.scale), zero=y.type.zero_point)
        kernel = SOFTMAX.of("s8", KernelRounding.EVEN)

        return KernelCall.of(kernel, x, y, rows, row, table, affine)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield the whole range of a file's scale, and a finer and a coarser one."""
        cases = (
            ("row", (1, 10), 0.1, Quant.per_tensor(1 / 255, -128)),
            ("rows", (2, 3, 4, 21), 0.03, Quant.per_tensor(1 / 2000, -100)),
            ("peaked", (8, 100), 0.9, Quant.per_tensor(1 / 100, -50)),
        )
        for label, shape, scale, output_quant in cases:
            x = Arg(TensorType(shape, "int8", Quant.per_tensor(scale, 3)))
            yield Sample(cls(), (x,), output_quant, label)


@dataclass(frozen=True)
class LogSoftmax(_Softmax):
    """y = x - log Σ exp(x), over the last axis.

    int8 is as in TFLite's reference kernel, but that a sum of exponentials ends at 4096
    and does not wrap around.
    """

    kind = "log_softmax"
    onnx = ("LogSoftmax",)
    tflite = ("LOG_SOFTMAX",)
    prescribed: ClassVar[Quant] = LOG_SOFTMAX_QUANT

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the function shifted by the maximum, which keeps exp from overflow.

        The largest exponent is then 0. int8 results are steps of 1/16.
        """
        if xt[0].dtype == "float32":
            shifted = x[0] - x[0].max(-1, keepdims=True)
            total = np.exp(shifted).sum(-1, keepdims=True)
            return [(shifted - np.log(total)).astype(np.float32)]

        # Both functions have the same exponentials in fixed point.
        softmax = Softmax()
        _, sums = softmax._terms(x[0], xt[0])
        exponents = softmax.exponents(xt[0])[_below_maximum(x[0])].astype(np.int64)
        log = exponents - log_of_at_least_one(sums)
        y = rounding_divide_by_pot(log, _LOG_SHIFT) + LOG_SOFTMAX_QUANT.zero_point[0]

        return [np.clip(y, -128, 127).astype(np.int8)]

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read LOG_SOFTMAX; raises ValueError for an int8 output of another scale."""
        y = op.outputs[0].type
        if y.is_quantized and y.quant != cls.prescribed:
            raise ValueError(f"the output {y}; TFLite has the scale 1/16, up to 0")
        op.build.write(cls(), [op.input(0)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return LOG_SOFTMAX, whose version 2 introduced int8.

        None for int8 rows whose sums may wrap around in LiteRT.
        """
        x = op.inputs[0].type
        if x.dtype == "float32":
            return TfliteCode("LOG_SOFTMAX", ("LogSoftmaxOptions", {}))
        # Each exponential may be 1, and the sum has 12 integer bits.
        if x.shape[-1] >= 1 << SUM_BITS:
            return None
        return TfliteCode("LOG_SOFTMAX", ("LogSoftmaxOptions", {}), 2)

    def c(self, op: Op) -> KernelCall:
        """Return ek_log_softmax_<type>.

        Operands: x, output, rows, their length, and two tables of the int8 kernel.
        """
        x = op.inputs[0]
        y = op.output
        row = x.type.shape[-1]
        operands = (x, y, x.type.size // row, row)
        kernel = _LOG_SOFTMAX.of(suffix(y.type))
        if x.type.dtype == "float32":
            return KernelCall.of(kernel, *operands)

        exponents = Table(Softmax().exponents(x.type), "exponents")
        exponentials = Table(Softmax().exponentials(x.type), "exps")

        return KernelCall.of(kernel, *operands, exponents, exponentials)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield one row, and several, and in int8 wide and narrow scales."""
        yield Sample(cls(), (Arg(TensorType((1, 10))),))
        yield Sample(cls(), (Arg(TensorType((2, 3, 21))),), label="rows")
        for shape, scale in (((1, 10), 0.1), ((2, 3, 21), 0.9), ((8, 64), 0.001)):
            x = Arg(TensorType(shape, "int8", Quant.per_tensor(scale, 3)))
            yield Sample(cls(), (x,), LOG_SOFTMAX_QUANT, f"{scale}_s8")


def _below_maximum(x: Array) -> Array:
    """Return how far int8 elements are below the largest one of their row."""
    difference: Array = x.max(-1, keepdims=True).astype(np.int64) - x
    return difference
