"""Elementwise ops of two inputs with numpy broadcasting.

Semantics: the ONNX and TFLite operators of the same names. int8 follows TFLite's
reference kernels (tensorflow/lite/kernels/internal/reference/{add,sub,mul}.h), or with
onnxruntime's rounding those of QLinearAdd and QLinearMul.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from edgec.ir import (
    Array,
    ChannelFlow,
    CStruct,
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
    edgetpu_rule,
)
from edgec.ir.c_structs import (
    FixedPointProductParams,
    FloatProductParams,
    FloatSumParams,
)
from edgec.ir.opdef import Arg
from edgec.ops.binary_scales import (
    Linear,
    even_factor,
    fits_litert,
    product_multiplier,
    product_shift,
    scaled_struct,
)
from edgec.ops.broadcast import aligned
from edgec.ops.broadcast_dims import broadcast, broadcast_strides
from edgec.ops.common import (
    INTEGERS,
    act_f32,
    plain_suffix,
    quantized_range,
    rounded_kernel,
)
from edgec.ops.elementwise_kernels import arithmetic_kernels
from edgec.ops.fixed_point import (
    TFLITE_ACTIVATIONS,
    clamp_float,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    tflite_activation,
)
from edgec.ops.fused_activation import fused_activation, write_activated
from edgec.ops.limits import ONE_ROW_MAPPED, one_row, size_evidence

HEADROOM = 20
"""Bits by which TFLite's int8 add and sub shift both inputs to the left before they are
brought to one scale.
"""


@dataclass(frozen=True)
class Binary(OpDef):
    """y = fn(a, b), broadcast as numpy does."""

    kernels: ClassVar[KernelFamily]
    """The plain kernels, as `binary_kernels` returns them."""

    fn: ClassVar[Callable[..., Any]]
    """The function in numpy."""
    options: ClassVar[str]
    """Name of TFLite's options table."""
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
        """Return the broadcast shape with the operands' element type.

        Raises ValueError when the operands have two element types, do not broadcast, or
        broadcast in more ways than the kernel has dimensions.
        """
        a, b = x
        if a.dtype != b.dtype:
            raise ValueError(f"operands have types {a} and {b}")

        shape = np.broadcast_shapes(a.shape, b.shape)
        broadcast_strides(shape, a.shape, b.shape)

        # Ops with one scale for all have it from their inputs.
        quant = a.quant if self.quant is QuantRule.SAME else None

        return (TensorType(shape, a.dtype, quant),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the numpy function, or `ref_s8` and the clamp on quantized tensors.

        Integers wrap as numpy's do.
        """
        y_type = yt[0]
        if not y_type.is_quantized:
            with np.errstate(all="ignore"):
                y = type(self).fn(x[0], x[1])
                return [np.asarray(y).astype(y_type.np_dtype)]

        a = x[0].astype(np.int32)
        b = x[1].astype(np.int32)
        y = self.ref_s8(a, b, xt[0], xt[1], y_type)
        low, high = self.clamp(y_type)

        return [np.clip(y, low, high).astype(y_type.np_dtype)]

    def ref_s8(
        self,
        a: Array,
        b: Array,
        at: TensorType,
        bt: TensorType,
        yt: TensorType,
    ) -> Array:
        """Return the int8 results before the clamp, from int8 operands as int32."""
        raise NotImplementedError(f"{self.kind} has no int8 form")

    def clamp(self, y: TensorType) -> tuple[int, int]:
        """Return the (lowest, highest) elements of the int8 output."""
        return -128, 127

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value | list[Value]:
        """Read the node, as a chain of ops when it has more than two inputs.

        Such operators associate: the chain takes the inputs from the left.
        """
        # Sum, Max and Min take any number of inputs in ONNX.
        y = node.input(0)
        for i in range(1, len(node.inputs)):
            operands = aligned(node.build, [y, node.input(i)], node.name)
            y = node.build.add(cls(), operands, node.name)
        return y

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read an operator of two inputs without options."""
        op.build.write(cls(), op.present(), op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return the builtin operator; None when TFLite has none for this type.

        TFLite's int8 and uint8 always have a scale.
        """
        x = op.inputs[0].type
        is_plain_8_bit = x.dtype in ("int8", "uint8") and x.quant is None
        if not self.tflite or x.dtype not in self.tflite_types or is_plain_8_bit:
            return None

        options = (self.options, self.tflite_fields(op))

        return TfliteCode(self.tflite[0], options, self.tflite_version(op))

    def tflite_fields(self, op: Op) -> dict[str, int]:
        """Return the fields of the options table."""
        return {}

    def tflite_version(self, op: Op) -> int:
        """Return the operator's version: 2 introduced int8."""
        return 2 if op.inputs[0].type.dtype == "int8" else 1

    def c(self, op: Op) -> KernelCall:
        """Return ek_<kind>_<type> over up to six broadcast dimensions.

        Operands: a, b, output, dimensions and strides, and a struct that some kernels
        have.
        """
        a = op.inputs[0].type
        b = op.inputs[1].type
        y = op.output.type

        # Comparisons have a bool output of operands of any type.
        if y.is_quantized:
            kernel = rounded_kernel(
                self.kernels, a, getattr(self, "rounding", Rounding.TFLITE)
            )
            last = self.c_requant(a, b, y)
        else:
            kernel = self.kernels.of(plain_suffix(a))
            last = self.c_plain(a)

        dims = broadcast(y, a, b)
        if last is None:
            return KernelCall.of(kernel, *op.inputs, op.output, dims)

        return KernelCall.of(kernel, *op.inputs, op.output, dims, last)

    def c_requant(self, a: TensorType, b: TensorType, y: TensorType) -> CStruct | None:
        """Return the trailing struct of the int8 kernel, None when it has none."""
        return None

    def c_plain(self, a: TensorType) -> CStruct | None:
        """Return the trailing struct of the other kernels, None when they have none."""
        return None

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield equal shapes, a channel vector, a scalar and a column.

        Equal shapes come in every element type, the others in the first two.
        """
        shape = (1, 3, 4, 5)
        others: dict[str, tuple[int, ...]] = {
            "same": shape,
            "channel": (5,),
            "scalar": (),
            "column": (1, 3, 1, 1),
        }
        a_quant = Quant.per_tensor(0.11, 4)
        for label, other in others.items():
            for dtype in cls.sampled if label == "same" else cls.sampled[:2]:
                args = (Arg(TensorType(shape, dtype)), Arg(TensorType(other, dtype)))
                yield Sample(cls(), args, label=f"{label}_{dtype}")
            if cls.quant is QuantRule.FLOAT:
                continue

            # An op with one scale for all has it from its inputs.
            b_quant = Quant.per_tensor(0.07, -9)
            y_quant: Quant | None = Quant.per_tensor(0.13, -2)
            if cls.quant is QuantRule.SAME:
                b_quant = a_quant
                y_quant = None
            a = TensorType(shape, "int8", a_quant)
            b = TensorType(other, "int8", b_quant)
            yield Sample(cls(), (Arg(a), Arg(b)), y_quant, f"{label}_s8")


@dataclass(frozen=True)
class Fused(Binary):
    """A binary op with a fused activation: y = act(fn(a, b)).

    Attributes:
        act: the activation
    """

    act: str = "none"

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the op; float results are clamped here, int8 ones already are."""
        y = super().ref(x, xt, yt)
        if yt[0].dtype != "float32":
            return y

        return [clamp_float(y[0], self.act)]

    def clamp(self, y: TensorType) -> tuple[int, int]:
        """Return the range of int8 elements that the activation leaves."""
        rounding = getattr(self, "rounding", Rounding.TFLITE)
        return quantized_range(self.act, y, rounding)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read the operator with its fused activation."""
        # It concerns int16 only.
        op.ignore("potScaleInt16")
        y = op.outputs[0].type
        if y.dtype in INTEGERS and not y.is_quantized:
            # The kernels of these integers have no bounds.
            write_activated(op, cls(), op.present())
        else:
            op.build.write(cls(fused_activation(op)), op.present(), op.outputs)

    def tflite_fields(self, op: Op) -> dict[str, int]:
        """Return the field of the fused activation."""
        return {"fusedActivationFunction": tflite_activation(self.act, op.output.type)}

    def c_plain(self, a: TensorType) -> CStruct | None:
        """Return the clamp range of floats."""
        return act_f32(self.act) if a.dtype == "float32" else None

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield the samples of every binary op, and each activation."""
        yield from super().samples()
        real = TensorType((2, 3, 5))
        quantized = real.with_quant(Quant.per_tensor(0.05, 4), "int8")
        output_quant = Quant.per_tensor(0.06, -2)

        # The first activation is none.
        for act in TFLITE_ACTIVATIONS[1:]:
            yield Sample(cls(act), (Arg(real), Arg(real)), label=act)
            if cls.quant is not QuantRule.FLOAT:
                args = (Arg(quantized), Arg(quantized))
                yield Sample(cls(act), args, output_quant, f"{act}_s8")


@dataclass(frozen=True)
class OrtBinary(Fused):
    """A binary op for which onnxruntime has other int8 semantics than TFLite."""

    rounding: Rounding = Rounding.TFLITE
    """The arithmetic of int8; onnxruntime and the Edge TPU compute in float32."""

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield the samples of fused ops, and those that round as onnxruntime does."""
        yield from super().samples()
        shape = (2, 3, 5)
        a = TensorType(shape, "int8", Quant.per_tensor(0.11, 4))
        output_quant = Quant.per_tensor(0.13, -2)
        roundings = {"": Rounding.ONNXRUNTIME, "_u8": Rounding.ONNXRUNTIME_UINT8}
        if cls.edgetpu_rounding:
            roundings["_edgetpu"] = Rounding.EDGETPU
        for ending, rounding in roundings.items():
            for other in (shape, (5,)):
                b = TensorType(other, "int8", Quant.per_tensor(0.07, -9))
                spec = cls(rounding=rounding)
                label = f"even_{len(other)}{ending}"
                yield Sample(spec, (Arg(a), Arg(b)), output_quant, label)


@dataclass(frozen=True)
class Additive(OrtBinary):
    """ADD and SUB: both int8 inputs are brought to twice the larger scale.

    Their elements are shifted by 20 bits first, which keeps the fractions.
    """

    edgetpu: ClassVar[bool] = True

    def _scales(
        self,
        a: TensorType,
        b: TensorType,
        y: TensorType,
    ) -> list[tuple[int, int]]:
        """Return the fixed-point multipliers of a, of b and of the result.

        They are scale_a / s, scale_b / s and s / (2^20 scale_y), s twice the larger
        input scale.
        """
        twice = 2.0 * max(a.scale, b.scale)

        # The result is shifted back by the headroom.
        result = twice / ((1 << HEADROOM) * y.scale)
        reals = (a.scale / twice, b.scale / twice, result)

        return [quantize_multiplier(real) for real in reals]

    def ref_s8(
        self,
        a: Array,
        b: Array,
        at: TensorType,
        bt: TensorType,
        yt: TensorType,
    ) -> Array:
        """Compute the sum or difference in fixed point, or in float32.

        Source: tensorflow/lite/kernels/internal/reference/{add,sub}.h; for onnxruntime
        and the Edge TPU see `Linear`.
        """
        if self.rounding.sums_in_float:
            linear = self._linear(at, bt, yt)
            rounded = np.rint(linear.of(a, b)).astype(np.int64)
            return np.asarray(rounded - linear.shift)

        a_multiplier, b_multiplier, y_multiplier = self._scales(at, bt, yt)
        a_steps = (a - at.zero_point) << HEADROOM
        b_steps = (b - bt.zero_point) << HEADROOM
        left = multiply_by_quantized_multiplier(a_steps, *a_multiplier)
        right = multiply_by_quantized_multiplier(b_steps, *b_multiplier)

        # Sum or difference.
        total = np.asarray(type(self).fn(left, right))
        scaled: Array = multiply_by_quantized_multiplier(total, *y_multiplier)
        result: Array = scaled + np.int32(yt.zero_point)

        return result

    def _linear(self, a: TensorType, b: TensorType, y: TensorType) -> Linear:
        """Return the op as onnxruntime or the Edge TPU computes it."""
        if self.rounding.is_edgetpu:
            return Linear.on_edgetpu(a, b, y)
        sign = -1 if self.kind == "sub" else 1
        return Linear.of_scales(a, b, y, sign, self.rounding.offset)

    def c_requant(self, a: TensorType, b: TensorType, y: TensorType) -> CStruct:
        """Return ek_fixed_point_sum_t, or ek_float_sum_t for sums in float.

        Both structs also have the range of the output's elements.
        """
        low, high = self.clamp(y)
        if self.rounding.sums_in_float:
            fields = asdict(self._linear(a, b, y))
            return FloatSumParams(**fields, low=low, high=high)

        return scaled_struct(self._scales(a, b, y), (a, b, y), (low, high))

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return the operator; None when LiteRT cannot hold the result's multiplier."""
        return super().to_tflite(op) if fits_litert(op, self._scales) else None


@dataclass(frozen=True)
class Add(Additive):
    """y = a + b."""

    kind = "add"
    edgetpu_rounding: ClassVar[bool] = True
    kernels = arithmetic_kernels("add")
    onnx = ("Add", "Sum")
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.ADDS
    homogeneous: ClassVar[bool] = True
    tflite = ("ADD", "ADD_N")
    edgetpu_versions = {"ADD": Versions(2, refused=4)}
    options = "AddOptions"
    fn = staticmethod(np.add)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read ADD, and ADD_N as a chain of sums.

        ADD_N has two inputs or more, all of one shape.
        """
        if op.name == "ADD":
            super().from_tflite(op)
            return

        # ADD_N has no activation.
        total, *others, last = op.present()
        for other in others:
            total = op.build.add(cls(), [total, other], op.outputs[0].name)

        op.build.write(cls(), [total, last], op.outputs)


@dataclass(frozen=True)
class Sub(Additive):
    """y = a - b."""

    kind = "sub"
    kernels = arithmetic_kernels("sub")
    onnx = ("Sub",)
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.ADDS
    homogeneous: ClassVar[bool] = True
    tflite = ("SUB",)
    edgetpu_versions = {"SUB": Versions(2)}
    options = "SubOptions"
    fn = staticmethod(np.subtract)


@dataclass(frozen=True)
class Mul(OrtBinary):
    """y = a * b."""

    kind = "mul"
    edgetpu_rounding: ClassVar[bool] = True
    kernels = arithmetic_kernels("mul")
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.MULTIPLIES
    homogeneous: ClassVar[bool] = True
    onnx = ("Mul",)
    tflite = ("MUL",)
    edgetpu_versions = {"MUL": Versions(2)}
    options = "MulOptions"
    fn = staticmethod(np.multiply)
    edgetpu: ClassVar[bool] = True

    def ref_s8(
        self,
        a: Array,
        b: Array,
        at: TensorType,
        bt: TensorType,
        yt: TensorType,
    ) -> Array:
        """Compute the product in fixed point, or in float32.

        y = zero_y + (a - zero_a)(b - zero_b) * scale_a scale_b / scale_y. Source:
        tensorflow/lite/kernels/internal/reference/mul.h; onnxruntime adds the zero
        point of the file before it rounds, the Edge TPU after it.
        """
        # The product of two centred int8 numbers has 18 bits.
        product = (a - at.zero_point) * (b - bt.zero_point)
        if self.rounding.sums_in_float:
            factor = even_factor(at, bt, yt, self.rounding)
            shift = product_shift(yt, self.rounding)
            real = product.astype(np.float32) * factor + np.float32(
                yt.zero_point + shift
            )
            return np.asarray(np.rint(real).astype(np.int64) - shift)

        multiplier = product_multiplier(at, bt, yt)
        scaled = multiply_by_quantized_multiplier(product, *multiplier)
        result: Array = scaled + np.int32(yt.zero_point)

        return result

    @edgetpu_rule(fix="multiply before the tensor is flattened to one row")
    def _mul_length(self, op: Op) -> str | None:
        """MUL: at most 185094 elements of one row, as [1, n, m]; a larger one was
        refused, images map at any size.
        """
        y = op.output.type
        if not one_row(y):
            return None

        evidence = f"output {list(y.shape)} has {y.size} elements"

        return size_evidence(y.size, ONE_ROW_MAPPED, None, evidence)

    def c_requant(self, a: TensorType, b: TensorType, y: TensorType) -> CStruct:
        """Return ek_fixed_point_product_t, or ek_float_product_t for sums in float."""
        low, high = self.clamp(y)
        common = {
            "a_zero": a.zero_point,
            "b_zero": b.zero_point,
            "y_zero": y.zero_point,
            "low": low,
            "high": high,
        }
        if self.rounding.sums_in_float:
            scale = float(even_factor(a, b, y, self.rounding))
            shift = product_shift(y, self.rounding)
            return FloatProductParams(**common, scale=scale, shift=shift)

        multiplier, shift = product_multiplier(a, b, y)

        return FixedPointProductParams(**common, mul=multiplier, shift=shift)
