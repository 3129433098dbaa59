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
from edgec.ops.binary import Add
from edgec.ops.broadcast import broadcast_to
from edgec.ops.cast import ONNX_TYPES, Cast
from edgec.ops.common import axis_of
from edgec.ops.compare import Equal, Less, Where
from edgec.ops.division import Div
from edgec.ops.matmul import BatchMatMul
from edgec.ops.reduce import Sum
from edgec.ops.scatter import GatherElements, ScatterElements
from edgec.ops.shape import COPY, Reshape
from edgec.ops.unary import Abs


@dataclass(frozen=True)
class Composed(OpDef):
    """An operator that is read as others."""

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield nothing: the others have samples."""
        return iter(())


def _zero(b: Builder, x: Value) -> Value:
    """Return a scalar zero of the type of `x`."""
    return b.const(np.zeros((), x.type.np_dtype), "zero")


@dataclass(frozen=True)
class Trilu(Composed):
    """The upper or lower triangle of the last two axes, else zeros (ONNX Trilu)."""

    kind = "trilu"
    onnx = ("Trilu",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Trilu as a choice by a constant mask.

        The input k is the diagonal at which the triangle ends, 0 the main one.
        """
        b = node.build
        x = node.input(0)
        k = node.const(1)
        diagonal = 0 if k is None else int(k.reshape(-1)[0])

        ones = np.ones(x.type.shape[-2:], bool)
        if node.attrs.get("upper", 1):
            mask = np.triu(ones, diagonal)
        else:
            mask = np.tril(ones, diagonal)

        # The mask is broadcast over leading axes.
        condition = b.const(mask, "triangle")

        return b.add(Where(), [condition, x, _zero(b, x)], node.name)


