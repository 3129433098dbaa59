"""Operators of model files whose result is known when edgec reads them.

They become constants, never ops of a graph. Semantics: ONNX Shape, Size,
ConstantOfShape and Range; TFLite SHAPE, RANK, FILL, ZEROS_LIKE, RANGE and DENSIFY.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgec.ir import Array, OnnxNode, OpDef, Sample, TfliteOp, Value
from edgec.ops.common import ints


@dataclass(frozen=True)
class _ReadAsConstant(OpDef):
    """An operator that is read as the array it gives."""

    @staticmethod
    def onnx_array(node: OnnxNode) -> Array:
        """Return the result of an ONNX node."""
        raise NotImplementedError(node.op_type)

    @staticmethod
    def tflite_array(op: TfliteOp) -> Array:
        """Return the result of a TFLite operator, up to broadcasting."""
        raise NotImplementedError(op.name)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read the node as a constant."""
        return node.build.const(cls.onnx_array(node), node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Make the declared output a constant of the declared type.

        The declared shape is the one that the array is broadcast to.
        """
        # Operators that read the output find a constant there.
        out = op.outputs[0]
        op.ignore("outType")
        array = np.broadcast_to(cls.tflite_array(op), out.type.shape)
        out.const = np.ascontiguousarray(array, out.type.np_dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield nothing: the op is never part of a graph."""
        return iter(())


@dataclass(frozen=True)
class Shape(_ReadAsConstant):
    """The dimensions of the input, all or those of start..end (opset 15)."""

    kind = "shape"
    onnx = ("Shape",)
    tflite = ("SHAPE",)

    @staticmethod
    def onnx_array(node: OnnxNode) -> Array:
        """Return the dimensions as int64.

        Negative bounds count from the back, as in Python's slices.
        """
        start = node.attrs.get("start", 0)
        end = node.attrs.get("end")
        shape = node.input(0).type.shape
        return np.array(shape[start:end], np.int64)

    @staticmethod
    def tflite_array(op: TfliteOp) -> Array:
        """Return all dimensions."""
        return np.array(op.input(0).type.shape)


@dataclass(frozen=True)
class Size(_ReadAsConstant):
    """The number of the input's elements; of TFLite's RANK, that of its dimensions."""

    kind = "size"
    onnx = ("Size",)
    tflite = ("RANK",)

    @staticmethod
    def onnx_array(node: OnnxNode) -> Array:
        """Return the number of elements as an int64 scalar."""
        return np.array(node.input(0).type.size, np.int64)

    @staticmethod
    def tflite_array(op: TfliteOp) -> Array:
        """Return the number of dimensions as a scalar."""
        return np.array(op.input(0).type.rank)


@dataclass(frozen=True)
class Fill(_ReadAsConstant):
    """A constant shape filled with one value."""

    kind = "fill"
    onnx = ("ConstantOfShape",)
    tflite = ("FILL", "ZEROS_LIKE")

    @staticmethod
    def onnx_array(node: OnnxNode) -> Array:
        """Return an array of `value`, or of float32 zeros without it.

        The shape is a constant input; an empty one is a scalar's.
        """
        # The value is a tensor of one element.
        value = np.asarray(node.attrs.get("value", np.zeros(1, np.float32)))
        shape = tuple(ints(node.const(0)) or ())
        return np.full(shape, value.reshape(-1)[0], value.dtype)

    @staticmethod
    def tflite_array(op: TfliteOp) -> Array:
        """Return the value, which is broadcast to the declared shape."""
        return np.zeros(()) if op.name == "ZEROS_LIKE" else op.const(1)


@dataclass(frozen=True)
class Range(_ReadAsConstant):
    """start, start + delta, … below limit."""

    kind = "range"
    onnx = ("Range",)
    tflite = ("RANGE",)

    @staticmethod
    def onnx_array(node: OnnxNode) -> Array:
        """Return the range in the type of its inputs.

        It has ceil((limit - start) / delta) elements, none where that is negative.
        """
        scalars = [np.asarray(node.const(i)).reshape(()) for i in range(3)]
        start, limit, delta = scalars
        length = np.ceil((limit - start) / delta)

        # ONNX counts in the type of the inputs.
        steps = np.arange(max(0, int(length))).astype(start.dtype)
        return np.asarray(start + steps * delta, start.dtype)

    @staticmethod
    def tflite_array(op: TfliteOp) -> Array:
        """Return the range, as long as the declared output."""
        start = op.const(0).reshape(())
        op.const(1)
        delta = op.const(2).reshape(())
        steps = np.arange(op.outputs[0].type.size)

        return np.asarray(start + steps * delta)


@dataclass(frozen=True)
class Densify(_ReadAsConstant):
    """The elements of a sparse constant, which the reader has decoded."""

    kind = "densify"
    tflite = ("DENSIFY",)

    @staticmethod
    def tflite_array(op: TfliteOp) -> Array:
        """Return the constant as it is."""
        return op.const(0)
