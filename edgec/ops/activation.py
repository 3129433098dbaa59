"""Activation functions with attributes, as further classes of the unary family.

Semantics: ONNX Clip, LeakyRelu, Elu, Celu, HardSigmoid, Selu and Gelu; TFLite
RELU_0_TO_1, LEAKY_RELU, ELU and GELU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgec.ir import (
    Array,
    CStruct,
    KernelCall,
    KernelFamily,
    OnnxNode,
    Op,
    Sample,
    TensorType,
    TfliteOp,
    Value,
)
from edgec.ir.c_structs import BoundsParams, UnsignedBoundsParams
from edgec.ir.opdef import Arg
from edgec.ops import lut
from edgec.ops.arithmetic import Maximum, Minimum
from edgec.ops.common import (
    ARITHMETIC_KERNELS,
    INTEGERS,
    UNSIGNED,
    plain_suffix,
)
from edgec.ops.elementwise_kernels import unary_kernels
from edgec.ops.unary import ERF, Relu, Relu6, ReluN1To1, Unary

# The class has the kernels of the exact form; the approximation has its own.
_GELU_TANH = unary_kernels("gelu_tanh", vectorized=True)


@dataclass(frozen=True)
class Clamp(Unary):
    """y = min(max(x, low), high); None: no bound.

    TFLite's activations have classes of their own (see `of`).
    """

    low: float | None = None
    high: float | None = None

    kind = "clamp"
    kernels = unary_kernels("clamp", ARITHMETIC_KERNELS)
    onnx = ("Clip",)
    tflite = ("RELU_0_TO_1",)
    fn = staticmethod(
        lambda x, low, high: (
            np.clip(x, low, high) if (low, high) != (None, None) else x
        ),
    )

    def __post_init__(self) -> None:
        """Lower `low` to `high` where the bounds are crossed.

        ONNX and numpy then make every element `high`.
        """
        if self.low is not None and self.high is not None and self.low > self.high:
            object.__setattr__(self, "low", self.high)

    def table(self, x: TensorType, y: TensorType) -> Array:
        """Return the int8 table of TFLite's clamping activations."""
        return lut.clamp_table(self.low, self.high, x, y)

    def coefficients(self) -> tuple[float, ...]:
        """Return both bounds, infinity for a missing one.

        The float kernel clamps to infinity, which changes no element.
        """
        return (
            -np.inf if self.low is None else self.low,
            np.inf if self.high is None else self.high,
        )

    def c(self, op: Op) -> KernelCall:
        """Return ek_clamp_<type>; plain integers are clamped as such.

        A missing bound is the extreme of the type, by its name in C.
        """
        x = op.inputs[0]
        y = op.output
        dtype = y.type.dtype
        if y.type.is_quantized or dtype not in INTEGERS:
            return super().c(op)

        # The C type of an integer decides its extremes.
        low: int | str
        high: int | str
        is_unsigned = dtype in UNSIGNED
        if self.low is not None:
            low = int(self.low)
        else:
            low = "0" if is_unsigned else f"{dtype.upper()}_MIN"

        if self.high is not None:
            high = int(self.high)
        else:
            high = f"{dtype.upper()}_MAX"

        bounds: CStruct = BoundsParams(low=low, high=high)
        if is_unsigned:
            bounds = UnsignedBoundsParams(low=low, high=high)

        kernel = self.kernels.of(plain_suffix(y.type))

        return KernelCall.of(kernel, x, y, x.type.size, bounds)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield the samples of unary functions, and integers with integer bounds."""
        yield from super().samples()
        for dtype in INTEGERS:
            # Unsigned integers have no negative bound.
            lowest = 3 if dtype in UNSIGNED else -3
            integers = Arg(TensorType((3, 4, 5), dtype))
            for spec in (cls(lowest, 50), cls(None, 7), cls(20, None), cls()):
                label = f"{dtype}_{spec.low}_{spec.high}"
                yield Sample(spec, (integers,), label=label)

    @classmethod
    def of(cls, low: float | None, high: float | None) -> Unary:
        """Return the op of a range: TFLite's activation if it has one."""
        # TFLite and the Edge TPU have kernels for these ranges.
        activations: dict[tuple[float | None, float | None], type[Unary]] = {
            (0.0, None): Relu,
            (0.0, 6.0): Relu6,
            (-1.0, 1.0): ReluN1To1,
        }
        activation = activations.get((low, high))
        if activation is None:
            return cls(low, high)

        return activation()

    @classmethod
    def of_int16(cls, scale: float) -> Clamp:
        """Return the clamp to the reals of int16 at a scale.

        It stands for int16 tensors of a file, which are computed as floats.
        """
        return cls(-32768 * scale, 32767 * scale)

    @property
    def is_of_int16(self) -> bool:
        """Whether it was made by `of_int16`.

        No rounding hides it: a scale is a float32, the bounds are doubles.
        """
        if self.low is None or self.high is None:
            return False

        return 0 < self.high / 32767 == self.low / -32768

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Clip: its bounds are attributes before opset 11, inputs from there on.

        The extremes of the element type are no bounds.
        """
        if node.opset < 11:
            bounds = [node.attrs.get("min"), node.attrs.get("max")]
        else:
            inputs = (node.optional(1), node.optional(2))
            if any(v is not None and v.const is None for v in inputs):
                return cls._at_run_time(node)
            arrays = (node.const(1), node.const(2))
            bounds = [None if array is None else array.item() for array in arrays]

        # A bound at the extreme of the type clamps nothing.
        x = node.input(0)
        low, high = cls._without_extremes(x.type, bounds)

        return node.build.add(cls.of(low, high), [x], node.name)

    @staticmethod
    def _without_extremes(
        x: TensorType,
        bounds: Sequence[float | None],
    ) -> tuple[float | None, float | None]:
        """Return (low, high) in the type of x, None for its extremes."""
        if x.dtype == "float32":
            extreme = float(np.finfo(np.float32).max)
            low, high = (
                None if bound is None or abs(bound) >= extreme else float(bound)
                for bound in bounds
            )
            return low, high

        # Bounds of integers are integers.
        info = np.iinfo(x.np_dtype)
        low, high = (None if bound is None else int(bound) for bound in bounds)
        if low == info.min:
            low = None

        if high == info.max:
            high = None

        return low, high

    @staticmethod
    def _at_run_time(node: OnnxNode) -> Value:
        """Read Clip with computed bounds, as a maximum and a minimum."""
        b = node.build
        y = node.input(0)
        low = node.optional(1)
        if low is not None:
            y = b.add(Maximum(), [y, low], node.name)

        high = node.optional(2)
        if high is not None:
            y = b.add(Minimum(), [y, high], node.name)

        return y

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read RELU_0_TO_1."""
        op.build.write(cls(0.0, 1.0), [op.input(0)], op.outputs)

    def to_tflite(self, op: Any) -> None:
        """Return None: RELU_0_TO_1 is newer than many interpreters, and TFLite has no
        builtin for another range.
        """
        return

    @classmethod
    def variants(cls) -> Iterator[Unary]:
        """Yield both bounds, one, none, and bounds that are crossed."""
        yield cls(-0.5, 2.25)
        yield cls(None, 1.0)
        yield cls(0.3, None)
        yield cls()
        yield cls(2.0, -1.0)


