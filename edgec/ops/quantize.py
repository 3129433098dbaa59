"""Conversion between reals and quantized integers, and between scales.

Semantics: ONNX QuantizeLinear and DequantizeLinear; TFLite QUANTIZE and DEQUANTIZE
(AffineQuantize, Requantize and Dequantize of the reference kernels).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from edgec_runtime.vision.photo import quantized, saturated

from edgec.ir import (
    Array,
    KernelCall,
    KernelRounding,
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
from edgec.ir.c_structs import AffineParams, RescaleParams
from edgec.ir.opdef import Arg
from edgec.ops import linear_quantization as linear
from edgec.ops.cast import Cast
from edgec.ops.common import suffix
from edgec.ops.elementwise_kernels import unary_kernels
from edgec.ops.fixed_point import multiply_by_quantized_multiplier, quantize_multiplier
from edgec.ops.shape import Reshape

_QUANTIZE_TYPES = (
    "f32_s8",
    "f32_u8",
    "f32_s16",
    "s8_s8",
    "s8_u8",
    "u8_s8",
    "u8_u8",
)
QUANTIZE = unary_kernels(
    "quantize", _QUANTIZE_TYPES, even=("f32_s8", "f32_u8"), header="ek_quantize.h"
)
"""From floats to integers, and from one scale to another."""
DEQUANTIZE = unary_kernels("dequantize", ("s8", "u8", "s16"), header="ek_quantize.h")
"""From integers to floats."""


@dataclass(frozen=True)
class Quantize(OpDef):
    """Quantization to int8, uint8 or int16, of float32 or from another scale.

    q = round(x / scale) + zero_point, saturated. Ties go away from zero in TFLite, and
    of floats to the even integer in ONNX. An element that is not a number becomes the
    zero point.

    Attributes:
        dtype: element type of the output
        rounding: the arithmetic, and whether int8 elements were uint8 in the file
    """

    dtype: str = "int8"
    rounding: Rounding = Rounding.TFLITE

    kind = "quantize"
    onnx = ("QuantizeLinear",)
    tflite = ("QUANTIZE",)
    edgetpu_versions = {"QUANTIZE": Versions(2, aborts=3)}
    quant: ClassVar[QuantRule] = QuantRule.FREE
    edgetpu: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the shape of the input with the integer type.

        Raises ValueError for integers without a scale.
        """
        if not x[0].is_quantized and x[0].dtype != "float32":
            raise ValueError(f"quantize of {x[0]}, which has no scale")

        # The caller gives the output its scale.
        return (TensorType(x[0].shape, self.dtype),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the integers, from integers by one fixed-point multiplier.

        Source: AffineQuantize and Requantize of TFLite's reference kernels.
        """
        t = yt[0]
        info = np.iinfo(self.dtype)
        if xt[0].dtype == "float32":
            if not self.rounding.is_onnxruntime:
                return [quantized(x[0], t.scale, t.zero_point, info.dtype)]
            steps = (x[0] / np.float32(t.scale)).astype(np.float32)
            return [saturated(np.rint(steps), t.zero_point, info.dtype)]

        # TFLite rescales integers in fixed point.
        multiplier = quantize_multiplier(xt[0].scale / t.scale)
        centred = x[0].astype(np.int32) - xt[0].zero_point
        scaled = multiply_by_quantized_multiplier(centred, *multiplier)
        y = scaled.astype(np.int64) + t.zero_point

        return [np.clip(y, info.min, info.max).astype(self.dtype)]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef | None:
        """Return the op itself; None for uint8, which stays at the graph's boundary.

        Elements do not depend on their place.
        """
        if "uint8" in (op.inputs[0].type.dtype, op.output.type.dtype):
            return None
        return self

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read QuantizeLinear.

        To 8 bits by a constant scale of the whole tensor it is this op; any other is
        arithmetic on floats.
        """
        x = node.input(0)
        form = linear.Form.of_quantize(node)
        is_per_tensor = form.quant is not None and form.axis is None
        if not is_per_tensor or x.type.dtype != "float32":
            return linear.to_integers(node, form)

        is_uint8 = form.dtype == "uint8"
        spec = cls(rounding=Rounding.of_onnx(is_uint8))
        y = node.build.add(spec, [x], node.name, form.quant)
        if is_uint8:
            node.uint8.add(y)

        return y

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read QUANTIZE to the type of the declared output.

        int16 of the file is floats here, so that the operation is then the identity.
        """
        out = op.outputs[0].type
        if out.dtype == "float32":
            Dequantize.from_tflite(op)
            return

        if not out.is_quantized:
            raise ValueError(f"its output is {out}, which has no scale")

        op.build.write(cls(out.dtype), [op.input(0)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return QUANTIZE; version 2 introduced integer inputs.

        None for half-to-even rounding, which TFLite lacks.
        """
        is_float = op.inputs[0].type.dtype == "float32"
        if self.rounding.is_onnxruntime and is_float:
            return None

        version = 1 if is_float else 2

        return TfliteCode("QUANTIZE", ("QuantizeOptions", {}), version)

    def c(self, op: Op) -> KernelCall:
        """Return ek_quantize_<from>_<to>; ek_quantize_even_f32_<to> for half to even.

        Floats take a scale, integers a fixed-point multiplier.
        """
        x = op.inputs[0]
        y = op.output
        target = suffix(y.type)
        if x.type.dtype == "float32":
            scale = float(y.type.scale)
            affine = AffineParams(scale=scale, zero=y.type.zero_point)
            is_even = self.rounding.is_onnxruntime
            rounding = KernelRounding.EVEN if is_even else KernelRounding.TFLITE
            kernel = QUANTIZE.of(target, rounding, "f32")
            return KernelCall.of(kernel, x, y, x.type.size, affine)

        # From one scale to another.
        multiplier, shift = quantize_multiplier(x.type.scale / y.type.scale)
        rescale = RescaleParams(
            x_zero=x.type.zero_point,
            y_zero=y.type.zero_point,
            mul=multiplier,
            shift=shift,
        )
        kernel = QUANTIZE.of(target, source=suffix(x.type))

        return KernelCall.of(kernel, x, y, x.type.size, rescale)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield floats with both roundings, and other scales of int8 and uint8."""
        shape = (1, 3, 4, 5)
        reals = Arg(TensorType(shape))
        yield Sample(cls(), (reals,), Quant.per_tensor(0.02, -3), "f32_s8")
        yield Sample(cls("uint8"), (reals,), Quant.per_tensor(0.02, 125), "f32_u8")
        yield Sample(cls("int16"), (reals,), Quant.per_tensor(0.0001), "f32_s16")

        # At a scale of 1/2 every other multiple of 1/4 is a tie.
        quarters = (np.arange(60).reshape(shape) - 30).astype(np.float32) / 4
        ties = Arg(TensorType(shape), data=quarters)
        for dtype, zero_point in (("int8", -3), ("uint8", 125)):
            quant = Quant.per_tensor(0.5, zero_point)
            spec = cls(dtype, Rounding.ONNXRUNTIME)
            yield Sample(spec, (ties,), quant, f"even_f32_{dtype}")

        cases = (
            ("int8", -4, "int8", 7),
            ("uint8", 128, "int8", 0),
            ("int8", 0, "uint8", 128),
        )
        for source, zero_point, target, target_zero in cases:
            x = Arg(TensorType(shape, source, Quant.per_tensor(0.05, zero_point)))
            for scale in (0.05, 0.031):
                quant = Quant.per_tensor(scale, target_zero)
                label = f"{source}_{target}_{scale}"
                yield Sample(cls(target), (x,), quant, label)

    @edgetpu_rule(fix=None)
    def _int8_tensors(self, op: Op) -> str | None:
        """QUANTIZE: the input must be int8 or uint8, not float."""
        x = op.inputs[0]
        if x.type.dtype in ("int8", "uint8"):
            return None
        return f"input {x.name} is {x.type.dtype}"


@dataclass(frozen=True)
class Dequantize(OpDef):
    """The reals of quantized integers: scale * (x - zero_point), the product in double.

    float16 is widened to float32.
    """

    kind = "dequantize"
    any_elements: ClassVar[bool] = True
    onnx = ("DequantizeLinear",)
    tflite = ("DEQUANTIZE",)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return float32 of the input's shape.

        Raises ValueError for integers without a scale.
        """
        if not x[0].is_quantized and x[0].dtype != "float16":
            raise ValueError(f"dequantize of {x[0]}, which has no scale")

        return (TensorType(x[0].shape),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute TFLite's reference Dequantize."""
        if xt[0].quant is None:
            return [x[0].astype(np.float32)]

        scale, zero = xt[0].quant.broadcast(x[0].ndim)

        # int16 less a zero point needs a 17th bit.
        centred = x[0].astype(np.int64) - zero
        real = scale.astype(np.float64) * centred

        return [real.astype(np.float32)]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef | None:
        """Return the op itself; None for uint8, which stays at the graph's boundary.

        Elements do not depend on their place.
        """
        if "uint8" in (op.inputs[0].type.dtype, op.output.type.dtype):
            return None
        return self

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read DequantizeLinear.

        Of 8 bits by a constant scale of the whole tensor it is this op; any other is
        arithmetic on floats. A constant becomes its reals, whose type keeps the scale.
        """
        form = linear.Form.of_dequantize(node)
        if node.input(0).const is not None:
            return linear.constant_reals(node, form)

        x = linear.int8_value(node, form, Quantize())
        if x is None:
            return linear.to_reals(node, form)

        return node.build.add(cls(), [x], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read DEQUANTIZE of the input's type.

        int16 of the file is floats here, so that the operation is then the identity.
        """
        x = op.input(0)
        spec: OpDef = cls()
        if x.type.dtype == "float32":
            spec = Reshape(x.type.shape)

        op.build.write(spec, [x], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return DEQUANTIZE; version 2 introduced int8.

        None for float16, which edgec does not write.
        """
        x = op.inputs[0].type
        if not x.is_quantized:
            return None

        version = 2 if x.dtype == "int8" else 1

        return TfliteCode("DEQUANTIZE", ("DequantizeOptions", {}), version)

    def c(self, op: Op) -> KernelCall:
        """Return ek_dequantize_<from>, or a cast of float16.

        Scale and zero point are in ek_affine_t.
        """
        x = op.inputs[0]
        if not x.type.is_quantized:
            return Cast("float32").c(op)

        scale = float(x.type.scale)
        affine = AffineParams(scale=scale, zero=x.type.zero_point)
        kernel = DEQUANTIZE.of(suffix(x.type))

        return KernelCall.of(kernel, x, op.output, x.type.size, affine)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield int8, uint8, int16 and float16."""
        shape = (1, 3, 4, 5)
        for dtype, zero_point in (("int8", -7), ("uint8", 130), ("int16", 0)):
            quant = Quant.per_tensor(0.043, zero_point)
            yield Sample(cls(), (Arg(TensorType(shape, dtype, quant)),), label=dtype)

        half = Arg(TensorType(shape, "float16"))
        yield Sample(cls(), (half,), label="float16")