@dataclass(frozen=True)
class OneHot(Composed):
    """y[…, k, …] = on where the index is k, off elsewhere, along a new axis.

    Semantics: ONNX OneHot, whose negative indices count from the back, and TFLite
    ONE_HOT, whose negative indices are off everywhere.
    """

    kind = "one_hot"
    onnx = ("OneHot",)
    tflite = ("ONE_HOT",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read OneHot as a comparison with 0, 1, … and a choice."""
        b = node.build
        x = node.input(0)
        values = node.input(2)
        depth_input = node.const(1)
        assert depth_input is not None
        depth = int(depth_input.reshape(-1)[0])
        name = node.name
        axis = axis_of(node.attrs.get("axis", -1), x.type.rank + 1)

        # Negative indices count from the back.
        index = x
        if x.type.dtype != "int64":
            index = b.add(Cast("int64"), [x], name)

        is_negative = b.add(Less(), [index, _zero(b, index)], name)
        depth_constant = b.const(np.array(depth, np.int64), "depth")
        from_back = b.add(Add(), [index, depth_constant], name)
        index = b.add(Where(), [is_negative, from_back, index], name)

        off = _element(b, values, 0, name)
        on = _element(b, values, 1, name)
        is_hot = cls._is_hot(b, index, depth, axis, name)

        return b.add(Where(), [is_hot, on, off], name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read ONE_HOT as a comparison with 0, 1, … and a choice.

        An index out of range, a negative one too, is off everywhere.
        """
        index = op.input(0)
        out = op.outputs[0]
        depth = int(op.const(1).reshape(-1)[0])
        if depth > out.type.size and out.type.rank:
            raise ValueError(f"depth {depth} of {out.type}")

        # The new axis counts in the output.
        axis = axis_of(op.options.axis, index.type.rank + 1)
        is_hot = cls._is_hot(op.build, index, depth, axis, out.name)
        op.build.write(Where(), [is_hot, op.input(2), op.input(3)], op.outputs)

    @staticmethod
    def _is_hot(b: Builder, index: Value, depth: int, axis: int, name: str) -> Value:
        """Return whether the index is 0, 1, … along a new axis of `depth`."""
        shape = index.type.shape
        before = shape[:axis]
        after = shape[axis:]
        wide = b.add(Reshape((*before, 1, *after)), [index], name)

        # The numbers broadcast along the new axis.
        numbers = np.arange(depth).astype(index.type.np_dtype)
        places = b.const(numbers.reshape(depth, *(1,) * len(after)), "places")

        return b.add(Equal(), [wide, places], name)


def _element(b: Builder, x: Value, i: int, name: str) -> Value:
    """Return element `i` of a vector as a scalar."""
    if x.const is not None:
        return b.const(x.const.reshape(-1)[i], name)

    # A gather of one element, whose axis is dropped.
    index = b.const(np.array([i], np.int64), "index")
    element = b.add(GatherElements(0), [x, index], name)

    return b.add(Reshape(()), [element], name)


@dataclass(frozen=True)
class Hardmax(Composed):
    """1 at the first largest element along an axis, 0 elsewhere (ONNX Hardmax)."""

    kind = "hardmax"
    onnx = ("Hardmax",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Hardmax as ArgMax, compared with 0, 1, ….

        Before opset 13 the maximum is over all axes from the given one on.
        """
        b = node.build
        x = node.input(0)
        name = node.name
        shape = x.type.shape
        default = -1 if node.opset >= 13 else 1
        axis = axis_of(node.attrs.get("axis", default), x.type.rank)
        if node.opset < 13:
            rows = int(np.prod(shape[:axis]))
            row = int(np.prod(shape[axis:]))
            x = b.add(Reshape((rows, row)), [x], name)
            axis = 1

        # Of equal elements the first counts.
        best = b.add(ArgMax(axis), [x], name)
        wide_shape = list(x.type.shape)
        wide_shape[axis] = 1
        wide = b.add(Reshape(tuple(wide_shape)), [best], name)

        # The numbers broadcast along the axis.
        after = x.type.rank - axis - 1
        numbers = np.arange(x.type.shape[axis]).reshape(-1, *(1,) * after)
        is_best = b.add(Equal(), [wide, b.const(numbers, "places")], name)
        y = b.add(Cast(x.type.dtype), [is_best], name)
        if y.type.shape == shape:
            return y

        return b.add(Reshape(shape), [y], name)


@dataclass(frozen=True)
class MeanOf(Composed):
    """The elementwise mean of the inputs, broadcast (ONNX Mean)."""

    kind = "mean_of"
    onnx = ("Mean",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Mean as a chain of sums and a division.

        One input alone is its own mean.
        """
        b = node.build
        total = node.input(0)
        for i in range(1, len(node.inputs)):
            total = b.add(Add(), [total, node.input(i)], node.name)

        count = b.const(np.array(len(node.inputs), total.type.np_dtype), "count")
        if len(node.inputs) == 1:
            return total

        return b.add(Div(), [total, count], node.name)


@dataclass(frozen=True)
class EyeLike(Composed):
    """Ones on a diagonal of a matrix of the input's shape (ONNX EyeLike)."""

    kind = "eye_like"
    onnx = ("EyeLike",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read EyeLike as a constant.

        The attribute k is the diagonal, 0 the main one.
        """
        x = node.input(0).type

        # The input gives the shape, and the type by default.
        dtype = x.dtype
        if "dtype" in node.attrs:
            dtype = ONNX_TYPES[node.attrs["dtype"]]

        rows, columns = x.shape[0], x.shape[1]
        matrix = np.eye(rows, columns, int(node.attrs.get("k", 0)))

        return node.build.const(matrix.astype(dtype), node.name)


def by_magnitudes(b: Builder, x: Value, axis: int, name: str) -> Value:
    """Return x / Σ |x| along an axis (the L1 norm); 0 where the norm is 0.

    The divisor is at least the smallest normal float32.
    """
    magnitudes = b.add(Abs(), [x], name)

    # The axis stays with a size of 1, to broadcast.
    total = b.add(Sum((axis,)), [magnitudes], name)
    least = b.const(np.array(np.finfo(np.float32).tiny, np.float32), "least")
    divisor = b.add(Maximum(), [total, least], name)

    return b.add(Div(), [x, divisor], name)


@dataclass(frozen=True)
class ReverseSequence(Composed):
    """The first elements of every sequence of a batch reversed, as many as its length.

    Semantics: ONNX ReverseSequence, TFLite REVERSE_SEQUENCE.
    """

    kind = "reverse_sequence"
    onnx = ("ReverseSequence",)
    tflite = ("REVERSE_SEQUENCE",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read ReverseSequence with constant lengths, as a gather along the time axis.

        The time axis is 0 and the batch axis 1 unless attributes say otherwise.
        """
        x = node.input(0)
        lengths = node.const(1)
        assert lengths is not None
        time = node.attrs.get("time_axis", 0)
        batch = node.attrs.get("batch_axis", 1)
        places = cls._places(x.type, lengths, time, batch)
        index = node.build.const(places, "places")

        return node.build.add(GatherElements(time), [x, index], node.name)

    @staticmethod
    def _places(x: TensorType, lengths: Array, time: int, batch: int) -> Array:
        """Return the place along the time axis that each element comes from.

        Elements beyond a sequence's length stay where they are.
        """
        steps = np.arange(x.shape[time])
        ends = lengths[:, None]
        # [batch, time]
        places = np.where(steps < ends, ends - 1 - steps, steps)
        if batch > time:
            places = places.T

        # The places are the same along all other axes.
        shape = [1] * x.rank
        shape[batch] = x.shape[batch]
        shape[time] = x.shape[time]

        return np.broadcast_to(places.reshape(shape), x.shape).astype(np.int64)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read REVERSE_SEQUENCE with constant lengths, as a gather along the time."""
        x = op.input(0)

        # TFLite calls the axes seqDim and batchDim.
        time = op.options.seqDim
        places = cls._places(x.type, op.const(1), time, op.options.batchDim)
        index = op.build.const(places, "places")
        op.build.write(GatherElements(time), [x, index], op.outputs)


@dataclass(frozen=True)
class BitCast(OpDef):
    """The same bytes as elements of another type of the same width.

    Semantics: ONNX BitCast, TFLite BITCAST.

    Attributes:
        dtype: element type of the output
    """

    dtype: str

    kind = "bit_cast"
    onnx = ("BitCast",)
    tflite = ("BITCAST",)
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the shape of the input with the new element type.

        Raises ValueError for a type of another width.
        """
        if x[0].np_dtype.itemsize != np.dtype(self.dtype).itemsize:
            raise ValueError(f"{x[0]} as {self.dtype}, which is of another width")

        return (TensorType(x[0].shape, self.dtype),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute numpy's view."""
        dense = np.ascontiguousarray(x[0]).reshape(xt[0].shape)
        return [dense.view(self.dtype)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read BitCast.

        The graph has float32 in place of other floats, but for the inputs and outputs
        of the model. Therefore the bits of a cast input are those of its operand.
        """
        to = node.attrs["to"]
        x = node.input(0)
        producer = node.build.graph.producers().get(x)
        if producer is not None and producer.spec == Cast("float32"):
            operand = producer.inputs[0]
            if operand.type.dtype in ("float16", "float64"):
                x = operand

        if to not in ONNX_TYPES:
            raise ValueError(
                f"bits as {TensorProto.DataType.Name(to).lower()} are not supported"
            )

        # The graph has float32 in place of these, except at the model's boundary.
        floats = {TensorProto.DOUBLE: "float64", TensorProto.FLOAT16: "float16"}
        dtype = floats.get(to, ONNX_TYPES[to])

        return node.build.add(cls(dtype), [x], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read BITCAST, whose declared output has the element type."""
        spec = cls(op.outputs[0].type.dtype)
        op.build.write(spec, [op.input(0)], op.outputs)

    def c(self, op: Op) -> KernelCall:
        """Return a copy."""
        return KernelCall.of(COPY, op.inputs[0], op.output, op.output.type.nbytes)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield a pair of types of each width."""
        pairs = (
            ("int8", "uint8"),
            ("uint16", "int16"),
            ("float32", "int32"),
            ("uint64", "int64"),
        )
        for source, target in pairs:
            x = Arg(TensorType((2, 3), source))
            yield Sample(cls(target), (x,), label=f"{source}_{target}")


@dataclass(frozen=True)
class TensorScatter(Composed):
    """A cache in which a stretch of an axis is replaced by an update.

    Each batch has a place of its own at which the stretch starts (ONNX TensorScatter,
    the key and value cache of attention).
    """

    kind = "tensor_scatter"
    onnx = ("TensorScatter",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read TensorScatter as a scatter.

        The places are the start, computed or not, plus 0, 1, …; in the mode "circular"
        they wrap at the end of the cache.
        """
        b = node.build
        cache = node.input(0)
        update = node.input(1)
        start = node.optional(2)
        name = node.name
        rank = cache.type.rank
        axis = axis_of(node.attrs.get("axis", -2), rank)

        shape = [1] * rank
        shape[axis] = update.type.shape[axis]
        numbers = np.arange(update.type.shape[axis]).reshape(shape)
        places = b.const(numbers, "along")
        if start is not None:
            column = Reshape((start.type.size, *(1,) * (rank - 1)))
            starts = b.add(column, [start], name)
            places = b.add(Add(), [places, starts], name)

        if node.attrs.get("mode", "linear") == "circular":
            size = b.const(np.array(cache.type.shape[axis]), "size")
            places = b.add(FloorMod(), [places, size], name)

        # Each element of the update gets an index.
        index = broadcast_to(b, places, update.type.shape, name)
        scatter = ScatterElements("none", axis)

        return b.add(scatter, [cache, index, update], name)


@dataclass(frozen=True)
class SizedByData(Composed):
    """Operators whose results' sizes depend on the elements of their inputs.

    They are computed for constants, by ONNX's reference.
    """

    kind = "sized_by_data"
    onnx: ClassVar[tuple[str, ...]] = (
        "NonZero",
        "Compress",
        "NonMaxSuppression",
        "MelWeightMatrix",
    )
    of_constants = True

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> list[Value]:
        """Raise ComputedError: constants never come here."""
        computed = [v for v in node.inputs if v is not None and v.const is None]
        raise ComputedError(
            "the size of its results hangs on the elements of its inputs, of which one",
            *computed,
        )


@dataclass(frozen=True)
class DecodedFile(Composed):
    """ImageDecoder: a picture's file is no tensor of a static size."""

    kind = "decoded_file"
    onnx = ("ImageDecoder",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Raise ValueError: no graph with static shapes can decode a picture."""
        raise ValueError(
            "a picture's file has no static size; decode it before the model and give "
            "it the pixels"
        )


@dataclass(frozen=True)
class AffineGrid(Composed):
    """The place of each element of an image, as GridSample reads it (ONNX AffineGrid).

    y = theta · (x, y(, z), 1), with theta [N, 2, 3] or [N, 3, 4] and the coordinates
    -1..1 of the elements of an image `size` [N, C, (D,) H, W]. The function body that
    ONNX gives for it loses a batch of one (its Squeeze takes all axes of one element).
    """

    kind = "affine_grid"
    onnx = ("AffineGrid",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read AffineGrid as a matrix product with constant coordinates."""
        b = node.build
        theta = node.input(0)
        size = node.const(1)
        assert size is not None
        batch, _, *image = (int(n) for n in size.reshape(-1))

        align_corners = bool(node.attrs.get("align_corners", 0))
        axes = [_centres(n, align_corners) for n in image]
        grids = np.meshgrid(*axes, indexing="ij")
        # x comes before y; the 1 multiplies the translation.
        columns = [*reversed(grids), np.ones(image)]
        coordinates = np.stack([column.reshape(-1) for column in columns], -1)
        places = b.const(coordinates.astype(np.float32), "places")

        # [elements, 3 or 4] times the transposed theta.
        y = b.add(BatchMatMul(adj_y=True), [places, theta], node.name)

        return b.add(Reshape((batch, *image, len(image))), [y], node.name)


def _centres(n: int, corners: bool) -> Array:
    """Return the coordinates -1..1 of n elements.

    The ends are the centres of the first and last element with `corners`, else their
    outer edges.
    """
    if not corners:
        return (2 * np.arange(n) + 1.0) / n - 1.0

    return np.linspace(-1.0, 1.0, n) if n > 1 else np.zeros(1)