@dataclass(frozen=True)
class LeakyRelu(Unary):
    """y = x where x >= 0, else alpha * x."""

    alpha: float = 0.01

    kind = "leaky_relu"
    kernels = unary_kernels("leaky_relu")
    homogeneous: ClassVar[bool] = True
    onnx = ("LeakyRelu",)
    tflite = ("LEAKY_RELU",)
    versions: ClassVar[tuple[int, int | None]] = (1, 2)
    fn = staticmethod(lambda x, alpha: np.where(x >= 0, x, x * x.dtype.type(alpha)))

    def table(self, x: TensorType, y: TensorType) -> Array:
        """Return the int8 table of TFLite's fixed-point kernel."""
        return lut.leaky_relu_table(self.alpha, x, y)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read LeakyRelu, whose alpha is 0.01 when absent.

        A slope for each channel is an operator of its own, PRelu.
        """
        # The default of ONNX.
        alpha = float(node.attrs.get("alpha", 0.01))
        return node.build.add(cls(alpha), [node.input(0)], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read LEAKY_RELU, whose alpha is an option."""
        spec = cls(float(op.options.alpha))
        op.build.write(spec, [op.input(0)], op.outputs)

    def tflite_options(self) -> tuple[str, dict[str, Any]]:
        """Return LeakyReluOptions with alpha."""
        return ("LeakyReluOptions", {"alpha": self.alpha})

    @classmethod
    def variants(cls) -> Iterator[Unary]:
        """Yield a gentle, a steep and a negative slope."""
        yield from (cls(0.1), cls(1.5), cls(-0.25))


@dataclass(frozen=True)
class Elu(Unary):
    """y = x where x >= 0, else alpha * (e^(rate * x) - 1).

    ONNX Elu has rate 1; Celu has rate 1 / alpha, so that both branches meet smoothly.
    """

    alpha: float = 1.0
    rate: float = 1.0

    kind = "elu"
    kernels = unary_kernels("elu", vectorized=True)
    onnx = ("Elu", "Celu")
    tflite = ("ELU",)
    versions: ClassVar[tuple[int, int | None]] = (1, 1)

    @staticmethod
    def fn(x: Array, alpha: float, rate: float) -> Array:
        """Return the activation of x, computed in the type of x.

        expm1 gets no positive numbers, for which it may overflow.
        """
        # The coefficients take the type of x.
        t = x.dtype.type
        negative = np.expm1(np.minimum(x, 0) * t(rate))

        return np.where(x >= 0, x, t(alpha) * negative)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Elu and Celu, whose alpha is 1 when absent.

        Celu's rate is 1 / alpha, so that an alpha of 0 is refused.
        """
        alpha = float(node.attrs.get("alpha", 1.0))
        rate = 1.0
        if node.op_type == "Celu":
            if not alpha:
                raise ValueError("alpha is 0, by which Celu divides")
            rate = 1 / alpha

        return node.build.add(cls(alpha, rate), [node.input(0)], node.name)

    def to_tflite(self, op: Any) -> Any:
        """Return ELU; None for other attributes than TFLite's, which are 1."""
        if (self.alpha, self.rate) != (1.0, 1.0):
            return None
        return super().to_tflite(op)

    @classmethod
    def variants(cls) -> Iterator[Unary]:
        """Yield TFLite's, another of Elu, and one of Celu."""
        yield from (cls(), cls(0.5), cls(2.0, 0.5))


