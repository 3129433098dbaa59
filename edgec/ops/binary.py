"""Elementwise ops of two inputs with numpy broadcasting, as rows of one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, ClassVar

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
    edgetpu_rule,
)
from edgec.ir.opdef import Arg
from edgec.ops.common import INTEGERS, act_f32, kernel_suffix, plain_suffix
from edgec.ops.fixed_point import (
    TFLITE_ACTIVATIONS,
    activation_range,
    clamp_float,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    tflite_activation,
)
from edgec.ops.limits import ONE_ROW_MAPPED, one_row, within

# bits that TFLite's int8 add and sub give both inputs before they are brought to one
# scale
HEADROOM = 20


@dataclass(frozen=True)
class Binary(OpDef):
    """y = fn(a, b), broadcast as numpy does. The kernel is `ek_<kind>_<type>`."""

    fn: ClassVar[Callable[..., Any]]
    options: ClassVar[str]
    """TFLite's options table."""
    quant: ClassVar[QuantRule] = QuantRule.FREE
    elementwise: ClassVar[bool] = True
    plain_int8: ClassVar[bool] = True
    sampled: ClassVar[tuple[str, ...]] = ("float32", *INTEGERS)
    """Element types of the samples, beside int8."""
    tflite_types: ClassVar[tuple[str, ...]] = (
        "float32",
        "int8",
        "uint8",
        "int32",
        "int64",
    )
    """Element types that TFLite's kernel takes."""

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The broadcast shape."""
        a, b = x
        if a.dtype != b.dtype:
            raise ValueError(f"operands have types {a} and {b}")
        shape = np.broadcast_shapes(a.shape, b.shape)
        walk(shape, a.shape, b.shape)
        return (
            TensorType(
                shape, a.dtype, a.quant if self.quant is QuantRule.SAME else None
            ),
        )

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """numpy on floats and plain integers; `ref_s8` on quantized ones."""
        if yt[0].is_quantized:
            low, high = self.clamp(yt[0])
            y = self.ref_s8(
                x[0].astype(np.int32), x[1].astype(np.int32), xt[0], xt[1], yt[0]
            )
            return [np.clip(y, low, high).astype(yt[0].np_dtype)]
        with np.errstate(all="ignore"):
            return [np.asarray(type(self).fn(x[0], x[1])).astype(yt[0].np_dtype)]

    def ref_s8(
        self, a: Array, b: Array, at: TensorType, bt: TensorType, yt: TensorType
    ) -> Array:
        """The integer meaning, before the clamp."""
        raise NotImplementedError(f"{self.kind} has no int8 form")

    def clamp(self, y: TensorType) -> tuple[int, int]:
        """The range of the int8 output."""
        return -128, 127

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value | list[Value]:
        """A chain for the variadic ones."""
        y = node.input(0)
        for i in range(1, len(node.inputs)):
            y = node.build.add(cls(), [y, node.input(i)], node.name)
        return y

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Two inputs."""
        op.build.write(cls(), op.present(), op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """The builtin of the same meaning, if there is one for this type."""
        x = op.inputs[0].type
        if (
            not self.tflite
            or x.dtype not in self.tflite_types
            or (x.dtype in ("int8", "uint8") and x.quant is None)
        ):
            return None
        return TfliteCode(
            self.tflite[0],
            (self.options, self.tflite_fields(op)),
            self.tflite_version(op),
        )

    def tflite_fields(self, op: Op) -> dict[str, int]:
        """The fields of the options table."""
        return {}

    def tflite_version(self, op: Op) -> int:
        """Version 2 is int8."""
        return 2 if op.inputs[0].type.dtype == "int8" else 1

    def c(self, op: Op) -> KernelCall:
        """ek_<kind>_<type> over up to six broadcast dimensions."""
        a, b, y = (v.type for v in (*op.inputs, op.output))
        last = self.c_requant(a, b, y) if y.is_quantized else self.c_plain(a)
        dims = broadcast(y, a=a, b=b)
        if y.is_quantized:
            name = kernel_suffix(a, getattr(self, "even", False))
        else:
            name = plain_suffix(a)
        return KernelCall.of(
            f"ek_{self.kind}_{name}",
            *op.inputs,
            op.output,
            dims,
            *([last] if last else []),
        )

    def c_requant(self, a: TensorType, b: TensorType, y: TensorType) -> Struct | None:
        """The trailing struct of the int8 kernel, if it has one."""
        return None

    def c_plain(self, a: TensorType) -> Struct | None:
        """The trailing struct of the other kernels, if they have one."""
        return None

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Equal shapes, a channel vector, a scalar, a column."""
        shape = (1, 3, 4, 5)
        for label, other in (
            ("same", shape),
            ("channel", (5,)),
            ("scalar", ()),
            ("column", (1, 3, 1, 1)),
        ):
            for dtype in cls.sampled if label == "same" else cls.sampled[:2]:
                args = (Arg(TensorType(shape, dtype)), Arg(TensorType(other, dtype)))
                yield Sample(cls(), args, label=f"{label}_{dtype}")
            if cls.quant is not QuantRule.FLOAT:
                a = TensorType(shape, "int8", Quant.per_tensor(0.11, 4))
                b = TensorType(other, "int8", Quant.per_tensor(0.07, -9))
                if cls.quant is QuantRule.SAME:
                    yield Sample(
                        cls(), (Arg(a), Arg(b.with_quant(a.quant))), label=f"{label}_s8"
                    )
                else:
                    yield Sample(
                        cls(),
                        (Arg(a), Arg(b)),
                        Quant.per_tensor(0.13, -2),
                        f"{label}_s8",
                    )


def walk(
    shape: tuple[int, ...], *inputs: tuple[int, ...]
) -> tuple[list[int], list[list[int]]]:
    """Six dimensions of a dense output, and the element strides of each broadcast input
    along them.

    1s are dropped and neighbours joined where every input allows it. Raises ValueError
    when more than six remain.
    """
    all_strides: list[list[int]] = []
    for given in inputs:
        dims = (1,) * (len(shape) - len(given)) + given
        all_strides.append(
            [0 if d == 1 else prod(dims[i + 1 :]) for i, d in enumerate(dims)]
        )
    groups: list[tuple[int, list[int]]] = []
    for i, d in enumerate(shape):
        steps = [strides[i] for strides in all_strides]
        if d == 1:
            continue
        if groups and all(
            before == d * now for before, now in zip(groups[-1][1], steps, strict=True)
        ):
            groups[-1] = (groups[-1][0] * d, steps)
        else:
            groups.append((d, steps))
    if len(groups) > 6:
        raise ValueError(
            f"{len(groups)} dimensions are broadcast independently; edgec compiles up to 6"
        )
    groups = [(1, [0] * len(inputs))] * (6 - len(groups)) + groups
    return [d for d, _ in groups], [
        [steps[k] for _, steps in groups] for k in range(len(inputs))
    ]


def broadcast(y: TensorType, **inputs: TensorType) -> Struct:
    """ek_nd_t: the output's dimensions and the element strides of the inputs, by name."""
    dims, strides = walk(y.shape, *(t.shape for t in inputs.values()))
    return Struct("ek_nd_t", dim=dims, **dict(zip(inputs, strides, strict=True)))


@dataclass(frozen=True)
class Fused(Binary):
    """A binary op with a fused activation."""

    act: str = "none"

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """The clamp of floats after numpy's result."""
        y = super().ref(x, xt, yt)
        return [clamp_float(y[0], self.act)] if yt[0].dtype == "float32" else y

    def clamp(self, y: TensorType) -> tuple[int, int]:
        """What the activation leaves."""
        return activation_range(self.act, y)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """The fused activation is in the options, if there are any."""
        act = getattr(op.options, "fusedActivationFunction", 0)
        op.ignore("potScaleInt16")  # of int16
        op.build.write(cls(TFLITE_ACTIVATIONS[act]), op.present(), op.outputs)

    def tflite_fields(self, op: Op) -> dict[str, int]:
        """The activation."""
        return {"fusedActivationFunction": tflite_activation(self.act, op.output.type)}

    def c_plain(self, a: TensorType) -> Struct | None:
        """Floats are clamped."""
        return act_f32(self.act) if a.dtype == "float32" else None

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Also every activation."""
        yield from super().samples()
        for act in TFLITE_ACTIVATIONS[1:]:
            t = TensorType((2, 3, 5))
            yield Sample(cls(act), (Arg(t), Arg(t)), label=act)
            if cls.quant is not QuantRule.FLOAT:
                q = t.with_quant(Quant.per_tensor(0.05, 4), "int8")
                yield Sample(
                    cls(act), (Arg(q), Arg(q)), Quant.per_tensor(0.06, -2), f"{act}_s8"
                )


@dataclass(frozen=True)
class OrtBinary(Fused):
    """What onnxruntime computes on quantized tensors by another law than TFLite."""

    even: bool = False
    """Whether int8 results are computed in float32 and rounded with ties to even, as
    onnxruntime does it.
    """
    uint8: bool = False
    """Of those, whether they were uint8 in the file."""

    @property
    def shift(self) -> int:
        """What is added to int8 elements for those of the file."""
        return 128 if self.uint8 else 0

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Also those that round as onnxruntime does."""
        yield from super().samples()
        for uint8 in (False, True):
            for other in ((2, 3, 5), (5,)):
                a = TensorType((2, 3, 5), "int8", Quant.per_tensor(0.11, 4))
                b = TensorType(other, "int8", Quant.per_tensor(0.07, -9))
                label = f"even_{len(other)}{'_u8' if uint8 else ''}"
                yield Sample(
                    cls(even=True, uint8=uint8),
                    (Arg(a), Arg(b)),
                    Quant.per_tensor(0.13, -2),
                    label,
                )


@dataclass(frozen=True)
class Additive(OrtBinary):
    """ADD and SUB: both inputs are brought to twice the larger scale with 20 bits of
    headroom.
    """

    edgetpu: ClassVar[bool] = True

    def _scales(
        self, a: TensorType, b: TensorType, y: TensorType
    ) -> list[tuple[int, int]]:
        twice = 2.0 * max(a.scale, b.scale)
        real = (a.scale / twice, b.scale / twice, twice / ((1 << HEADROOM) * y.scale))
        return [quantize_multiplier(r) for r in real]

    def ref_s8(
        self, a: Array, b: Array, at: TensorType, bt: TensorType, yt: TensorType
    ) -> Array:
        """tensorflow/lite/kernels/internal/reference/{add,sub}.h; even: see `Linear`."""
        if self.even:
            form = self._linear(at, bt, yt)
            return np.asarray(np.rint(form.of(a, b)).astype(np.int64) - form.shift)
        ka, kb, ky = self._scales(at, bt, yt)
        left = multiply_by_quantized_multiplier((a - at.zero_point) << HEADROOM, *ka)
        right = multiply_by_quantized_multiplier((b - bt.zero_point) << HEADROOM, *kb)
        total = np.asarray(type(self).fn(left, right))
        result: Array = multiply_by_quantized_multiplier(total, *ky) + np.int32(
            yt.zero_point
        )
        return result

    def _linear(self, a: TensorType, b: TensorType, y: TensorType) -> Linear:
        return Linear.of_scales(a, b, y, -1 if self.kind == "sub" else 1, self.shift)

    def c_requant(self, a: TensorType, b: TensorType, y: TensorType) -> Struct:
        """ek_add_t, or ek_linear_t."""
        if self.even:
            low, high = self.clamp(y)
            return Struct(
                "ek_linear_t", **asdict(self._linear(a, b, y)), low=low, high=high
            )
        return scaled_struct(self._scales(a, b, y), (a, b, y), self.clamp(y))

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """A result's scale that leaves none of the headroom has no form."""
        return super().to_tflite(op) if fits_litert(op, self._scales) else None


@dataclass(frozen=True)
class Linear:
    """a * u + (b * v + rest) of elements moved by `shift`, in units of the output: as
    onnxruntime's vectors add quantized tensors, in float32 steps of fused
    multiply-adds. shift: 128 for what was uint8 in the file.
    """

    a: float
    b: float
    rest: float
    shift: int

    @classmethod
    def of_scales(
        cls, a: TensorType, b: TensorType, y: TensorType, sign: int, shift: int
    ) -> Linear:
        """The zero points are folded into `rest`."""
        ra, rb = (np.float32(np.float32(t.scale) / np.float32(y.scale)) for t in (a, b))
        za, zb, zero = (np.float32(t.zero_point + shift) for t in (a, b, y))
        taken = np.float32(
            np.float64(ra) * np.float64(za) + sign * np.float64(np.float32(rb * zb))
        )
        return cls(float(ra), sign * float(rb), float(np.float32(zero - taken)), shift)

    def of(self, u: Array, v: Array) -> Array:
        """Of int8 elements; float32 in units of the output, less its zero point."""
        inner = (self.b * (v + self.shift).astype(np.float64) + self.rest).astype(
            np.float32
        )
        return np.asarray(
            (self.a * (u + self.shift).astype(np.float64) + inner).astype(np.float32)
        )


def fits_litert(op: Op, scales: Callable[..., list[tuple[int, int]]]) -> bool:
    """Whether the last multiplier is below one: where it is not, LiteRT ends its
    process or wraps differences.
    """
    types = [v.type for v in (*op.inputs, op.output)]
    return not op.output.type.is_quantized or scales(*types)[-1][1] <= 0


def scaled_struct(
    scales: Sequence[tuple[int, int]],
    types: Sequence[TensorType],
    clamp: tuple[int, int],
) -> Struct:
    """ek_add_t: zero points, multipliers of both inputs and of the result, and the
    clamp.
    """
    (am, ash), (bm, bsh), (ym, ysh) = scales
    a, b, y = types
    return Struct(
        "ek_add_t",
        a_zero=a.zero_point,
        b_zero=b.zero_point,
        y_zero=y.zero_point,
        low=clamp[0],
        high=clamp[1],
        a_mul=am,
        a_shift=ash,
        b_mul=bm,
        b_shift=bsh,
        y_mul=ym,
        y_shift=ysh,
    )


@dataclass(frozen=True)
class Add(Additive):
    """a + b."""

    kind = "add"
    onnx = ("Add", "Sum")
    tflite = ("ADD", "ADD_N")
    edgetpu_versions = {"ADD": Versions(2, refused=4)}
    options = "AddOptions"
    fn = staticmethod(np.add)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """ADD_N is a chain."""
        if op.name == "ADD":
            super().from_tflite(op)
            return
        first, *others, last = op.present()
        for other in others:
            first = op.build.add(cls(), [first, other], op.outputs[0].name)
        op.build.write(cls(), [first, last], op.outputs)


@dataclass(frozen=True)
class Sub(Additive):
    """a - b."""

    kind = "sub"
    onnx = ("Sub",)
    tflite = ("SUB",)
    edgetpu_versions = {"SUB": Versions(2)}
    options = "SubOptions"
    fn = staticmethod(np.subtract)


@dataclass(frozen=True)
class Mul(OrtBinary):
    """a * b."""

    kind = "mul"
    onnx = ("Mul",)
    tflite = ("MUL",)
    edgetpu_versions = {"MUL": Versions(2)}
    options = "MulOptions"
    fn = staticmethod(np.multiply)
    edgetpu: ClassVar[bool] = True

    def ref_s8(
        self, a: Array, b: Array, at: TensorType, bt: TensorType, yt: TensorType
    ) -> Array:
        """tensorflow/lite/kernels/internal/reference/mul.h; even: in float32, the zero
        point added first.
        """
        product = (a - at.zero_point) * (b - bt.zero_point)
        if self.even:
            real = product.astype(np.float32) * even_factor(at, bt, yt) + np.float32(
                yt.zero_point + self.shift
            )
            return np.asarray(np.rint(real).astype(np.int64) - self.shift)
        scaled = multiply_by_quantized_multiplier(
            product, *product_multiplier(at, bt, yt)
        )
        result: Array = scaled + np.int32(yt.zero_point)
        return result

    @edgetpu_rule(fix="multiply before the tensor is flattened to one row")
    def _mul_length(self, op: Op) -> str | None:
        """MUL: at most 185094 elements of one row, as [1, n, m]; a larger one was
        refused, images map at any size.
        """
        y = op.output.type
        seen = f"output {list(y.shape)} has {y.size} elements"
        return within(y.size, ONE_ROW_MAPPED, None, seen) if one_row(y) else None

    def c_requant(self, a: TensorType, b: TensorType, y: TensorType) -> Struct:
        """ek_mul_t, or ek_real_mul_t."""
        low, high = self.clamp(y)
        zeros = {
            "a_zero": a.zero_point,
            "b_zero": b.zero_point,
            "y_zero": y.zero_point,
            "low": low,
            "high": high,
        }
        if self.even:
            return Struct(
                "ek_real_mul_t",
                **zeros,
                scale=float(even_factor(a, b, y)),
                shift=self.shift,
            )
        m, shift = product_multiplier(a, b, y)
        return Struct("ek_mul_t", **zeros, mul=m, shift=shift)


def product_multiplier(a: TensorType, b: TensorType, y: TensorType) -> tuple[int, int]:
    """Of a product: TFLite multiplies and divides the scales in float32."""
    return quantize_multiplier(float(even_factor(a, b, y)))


def even_factor(a: TensorType, b: TensorType, y: TensorType) -> np.float32:
    """What a product of elements is worth in units of the output, in float32 steps, and
    no more than that holds.
    """
    with np.errstate(over="ignore"):
        factor = np.float32(
            np.float32(a.scale) * np.float32(b.scale) / np.float32(y.scale)
        )
    return min(factor, np.finfo(np.float32).max)


def _div(a: Array, b: Array) -> Array:
    """Integers are cut off towards zero, as C does; by 0 they give 0, and the least by
    -1 wraps.
    """
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    safe = np.where(b == 0, b.dtype.type(1), b)
    up = (a % safe != 0) & ((a < 0) != (safe < 0))
    return np.where(b == 0, 0, a // safe + up)


class Division(Binary):
    """Of integers too, whose divisors are not 0."""

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Also integers, with divisors of both signs."""
        yield from super().samples()
        divisors = np.array([-7, -2, -1, 1, 2, 3])
        for dtype in INTEGERS:
            by = Arg(
                TensorType((6,), dtype),
                True,
                (divisors if dtype[0] == "i" else np.abs(divisors)).astype(dtype),
            )
            yield Sample(cls(), (Arg(TensorType((2, 50, 6), dtype)), by), label=dtype)


@dataclass(frozen=True)
class Div(Division, Fused):
    """a / b; integers towards zero."""

    kind = "div"
    onnx = ("Div",)
    tflite = ("DIV",)
    options = "DivOptions"
    fn = staticmethod(_div)
    tflite_types: ClassVar[tuple[str, ...]] = ("float32", "int32")
    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    sampled: ClassVar[tuple[str, ...]] = ("float32",)
