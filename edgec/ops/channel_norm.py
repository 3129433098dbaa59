"""Normalization of each pixel by its channels: L2, and local response.

Semantics: ONNX LpNormalization and LRN; TFLite L2_NORMALIZATION
(reference/l2normalization.h) and LOCAL_RESPONSE_NORMALIZATION.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    Kernel,
    KernelCall,
    KernelFamily,
    OnnxNode,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Rounding,
    Sample,
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
    Versions,
)
from edgec.ir.c_structs import L2NormParams, LrnParams
from edgec.ir.opdef import Arg
from edgec.ops.common import axis_of, float_kernel, real_types, suffix
from edgec.ops.compositions import by_magnitudes
from edgec.ops.fixed_point import (
    multiply_by_quantized_multiplier,
    saturating_rounding_doubling_high_mul,
)
from edgec.ops.fused_activation import write_activated
from edgec.ops.norm import channels_last
from edgec.ops.shape import transpose

_L2_NORM = KernelFamily(Kernel("l2_norm", "ek_channel_norm.h"), ("f32", "s8"))

LRN = float_kernel("lrn", "ek_channel_norm.h")
"""Local response normalization."""

_F = np.float32
_ONE_AND_A_HALF = (1 << 28) + (1 << 27)
"""3/2 with three integer bits."""
_HALF_SQRT_2 = 1518500250
"""sqrt(2) / 2 with no integer bits."""

OUTPUT_SHIFT = 7
"""log2 of the factor 128 of the output scale 1/128."""


@dataclass(frozen=True)
class L2Norm(OpDef):
    """y = x / max(sqrt(Σ x²), eps), summed over the last axis.

    The int8 output has the scale 1/128 and zero point 0. Its factor 128 goes into the
    shift of the last product in TFLite's int8 kernel, and into its operand in the uint8
    kernel: that decides where it rounds. Both found by experiment on TFLite's reference
    kernels.

    Attributes:
        eps: least norm; int8 has none
        rounding: the arithmetic of int8
    """

    eps: float = 1e-6
    rounding: Rounding = Rounding.TFLITE

    kind = "l2_norm"
    onnx = ("LpNormalization",)
    tflite = ("L2_NORMALIZATION",)
    edgetpu_versions = {"L2_NORMALIZATION": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.FIXED
    edgetpu: ClassVar[bool] = True

    def fixed_quant(self) -> Quant:
        """Return the prescribed scale 1/128."""
        return Quant.per_tensor(1 / 128)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of x, with the prescribed scale in int8.

        Raises ValueError for a scalar, and for elements that stand for no reals.
        """
        if x[0].rank == 0:
            raise ValueError(f"{x[0]} has no axis")

        real_types(self, x[0])
        quant = self.fixed_quant() if x[0].dtype == "int8" else None

        return (x[0].with_quant(quant),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the norm in float32, or the inverse norm in fixed point.

        int8: (x - zero_x) times the fixed-point 1 / sqrt(Σ (x - zero_x)²), as TFLite's
        reference kernel does; the scale of x cancels out.
        """
        if xt[0].dtype == "float32":
            squares = x[0] * x[0]
            norm = np.sqrt(squares.sum(-1, keepdims=True, dtype=_F))
            return [(x[0] / np.maximum(norm, _F(self.eps))).astype(_F)]

        rows = x[0].astype(np.int32).reshape(-1, xt[0].shape[-1])
        centred = rows - xt[0].zero_point
        sums = (centred.astype(np.int64) ** 2).sum(1)
        inverses = [inverse_sqrt(int(total)) for total in sums]
        multiplier = np.array([m for m, _ in inverses], np.int32)[:, None]
        shift = np.array([s for _, s in inverses], np.int32)[:, None]

        # Either the operand or the result is shifted by 7 bits.
        bits = self._operand_bits()
        final_shift = shift + OUTPUT_SHIFT - bits
        y = multiply_by_quantized_multiplier(centred << bits, multiplier, final_shift)

        return [np.clip(y, -128, 127).astype(np.int8).reshape(xt[0].shape)]

    def _operand_bits(self) -> int:
        """Return the bits by which the operand of the last product is shifted."""
        return OUTPUT_SHIFT if self.rounding is Rounding.TFLITE_UINT8 else 0

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read LpNormalization along any axis; a row of zeros stays zero."""
        b = node.build
        x = node.input(0)
        rank = x.type.rank
        axis = axis_of(node.attrs.get("axis", -1), rank)
        if node.attrs.get("p", 2) == 1:
            return by_magnitudes(b, x, axis, node.name)

        # The least norm only keeps zeros from being divided by zero.
        spec = cls(eps=1e-30)
        if axis == rank - 1:
            return b.add(spec, [x], node.name)

        # The op works along the last axis.
        order = (*(i for i in range(rank) if i != axis), axis)
        y = b.add(spec, [transpose(b, x, order)], node.name)

        return transpose(b, y, tuple(order.index(i) for i in range(rank)))

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read L2_NORMALIZATION, along the last axis."""
        write_activated(op, cls(rounding=op.rounding), [op.input(0)])

    def tflite_needs_uint8(self, op: Op) -> bool:
        """Return whether it rounds where only the uint8 kernel rounds."""
        is_int8 = op.output.type.dtype == "int8"
        return is_int8 and self.rounding is Rounding.TFLITE_UINT8

    def to_tflite(self, op: Op) -> TfliteCode:
        """Return L2_NORMALIZATION; version 2 introduced int8.

        The fused activation is none.
        """
        version = 2 if op.inputs[0].type.dtype == "int8" else 1
        options = ("L2NormOptions", {"fusedActivationFunction": 0})
        return TfliteCode("L2_NORMALIZATION", options, version)

    def c(self, op: Op) -> KernelCall:
        """Return ek_l2_norm_<type>."""
        x = op.inputs[0].type
        row = x.shape[-1]
        spec = L2NormParams(
            rows=x.size // max(1, row),
            n=row,
            eps=self.eps,
            zero=x.zero_point if x.dtype == "int8" else 0,
            bits=self._operand_bits(),
        )

        return KernelCall.of(_L2_NORM.of(suffix(x)), op.inputs[0], op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield an embedding, an image, and rows of one element.

        Each in float, and in int8 with both roundings.
        """
        output_quant = cls().fixed_quant()
        for shape in ((1, 128), (1, 4, 5, 6), (3, 1)):
            label = "x".join(map(str, shape))
            yield Sample(cls(), (Arg(TensorType(shape)),), label=label)
            x = Arg(TensorType(shape, "int8", Quant.per_tensor(0.05, -7)))
            yield Sample(cls(), (x,), output_quant, f"{label}_s8")
            uint8 = cls(rounding=Rounding.TFLITE_UINT8)
            yield Sample(uint8, (x,), output_quant, f"{label}_uint8")


def inverse_sqrt(value: int) -> tuple[int, int]:
    """Return (multiplier, left shift) of 1 / sqrt(value).

    This is TFLite's GetInvSqrtQuantizedMultiplierExp: the value is scaled by a power of
    4 to [1/4, 1), where five Newton steps y ← 1.5 y - x/2 y³ find the inverse root.
    """
    if value <= 1:
        return (1 << 31) - 1, 0

    # A factor of 4 in the value is a factor of 2 in the root.
    shift = 11
    while value >= 1 << 29:
        value //= 4
        shift += 1

    pairs = (31 - value.bit_length()) // 2 - 1
    shift -= pairs
    scaled = value << 2 * pairs
    half = np.array(((scaled >> 1) + 1) >> 1, np.int32)

    # Numbers have three integer bits, so that products are shifted back.
    multiply = saturating_rounding_doubling_high_mul
    root: Array = np.array(1 << 28, np.int32)
    for _ in range(5):
        cube = _shifted_left(multiply(multiply(root, root), root), 6)
        step = multiply(root, _ONE_AND_A_HALF).astype(np.int64) - multiply(half, cube)
        root = _shifted_left(step, 3)

    multiplier = int(multiply(root, _HALF_SQRT_2))
    if shift < 0:
        return multiplier << -shift, 0

    return multiplier, -shift


def _shifted_left(x: Array, bits: int) -> Array:
    """Return x * 2^bits as int32, saturated."""
    wide = x.astype(np.int64) << bits
    return np.asarray(np.clip(wide, -(1 << 31), (1 << 31) - 1), np.int32)


@dataclass(frozen=True)
class LocalResponseNorm(OpDef):
    """y = x / (bias + alpha * Σ x²)^beta, summed over neighbouring channels in float32.

    Krizhevsky et al. 2012 ("ImageNet Classification with Deep Convolutional Neural
    Networks").

    Attributes:
        before, after: neighbours below and above the channel itself
    """

    before: int
    after: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    kind = "local_response_norm"
    onnx = ("LRN",)
    tflite = ("LOCAL_RESPONSE_NORMALIZATION",)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of x.

        Raises ValueError for a scalar and for a negative number of neighbours.
        """
        if x[0].rank == 0:
            raise ValueError("a number has no channels")

        if self.before < 0 or self.before + self.after + 1 < 0:
            raise ValueError(
                f"a neighbourhood of {self.before} channels before and {self.after} after"
            )

        real_types(self, x[0], int8=False)

        return (x[0],)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the sums in double, with zeros beyond the first and last channel."""
        channels = xt[0].shape[-1]
        borders = [(0, 0)] * (x[0].ndim - 1)
        borders.append((self.before, max(0, self.after)))
        squares = np.pad(x[0].astype(np.float64) ** 2, borders)

        # One shifted copy of the squares for each neighbour.
        total = np.zeros(x[0].shape)
        for first in range(self.before + self.after + 1):
            total = total + squares[..., first : first + channels]

        divisor = (self.bias + self.alpha * total) ** self.beta

        return [(x[0] / divisor).astype(_F)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read LRN over axis 1.

        Its alpha is divided by the size, and an even size has one more neighbour after
        than before.
        """
        attrs = node.attrs
        size = attrs["size"]
        before = (size - 1) // 2

        # Channels are last here and on axis 1 in ONNX.
        spec = cls(
            before=before,
            after=size - 1 - before,
            alpha=attrs.get("alpha", 1e-4) / size,
            beta=attrs.get("beta", 0.75),
            bias=attrs.get("bias", 1.0),
        )

        return channels_last(node, spec, [])

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read LOCAL_RESPONSE_NORMALIZATION.

        TFLite's kernel has `radius` neighbours before and one less after (found by
        experiment).
        """
        options = op.options
        spec = cls(
            before=options.radius,
            after=options.radius - 1,
            alpha=float(options.alpha),
            beta=float(options.beta),
            bias=float(options.bias),
        )
        op.build.write(spec, [op.input(0)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return LOCAL_RESPONSE_NORMALIZATION for TFLite's neighbourhood of an image.

        None for any other.
        """
        if self.after != self.before - 1 or op.output.type.rank != 4:
            return None

        fields = {
            "radius": self.before,
            "bias": self.bias,
            "alpha": self.alpha,
            "beta": self.beta,
        }
        options = ("LocalResponseNormalizationOptions", fields)

        return TfliteCode("LOCAL_RESPONSE_NORMALIZATION", options)

    def c(self, op: Op) -> KernelCall:
        """Return ek_lrn_f32."""
        x = op.inputs[0].type
        channels = x.shape[-1]
        spec = LrnParams(
            rows=x.size // max(1, channels),
            c=channels,
            before=self.before,
            after=self.after,
            alpha=self.alpha,
            beta=self.beta,
            bias=self.bias,
        )

        return KernelCall.of(LRN, op.inputs[0], op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield ONNX's odd and even neighbourhoods, TFLite's, and several exponents."""
        image = Arg(TensorType((1, 3, 4, 9)))
        for before, after in ((2, 2), (1, 2), (0, 0), (3, 2), (1, 0)):
            spec = cls(before, after, 0.1, 0.75, 1.5)
            yield Sample(spec, (image,), label=f"{before}_{after}")

        # Enough channels for vectors and for a remainder.
        wide = Arg(TensorType((1, 2, 3, 131)))
        for beta in (0.5, 0.6, 1.0):
            spec = cls(3, 2, 0.1, beta, 1.5)
            yield Sample(spec, (wide,), label=f"beta_{beta}")
