"""Elementwise functions of one number, as rows of one table.

Semantics: the ONNX and TFLite operators of the same names; in int8 each is a table of
256 entries, that of TFLite's reference kernels (see `lut`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from math import erf
from typing import Any, ClassVar, TypedDict, Unpack

import numpy as np

from edgec.ir import (
    Array,
    KernelCall,
    KernelFamily,
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
    Uncertain,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ir.c_structs import CoefficientsParams
from edgec.ir.opdef import Arg, Rule
from edgec.ops import lut
from edgec.ops.common import ARITHMETIC_KERNELS, INTEGERS, REAL_KERNELS, plain_suffix
from edgec.ops.elementwise_kernels import LUT, unary_kernels
from edgec.ops.fixed_point import ACTIVATIONS
from edgec.ops.limits import ONE_ROW_MAPPED, one_row, size_evidence

LOGISTIC_QUANT = Quant.per_tensor(1 / 256, -128)
"""Output scale of LOGISTIC in TFLite's quantization specification."""
TANH_QUANT = Quant.per_tensor(1 / 128, 0)
"""Output scale of TANH in TFLite's quantization specification."""


@dataclass(frozen=True)
class Unary(OpDef):
    """y[i] = fn(x[i], attributes…); all int8 functions share one look-up kernel."""

    kernels: ClassVar[KernelFamily]
    """The plain kernels of the other types, as `unary_kernels` returns them."""

    fn: ClassVar[Callable[..., Any]]
    """The function in numpy, for float32 and float64."""
    options: ClassVar[str] = ""
    """Name of TFLite's options table; empty when the operator has none."""
    versions: ClassVar[tuple[int, int | None]] = (1, None)
    """TFLite operator versions for float32 and int8; None: there is no such kernel."""
    domain: ClassVar[tuple[float, float]] = (-4.0, 4.0)
    """Range of the inputs of the samples."""
    prescribed: ClassVar[Quant | None] = None
    """The output scale, for a function whose scale TFLite prescribes."""
    integers: ClassVar[bool] = False
    """Whether there are kernels for plain integers too, which wrap."""
    plain_int8: ClassVar[bool] = True
    quant: ClassVar[QuantRule] = QuantRule.FREE
    elementwise: ClassVar[bool] = True

    def f(self, x: Array) -> Array:
        """Return the function of x with this op's attributes."""
        with np.errstate(all="ignore"):
            return np.asarray(type(self).fn(x, *astuple(self)))

    def table(self, x: TensorType, y: TensorType) -> Array:
        """Return the int8 outputs for the inputs -128 … 127."""
        return lut.real_table(self.f, x, y)

    def fixed_quant(self) -> Quant:
        """Return the prescribed output scale."""
        assert self.prescribed is not None
        return self.prescribed

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of the input, in int8 with the prescribed scale, if any.

        int8 outputs without a prescribed scale get theirs later.
        """
        # A prescribed scale holds for int8 alone.
        quant = self.prescribed if x[0].dtype == "int8" else None
        return (TensorType(x[0].shape, x[0].dtype, quant),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the numpy function, or in int8 a look-up in the table.

        The table's first entry is for -128.
        """
        if not yt[0].is_quantized:
            return [self.f(x[0]).astype(yt[0].np_dtype)]

        table = self.table(xt[0], yt[0])

        return [table[x[0].astype(np.int64) + 128]]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read a node of one input without attributes."""
        return node.build.add(cls(), [node.input(0)], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read an operator of one input without options."""
        op.build.write(cls(), [op.input(0)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return the builtin operator; None when TFLite has none for this type.

        A quantized tensor takes the version of int8.
        """
        x = op.inputs[0].type

        # Versions are those of float32 and of int8.
        version = self.versions[x.is_quantized]
        is_known_type = x.is_quantized or x.dtype in ("float32", "bool")
        if not self.tflite or version is None or not is_known_type:
            return None

        return TfliteCode(self.tflite[0], self.tflite_options(), version)

    def tflite_options(self) -> tuple[str, dict[str, Any]] | None:
        """Return the options table and its fields."""
        return (self.options, {}) if self.options else None

    def c(self, op: Op) -> KernelCall:
        """Return ek_lut_s8, or the kernel for another type.

        The attributes are the fields a and b of ek_coefficients_t.
        """
        x = op.inputs[0]
        y = op.output
        if y.type.is_quantized:
            table = Table(self.table(x.type, y.type), "lut")
            return KernelCall.of(LUT, x, y, x.type.size, table)

        # Kernels of functions without attributes take no struct.
        kernel = self.kernel_family().of(plain_suffix(x.type))
        fields = dict(zip("ab", self.coefficients(), strict=False))
        if not fields:
            return KernelCall.of(kernel, x, y, x.type.size)

        coefficients = CoefficientsParams(**fields)
        return KernelCall.of(kernel, x, y, x.type.size, coefficients)

    def kernel_family(self) -> KernelFamily:
        """Return the plain kernels of the op with its attributes."""
        return self.kernels

    def coefficients(self) -> tuple[float, ...]:
        """Return the attributes as the C kernel takes them, at most two."""
        return astuple(self)

    @classmethod
    def variants(cls) -> Iterator[Unary]:
        """Yield the op with the attributes that samples try."""
        yield cls()

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield floats, plain integers, and all int8 inputs at two scales."""
        for i, spec in enumerate(cls.variants()):
            reals = Arg(TensorType((1, 3, 4, 5)))
            yield Sample(spec, (reals,), label=f"{i}_f32")

            for dtype in INTEGERS if cls.integers else ():
                integers = Arg(TensorType((3, 4, 5), dtype))
                yield Sample(spec, (integers,), label=f"{i}_{dtype}")

            # A table has 256 entries: all are tried.
            for n, (scale, zero_point) in enumerate(cls._input_scales()):
                quant = Quant.per_tensor(scale, zero_point)
                x = Arg(TensorType((1, 16, 16, 8), "int8", quant))
                output_quant = cls.prescribed or spec._output_quant(scale)
                yield Sample(spec, (x,), output_quant, f"{i}_s8_{n}")

    @classmethod
    def _input_scales(cls) -> Iterator[tuple[float, int]]:
        """Yield (scale, zero point) for int8 to cover the domain, and 2.5 times it.

        The second makes inputs outside of the domain.
        """
        low, high = cls.domain
        for steps in (255, 100):
            scale = (high - low) / steps
            zero_point = max(-128, -128 - round(low / scale))
            yield scale, zero_point

    def _output_quant(self, x_scale: float) -> Quant:
        """Return a scale for which int8 just does not hold all outputs of the domain.

        A zero point at one end serves outputs of one sign.
        """
        low, high = self.domain

        # Zero is left out, where some functions have no value.
        inputs = np.linspace(max(low, x_scale), high, 99)
        with np.errstate(all="ignore"):
            peak = float(np.nanmax(np.abs(self.f(inputs))))

        zero_point = -7 if low < 0 else -128

        return Quant.per_tensor(max(peak, 1e-3) / 100, zero_point)


class _UnaryRow(TypedDict, total=False):
    """The optional fields of a row, with the meaning that they have in `Unary`."""

    onnx: tuple[str, ...]
    tflite: tuple[str, ...]
    options: str
    versions: tuple[int, int | None]
    domain: tuple[float, float]
    integers: bool
    homogeneous: bool
    quant: QuantRule
    prescribed: Quant
    table: Callable[[Unary, TensorType, TensorType], Array]
    kernels: KernelFamily
    edgetpu: bool
    edgetpu_versions: Mapping[str, Versions]


class _Mapped(TypedDict):
    """The fields of a row for a function that the Edge TPU has."""

    edgetpu: bool
    edgetpu_versions: Mapping[str, Versions]


def _row(
    kind: str,
    fn: Callable[..., Any],
    doc: str,
    *rules: Rule,
    **fields: Unpack[_UnaryRow],
) -> type[Unary]:
    """Return the op class of a function without attributes.

    rules: support rules of the Edge TPU, beside those of every op. Without a field
    `kernels` there are kernels for floats, and with `integers` for all integers.
    """
    name = kind.title().replace("_", "")
    if "kernels" not in fields:
        types = ARITHMETIC_KERNELS if fields.get("integers") else REAL_KERNELS
        fields["kernels"] = unary_kernels(kind, types)

    body = {
        "kind": kind,
        "fn": staticmethod(fn),
        "__doc__": doc,
        "__module__": __name__,
        **fields,
    }
    for rule in rules:
        body[rule.__name__] = rule

    return dataclass(frozen=True)(type(name, (Unary,), body))


def _elementwise(fn: Callable[[float], float]) -> Callable[[Array], Array]:
    """Return a Python function of one float as a numpy function that keeps the type."""
    ufunc = np.frompyfunc(fn, 1, 1)
    return lambda x: np.asarray(ufunc(x.astype(np.float64))).astype(x.dtype)


ERF = _elementwise(erf)
"""The error function; numpy has none."""


def _sigmoid(x: Array) -> Array:
    """Return 1 / (1 + e^-x) in the type of x."""
    one = x.dtype.type(1)
    return np.asarray(one / (one + np.exp(-x)))


def _softplus(x: Array) -> Array:
    """Return log(1 + e^x) as log(1 + e^-|x|) + max(x, 0), which does not overflow."""
    tail = np.log1p(np.exp(-np.abs(x)))
    return np.asarray(tail + np.maximum(x, 0))


def _hard_swish(x: Array) -> Array:
    """Return x * relu6(x + 3) / 6; the division comes first, as x * 6 may overflow."""
    gate = np.minimum(np.maximum(x + 3, 0), 6) / 6
    return np.asarray(x * gate)


_POSITIVE = (0.0, 6.0)
"""Domain of functions that are real for positive numbers only."""

LOGISTIC_REFUSED = 80 * 8400
"""Elements of the smallest LOGISTIC of one row seen refused, the head [1,80,8400]."""


@edgetpu_rule(
    fix="apply the sigmoid before the heads are flattened, or leave it to the CPU"
)
def _logistic_length(self: OpDef, op: Op) -> str | None:
    """LOGISTIC: at most 185094 elements of one row, as [1, n, m]; refused from 672000
    on. Images: any size.
    """
    x = op.inputs[0].type
    if not one_row(x):
        return None

    evidence = f"input {list(x.shape)} has {x.size} elements"

    return size_evidence(x.size, ONE_ROW_MAPPED, LOGISTIC_REFUSED, evidence)


@edgetpu_rule(fix=None)
def _rsqrt_int8(self: OpDef, op: Op) -> str | None:
    """RSQRT is documented, but the version that has int8 makes compiler 15 give up the
    model.
    """
    return Uncertain("version 2") if op.inputs[0].type.dtype == "int8" else None


def _mapped(name: str, version: int = 2) -> _Mapped:
    """Return the fields of a row for a function that the Edge TPU has.

    version: the highest version of its TFLite operator seen mapped.
    """
    return {"edgetpu": True, "edgetpu_versions": {name: Versions(version)}}


Relu = _row(
    "relu",
    lambda x: np.maximum(x, 0),
    "max(x, 0).",
    integers=True,
    homogeneous=True,
    onnx=("Relu",),
    tflite=("RELU",),
    versions=(1, 2),
    table=lambda self, x, y: lut.clamp_table(0.0, None, x, y),
    kernels=unary_kernels("relu", ARITHMETIC_KERNELS, bounds=ACTIVATIONS["relu"]),
    **_mapped("RELU"),
)
Relu6 = _row(
    "relu6",
    lambda x: np.clip(x, 0, 6),
    "min(max(x, 0), 6).",
    domain=(-8.0, 8.0),
    integers=True,
    homogeneous=True,
    tflite=("RELU6",),
    versions=(1, 2),
    table=lambda self, x, y: lut.clamp_table(0.0, 6.0, x, y),
    kernels=unary_kernels("relu6", ARITHMETIC_KERNELS, bounds=ACTIVATIONS["relu6"]),
    **_mapped("RELU6"),
)
ReluN1To1 = _row(
    "relu_n1_to_1",
    lambda x: np.clip(x, -1, 1),
    "min(max(x, -1), 1).",
    integers=True,
    tflite=("RELU_N1_TO_1",),
    versions=(1, 1),
    table=lambda self, x, y: lut.clamp_table(-1.0, 1.0, x, y),
    kernels=unary_kernels(
        "relu_n1_to_1", ARITHMETIC_KERNELS, bounds=ACTIVATIONS["relu_n1_to_1"]
    ),
    **_mapped("RELU_N1_TO_1", 1),
)
Logistic = _row(
    "logistic",
    _sigmoid,
    "1 / (1 + e^-x).",
    _logistic_length,
    onnx=("Sigmoid",),
    tflite=("LOGISTIC",),
    versions=(1, 2),
    quant=QuantRule.FIXED,
    prescribed=LOGISTIC_QUANT,
    domain=(-8.0, 8.0),
    table=lambda self, x, y: lut.logistic_table(x, y),
    kernels=unary_kernels("logistic", vectorized=True),
    **_mapped("LOGISTIC"),
)
Tanh = _row(
    "tanh",
    np.tanh,
    "The hyperbolic tangent.",
    onnx=("Tanh",),
    tflite=("TANH",),
    versions=(1, 2),
    quant=QuantRule.FIXED,
    prescribed=TANH_QUANT,
    kernels=unary_kernels("tanh", vectorized=True),
    **_mapped("TANH"),
)
HardSwish = _row(
    "hard_swish",
    _hard_swish,
    "x * relu6(x + 3) / 6.",
    onnx=("HardSwish",),
    tflite=("HARD_SWISH",),
    options="HardSwishOptions",
    versions=(1, 1),
    table=lambda self, x, y: lut.hard_swish_table(x, y),
    kernels=unary_kernels("hard_swish", vectorized=True),
)
Exp = _row(
    "exp",
    np.exp,
    "e^x.",
    onnx=("Exp",),
    tflite=("EXP",),
    options="ExpOptions",
    versions=(1, 2),
    edgetpu_versions={"EXP": Versions(0, refused=1, aborts=2)},
    kernels=unary_kernels("exp", vectorized=True),
)
Log = _row(
    "log",
    np.log,
    "The natural logarithm.",
    onnx=("Log",),
    tflite=("LOG",),
    versions=(1, 2),
    domain=_POSITIVE,
    table=lambda self, x, y: lut.log_table(x, y),
)
Sqrt = _row(
    "sqrt",
    np.sqrt,
    "The square root.",
    onnx=("Sqrt",),
    tflite=("SQRT",),
    versions=(1, 2),
    domain=_POSITIVE,
    table=lambda self, x, y: lut.sqrt_table(x, y),
)
Rsqrt = _row(
    "rsqrt",
    lambda x: 1 / np.sqrt(x),
    "1 / sqrt(x).",
    _rsqrt_int8,
    tflite=("RSQRT",),
    versions=(1, 2),
    domain=_POSITIVE,
    table=lambda self, x, y: lut.rsqrt_table(x, y),
    **_mapped("RSQRT", 1),
)
Abs = _row(
    "abs",
    np.abs,
    "The magnitude.",
    integers=True,
    onnx=("Abs",),
    tflite=("ABS",),
    options="AbsOptions",
    versions=(1, 2),
    table=lambda self, x, y: lut.abs_table(x, y),
)
Neg = _row(
    "neg",
    np.negative,
    "-x.",
    integers=True,
    onnx=("Neg",),
    tflite=("NEG",),
    options="NegOptions",
)
Square = _row(
    "square",
    np.square,
    "x * x.",
    integers=True,
    tflite=("SQUARE",),
    options="SquareOptions",
)
Reciprocal = _row(
    "reciprocal",
    lambda x: 1 / x,
    "1 / x.",
    onnx=("Reciprocal",),
    domain=_POSITIVE,
)
Floor = _row(
    "floor",
    np.floor,
    "The largest whole number not above x.",
    onnx=("Floor",),
    tflite=("FLOOR",),
)
Ceil = _row(
    "ceil",
    np.ceil,
    "The smallest whole number not below x.",
    onnx=("Ceil",),
    tflite=("CEIL",),
)
Round = _row(
    "round",
    np.rint,
    "The nearest whole number, ties to even.",
    onnx=("Round",),
    tflite=("ROUND",),
)
Sign = _row(
    "sign",
    np.sign,
    "-1, 0 or 1.",
    integers=True,
    onnx=("Sign",),
    tflite=("SIGN",),
    options="SignOptions",
)
Sin = _row("sin", np.sin, "The sine of radians.", onnx=("Sin",), tflite=("SIN",))
Cos = _row(
    "cos",
    np.cos,
    "The cosine of radians.",
    onnx=("Cos",),
    tflite=("COS",),
    options="CosOptions",
)
Tan = _row("tan", np.tan, "The tangent of radians.", onnx=("Tan",), domain=(-1.0, 1.0))
Asin = _row(
    "asin",
    np.arcsin,
    "The inverse of the sine.",
    onnx=("Asin",),
    domain=(-1.0, 1.0),
)
Acos = _row(
    "acos",
    np.arccos,
    "The inverse of the cosine.",
    onnx=("Acos",),
    domain=(-1.0, 1.0),
)
Atan = _row("atan", np.arctan, "The inverse of the tangent.", onnx=("Atan",))
Sinh = _row("sinh", np.sinh, "The hyperbolic sine.", onnx=("Sinh",))
Cosh = _row("cosh", np.cosh, "The hyperbolic cosine.", onnx=("Cosh",))
Asinh = _row(
    "asinh",
    np.arcsinh,
    "The inverse of the hyperbolic sine.",
    onnx=("Asinh",),
)
Acosh = _row(
    "acosh",
    np.arccosh,
    "The inverse of the hyperbolic cosine.",
    onnx=("Acosh",),
    domain=(1.0, 4.0),
)
Atanh = _row(
    "atanh",
    np.arctanh,
    "The inverse of the hyperbolic tangent.",
    onnx=("Atanh",),
    domain=(-0.9, 0.9),
)
Erf = _row(
    "erf",
    ERF,
    "The error function.",
    onnx=("Erf",),
    kernels=unary_kernels("erf", vectorized=True),
)
Softplus = _row(
    "softplus",
    _softplus,
    "log(1 + e^x).",
    onnx=("Softplus",),
    kernels=unary_kernels("softplus", vectorized=True),
)
Softsign = _row(
    "softsign",
    lambda x: x / (1 + np.abs(x)),
    "x / (1 + |x|).",
    onnx=("Softsign",),
)
Mish = _row(
    "mish",
    lambda x: x * np.tanh(_softplus(x)),
    "x * tanh(softplus(x)).",
    onnx=("Mish",),
    kernels=unary_kernels("mish", vectorized=True),
)
