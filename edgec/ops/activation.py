"""Activation functions with attributes, as further rows of the unary family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgec.ir import (
    Array,
    KernelCall,
    OnnxNode,
    Op,
    Sample,
    Struct,
    TensorType,
    TfliteOp,
    Value,
)
from edgec.ir.opdef import Arg
from edgec.ops import lut
from edgec.ops.arithmetic import Maximum, Minimum
from edgec.ops.common import INTEGERS, UNSIGNED, plain_suffix
from edgec.ops.unary import ERF, Relu, Relu6, ReluN1To1, Unary


@dataclass(frozen=True)
class Clamp(Unary):
    """min(max(x, low), high); None: no bound.

    The ranges that have a name of their own are imported as that.
    """

    low: float | None = None
    high: float | None = None

    kind = "clamp"
    onnx = ("Clip",)
    tflite = ("RELU_0_TO_1",)
    fn = staticmethod(
        lambda x, low, high: np.clip(x, low, high) if (low, high) != (None, None) else x
    )

    def __post_init__(self) -> None:
        """Where the bounds are crossed, every element becomes `high`, as ONNX and numpy
        have it: so `low` is that.
        """
        if self.low is not None and self.high is not None and self.low > self.high:
            object.__setattr__(self, "low", self.high)

    def table(self, x: TensorType, y: TensorType) -> Array:
        """As TFLite's clamping activations."""
        return lut.clamp_table(self.low, self.high, x, y)

    def coefficients(self) -> tuple[float, ...]:
        """No bound is infinity."""
        return (
            -np.inf if self.low is None else self.low,
            np.inf if self.high is None else self.high,
        )

    def c(self, op: Op) -> KernelCall:
        """Integers are clamped as such."""
        x = op.inputs[0]
        y = op.output
        if y.type.is_quantized or y.type.dtype not in INTEGERS:
            return super().c(op)
        unsigned = y.type.dtype in UNSIGNED
        least = "0" if unsigned else f"{y.type.dtype.upper()}_MIN"
        most = f"{y.type.dtype.upper()}_MAX"
        low = least if self.low is None else int(self.low)
        high = most if self.high is None else int(self.high)
        bounds = Struct(
            "ek_unsigned_bounds_t" if unsigned else "ek_bounds_t", low=low, high=high
        )
        return KernelCall.of(
            f"ek_clamp_{plain_suffix(y.type)}", x, y, x.type.size, bounds
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Also integers, whose bounds are."""
        yield from super().samples()
        for dtype in INTEGERS:
            for spec in (
                cls(3 if dtype in UNSIGNED else -3, 50),
                cls(None, 7),
                cls(20, None),
                cls(),
            ):
                label = f"{dtype}_{spec.low}_{spec.high}"
                yield Sample(spec, (Arg(TensorType((3, 4, 5), dtype)),), label=label)

    @classmethod
    def of(cls, low: float | None, high: float | None) -> Unary:
        """The op of this range: one of TFLite's activations where it has one."""
        named: dict[tuple[float | None, float | None], type[Unary]] = {
            (0.0, None): Relu,
            (0.0, 6.0): Relu6,
            (-1.0, 1.0): ReluN1To1,
        }
        found = named.get((low, high))
        return found() if found is not None else cls(low, high)

    @classmethod
    def of_int16(cls, scale: float) -> Clamp:
        """To the reals that int16 of a scale can be, for what is computed in floats in
        their place.
        """
        return cls(-32768 * scale, 32767 * scale)

    @property
    def is_of_int16(self) -> bool:
        """Whether it came of int16.

        No rounding hides it: a scale is a float32, the bounds are doubles.
        """
        return (
            self.low is not None
            and self.high is not None
            and 0 < self.high / 32767 == self.low / -32768
        )

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Attributes before opset 11, constant inputs after; the extremes of the type
        are no bounds.
        """
        if node.opset < 11:
            given = [node.attrs.get("min"), node.attrs.get("max")]
        elif any(
            v is not None and v.const is None
            for v in (node.optional(1), node.optional(2))
        ):
            return cls._at_run_time(node)
        else:
            given = [
                None if v is None else v.item() for v in (node.const(1), node.const(2))
            ]
        x = node.input(0)
        if x.type.dtype == "float32":
            extreme = float(np.finfo(np.float32).max)
            low, high = (
                None if v is None or abs(v) >= extreme else float(v) for v in given
            )
        else:
            low, high = (None if v is None else int(v) for v in given)
            info = np.iinfo(x.type.np_dtype)
            low = None if low == info.min else low
            high = None if high == info.max else high
        return node.build.add(cls.of(low, high), [x], node.name)

    @staticmethod
    def _at_run_time(node: OnnxNode) -> Value:
        """With computed bounds."""
        y = node.input(0)
        for bound, spec in (
            (node.optional(1), Maximum()),
            (node.optional(2), Minimum()),
        ):
            y = y if bound is None else node.build.add(spec, [y, bound], node.name)
        return y

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """RELU_0_TO_1."""
        op.build.write(cls(0.0, 1.0), [op.input(0)], op.outputs)

    def to_tflite(self, op: Any) -> None:
        """RELU_0_TO_1 is newer than many interpreters, and no other range has a
        builtin.
        """
        return

    @classmethod
    def variants(cls) -> Iterator[Unary]:
        """Both bounds, one, none, and bounds that are crossed."""
        yield from (
            cls(-0.5, 2.25),
            cls(None, 1.0),
            cls(0.3, None),
            cls(),
            cls(2.0, -1.0),
        )


@dataclass(frozen=True)
class LeakyRelu(Unary):
    """x where x >= 0, else alpha * x."""

    alpha: float = 0.01

    kind = "leaky_relu"
    onnx = ("LeakyRelu",)
    tflite = ("LEAKY_RELU",)
    versions: ClassVar[tuple[int, int | None]] = (1, 2)
    fn = staticmethod(lambda x, alpha: np.where(x >= 0, x, x * x.dtype.type(alpha)))

    def table(self, x: TensorType, y: TensorType) -> Array:
        """Fixed point."""
        return lut.leaky_relu_table(self.alpha, x, y)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """alpha is 0.01 when absent."""
        return node.build.add(
            cls(float(node.attrs.get("alpha", 0.01))), [node.input(0)], node.name
        )

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """alpha is in the options."""
        op.build.write(cls(float(op.options.alpha)), [op.input(0)], op.outputs)

    def tflite_options(self) -> tuple[str, dict[str, Any]]:
        """LeakyReluOptions."""
        return ("LeakyReluOptions", {"alpha": self.alpha})

    @classmethod
    def variants(cls) -> Iterator[Unary]:
        """A gentle and a steep slope."""
        yield from (cls(0.1), cls(1.5), cls(-0.25))


@dataclass(frozen=True)
class Elu(Unary):
    """x where x >= 0, else alpha * (e^(rate * x) - 1)."""

    alpha: float = 1.0
    rate: float = 1.0

    kind = "elu"
    onnx = ("Elu", "Celu")
    tflite = ("ELU",)
    versions: ClassVar[tuple[int, int | None]] = (1, 1)

    @staticmethod
    def fn(x: Array, alpha: float, rate: float) -> Array:
        """Both branches in the type of x."""
        t = x.dtype.type
        return np.where(x >= 0, x, t(alpha) * np.expm1(np.minimum(x, 0) * t(rate)))

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """alpha is 1 when absent.

        Celu's branches meet without a bend: its rate is 1 / alpha.
        """
        alpha = float(node.attrs.get("alpha", 1.0))
        if node.op_type == "Celu" and not alpha:
            raise ValueError("alpha is 0, by which Celu divides")
        rate = 1 / alpha if node.op_type == "Celu" else 1.0
        return node.build.add(cls(alpha, rate), [node.input(0)], node.name)

    def to_tflite(self, op: Any) -> Any:
        """TFLite's alpha and rate are 1."""
        return super().to_tflite(op) if (self.alpha, self.rate) == (1.0, 1.0) else None

    @classmethod
    def variants(cls) -> Iterator[Unary]:
        """TFLite's, another of Elu, and Celu's."""
        yield from (cls(), cls(0.5), cls(2.0, 0.5))


@dataclass(frozen=True)
class HardSigmoid(Unary):
    """min(max(alpha * x + beta, 0), 1)."""

    alpha: float = 0.2
    beta: float = 0.5

    kind = "hard_sigmoid"
    onnx = ("HardSigmoid",)
    fn = staticmethod(
        lambda x, alpha, beta: np.clip(
            x.dtype.type(alpha) * x + x.dtype.type(beta), 0, 1
        )
    )

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """alpha is 0.2 and beta 0.5 when absent."""
        alpha = float(node.attrs.get("alpha", 0.2))
        beta = float(node.attrs.get("beta", 0.5))
        return node.build.add(cls(alpha, beta), [node.input(0)], node.name)

    @classmethod
    def variants(cls) -> Iterator[Unary]:
        """ONNX's and PyTorch's."""
        yield from (cls(), cls(1 / 6, 0.5))


@dataclass(frozen=True)
class Selu(Unary):
    """gamma * x where x > 0, else gamma * alpha * (e^x - 1)."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875

    kind = "selu"
    onnx = ("Selu",)

    @staticmethod
    def fn(x: Array, alpha: float, gamma: float) -> Array:
        """Both branches in the type of x."""
        t = x.dtype.type
        return np.asarray(
            t(gamma) * np.where(x > 0, x, t(alpha) * np.expm1(np.minimum(x, 0)))
        )

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Attributes with ONNX's defaults."""
        given = [
            float(node.attrs.get(name, default))
            for name, default in (("alpha", cls.alpha), ("gamma", cls.gamma))
        ]
        return node.build.add(cls(*given), [node.input(0)], node.name)


@dataclass(frozen=True)
class Gelu(Unary):
    """x times the normal distribution function of x, or its tanh approximation."""

    approximate: bool = False

    kind = "gelu"
    onnx = ("Gelu",)
    tflite = ("GELU",)
    versions: ClassVar[tuple[int, int | None]] = (1, 1)

    @staticmethod
    def fn(x: Array, approximate: bool) -> Array:
        """Both forms."""
        half = x.dtype.type(0.5)
        t = x.dtype.type
        if approximate:
            return np.asarray(
                half
                * x
                * (1 + np.tanh(t(np.sqrt(2 / np.pi)) * (x + t(0.044715) * x * x * x)))
            )
        return np.asarray(half * x * (1 + ERF(x * t(np.sqrt(0.5)))))

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """`approximate` is "none" or "tanh"."""
        return node.build.add(
            cls(node.attrs.get("approximate", "none") == "tanh"),
            [node.input(0)],
            node.name,
        )

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """`approximate` is in the options."""
        op.build.write(cls(bool(op.options.approximate)), [op.input(0)], op.outputs)

    def tflite_options(self) -> tuple[str, dict[str, Any]]:
        """GeluOptions."""
        return ("GeluOptions", {"approximate": self.approximate})

    def kernel(self) -> str:
        """Each form has a kernel."""
        return "gelu_tanh" if self.approximate else "gelu"

    def coefficients(self) -> tuple[float, ...]:
        """None beside the form."""
        return ()

    @classmethod
    def variants(cls) -> Iterator[Unary]:
        """Both forms."""
        yield from (cls(False), cls(True))
