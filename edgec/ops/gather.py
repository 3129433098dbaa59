"""Elements picked by index: whole slices of one axis, or by coordinates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    Builder,
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
)
from edgec.ir.opdef import Arg
from edgec.ir.types import dequantize
from edgec.ops.common import axis_of, suffix
from edgec.ops.concat import Concat
from edgec.ops.shape import element_strides
from edgec.ops.slice import Range, take_range


@dataclass(frozen=True)
class _Picked(OpDef):
    """What both share: a tensor and int32 or int64 indices, negative ones counted from
    the back.

    An index out of range is clamped: generated code must never read beyond a tensor.
    """

    roles: ClassVar[tuple[str, ...]] = ("act", "index")
    quant: ClassVar[QuantRule] = QuantRule.SAME
    plain_int8: ClassVar[bool] = True

    def _check(self, index: TensorType) -> None:
        if index.dtype not in ("int32", "int64"):
            raise ValueError(f"indices are {index}; they must be int32 or int64")

    def _version(self, op: Op) -> int:
        return 2 if op.inputs[0].type.dtype == "int8" else 1


@dataclass(frozen=True)
class Gather(_Picked):
    """out[..., i..., ...] = in[..., index[i...], ...] on one axis, as numpy.take."""

    axis: int

    kind = "gather"
    onnx = ("Gather",)
    tflite = ("GATHER", "EMBEDDING_LOOKUP")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The axis replaced by the dimensions of the indices."""
        self._check(x[1])
        if not 0 <= self.axis < x[0].rank or x[0].shape[self.axis] == 0:
            raise ValueError(f"axis {self.axis} of {x[0]}")
        return (
            x[0].with_shape(
                x[0].shape[: self.axis] + x[1].shape + x[0].shape[self.axis + 1 :]
            ),
        )

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """numpy.take."""
        return [
            np.asarray(np.take(x[0], _inside(x[1], x[0].shape[self.axis]), self.axis))
        ]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef | None:
        """A list of indices keeps the rank, and the axis moves along."""
        return Gather(perm.index(self.axis)) if op.inputs[1].type.rank == 1 else None

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Constant indices in even steps are a slice."""
        x = node.input(0)
        index = node.input(1)
        axis = axis_of(node.attrs.get("axis", 0), x.type.rank)
        even = _even_steps(index, x.type.shape[axis])
        if even is not None:
            shape = x.type.shape[:axis] + index.type.shape + x.type.shape[axis + 1 :]
            return take_range(node.build, x, axis, even, shape, node.name)
        return node.build.add(
            cls(axis), [x, _counted(node.build, index, x.type.shape[axis])], node.name
        )

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """GATHER without batch dimensions; EMBEDDING_LOOKUP gives the indices first,
        and reals of an int8 table.
        """
        if op.name == "EMBEDDING_LOOKUP":
            index = op.input(0)
            table = op.input(1)
            if (
                table.const is not None
                and table.type.is_quantized
                and op.outputs[0].type.dtype == "float32"
            ):
                table = op.build.const(dequantize(table.const, table.type), table.name)
            op.build.write(cls(0), [table, index], op.outputs)
            return
        if getattr(op.options, "batchDims", 0):
            raise ValueError(f"batch_dims {op.options.batchDims}")
        x = op.input(0)
        op.build.write(
            cls(axis_of(getattr(op.options, "axis", 0), x.type.rank)),
            [x, op.input(1)],
            op.outputs,
        )

    def to_tflite(self, op: Op) -> TfliteCode:
        """GATHER; version 2 is int8."""
        return TfliteCode(
            "GATHER",
            ("GatherOptions", {"axis": self.axis, "batchDims": 0}),
            self._version(op),
        )

    def c(self, op: Op) -> KernelCall:
        """Rows of bytes."""
        x = op.inputs[0].type
        index = op.inputs[1]
        sizes = {
            "outer": prod(x.shape[: self.axis]),
            "dim": x.shape[self.axis],
            "n": index.type.size,
            "bytes": prod(x.shape[self.axis + 1 :]) * x.np_dtype.itemsize,
        }
        name = f"ek_take_{suffix(index.type)}"
        return KernelCall.of(
            name, op.inputs[0], index, op.output, Struct("ek_take_t", **sizes)
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Every axis, indices of rank 0 to 2, repeated ones; float, int8, integers."""
        s8 = TensorType((1, 4, 5, 6), "int8", Quant.per_tensor(0.1, 3))
        for axis, index in ((3, [0, 3, 1, 3]), (1, [[2, 0], [1, 1]]), (2, 4)):
            data = np.array(index, np.int32)
            arg = Arg(TensorType(data.shape, "int32"), True, data)
            yield Sample(
                cls(axis), (Arg(TensorType(s8.shape)), arg), label=f"axis{axis}"
            )
            yield Sample(cls(axis), (Arg(s8), arg), label=f"axis{axis}_s8")
        data = np.array([1, 0, 2], np.int64)
        yield Sample(
            cls(0),
            (
                Arg(TensorType((3,), "int64")),
                Arg(TensorType((3,), "int64"), True, data),
            ),
            label="s64",
        )


