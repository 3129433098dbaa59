"""Readers of ONNX's QuantizeLinear and DequantizeLinear, and their arithmetic on floats
where the IR's quantized types cannot express the scales.

real = scale * (q - zero point), by scales of the whole tensor, of an axis or of blocks
of one, constant or computed. The IR's types hold constant scales of int8 tensors; those
of uint8 are shifted by 128, which changes no value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from onnx import TensorProto

from edgec.ir import (
    Array,
    Builder,
    Graph,
    OnnxNode,
    Op,
    OpDef,
    Quant,
    QuantRule,
    TensorType,
    Value,
)
from edgec.ops.activation import Clamp
from edgec.ops.binary import Add, Mul, Sub
from edgec.ops.cast import FOUR_BITS, ONNX_TYPES, Cast
from edgec.ops.common import axis_of
from edgec.ops.division import Div
from edgec.ops.gather import Gather
from edgec.ops.shape import Reshape
from edgec.ops.unary import Round

_SHIFT = {"int8": 0, "uint8": 128}
"""Subtracted from 8-bit integers of a file to get int8 ones."""


@dataclass(frozen=True)
class Form:
    """The scales and zero points of a QuantizeLinear or DequantizeLinear node.

    Attributes:
        scale: reals, one number, or one for each slice or block of an axis
        zero: zero points of the same shape, None: 0
        dtype: element type of the integers in the file
        axis: axis along which scales differ, None: one scale for the whole tensor
        block: elements of the axis that share a scale, 0: each slice has one
        quant: the same as the quantization of an int8 type; None: no type can hold it
        is_four_bit: whether QuantizeLinear saturates to four bits
    """

    scale: Value
    zero: Value | None
    dtype: str
    axis: int | None
    block: int
    quant: Quant | None
    is_four_bit: bool = False

    @classmethod
    def of_quantize(cls, node: OnnxNode) -> Form:
        """Return the form of QuantizeLinear.

        Without a zero point and a type its output is uint8.
        """
        code = node.attrs.get("output_dtype", 0) or TensorProto.UINT8
        # They concern float8, and the precision of the division.
        node.attrs.ignore("saturate", "precision")
        zero = node.optional(2)
        if zero in node.four_bit or (zero is None and code in FOUR_BITS):
            dtype = FOUR_BITS[code] if zero is None else zero.type.dtype
            return replace(cls._of(node, dtype), quant=None, is_four_bit=True)
        if zero is not None:
            return cls._of(node, zero.type.dtype)

        if code not in ONNX_TYPES:
            raise ValueError(
                f"the element type {TensorProto.DataType.Name(code).lower()} is not "
                "supported"
            )

        return cls._of(node, ONNX_TYPES[code])

    @classmethod
    def of_dequantize(cls, node: OnnxNode) -> Form:
        """Return the form of DequantizeLinear, whose output is float32 in any case.

        uint8 integers are int8 here; the node's record tells which.
        """
        node.attrs.ignore("output_dtype")
        x = node.input(0)
        dtype = "uint8" if x in node.uint8 else x.type.dtype
        return cls._of(node, dtype)

    @classmethod
    def _of(cls, node: OnnxNode, dtype: str) -> Form:
        """Return the form of a node whose integers have the given element type.

        One scale holds for the whole tensor, unless the node has blocks.
        """
        scale = node.input(1)
        zero = node.optional(2)
        rank = node.input(0).type.rank
        axis = node.attrs.get("axis", 1)
        block = node.attrs.get("block_size", 0)

        # onnxruntime takes one zero point for the scales of an axis, too.
        sizes = {scale.type.size, 1 if zero is None else zero.type.size}
        place: int | None = None
        if sizes != {1} or block:
            place = axis_of(axis, rank)

        # A type holds constant scales without blocks, and int8 zero points.
        quant = None
        is_constant = scale.const is not None and (zero is None or _is_constant(zero))
        if is_constant and not block and dtype in _SHIFT:
            quant = _int8_quant(scale, zero, _SHIFT[dtype], place)

        return cls(scale, zero, dtype, place, block, quant)

    def along(self, b: Builder, v: Value, shape: tuple[int, ...]) -> Value:
        """Return the scale or the zero point as floats that broadcast over a tensor.

        v: `scale` or `zero`. shape: of the tensor.
        """
        real = _as_float(b, v)
        if self.axis is None or v.type.size == 1:
            return b.add(Reshape(()), [real], v.name) if real.type.rank else real

        if self.block:
            return self._repeated(b, v, real, shape[self.axis])

        sizes = [1] * len(shape)
        sizes[self.axis] = shape[self.axis]

        return b.add(Reshape(tuple(sizes)), [real], v.name)

    def _repeated(self, b: Builder, v: Value, real: Value, size: int) -> Value:
        """Return one number for each of `size` elements, of one for each block.

        real: `v` as floats. The last block may be partial.
        """
        assert self.axis is not None
        if v.const is None:
            blocks = np.arange(v.type.shape[self.axis])
            index = np.repeat(blocks, self.block)[:size]
            numbers = b.const(index, f"{v.name}_blocks")
            return b.add(Gather(self.axis), [real, numbers], v.name)

        # A constant is repeated while the model is read.
        repeated = np.repeat(v.const, self.block, self.axis).astype(np.float32)

        return b.const(np.take(repeated, range(size), self.axis), v.name)


def _is_constant(value: Value) -> bool:
    """Return whether a value is a constant."""
    return value.const is not None


def _int8_quant(
    scale: Value,
    zero: Value | None,
    shift: int,
    axis: int | None,
) -> Quant:
    """Return the quantization of an int8 type for constant scales and zero points.

    shift: what the zero points are greater by in the file.
    """
    assert scale.const is not None
    zero_point = np.zeros(1, np.int64)
    if zero is not None:
        zero_point = np.asarray(zero.const).reshape(-1)

    # One number of either holds for all of the other.
    scales, zeros = np.broadcast_arrays(scale.const.reshape(-1), zero_point)
    zero_points = tuple(int(z) - shift for z in zeros)

    return Quant(tuple(float(s) for s in scales), zero_points, axis)


def _as_float(b: Builder, x: Value) -> Value:
    """Return `x` as float32.

    A value that is float32 already needs no op.
    """
    if x.type.dtype == "float32":
        return x
    return b.add(Cast("float32"), [x], x.name)


def constant_reals(node: OnnxNode, form: Form) -> Value:
    """Return the reals of constant integers.

    8-bit integers can be had back from them, as the type keeps the scale.
    """
    reals = to_reals(node, form)
    if form.quant is not None:
        reals.type = reals.type.with_quant(form.quant)

    return reals


def to_reals(node: OnnxNode, form: Form) -> Value:
    """Return scale * (q - zero point), computed in float32."""
    b = node.build
    x = restored(node.build, node.input(0), node.uint8)
    shape = x.type.shape
    y = b.add(Cast("float32"), [x], node.name)
    if form.zero is not None:
        zero = form.along(b, form.zero, shape)
        y = b.add(Sub(), [y, zero], node.name)

    scale = form.along(b, form.scale, shape)

    return b.add(Mul(), [y, scale], node.name)


def to_integers(node: OnnxNode, form: Form) -> Value:
    """Return round(x / scale) + zero point, half to even, saturated to the type."""
    b = node.build
    x = node.input(0)
    shape = x.type.shape
    real = _as_float(b, x)

    # ONNX rounds the quotient before it adds the zero point.
    scale = form.along(b, form.scale, shape)
    steps = b.add(Div(), [real, scale], node.name)
    y = b.add(Round(), [steps], node.name)
    if form.zero is not None:
        zero = form.along(b, form.zero, shape)
        y = b.add(Add(), [y, zero], node.name)

    # The sum saturates to the type.
    info = np.iinfo(form.dtype)
    # Four bits have a sixteenth of the range: -8 … 7, or 0 … 15.
    divisor = 16 if form.is_four_bit else 1
    low = info.min // divisor
    high = info.max // divisor
    y = b.add(Clamp(float(low), float(high)), [y], node.name)

    return b.add(Cast(form.dtype), [y], node.name)


def restored(b: Builder, x: Value, uint8: set[Value]) -> Value:
    """Return a quantized int8 value as the plain integers of the file.

    uint8: values that are uint8 in the file.
    """
    if not x.type.is_quantized or x.type.dtype != "int8":
        return x

    wide = b.add(Cast("int32"), [x], x.name)
    if x not in uint8:
        return b.add(Cast("int8"), [wide], x.name)

    # The IR has uint8 as int8, less 128.
    shift = b.const(np.array(128, np.int32), "shift")
    shifted = b.add(Add(), [wide, shift], x.name)

    return b.add(Cast("uint8"), [shifted], x.name)


def int8_value(node: OnnxNode, form: Form, to_int8: OpDef) -> Value | None:
    """Return the int8 value whose type has the scale of a DequantizeLinear.

    An input of the model gets the scale here, and so does a value that is that input in
    another shape; `to_int8` brings uint8 to int8. None where the value cannot have the
    scale.
    """
    x = node.input(0)
    if form.quant is None or form.axis is not None:
        return None

    if not x.type.is_quantized or x.type.dtype != "int8":
        return _with_scale(node, x, form.quant, to_int8)

    is_same_type = (x in node.uint8) == (form.dtype == "uint8")
    if x.type.quant == form.quant and is_same_type:
        return x

    return None


def _with_scale(node: OnnxNode, x: Value, quant: Quant, to_int8: OpDef) -> Value | None:
    """Return `x`, or an int8 value in its place, with a scale given to its type.

    None where `x` is neither an input of the model nor made of one by ops that only
    move elements.
    """
    if x in node.build.graph.inputs:
        return _input_with_scale(node, x, quant, to_int8)

    producer = _moving_producer(node.build.graph, x)
    if producer is None:
        return None

    source = _with_scale(node, producer.inputs[0], quant, to_int8)
    if source is None:
        return None

    producer.inputs = [source]
    if x.type.dtype == "uint8":
        node.uint8.add(x)

    x.type = x.type.with_quant(quant, "int8")

    return x


def _moving_producer(graph: Graph, x: Value) -> Op | None:
    """Return the op that writes `x`, if it only moves elements of one input.

    None also where another op reads `x` already, and so its type without a scale.
    """
    producer = next((op for op in graph.ops if x in op.outputs), None)
    if producer is None or producer.spec.quant is not QuantRule.SAME:
        return None

    if len(producer.inputs) > 1 or len(producer.outputs) > 1:
        return None

    if any(x in op.inputs for op in graph.ops):
        return None

    return producer


def _input_with_scale(
    node: OnnxNode,
    x: Value,
    quant: Quant,
    to_int8: OpDef,
) -> Value | None:
    """Return an input of the model with a scale, a uint8 one brought to int8.

    None where it has another scale already.
    """
    b = node.build
    graph = b.graph
    outer = quant
    if x.type.dtype != "int8":
        outer = Quant(quant.scale, (quant.zero_point[0] + 128,))

    if x.type.quant not in (None, outer):
        return None

    x.type = x.type.with_quant(outer)
    if x.type.dtype == "int8":
        return x

    for op in graph.ops:
        if op.spec == to_int8 and op.inputs == [x]:
            return op.output

    converted = b.add(to_int8, [x], f"{x.name}_int8", quant)
    # It must come before all ops that read the input so far.
    graph.ops.insert(0, graph.ops.pop())
    node.uint8.add(converted)

    return converted


def integers(x: Array, t: TensorType) -> Array:
    """Return the int8 integers of reals made by `constant_reals`, by their type's scale.

    x: reals. t: their type, with the quantization of the integers.
    """
    assert t.quant is not None
    scale, zero = t.quant.broadcast(x.ndim)
    steps = np.rint(x.astype(np.float64) / scale) + zero
    whole: Array = np.clip(steps, -128, 127).astype(np.int8)

    return whole


def quantized_weights(w: Array) -> tuple[Array, Quant]:
    """Return float weights of a file as int8, with their quantization.

    They have the steps that onnxruntime gives them: from the least to the greatest
    element of the whole tensor and 0, in float32.
    """
    low = min(np.float32(w.min(initial=0)), np.float32(0))
    high = max(np.float32(w.max(initial=0)), np.float32(0))
    scale = np.float32(1)
    if high > low:
        scale = np.float32((high - low) / np.float32(255))

    # 0 must be a number of the scale.
    zero = int(np.clip(np.rint(np.float32(-128) - low / scale), -128, 127))

    steps = np.rint(w.astype(np.float32) / scale) + zero
    q = np.clip(steps, -128, 127).astype(np.int8)

    return q, Quant.per_tensor(float(scale), zero)
