"""Between reals and integers, and between integers of different scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from edgec_runtime.vision.photo import quantized, saturated

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
from edgec.ops import linear_quantization as linear
from edgec.ops.cast import Cast
from edgec.ops.common import suffix
from edgec.ops.fixed_point import multiply_by_quantized_multiplier, quantize_multiplier
from edgec.ops.shape import Reshape


@dataclass(frozen=True)
class Quantize(OpDef):
    """To int8, uint8 or int16: from float32 (round(x / scale) + zero_point, ties away
    from zero) or from another scale.

    even: ties of floats go to the even integer, as ONNX has it. What is not a number
    becomes the zero point. uint8: whether int8 elements were uint8 in the file.
    """

    dtype: str = "int8"
    even: bool = False
    uint8: bool = False

    kind = "quantize"
    onnx = ("QuantizeLinear",)
    tflite = ("QUANTIZE",)
    edgetpu_versions = {"QUANTIZE": Versions(2, aborts=3)}
    quant: ClassVar[QuantRule] = QuantRule.FREE
    edgetpu: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The shape of the input."""
        if not x[0].is_quantized and x[0].dtype != "float32":
            raise ValueError(f"quantize of {x[0]}, which has no scale")
        return (TensorType(x[0].shape, self.dtype),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """AffineQuantize and Requantize of TFLite's reference kernels."""
        t = yt[0]
        info = np.iinfo(self.dtype)
        if xt[0].dtype == "float32" and self.even:
            whole = np.rint((x[0] / np.float32(t.scale)).astype(np.float32))
            return [saturated(whole, t.zero_point, info.dtype)]
        if xt[0].dtype == "float32":
            return [quantized(x[0], t.scale, t.zero_point, info.dtype)]
        multiplier = quantize_multiplier(xt[0].scale / t.scale)
        centred = x[0].astype(np.int32) - xt[0].zero_point
        y = (
            multiply_by_quantized_multiplier(centred, *multiplier).astype(np.int64)
            + t.zero_point
        )
        return [np.clip(y, info.min, info.max).astype(self.dtype)]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef | None:
        """Elements stay where they are; uint8 stays at the border of the graph."""
        if "uint8" in (op.inputs[0].type.dtype, op.output.type.dtype):
            return None
        return self

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """QuantizeLinear to 8 bits by a constant scale of the whole tensor; any other
        is arithmetic on floats.
        """
        form = linear.Form.of_quantize(node)
        if (
            form.quant is None
            or form.axis is not None
            or node.input(0).type.dtype != "float32"
        ):
            return linear.to_integers(node, form)
        y = node.build.add(
            cls(even=True, uint8=form.dtype == "uint8"),
            [node.input(0)],
            node.name,
            form.quant,
        )
        if form.dtype == "uint8":
            node.uint8.add(y)
        return y

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """The declared output says all; where that is floats (int16 of the file), its
        reals are the input's.
        """
        if op.outputs[0].type.dtype == "float32":
            Dequantize.from_tflite(op)
            return
        if not op.outputs[0].type.is_quantized:
            raise ValueError(f"its output is {op.outputs[0].type}, which has no scale")
        op.build.write(cls(op.outputs[0].type.dtype), [op.input(0)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """QUANTIZE; version 2 takes integers. TFLite has no other rounding."""
        if self.even and op.inputs[0].type.dtype == "float32":
            return None
        return TfliteCode(
            "QUANTIZE",
            ("QuantizeOptions", {}),
            1 if op.inputs[0].type.dtype == "float32" else 2,
        )

    def c(self, op: Op) -> KernelCall:
        """ek_quantize_<from>_<to>, of floats with the other ties
        ek_quantize_even_f32_<to>.
        """
        x = op.inputs[0]
        y = op.output
        args = (x, y, x.type.size)
        name = f"ek_quantize_{suffix(x.type)}_{suffix(y.type)}"
        if x.type.dtype == "float32":
            name = name.replace("_f32", "_even_f32") if self.even else name
            affine = Struct(
                "ek_affine_t", scale=float(y.type.scale), zero=y.type.zero_point
            )
            return KernelCall.of(name, *args, affine)
        m, shift = quantize_multiplier(x.type.scale / y.type.scale)
        zeros = {"x_zero": x.type.zero_point, "y_zero": y.type.zero_point}
        return KernelCall.of(
            name, *args, Struct("ek_rescale_t", **zeros, mul=m, shift=shift)
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """From float with both ties, and between the scales and zero points of int8 and
        uint8.
        """
        shape = (1, 3, 4, 5)
        yield Sample(
            cls(), (Arg(TensorType(shape)),), Quant.per_tensor(0.02, -3), "f32_s8"
        )
        yield Sample(
            cls("uint8"),
            (Arg(TensorType(shape)),),
            Quant.per_tensor(0.02, 125),
            "f32_u8",
        )
        yield Sample(
            cls("int16"), (Arg(TensorType(shape)),), Quant.per_tensor(0.0001), "f32_s16"
        )
        ties = (np.arange(60).reshape(shape) - 30).astype(np.float32) / 4
        for dtype, zero in (("int8", -3), ("uint8", 125)):
            args = (Arg(TensorType(shape), data=ties),)
            yield Sample(
                cls(dtype, even=True),
                args,
                Quant.per_tensor(0.5, zero),
                f"even_f32_{dtype}",
            )
        for source, zero, target, out in (
            ("int8", -4, "int8", 7),
            ("uint8", 128, "int8", 0),
            ("int8", 0, "uint8", 128),
        ):
            for scale in (0.05, 0.031):
                x = TensorType(shape, source, Quant.per_tensor(0.05, zero))
                yield Sample(
                    cls(target),
                    (Arg(x),),
                    Quant.per_tensor(scale, out),
                    f"{source}_{target}_{scale}",
                )

    @edgetpu_rule(fix=None)
    def _int8_tensors(self, op: Op) -> str | None:
        """QUANTIZE: the input must be int8 or uint8, not float."""
        x = op.inputs[0]
        if x.type.dtype in ("int8", "uint8"):
            return None
        return f"input {x.name} is {x.type.dtype}"


@dataclass(frozen=True)
class Dequantize(OpDef):
    """To float32: scale * (x - zero_point), the product in double; float16 is widened."""

    kind = "dequantize"
    onnx = ("DequantizeLinear",)
    tflite = ("DEQUANTIZE",)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The shape of the input."""
        if not x[0].is_quantized and x[0].dtype != "float16":
            raise ValueError(f"dequantize of {x[0]}, which has no scale")
        return (TensorType(x[0].shape),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """TFLite's reference Dequantize."""
        if xt[0].quant is None:
            return [x[0].astype(np.float32)]
        scale, zero = xt[0].quant.broadcast(x[0].ndim)
        return [
            (scale.astype(np.float64) * (x[0].astype(np.int64) - zero)).astype(
                np.float32
            )
        ]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef | None:
        """Elements stay where they are; uint8 stays at the border of the graph."""
        if "uint8" in (op.inputs[0].type.dtype, op.output.type.dtype):
            return None
        return self

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """DequantizeLinear of 8 bits by a constant scale of the whole tensor; any other
        is arithmetic on floats.

        A constant becomes the floats it stands for, whose type remembers the scale.
        """
        form = linear.Form.of_dequantize(node)
        if node.input(0).const is not None:
            return linear.constant(node, form)
        x = linear.stated(node, form, Quantize())
        if x is None:
            return linear.to_reals(node, form)
        return node.build.add(cls(), [x], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """The input's type says all; where that is floats (int16 of the file), they are
        the output.
        """
        x = op.input(0)
        op.build.write(
            Reshape(x.type.shape) if x.type.dtype == "float32" else cls(),
            [x],
            op.outputs,
        )

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """DEQUANTIZE; version 2 is int8. edgec writes no float16."""
        if not op.inputs[0].type.is_quantized:
            return None
        return TfliteCode(
            "DEQUANTIZE",
            ("DequantizeOptions", {}),
            2 if op.inputs[0].type.dtype == "int8" else 1,
        )

    def c(self, op: Op) -> KernelCall:
        """ek_dequantize_<from>; float16 is cast."""
        x = op.inputs[0]
        if not x.type.is_quantized:
            return Cast("float32").c(op)
        affine = Struct(
            "ek_affine_t", scale=float(x.type.scale), zero=x.type.zero_point
        )
        return KernelCall.of(
            f"ek_dequantize_{suffix(x.type)}", x, op.output, x.type.size, affine
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """int8, uint8 and int16."""
        for dtype, zero in (("int8", -7), ("uint8", 130), ("int16", 0)):
            x = TensorType((1, 3, 4, 5), dtype, Quant.per_tensor(0.043, zero))
            yield Sample(cls(), (Arg(x),), label=dtype)
        yield Sample(
            cls(), (Arg(TensorType((1, 3, 4, 5), "float16")),), label="float16"
        )
