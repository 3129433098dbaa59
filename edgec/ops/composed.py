"""Operators of model files that are read as a few others and never part of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from onnx import TensorProto

from edgec.ir import (
    Array,
    Builder,
    KernelCall,
    OnnxNode,
    Op,
    OpDef,
    Sample,
    TensorType,
    TfliteOp,
    Value,
)
from edgec.ir.opdef import Arg
from edgec.ir.reading import ComputedError
from edgec.ops.argmax import ArgMax
from edgec.ops.arithmetic import FloorMod, Maximum
from edgec.ops.binary import Add, Div
from edgec.ops.broadcast import broadcast_to
from edgec.ops.cast import ONNX_TYPES, Cast
from edgec.ops.common import axis_of
from edgec.ops.compare import Equal, Less, Where
from edgec.ops.matmul import BatchMatMul
from edgec.ops.reduce import Sum
from edgec.ops.scatter import GatherElements, ScatterElements
from edgec.ops.shape import Reshape
from edgec.ops.unary import Abs


@dataclass(frozen=True)
class Composed(OpDef):
    """An operator that is read as others."""

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """None: the others have theirs."""
        return iter(())


def _zero(b: Builder, x: Value) -> Value:
    return b.const(np.zeros((), x.type.np_dtype), "zero")


@dataclass(frozen=True)
class Trilu(Composed):
    """The upper or lower triangle of the last two axes, zeros elsewhere."""

    kind = "trilu"
    onnx = ("Trilu",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """A choice by a constant mask."""
        x = node.input(0)
        k = node.const(1)
        by = 0 if k is None else int(k.reshape(-1)[0])
        rows, columns = x.type.shape[-2:]
        mask = np.triu(np.ones((rows, columns), bool), by)
        if not node.attrs.get("upper", 1):
            mask = np.tril(np.ones((rows, columns), bool), by)
        return node.build.add(
            Where(),
            [node.build.const(mask, "triangle"), x, _zero(node.build, x)],
            node.name,
        )


@dataclass(frozen=True)
class OneHot(Composed):
    """On where the index along a new axis is that of the input, off elsewhere; negative
    ones count from the back.
    """

    kind = "one_hot"
    onnx = ("OneHot",)
    tflite = ("ONE_HOT",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Comparisons with 0, 1, …."""
        b = node.build
        x = node.input(0)
        values = node.input(2)
        depth = node.const(1)
        assert depth is not None
        n = int(depth.reshape(-1)[0])
        name = node.name
        axis = axis_of(node.attrs.get("axis", -1), x.type.rank + 1)
        index = x if x.type.dtype == "int64" else b.add(Cast("int64"), [x], name)
        below = b.add(Less(), [index, _zero(b, index)], name)
        whole = b.add(Add(), [index, b.const(np.array(n, np.int64), "depth")], name)
        index = b.add(Where(), [below, whole, index], name)
        off, on = (_element(b, values, i, name) for i in (0, 1))
        return b.add(Where(), [cls._hot(b, index, n, axis, name), on, off], name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """The same; an index out of range, a negative one too, is off everywhere."""
        index = op.input(0)
        n = int(op.const(1).reshape(-1)[0])
        out = op.outputs[0]
        if n > out.type.size and out.type.rank:
            raise ValueError(f"depth {n} of {out.type}")
        hot = cls._hot(
            op.build, index, n, axis_of(op.options.axis, index.type.rank + 1), out.name
        )
        op.build.write(Where(), [hot, op.input(2), op.input(3)], op.outputs)

    @staticmethod
    def _hot(b: Builder, index: Value, n: int, axis: int, name: str) -> Value:
        """Whether the index is 0, 1, … along a new axis of n."""
        shape = index.type.shape
        wide = b.add(Reshape((*shape[:axis], 1, *shape[axis:])), [index], name)
        places = (
            np.arange(n)
            .astype(index.type.np_dtype)
            .reshape(n, *(1,) * (len(shape) - axis))
        )
        return b.add(Equal(), [wide, b.const(places, "places")], name)


def _element(b: Builder, x: Value, i: int, name: str) -> Value:
    """A scalar of a vector."""
    if x.const is not None:
        return b.const(x.const.reshape(-1)[i], name)
    index = b.const(np.array([i], np.int64), "index")
    return b.add(Reshape(()), [b.add(GatherElements(0), [x, index], name)], name)


@dataclass(frozen=True)
class Hardmax(Composed):
    """1 where the first largest element along the axis is, 0 elsewhere."""

    kind = "hardmax"
    onnx = ("Hardmax",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """ArgMax, compared with 0, 1, …; before opset 13 over all axes from the given
        one on.
        """
        b = node.build
        x = node.input(0)
        name = node.name
        shape = x.type.shape
        axis = axis_of(
            node.attrs.get("axis", -1 if node.opset >= 13 else 1), x.type.rank
        )
        if node.opset < 13:
            rows = (int(np.prod(shape[:axis])), int(np.prod(shape[axis:])))
            x = b.add(Reshape(rows), [x], name)
            axis = 1
        best = b.add(ArgMax(axis), [x], name)
        wide = b.add(
            Reshape((*x.type.shape[:axis], 1, *x.type.shape[axis + 1 :])), [best], name
        )
        places = np.arange(x.type.shape[axis]).reshape(
            -1, *(1,) * (x.type.rank - axis - 1)
        )
        y = b.add(
            Cast(x.type.dtype),
            [b.add(Equal(), [wide, b.const(places, "places")], name)],
            name,
        )
        return y if y.type.shape == shape else b.add(Reshape(shape), [y], name)


@dataclass(frozen=True)
class MeanOf(Composed):
    """The mean of the inputs, broadcast."""

    kind = "mean_of"
    onnx = ("Mean",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """A sum and a division."""
        b = node.build
        y = node.input(0)
        for i in range(1, len(node.inputs)):
            y = b.add(Add(), [y, node.input(i)], node.name)
        count = b.const(np.array(len(node.inputs), y.type.np_dtype), "count")
        return b.add(Div(), [y, count], node.name) if len(node.inputs) > 1 else y


@dataclass(frozen=True)
class EyeLike(Composed):
    """Ones on a diagonal."""

    kind = "eye_like"
    onnx = ("EyeLike",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """A constant."""
        x = node.input(0).type
        dtype = ONNX_TYPES[node.attrs["dtype"]] if "dtype" in node.attrs else x.dtype
        return node.build.const(
            np.eye(x.shape[0], x.shape[1], int(node.attrs.get("k", 0))).astype(dtype),
            node.name,
        )


def by_magnitudes(b: Builder, x: Value, axis: int, name: str) -> Value:
    """x divided by its L1 norm along an axis; 0 where that is 0."""
    size = b.add(Sum((axis,)), [b.add(Abs(), [x], name)], name)
    least = b.const(np.array(np.finfo(np.float32).tiny, np.float32), "least")
    return b.add(Div(), [x, b.add(Maximum(), [size, least], name)], name)


@dataclass(frozen=True)
class ReverseSequence(Composed):
    """Of every sequence of a batch, the first elements in reverse, as many as its
    length says.
    """

    kind = "reverse_sequence"
    onnx = ("ReverseSequence",)
    tflite = ("REVERSE_SEQUENCE",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Constant lengths."""
        x = node.input(0)
        lengths = node.const(1)
        assert lengths is not None
        time = node.attrs.get("time_axis", 0)
        batch = node.attrs.get("batch_axis", 1)
        index = node.build.const(cls._places(x.type, lengths, time, batch), "places")
        return node.build.add(GatherElements(time), [x, index], node.name)

    @staticmethod
    def _places(x: TensorType, lengths: Array, time: int, batch: int) -> Array:
        """Where along the time axis each element comes from."""
        steps = np.arange(x.shape[time])
        shape = [1] * x.rank
        place = np.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)
        shape[batch], shape[time] = x.shape[batch], x.shape[time]
        place = (place if batch < time else place.T).reshape(shape)
        return np.broadcast_to(place, x.shape).astype(np.int64)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """The same."""
        x = op.input(0)
        time = op.options.seqDim
        index = cls._places(x.type, op.const(1), time, op.options.batchDim)
        op.build.write(
            GatherElements(time), [x, op.build.const(index, "places")], op.outputs
        )


@dataclass(frozen=True)
class BitCast(OpDef):
    """The same bytes as elements of another type of that width."""

    dtype: str

    kind = "bit_cast"
    onnx = ("BitCast",)
    tflite = ("BITCAST",)
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The shape of the input."""
        if x[0].np_dtype.itemsize != np.dtype(self.dtype).itemsize:
            raise ValueError(f"{x[0]} as {self.dtype}, which is of another width")
        return (TensorType(x[0].shape, self.dtype),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """numpy's view."""
        return [np.ascontiguousarray(x[0]).reshape(xt[0].shape).view(self.dtype)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Floats of other widths than 32 bits only as they come into the model and
        leave it.
        """
        to = node.attrs["to"]
        x = node.input(0)
        made = node.build.graph.producers().get(x)
        if (
            made is not None
            and made.spec == Cast("float32")
            and made.inputs[0].type.dtype in ("float16", "float64")
        ):
            x = made.inputs[0]
        wide = {TensorProto.DOUBLE: "float64", TensorProto.FLOAT16: "float16"}
        if to not in ONNX_TYPES:
            raise ValueError(
                f"bits as {TensorProto.DataType.Name(to).lower()} are not supported"
            )
        return node.build.add(cls(wide.get(to, ONNX_TYPES[to])), [x], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """The declared output has the type."""
        op.build.write(cls(op.outputs[0].type.dtype), [op.input(0)], op.outputs)

    def c(self, op: Op) -> KernelCall:
        """A copy."""
        return KernelCall.of("ek_copy", op.inputs[0], op.output, op.output.type.nbytes)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Between types of each width."""
        for source, target in (
            ("int8", "uint8"),
            ("uint16", "int16"),
            ("float32", "int32"),
            ("uint64", "int64"),
        ):
            yield Sample(
                cls(target),
                (Arg(TensorType((2, 3), source)),),
                label=f"{source}_{target}",
            )


@dataclass(frozen=True)
class TensorScatter(Composed):
    """A cache with a stretch of an axis replaced, from a place that each batch has of
    its own.
    """

    kind = "tensor_scatter"
    onnx = ("TensorScatter",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """A scatter; places are the first one's, computed or not, and 0, 1, …."""
        b = node.build
        cache = node.input(0)
        update = node.input(1)
        name = node.name
        axis = axis_of(node.attrs.get("axis", -2), cache.type.rank)
        first = node.optional(2)
        along = np.arange(update.type.shape[axis]).reshape(
            -1, *(1,) * (cache.type.rank - axis - 1)
        )
        place = b.const(
            along.reshape((1,) * (cache.type.rank - along.ndim) + along.shape), "along"
        )
        if first is not None:
            start = b.add(
                Reshape((first.type.size, *(1,) * (cache.type.rank - 1))), [first], name
            )
            place = b.add(Add(), [place, start], name)
        if node.attrs.get("mode", "linear") == "circular":
            place = b.add(
                FloorMod(),
                [place, b.const(np.array(cache.type.shape[axis]), "size")],
                name,
            )
        index = broadcast_to(b, place, update.type.shape, name)
        return b.add(ScatterElements("none", axis), [cache, index, update], name)


@dataclass(frozen=True)
class SizedByData(Composed):
    """Operators whose results' sizes hang on the elements of their inputs: only of
    constants, by ONNX's reference.
    """

    kind = "sized_by_data"
    onnx = ("NonZero", "Unique", "Compress", "NonMaxSuppression", "MelWeightMatrix")
    of_constants = True

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Refused; constants never come here."""
        computed = [v for v in node.inputs if v is not None and v.const is None]
        raise ComputedError(
            "the size of its results hangs on the elements of its inputs, of which one",
            *computed,
        )


@dataclass(frozen=True)
class DecodedFile(Composed):
    """ImageDecoder: pictures as files are no tensors of a static size."""

    kind = "decoded_file"
    onnx = ("ImageDecoder",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Refused."""
        raise ValueError(
            "a picture's file has no static size; decode it before the model and give "
            "it the pixels"
        )


@dataclass(frozen=True)
class AffineGrid(Composed):
    """Where each element of an image of `size` [N, C, (D,) H, W] comes from, as
    GridSample reads it: theta [N, 2, 3] or [N, 3, 4] times the places of the elements,
    x first.

    The body that ONNX gives for it loses a batch of one (its Squeeze takes all axes of
    one element).
    """

    kind = "affine_grid"
    onnx = ("AffineGrid",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """A product with the places, which are known."""
        theta = node.input(0)
        size = node.const(1)
        assert size is not None
        batch, _, *image = (int(n) for n in size.reshape(-1))
        axes = [_centres(n, bool(node.attrs.get("align_corners", 0))) for n in image]
        places = [*reversed(np.meshgrid(*axes, indexing="ij")), np.ones(image)]
        known = node.build.const(
            np.stack([p.reshape(-1) for p in places], -1).astype(np.float32), "places"
        )
        y = node.build.add(BatchMatMul(adj_y=True), [known, theta], node.name)
        return node.build.add(Reshape((batch, *image, len(image))), [y], node.name)


def _centres(n: int, corners: bool) -> Array:
    """From -1 to 1: the ends are the centres of the first and the last of n elements,
    or their outer edges.
    """
    if corners:
        return np.linspace(-1.0, 1.0, n) if n > 1 else np.zeros(1)
    return (2 * np.arange(n) + 1.0) / n - 1.0