@dataclass(frozen=True)
class HardSigmoid(Unary):
    """y = min(max(alpha * x + beta, 0), 1)."""

    alpha: float = 0.2
    beta: float = 0.5

    kind = "hard_sigmoid"
    kernels = unary_kernels("hard_sigmoid")
    onnx = ("HardSigmoid",)
    fn = staticmethod(
        lambda x, alpha, beta: np.clip(
            x.dtype.type(alpha) * x + x.dtype.type(beta),
            0,
            1,
        )
    )

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read HardSigmoid; alpha is 0.2 and beta 0.5 when absent.

        PyTorch exports its own hard sigmoid with an alpha of 1/6.
        """
        alpha = float(node.attrs.get("alpha", 0.2))
        beta = float(node.attrs.get("beta", 0.5))
        return node.build.add(cls(alpha, beta), [node.input(0)], node.name)

    @classmethod
    def variants(cls) -> Iterator[Unary]:
        """Yield ONNX's and PyTorch's."""
        yield from (cls(), cls(1 / 6, 0.5))


@dataclass(frozen=True)
class Selu(Unary):
    """y = gamma * x where x > 0, else gamma * alpha * (e^x - 1).

    Klambauer et al. 2017, arXiv:1706.02515.
    """

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875

    kind = "selu"
    kernels = unary_kernels("selu", vectorized=True)
    onnx = ("Selu",)

    @staticmethod
    def fn(x: Array, alpha: float, gamma: float) -> Array:
        """Return the activation of x, computed in the type of x.

        expm1 gets no positive numbers, for which it may overflow.
        """
        # The coefficients take the type of x.
        t = x.dtype.type
        negative = t(alpha) * np.expm1(np.minimum(x, 0))

        return np.asarray(t(gamma) * np.where(x > 0, x, negative))

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Selu, whose attributes have defaults in ONNX."""
        # ONNX's defaults are those of the class.
        alpha = float(node.attrs.get("alpha", cls.alpha))
        gamma = float(node.attrs.get("gamma", cls.gamma))
        return node.build.add(cls(alpha, gamma), [node.input(0)], node.name)


@dataclass(frozen=True)
class Gelu(Unary):
    """y = x Φ(x), with the normal distribution function Φ or its tanh approximation.

    Φ(x) = (1 + erf(x / √2)) / 2, about (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2.
    Hendrycks & Gimpel 2016, arXiv:1606.08415.
    """

    approximate: bool = False

    kind = "gelu"
    kernels = unary_kernels("gelu", vectorized=True)
    onnx = ("Gelu",)
    tflite = ("GELU",)
    versions: ClassVar[tuple[int, int | None]] = (1, 1)

    @staticmethod
    def fn(x: Array, approximate: bool) -> Array:
        """Return the function in the type of x.

        The factors are rounded to that type before they multiply.
        """
        # The coefficients take the type of x.
        t = x.dtype.type
        half = t(0.5)
        if not approximate:
            distribution = 1 + ERF(x * t(np.sqrt(0.5)))
            return np.asarray(half * x * distribution)

        cubic = x + t(0.044715) * x * x * x
        distribution = 1 + np.tanh(t(np.sqrt(2 / np.pi)) * cubic)

        return np.asarray(half * x * distribution)

    def table(self, x: TensorType, y: TensorType) -> Array:
        """Return the int8 outputs for the inputs -128 … 127."""
        return lut.gelu_table(self.approximate, x, y)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Gelu, whose attribute `approximate` is "none" or "tanh"."""
        approximate = node.attrs.get("approximate", "none") == "tanh"
        return node.build.add(cls(approximate), [node.input(0)], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read GELU, whose approximation is an option."""
        spec = cls(bool(op.options.approximate))
        op.build.write(spec, [op.input(0)], op.outputs)

    def tflite_options(self) -> tuple[str, dict[str, Any]]:
        """Return GeluOptions with the approximation."""
        return ("GeluOptions", {"approximate": self.approximate})

    def kernel_family(self) -> KernelFamily:
        """Return the kernels of the form."""
        return _GELU_TANH if self.approximate else self.kernels

    def coefficients(self) -> tuple[float, ...]:
        """Return nothing: each form has a kernel of its own."""
        return ()

    @classmethod
    def variants(cls) -> Iterator[Unary]:
        """Yield both forms."""
        yield from (cls(False), cls(True))
