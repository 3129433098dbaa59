"""Elements picked by index: whole slices along one axis, or elements by coordinates.

Semantics: ONNX Gather and GatherND, TFLite GATHER, GATHER_ND and EMBEDDING_LOOKUP.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    Builder,
    ChannelFlow,
    Kernel,
    KernelCall,
    KernelFamily,
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
from edgec.ir.c_structs import TakeNdParams, TakeParams
from edgec.ir.opdef import Arg
from edgec.ir.types import dequantize
from edgec.ops.common import axis_of, suffix
from edgec.ops.concat import Concat
from edgec.ops.shape import element_strides
from edgec.ops.slice import Range, take_range

_TAKE = KernelFamily(Kernel("take", "ek_take.h"), ("s32", "s64"))

_TAKE_ND = KernelFamily(Kernel("take_nd", "ek_take.h"), ("s32", "s64"))


@dataclass(frozen=True)
class _Picked(OpDef):
    """What both gathers share: a tensor, and int32 or int64 indices.

    Negative indices count from the back. An index out of range is clamped, because
    generated code must never read beyond a tensor.
    """

    roles: ClassVar[tuple[str, ...]] = ("act", "index")
    quant: ClassVar[QuantRule] = QuantRule.SAME
    plain_int8: ClassVar[bool] = True

    def _check(self, index: TensorType) -> None:
        """Raise ValueError unless the indices are int32 or int64."""
        if index.dtype not in ("int32", "int64"):
            raise ValueError(f"indices are {index}; they must be int32 or int64")

    def _version(self, op: Op) -> int:
        """Return the version of the TFLite operator: 2 introduced int8."""
        return 2 if op.inputs[0].type.dtype == "int8" else 1


@dataclass(frozen=True)
class Gather(_Picked):
    """y[..., i..., ...] = x[..., index[i...], ...] along one axis, as numpy.take.

    Attributes:
        axis: of x, counted from the front; the dimensions of the indices replace it
    """

    axis: int

    kind = "gather"
    any_elements: ClassVar[bool] = True
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.MOVES
    onnx = ("Gather",)
    tflite = ("GATHER", "EMBEDDING_LOOKUP")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of x with the axis replaced by the dimensions of the indices.

        Raises ValueError when there is no such axis, or no element along it.
        """
        data, index = x
        self._check(index)
        if not 0 <= self.axis < data.rank or data.shape[self.axis] == 0:
            raise ValueError(f"axis {self.axis} of {data}")

        before = data.shape[: self.axis]
        after = data.shape[self.axis + 1 :]

        return (data.with_shape(before + index.shape + after),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute numpy.take of the clamped indices."""
        data, index = x

        # The kernel clamps as well: it must never read beyond a tensor.
        inside = _clamped(index, data.shape[self.axis])

        return [np.asarray(np.take(data, inside, self.axis))]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef | None:
        """Return a gather along the permuted axis.

        Only a list of indices keeps the rank of the tensor.
        """
        if op.inputs[1].type.rank != 1:
            return None

        return Gather(perm.index(self.axis))

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Gather; constant indices at equal steps are a slice."""
        x = node.input(0)
        index = node.input(1)
        axis = axis_of(node.attrs.get("axis", 0), x.type.rank)
        size = x.type.shape[axis]

        # A slice needs no indices at run time, and the Edge TPU has it.
        steps = _equal_steps(index, size)
        if steps is not None:
            before = x.type.shape[:axis]
            after = x.type.shape[axis + 1 :]
            shape = before + index.type.shape + after
            return take_range(node.build, x, axis, steps, shape, node.name)

        from_front = _from_front(node.build, index, size)

        return node.build.add(cls(axis), [x, from_front], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read GATHER without batch dimensions, and EMBEDDING_LOOKUP.

        EMBEDDING_LOOKUP has the indices first; an int8 table with a float output holds
        reals.
        """
        if op.name == "EMBEDDING_LOOKUP":
            # Without an options table the axis is 0.
            index = op.input(0)
            table = op.input(1)
            is_quantized = table.const is not None and table.type.is_quantized
            if is_quantized and op.outputs[0].type.dtype == "float32":
                assert table.const is not None
                table = op.build.const(dequantize(table.const, table.type), table.name)
            op.build.write(cls(0), [table, index], op.outputs)
            return

        if getattr(op.options, "batchDims", 0):
            raise ValueError(f"batch_dims {op.options.batchDims}")

        x = op.input(0)
        axis = axis_of(getattr(op.options, "axis", 0), x.type.rank)
        op.build.write(cls(axis), [x, op.input(1)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode:
        """Return TFLite's GATHER with its options."""
        options = ("GatherOptions", {"axis": self.axis, "batchDims": 0})
        return TfliteCode("GATHER", options, self._version(op))

    def c(self, op: Op) -> KernelCall:
        """Return ek_take_<index type>, which copies rows of bytes.

        x is [outer, dim, bytes] and y is [outer, n, bytes].
        """
        x = op.inputs[0].type
        index = op.inputs[1]
        row = prod(x.shape[self.axis + 1 :])
        spec = TakeParams(
            outer=prod(x.shape[: self.axis]),
            dim=x.shape[self.axis],
            n=index.type.size,
            bytes=row * x.np_dtype.itemsize,
        )
        kernel = _TAKE.of(suffix(index.type))

        return KernelCall.of(kernel, op.inputs[0], index, op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield every axis, indices of rank 0 to 2, and repeated indices.

        Each in float and int8, and one of integers.
        """
        s8 = TensorType((1, 4, 5, 6), "int8", Quant.per_tensor(0.1, 3))
        for axis, index in ((3, [0, 3, 1, 3]), (1, [[2, 0], [1, 1]]), (2, 4)):
            data = np.array(index, np.int32)
            arg = Arg(TensorType(data.shape, "int32"), True, data)
            real = Arg(TensorType(s8.shape))
            yield Sample(cls(axis), (real, arg), label=f"axis{axis}")
            yield Sample(cls(axis), (Arg(s8), arg), label=f"axis{axis}_s8")

        data = np.array([1, 0, 2], np.int64)
        arg = Arg(TensorType((3,), "int64"), True, data)
        integers = Arg(TensorType((3,), "int64"))
        yield Sample(cls(0), (integers, arg), label="s64")


@dataclass(frozen=True)
class GatherNd(_Picked):
    """y[i..., :] = x[index[i..., 0], …, index[i..., k - 1], :], of k coordinates."""

    kind = "gather_nd"
    any_elements: ClassVar[bool] = True
    onnx = ("GatherND",)
    tflite = ("GATHER_ND",)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the leading dimensions of the indices, then those of x after k.

        Raises ValueError when there are more coordinates than dimensions, or none.
        """
        data, index = x
        self._check(index)
        if index.rank == 0 or not 0 < index.shape[-1] <= data.rank:
            raise ValueError(f"indices {index} do not fit {data}")

        k = index.shape[-1]

        # A clamped index needs an element.
        if 0 in data.shape[:k]:
            raise ValueError(f"{data} has no element to pick")

        return (data.with_shape(index.shape[:-1] + data.shape[k:]),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute numpy's integer indexing by the clamped coordinates.

        Each coordinate is clamped to its own dimension.
        """
        data, index = x
        coordinates: list[Array] = []
        for axis in range(index.shape[-1]):
            coordinates.append(_clamped(index[..., axis], data.shape[axis]))

        picked = np.ascontiguousarray(data[tuple(coordinates)])

        return [picked.reshape(yt[0].shape)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read GatherND; batch dimensions become constant coordinates."""
        b = node.build
        x = node.input(0)
        index = node.input(1)
        batch_dims = int(node.attrs.get("batch_dims", 0))
        if batch_dims:
            # Each batch picks from its own part of the tensor.
            grid = np.indices(index.type.shape[:-1])[:batch_dims]
            coordinates = np.moveaxis(grid, 0, -1)
            places = np.ascontiguousarray(coordinates, index.type.np_dtype)
            batch = b.const(places, f"{node.name}_batch")
            index = b.add(Concat(index.type.rank - 1), [batch, index], node.name)

        return b.add(cls(), [x, index], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read GATHER_ND, which has no attributes."""
        op.build.write(cls(), [op.input(0), op.input(1)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode:
        """Return GATHER_ND."""
        return TfliteCode("GATHER_ND", ("GatherNdOptions", {}), self._version(op))

    def c(self, op: Op) -> KernelCall:
        """Return ek_take_nd_<index type>, which copies rows of bytes.

        pitch: bytes between neighbours along each indexed dimension.
        """
        x = op.inputs[0].type
        index = op.inputs[1]
        k = index.type.shape[-1]
        itemsize = x.np_dtype.itemsize
        strides = element_strides(x.shape)[:k]
        spec = TakeNdParams(
            n=prod(index.type.shape[:-1]),
            k=k,
            dim=list(x.shape[:k]),
            pitch=[stride * itemsize for stride in strides],
            bytes=prod(x.shape[k:]) * itemsize,
        )
        kernel = _TAKE_ND.of(suffix(index.type))

        return KernelCall.of(kernel, op.inputs[0], index, op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield rows and single elements, in float and int8."""
        s8 = TensorType((2, 4, 5, 6), "int8", Quant.per_tensor(0.1, 3))
        cases = {
            "rows": [[0, 1, 4], [1, 3, 0]],
            "elements": [[[1, 2, 3, 4], [0, 0, 0, 0]]],
        }
        for label, index in cases.items():
            # Indices of the first case have three coordinates, of the second four.
            data = np.array(index, np.int32)
            arg = Arg(TensorType(data.shape, "int32"), True, data)
            real = Arg(TensorType(s8.shape))
            yield Sample(cls(), (real, arg), label=label)
            yield Sample(cls(), (Arg(s8), arg), label=f"{label}_s8")


def _clamped(index: Array, size: int) -> Array:
    """Return the indices counted from the front and clamped to the dimension."""
    from_front = np.where(index < 0, index + size, index)
    return np.clip(from_front, 0, size - 1)


def _from_front(b: Builder, index: Value, size: int) -> Value:
    """Return constant indices counted from the front: TFLite has no negative ones.

    Computed indices stay as they are.
    """
    if index.const is None or (index.const >= 0).all():
        return index

    # An index that is out of range is clamped on the way.
    from_front = _clamped(index.const, size)
    return b.const(from_front.astype(index.const.dtype), index.name)


def _equal_steps(index: Value, size: int) -> Range | None:
    """Return the range of constant indices at equal steps, None for other indices.

    Raises ValueError for an index out of range.
    """
    if index.const is None or index.const.size == 0 or index.const.ndim > 1:
        return None

    # A scalar index is one of a list of one.
    flat = index.const.reshape(-1)
    if flat.min() < -size or flat.max() >= size:
        raise ValueError(f"index {flat.tolist()} of a dimension of {size}")

    places = _clamped(flat, size)
    # A single index has no step: any will do.
    steps = set(np.diff(places).tolist()) or {1}
    step = steps.pop()
    if steps or step == 0:
        return None

    return int(places[0]), len(places), int(step)
