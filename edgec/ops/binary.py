"""Elementwise ops of two inputs with numpy broadcasting, as rows of one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgec.ir import (
    Array,
    CEmitter,
    OnnxNode,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Sample,
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
)
from edgec.ir.opdef import Arg
from edgec.ops.common import act_f32, suffix
from edgec.ops.fixed_point import (
    TFLITE_ACTIVATIONS,
    activation_range,
    clamp_float,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
)

_LEFT_SHIFT = 20  # headroom that TFLite's int8 add and sub give both inputs before they are brought to one scale


@dataclass(frozen=True)
class Binary(OpDef):
    """y = fn(a, b), broadcast as numpy does, under a fused activation."""

    act: str = "none"

    fn: ClassVar[Callable[[Any, Any], Any]]
    options: ClassVar[str]
    quant: ClassVar[QuantRule] = QuantRule.FREE
    elementwise: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The broadcast shape."""
        a, b = x
        if a.dtype != b.dtype:
            raise ValueError(f"operands have types {a} and {b}")
        return (TensorType(np.broadcast_shapes(a.shape, b.shape), a.dtype),)

    def ref(self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]) -> list[Array]:
        """numpy on floats and plain integers; `ref_s8` on quantized ones."""
        if yt[0].is_quantized:
            low, high = activation_range(self.act, yt[0])
            y = self.ref_s8(x[0].astype(np.int32), x[1].astype(np.int32), xt[0], xt[1], yt[0])
            return [np.clip(y, low, high).astype(yt[0].np_dtype)]
        y = np.asarray(type(self).fn(x[0], x[1])).astype(yt[0].np_dtype)
        return [clamp_float(y, self.act) if yt[0].dtype == "float32" else y]

    def ref_s8(self, a: Array, b: Array, at: TensorType, bt: TensorType, yt: TensorType) -> Array:
        """The integer meaning, before the clamp."""
        raise NotImplementedError(f"{self.kind} has no int8 form")

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value | list[Value]:
        """A chain for the variadic ones."""
        y = node.input(0)
        for i in range(1, len(node.inputs)):
            y = node.build.add(cls(), [y, node.input(i)], node.name)
        return y

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """The fused activation is in the options, if there are any."""
        act = getattr(op.options, "fusedActivationFunction", 0)
        op.build.write(cls(TFLITE_ACTIVATIONS[act]), op.present(), op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode:
        """Version 2 is int8."""
        options = {"fusedActivationFunction": TFLITE_ACTIVATIONS.index(self.act)}
        return TfliteCode(self.tflite[0], (self.options, options), 2 if op.inputs[0].type.dtype == "int8" else 1)

    def c(self, op: Op, c: CEmitter) -> str:
        """ek_<kind>_<type> over up to six broadcast dimensions."""
        a, b, y = (v.type for v in (*op.inputs, op.output))
        s = suffix(y)
        last = self.c_requant(c, a, b, y) if s == "s8" else act_f32(c, self.act) if s == "f32" else "0"
        args = ", ".join(c.ptr(v) for v in (*op.inputs, op.output))
        return f"ek_{self.kind}_{s}({args}, {broadcast(c, a, b, y)}, {last});"

    def c_requant(self, c: CEmitter, a: TensorType, b: TensorType, y: TensorType) -> str:
        """The trailing struct of the int8 kernel."""
        raise NotImplementedError(f"{self.kind} has no int8 kernel")

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Equal shapes, a channel vector, a scalar; every activation of the int8 form."""
        shape = (1, 3, 4, 5)
        for label, other in (("same", shape), ("channel", (5,)), ("scalar", ()), ("column", (1, 3, 1, 1))):
            yield Sample(cls(), (Arg(TensorType(shape)), Arg(TensorType(other))), label=label)
            if cls.quant is not QuantRule.FLOAT:
                a = TensorType(shape, "int8", Quant.per_tensor(0.11, 4))
                b = TensorType(other, "int8", Quant.per_tensor(0.07, -9))
                yield Sample(cls(), (Arg(a), Arg(b)), Quant.per_tensor(0.13, -2), f"{label}_s8")


def broadcast(c: CEmitter, *types: TensorType) -> str:
    """ek_nd_t: the output's six dimensions and the element strides of each input (0 where it broadcasts)."""
    *inputs, y = types
    strides = {}
    for name, t in zip("ab", inputs, strict=False):
        shape, step, out = (1,) * (6 - t.rank) + t.shape, 1, list[int]()
        for d in reversed(shape):
            out.append(0 if d == 1 else step)
            step *= d
        strides[name] = out[::-1]
    return c.struct("ek_nd_t", dim=(1,) * (6 - y.rank) + y.shape, **strides)


class _Additive(Binary):
    """ADD and SUB: both inputs are brought to twice the larger scale with 20 bits of headroom."""

    edgetpu: ClassVar[bool] = True

    def _scales(self, a: TensorType, b: TensorType, y: TensorType) -> list[tuple[int, int]]:
        twice = 2.0 * max(a.scale, b.scale)
        real = (a.scale / twice, b.scale / twice, twice / ((1 << _LEFT_SHIFT) * y.scale))
        return [quantize_multiplier(r) for r in real]

    def ref_s8(self, a: Array, b: Array, at: TensorType, bt: TensorType, yt: TensorType) -> Array:
        """tensorflow/lite/kernels/internal/reference/{add,sub}.h."""
        ka, kb, ky = self._scales(at, bt, yt)
        left = multiply_by_quantized_multiplier((a - at.zero_point) << _LEFT_SHIFT, *ka)
        right = multiply_by_quantized_multiplier((b - bt.zero_point) << _LEFT_SHIFT, *kb)
        total = np.asarray(type(self).fn(left, right))
        result: Array = multiply_by_quantized_multiplier(total, *ky) + np.int32(yt.zero_point)
        return result

    def c_requant(self, c: CEmitter, a: TensorType, b: TensorType, y: TensorType) -> str:
        """ek_add_t."""
        (am, ash), (bm, bsh), (ym, ysh) = self._scales(a, b, y)
        low, high = activation_range(self.act, y)
        return c.struct(
            "ek_add_t",
            a_zero=a.zero_point, b_zero=b.zero_point, y_zero=y.zero_point, low=low, high=high,
            a_mul=am, a_shift=ash, b_mul=bm, b_shift=bsh, y_mul=ym, y_shift=ysh,
        )  # fmt: skip


@dataclass(frozen=True)
class Add(_Additive):
    """a + b."""

    kind = "add"
    onnx = ("Add", "Sum")
    tflite = ("ADD",)
    options = "AddOptions"
    fn = staticmethod(np.add)


@dataclass(frozen=True)
class Sub(_Additive):
    """a - b."""

    kind = "sub"
    onnx = ("Sub",)
    tflite = ("SUB",)
    options = "SubOptions"
    fn = staticmethod(np.subtract)


@dataclass(frozen=True)
class Mul(Binary):
    """a * b."""

    kind = "mul"
    onnx = ("Mul",)
    tflite = ("MUL",)
    options = "MulOptions"
    fn = staticmethod(np.multiply)
    edgetpu: ClassVar[bool] = True

    def _multiplier(self, a: TensorType, b: TensorType, y: TensorType) -> tuple[int, int]:
        """The scales are multiplied and divided in float32."""
        f32 = np.float32
        return quantize_multiplier(float(f32(f32(a.scale) * f32(b.scale)) / f32(y.scale)))

    def ref_s8(self, a: Array, b: Array, at: TensorType, bt: TensorType, yt: TensorType) -> Array:
        """tensorflow/lite/kernels/internal/reference/mul.h."""
        multiplier = self._multiplier(at, bt, yt)
        product = (a - at.zero_point) * (b - bt.zero_point)
        result: Array = multiply_by_quantized_multiplier(product, *multiplier) + np.int32(yt.zero_point)
        return result

    def c_requant(self, c: CEmitter, a: TensorType, b: TensorType, y: TensorType) -> str:
        """ek_mul_t."""
        m, shift = self._multiplier(a, b, y)
        low, high = activation_range(self.act, y)
        zeros = {"a_zero": a.zero_point, "b_zero": b.zero_point, "y_zero": y.zero_point}
        return c.struct("ek_mul_t", **zeros, low=low, high=high, mul=m, shift=shift)
