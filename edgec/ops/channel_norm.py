"""Normalisation of each pixel by the magnitude of its channels: L2, and local response."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
    Versions,
)
from edgec.ir.opdef import Arg
from edgec.ops.common import axis_of, real_types, suffix
from edgec.ops.composed import by_magnitudes
from edgec.ops.fixed_point import (
    multiply_by_quantized_multiplier,
    saturating_rounding_doubling_high_mul,
)
from edgec.ops.norm import channels_last
from edgec.ops.shape import transpose

_F = np.float32
_ONE_AND_A_HALF = (1 << 28) + (1 << 27)  # with three integer bits
_HALF_SQRT_2 = 1518500250  # with none


@dataclass(frozen=True)
class L2Norm(OpDef):
    """x / max(sqrt(sum of x^2 over the last axis), eps).

    The int8 output has the scale 1/128 and zero point 0.

    The output's factor 128 goes into the shift of the last product, or (`uint8`, for
    models that came as uint8) into its operand: that decides where it rounds. Both
    found by experiment on TFLite's reference kernels.
    """

    eps: float = 1e-6
    uint8: bool = False

    kind = "l2_norm"
    onnx = ("LpNormalization",)
    tflite = ("L2_NORMALIZATION",)
    edgetpu_versions = {"L2_NORMALIZATION": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.FIXED
    edgetpu: ClassVar[bool] = True

    def fixed_quant(self) -> Quant:
        """1/128."""
        return Quant.per_tensor(1 / 128)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The shape of the input."""
        if x[0].rank == 0:
            raise ValueError(f"{x[0]} has no axis")
        real_types(self, x[0])
        return (x[0].with_quant(self.fixed_quant() if x[0].dtype == "int8" else None),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """Float; int8 by the inverse square root in fixed point (TFLite's reference
        kernel).
        """
        if xt[0].dtype == "float32":
            norm = np.sqrt((x[0] * x[0]).sum(-1, keepdims=True, dtype=_F))
            return [(x[0] / np.maximum(norm, _F(self.eps))).astype(_F)]
        centred = x[0].astype(np.int32).reshape(-1, xt[0].shape[-1]) - xt[0].zero_point
        pairs = [inverse_sqrt(int(s)) for s in (centred.astype(np.int64) ** 2).sum(1)]
        multiplier, shift = (
            np.array(part, np.int32)[:, None] for part in zip(*pairs, strict=True)
        )
        bits = self._operand_bits()
        y = multiply_by_quantized_multiplier(
            centred << bits, multiplier, shift + 7 - bits
        )
        return [np.clip(y, -128, 127).astype(np.int8).reshape(xt[0].shape)]

    def _operand_bits(self) -> int:
        return 7 if self.uint8 else 0

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """LpNormalization on any axis; a row of zeros stays zero."""
        b = node.build
        x = node.input(0)
        if node.attrs.get("p", 2) == 1:
            return by_magnitudes(
                b, x, axis_of(node.attrs.get("axis", -1), x.type.rank), node.name
            )
        axis = axis_of(node.attrs.get("axis", -1), x.type.rank)
        last = x.type.rank - 1
        order = (*(i for i in range(last + 1) if i != axis), axis)
        if axis == last:
            return b.add(cls(1e-30), [x], node.name)
        y = b.add(cls(1e-30), [transpose(b, x, order)], node.name)
        return transpose(b, y, tuple(order.index(i) for i in range(last + 1)))

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """The last axis."""
        op.build.write(cls(uint8=op.uint8), [op.input(0)], op.outputs)

    def tflite_needs_uint8(self, op: Op) -> bool:
        """The int8 kernel rounds elsewhere."""
        return self.uint8 and op.output.type.dtype == "int8"

    def to_tflite(self, op: Op) -> TfliteCode:
        """Version 2 is int8."""
        version = 2 if op.inputs[0].type.dtype == "int8" else 1
        return TfliteCode(
            "L2_NORMALIZATION",
            ("L2NormOptions", {"fusedActivationFunction": 0}),
            version,
        )

    def c(self, op: Op) -> KernelCall:
        """ek_l2_norm_<type>."""
        x = op.inputs[0].type
        zero = x.zero_point if x.dtype == "int8" else 0
        n = x.shape[-1]
        bits = self._operand_bits()
        spec = Struct(
            "ek_l2_norm_t",
            rows=x.size // max(1, n),
            n=n,
            eps=self.eps,
            zero=zero,
            bits=bits,
        )
        return KernelCall.of(f"ek_l2_norm_{suffix(x)}", op.inputs[0], op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """An embedding and an image."""
        for shape in ((1, 128), (1, 4, 5, 6), (3, 1)):
            label = "x".join(map(str, shape))
            yield Sample(cls(), (Arg(TensorType(shape)),), label=label)
            x = TensorType(shape, "int8", Quant.per_tensor(0.05, -7))
            yield Sample(cls(), (Arg(x),), cls().fixed_quant(), f"{label}_s8")
            yield Sample(
                cls(uint8=True), (Arg(x),), cls().fixed_quant(), f"{label}_uint8"
            )


def inverse_sqrt(value: int) -> tuple[int, int]:
    """Multiplier and shift (to the left) of 1 / sqrt(value); TFLite's
    GetInvSqrtQuantizedMultiplierExp.
    """
    if value <= 1:
        return (1 << 31) - 1, 0
    shift = 11
    while value >= 1 << 29:
        value //= 4
        shift += 1
    pairs = (31 - value.bit_length()) // 2 - 1
    shift -= pairs
    half = np.array((((value << 2 * pairs) >> 1) + 1) >> 1, np.int32)
    mul = saturating_rounding_doubling_high_mul
    x: Array = np.array(1 << 28, np.int32)
    for _ in range(5):
        cube = _shifted(mul(mul(x, x), x), 6)
        x = _shifted(mul(x, _ONE_AND_A_HALF).astype(np.int64) - mul(half, cube), 3)
    result = int(mul(x, _HALF_SQRT_2))
    return (result << -shift, 0) if shift < 0 else (result, -shift)


def _shifted(x: Array, bits: int) -> Array:
    """To the left, saturating."""
    return np.asarray(
        np.clip(x.astype(np.int64) << bits, -(1 << 31), (1 << 31) - 1), np.int32
    )


@dataclass(frozen=True)
class LocalResponseNorm(OpDef):
    """x / (bias + alpha * sum of x^2 over the neighbouring channels) ^ beta; float
    only.

    Neighbours are the channel itself, `before` below it and `after` above it.
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
        """The shape of the image."""
        if x[0].rank == 0:
            raise ValueError("a number has no channels")
        if self.before < 0 or self.before + self.after + 1 < 0:
            raise ValueError(
                f"a neighbourhood of {self.before} channels before and {self.after} after"
            )
        real_types(self, x[0], int8=False)
        return (x[0],)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """The sums in double."""
        size = self.before + self.after + 1
        channels = xt[0].shape[-1]
        edges = [(0, 0)] * (x[0].ndim - 1) + [(self.before, max(0, self.after))]
        padded = np.pad(x[0].astype(np.float64) ** 2, edges)
        total = sum(
            (padded[..., i : i + channels] for i in range(size)), np.zeros(x[0].shape)
        )
        return [(x[0] / (self.bias + self.alpha * total) ** self.beta).astype(_F)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """LRN over axis 1: alpha is divided by the size, an even size has one more
        neighbour after than before.
        """
        a = node.attrs
        size = node.attrs["size"]
        before = (size - 1) // 2
        alpha = a.get("alpha", 1e-4) / size
        return channels_last(
            node,
            cls(
                before,
                size - 1 - before,
                alpha,
                a.get("beta", 0.75),
                a.get("bias", 1.0),
            ),
            [],
        )

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """TFLite's kernel has `radius` neighbours before and one less after (found by
        experiment).
        """
        o = op.options
        spec = cls(o.radius, o.radius - 1, float(o.alpha), float(o.beta), float(o.bias))
        op.build.write(spec, [op.input(0)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Only TFLite's own lopsided neighbourhood, of images."""
        if self.after != self.before - 1 or op.output.type.rank != 4:
            return None
        fields = {
            "radius": self.before,
            "bias": self.bias,
            "alpha": self.alpha,
            "beta": self.beta,
        }
        return TfliteCode(
            "LOCAL_RESPONSE_NORMALIZATION",
            ("LocalResponseNormalizationOptions", fields),
        )

    def c(self, op: Op) -> KernelCall:
        """ek_lrn_f32."""
        x = op.inputs[0].type
        spec = Struct(
            "ek_lrn_t",
            rows=x.size // max(1, x.shape[-1]),
            c=x.shape[-1],
            before=self.before,
            after=self.after,
            alpha=self.alpha,
            beta=self.beta,
            bias=self.bias,
        )
        return KernelCall.of("ek_lrn_f32", op.inputs[0], op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """ONNX's odd and even neighbourhoods, TFLite's."""
        for before, after in ((2, 2), (1, 2), (0, 0), (3, 2), (1, 0)):
            spec = cls(before, after, 0.1, 0.75, 1.5)
            yield Sample(
                spec, (Arg(TensorType((1, 3, 4, 9))),), label=f"{before}_{after}"
            )
        for beta in (0.5, 0.6, 1.0):
            yield Sample(
                cls(3, 2, 0.1, beta, 1.5),
                (Arg(TensorType((1, 2, 3, 131))),),
                label=f"beta_{beta}",
            )
