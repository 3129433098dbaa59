"""Operators of model files whose result is known when edgec reads them: they become
constants, never ops of a graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgec.ir import Array, OnnxNode, OpDef, Sample, TfliteOp, Value
from edgec.ops.common import ints


@dataclass(frozen=True)
class _Known(OpDef):
    """Reads operators of a file by the array they give."""

    @staticmethod
    def onnx_array(node: OnnxNode) -> Array:
        """What an ONNX node gives."""
        raise NotImplementedError(node.op_type)

    @staticmethod
    def tflite_array(op: TfliteOp) -> Array:
        """What a TFLite operator gives, up to broadcasting."""
        raise NotImplementedError(op.name)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """The constant."""
        return node.build.const(cls.onnx_array(node), node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """The declared output becomes the constant."""
        out = op.outputs[0]
        op.ignore("outType")
        out.const = np.ascontiguousarray(
            np.broadcast_to(cls.tflite_array(op), out.type.shape), out.type.np_dtype
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """None: it is read, and never part of a graph."""
        return iter(())


@dataclass(frozen=True)
class Shape(_Known):
    """The dimensions, all or those of start..end (opset 15)."""

    kind = "shape"
    onnx = ("Shape",)
    tflite = ("SHAPE",)

    @staticmethod
    def onnx_array(node: OnnxNode) -> Array:
        """int64."""
        return np.array(
            node.input(0).type.shape[
                node.attrs.get("start", 0) : node.attrs.get("end")
            ],
            np.int64,
        )

    @staticmethod
    def tflite_array(op: TfliteOp) -> Array:
        """The whole shape."""
        return np.array(op.input(0).type.shape)


@dataclass(frozen=True)
class Size(_Known):
    """The number of elements; TFLite has the number of dimensions."""

    kind = "size"
    onnx = ("Size",)
    tflite = ("RANK",)

    @staticmethod
    def onnx_array(node: OnnxNode) -> Array:
        """A scalar int64."""
        return np.array(node.input(0).type.size, np.int64)

    @staticmethod
    def tflite_array(op: TfliteOp) -> Array:
        """A scalar."""
        return np.array(op.input(0).type.rank)


@dataclass(frozen=True)
class Fill(_Known):
    """One value under a constant shape."""

    kind = "fill"
    onnx = ("ConstantOfShape",)
    tflite = ("FILL", "ZEROS_LIKE")

    @staticmethod
    def onnx_array(node: OnnxNode) -> Array:
        """float32 0 unless `value` says otherwise."""
        value = np.asarray(node.attrs.get("value", np.zeros(1, np.float32)))
        return np.full(
            tuple(ints(node.const(0)) or ()), value.reshape(-1)[0], value.dtype
        )

    @staticmethod
    def tflite_array(op: TfliteOp) -> Array:
        """The declared output has the shape."""
        return np.zeros(()) if op.name == "ZEROS_LIKE" else op.const(1)


@dataclass(frozen=True)
class Range(_Known):
    """start, start + delta, … up to but without limit."""

    kind = "range"
    onnx = ("Range",)
    tflite = ("RANGE",)

    @staticmethod
    def onnx_array(node: OnnxNode) -> Array:
        """Of the type of its inputs."""
        start, limit, delta = (np.asarray(node.const(i)).reshape(()) for i in range(3))
        n = max(0, int(np.ceil((limit - start) / delta)))
        return np.asarray(start + np.arange(n).astype(start.dtype) * delta, start.dtype)

    @staticmethod
    def tflite_array(op: TfliteOp) -> Array:
        """The declared output has the length."""
        start, _, delta = (op.const(i).reshape(()) for i in range(3))
        return np.asarray(start + np.arange(op.outputs[0].type.size) * delta)


@dataclass(frozen=True)
class Densify(_Known):
    """The elements of a sparse constant, which the reader has decoded."""

    kind = "densify"
    tflite = ("DENSIFY",)

    @staticmethod
    def tflite_array(op: TfliteOp) -> Array:
        """As they are."""
        return op.const(0)