@dataclass(frozen=True)
class GatherNd(_Picked):
    """out[i..., :] = in[index[i..., 0], …, index[i..., k - 1], :]."""

    kind = "gather_nd"
    onnx = ("GatherND",)
    tflite = ("GATHER_ND",)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The leading dimensions of the indices, then those of the tensor that no
        coordinate fixes.
        """
        self._check(x[1])
        if x[1].rank == 0 or not 0 < x[1].shape[-1] <= x[0].rank:
            raise ValueError(f"indices {x[1]} do not fit {x[0]}")
        k = x[1].shape[-1]
        if 0 in x[0].shape[:k]:
            raise ValueError(f"{x[0]} has no element to pick")
        return (x[0].with_shape(x[1].shape[:-1] + x[0].shape[k:]),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """numpy's integer indexing."""
        coordinates = (
            _inside(x[1][..., i], x[0].shape[i]) for i in range(x[1].shape[-1])
        )
        return [np.ascontiguousarray(x[0][tuple(coordinates)]).reshape(yt[0].shape)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Batch dimensions are further coordinates, which are constants."""
        b = node.build
        x = node.input(0)
        index = node.input(1)
        if count := int(node.attrs.get("batch_dims", 0)):
            lead = np.indices(index.type.shape[:-1])[:count]
            places = b.const(
                np.ascontiguousarray(np.moveaxis(lead, 0, -1), index.type.np_dtype),
                f"{node.name}_batch",
            )
            index = b.add(Concat(index.type.rank - 1), [places, index], node.name)
        return b.add(cls(), [x, index], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """GATHER_ND."""
        op.build.write(cls(), [op.input(0), op.input(1)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode:
        """GATHER_ND; version 2 is int8."""
        return TfliteCode("GATHER_ND", ("GatherNdOptions", {}), self._version(op))

    def c(self, op: Op) -> KernelCall:
        """Rows of bytes."""
        x = op.inputs[0].type
        index = op.inputs[1]
        k = index.type.shape[-1]
        size = x.np_dtype.itemsize
        sizes = {
            "n": prod(index.type.shape[:-1]),
            "k": k,
            "dim": list(x.shape[:k]),
            "pitch": [s * size for s in element_strides(x.shape)[:k]],
            "bytes": prod(x.shape[k:]) * size,
        }
        name = f"ek_take_nd_{suffix(index.type)}"
        return KernelCall.of(
            name, op.inputs[0], index, op.output, Struct("ek_take_nd_t", **sizes)
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Rows and single elements."""
        s8 = TensorType((2, 4, 5, 6), "int8", Quant.per_tensor(0.1, 3))
        for label, index in (
            ("rows", [[0, 1, 4], [1, 3, 0]]),
            ("elements", [[[1, 2, 3, 4], [0, 0, 0, 0]]]),
        ):
            data = np.array(index, np.int32)
            arg = Arg(TensorType(data.shape, "int32"), True, data)
            yield Sample(cls(), (Arg(TensorType(s8.shape)), arg), label=label)
            yield Sample(cls(), (Arg(s8), arg), label=f"{label}_s8")


def _inside(index: Array, size: int) -> Array:
    """Indices counted from the front, within the dimension."""
    return np.clip(np.where(index < 0, index + size, index), 0, size - 1)


def _counted(b: Builder, index: Value, size: int) -> Value:
    """Constant indices counted from the front: TFLite knows no others."""
    if index.const is None or (index.const >= 0).all():
        return index
    return b.const(_inside(index.const, size).astype(index.const.dtype), index.name)


def _even_steps(index: Value, size: int) -> Range | None:
    """The range that constant indices run through, if they do."""
    if index.const is None or index.const.size == 0 or index.const.ndim > 1:
        return None
    flat = index.const.reshape(-1)
    if flat.min() < -size or flat.max() >= size:
        raise ValueError(f"index {flat.tolist()} of a dimension of {size}")
    places = _inside(flat, size)
    steps = set(np.diff(places).tolist()) or {1}
    step = steps.pop()
    return None if steps or step == 0 else (int(places[0]), len(places), int(step))
