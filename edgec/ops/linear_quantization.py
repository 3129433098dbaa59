"""What ONNX's QuantizeLinear and DequantizeLinear say, and their arithmetic where the
IR's quantized types cannot.

real = scale * (q - zero point), by scales of the whole tensor, of an axis or of blocks
of one, constant or computed. The IR's types hold constant scales of int8 tensors; those
of uint8 are shifted by 128, which changes no value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from edgec.ir import (
    Array,
    Builder,
    OnnxNode,
    OpDef,
    Quant,
    QuantRule,
    TensorType,
    Value,
)
from edgec.ops.activation import Clamp
from edgec.ops.binary import Add, Div, Mul, Sub
from edgec.ops.cast import ONNX_TYPES, Cast
from edgec.ops.common import axis_of
from edgec.ops.gather import Gather
from edgec.ops.shape import Reshape
from edgec.ops.unary import Round

_SHIFT = {"int8": 0, "uint8": 128}
"""What is taken from the integers of a file for int8 ones."""


@dataclass(frozen=True)
class Form:
    """How a node scales. dtype: of the integers in the file. axis: None for the whole
    tensor. block: elements of the axis that share a scale. quant: the same as a type
    has it for int8 integers, None where no type can.
    """

    scale: Value
    zero: Value | None
    dtype: str
    axis: int | None
    block: int
    quant: Quant | None

    @classmethod
    def of_quantize(cls, node: OnnxNode) -> Form:
        """Of QuantizeLinear; without a zero point and a type its output is uint8."""
        code = node.attrs.get("output_dtype", 0) or TensorProto.UINT8
        zero = node.optional(2)
        if zero is None and code not in ONNX_TYPES:
            raise ValueError(
                f"the element type {TensorProto.DataType.Name(code).lower()} is not "
                "supported"
            )
        node.attrs.ignore("saturate", "precision")  # of float8, and of the division
        return cls._of(node, zero.type.dtype if zero is not None else ONNX_TYPES[code])

    @classmethod
    def of_dequantize(cls, node: OnnxNode) -> Form:
        """Of DequantizeLinear."""
        node.attrs.ignore("output_dtype")  # every float is float32
        x = node.input(0)
        return cls._of(node, "uint8" if x in node.uint8 else x.type.dtype)

    @classmethod
    def _of(cls, node: OnnxNode, dtype: str) -> Form:
        scale = node.input(1)
        zero = node.optional(2)
        shape = node.input(0).type.shape
        axis = node.attrs.get("axis", 1)
        block = node.attrs.get("block_size", 0)
        whole = scale.type.size == 1 and not block
        at = None if whole else axis_of(axis, len(shape))
        quant = None
        if (
            scale.const is not None
            and (zero is None or zero.const is not None)
            and not block
            and dtype in _SHIFT
        ):
            scales = tuple(float(s) for s in scale.const.reshape(-1))
            if zero is None:
                zeros = np.zeros(len(scales), np.int64)
            else:
                zeros = np.asarray(zero.const).reshape(-1)
            quant = Quant(scales, tuple(int(z) - _SHIFT[dtype] for z in zeros), at)
        return cls(scale, zero, dtype, at, block, quant)

    def along(self, b: Builder, v: Value, shape: tuple[int, ...]) -> Value:
        """The scale or the zero point as floats that broadcast over a tensor of this
        shape.
        """
        real = v if v.type.dtype == "float32" else b.add(Cast("float32"), [v], v.name)
        if self.axis is None:
            return b.add(Reshape(()), [real], v.name) if real.type.rank else real
        if self.block:
            if v.const is None:
                index = np.repeat(np.arange(v.type.shape[self.axis]), self.block)[
                    : shape[self.axis]
                ]
                return b.add(
                    Gather(self.axis),
                    [real, b.const(index, f"{v.name}_blocks")],
                    v.name,
                )
            repeated = np.repeat(v.const, self.block, self.axis).astype(np.float32)
            return b.const(
                np.take(repeated, range(shape[self.axis]), self.axis), v.name
            )
        return b.add(
            Reshape(tuple(d if i == self.axis else 1 for i, d in enumerate(shape))),
            [real],
            v.name,
        )


def constant(node: OnnxNode, form: Form) -> Value:
    """The floats that constant integers stand for.

    8-bit ones can be had back from them: the type tells the scale.
    """
    reals = to_reals(node, form)
    if form.quant is not None:
        reals.type = reals.type.with_quant(form.quant)
    return reals


def to_reals(node: OnnxNode, form: Form) -> Value:
    """scale * (q - zero point) in floats."""
    b = node.build
    x = restored(node.build, node.input(0), node.uint8)
    y = b.add(Cast("float32"), [x], node.name)
    if form.zero is not None:
        y = b.add(Sub(), [y, form.along(b, form.zero, x.type.shape)], node.name)
    return b.add(Mul(), [y, form.along(b, form.scale, x.type.shape)], node.name)


def to_integers(node: OnnxNode, form: Form) -> Value:
    """round(x / scale) + zero point, ties to even, saturated."""
    b = node.build
    x = node.input(0)
    info = np.iinfo(form.dtype)
    real = x if x.type.dtype == "float32" else b.add(Cast("float32"), [x], x.name)
    y = b.add(
        Round(),
        [b.add(Div(), [real, form.along(b, form.scale, x.type.shape)], node.name)],
        node.name,
    )
    if form.zero is not None:
        y = b.add(Add(), [y, form.along(b, form.zero, x.type.shape)], node.name)
    y = b.add(Clamp(float(info.min), float(info.max)), [y], node.name)
    return b.add(Cast(form.dtype), [y], node.name)


def restored(b: Builder, x: Value, uint8: set[Value]) -> Value:
    """A quantized value as the plain integers that the file has."""
    if not x.type.is_quantized or x.type.dtype != "int8":
        return x
    wide = b.add(Cast("int32"), [x], x.name)
    if x not in uint8:
        return b.add(Cast("int8"), [wide], x.name)
    return b.add(
        Cast("uint8"),
        [b.add(Add(), [wide, b.const(np.array(128, np.int32), "shift")], x.name)],
        x.name,
    )


def stated(node: OnnxNode, form: Form, to_int8: OpDef) -> Value | None:
    """The int8 value whose type has the scale of a DequantizeLinear; None where it
    cannot.

    An input of the model, or what is that input in another shape, gets the scale here;
    `to_int8` brings uint8 to int8.
    """
    x = node.input(0)
    if form.quant is None or form.axis is not None:
        return None
    if x.type.is_quantized and x.type.dtype == "int8":
        if x.type.quant == form.quant and (x in node.uint8) == (form.dtype == "uint8"):
            return x
        return None
    return _state(node, x, form.quant, to_int8)


def _state(node: OnnxNode, x: Value, quant: Quant, to_int8: OpDef) -> Value | None:
    b = node.build
    graph = node.build.graph
    if x in graph.inputs:
        if x.type.dtype == "int8":
            outer = quant
        else:
            outer = Quant(quant.scale, (quant.zero_point[0] + 128,))
        if x.type.quant not in (None, outer):
            return None
        x.type = x.type.with_quant(outer)
        if x.type.dtype == "int8":
            return x
        made = next(
            (op.output for op in graph.ops if op.spec == to_int8 and op.inputs == [x]),
            None,
        )
        if made is None:
            made = b.add(to_int8, [x], f"{x.name}_int8", quant)
            # before whatever read the input so far
            graph.ops.insert(0, graph.ops.pop())
            node.uint8.add(made)
        return made
    maker = next((op for op in graph.ops if x in op.outputs), None)
    if (
        maker is None
        or maker.spec.quant is not QuantRule.SAME
        or len(maker.inputs) > 1
        or len(maker.outputs) > 1
    ):
        return None
    if any(x in op.inputs for op in graph.ops):
        source = None
    else:
        source = _state(node, maker.inputs[0], quant, to_int8)
    if source is None:
        return None
    maker.inputs = [source]
    if x.type.dtype == "uint8":
        node.uint8.add(x)
    x.type = x.type.with_quant(quant, "int8")
    return x


def integers(x: Array, t: TensorType) -> Array:
    """The int8 integers of floats that stand for some, by the scale that their type
    remembers.
    """
    assert t.quant is not None
    scale, zero = t.quant.broadcast(x.ndim)
    whole: Array = np.clip(
        np.rint(x.astype(np.float64) / scale) + zero, -128, 127
    ).astype(np.int8)
    return whole


def quantized_weights(w: Array) -> tuple[Array, Quant]:
    """int8 for weights that the file has in floats, in the steps that onnxruntime gives
    them: from the least to the most of the whole tensor and 0, in float32.
    """
    low = min(np.float32(w.min(initial=0)), np.float32(0))
    high = max(np.float32(w.max(initial=0)), np.float32(0))
    scale = np.float32((high - low) / np.float32(255)) if high > low else np.float32(1)
    zero = int(np.clip(np.rint(np.float32(-128) - low / scale), -128, 127))
    q = np.clip(np.rint(w.astype(np.float32) / scale) + zero, -128, 127).astype(np.int8)
    return q, Quant.per_tensor(float(scale), zero)
