"""Single elements picked along an axis by index, and elements placed by index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

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
    TfliteOp,
    Value,
)
from edgec.ir.opdef import Arg
from edgec.ops.cast import Cast
from edgec.ops.common import INTEGERS, axis_of, ints, plain_suffix, suffix
from edgec.ops.shape import Reshape, element_strides

_COMBINED: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _inside(index: Array, size: int) -> Array:
    """Indices counted from the front, within the dimension."""
    return np.clip(np.where(index < 0, index + size, index), 0, size - 1).astype(
        np.int64
    )


def _check_elements(x: TensorType, index: TensorType, axis: int) -> None:
    """Raise ValueError where the indices do not fit."""
    if x.rank != index.rank or not 0 <= axis < x.rank or x.rank > 6:
        raise ValueError(
            f"indices {index} along axis {axis} of {x}; edgec compiles up to 6 dimensions"
        )
    if any(
        i > d
        for k, (i, d) in enumerate(zip(index.shape, x.shape, strict=True))
        if k != axis
    ) or (index.size and not x.shape[axis]):
        raise ValueError(f"indices {index} do not fit {x}")


def _elements(x: TensorType, index: TensorType, axis: int) -> Struct:
    """ek_elements_t."""
    strides = element_strides(x.shape)
    lead = (0,) * (6 - x.rank)
    return Struct(
        "ek_elements_t",
        dim=[*(1 for _ in lead), *index.shape],
        stride=[*lead, *(0 if i == axis else s for i, s in enumerate(strides))],
        size=x.shape[axis],
        step=strides[axis],
        bytes=x.np_dtype.itemsize,
        total=x.size,
    )


def _coordinates(index: Array, shape: Sequence[int], axis: int) -> tuple[Array, ...]:
    """Of each index, the element that it stands for."""
    grid = np.indices(index.shape)
    grid[axis] = _inside(index, shape[axis])
    return tuple(grid)


@dataclass(frozen=True)
class GatherElements(OpDef):
    """out[i, j, k] = in[index[i, j, k], j, k] for axis 0, and so on:
    numpy.take_along_axis. Out of range is clamped.
    """

    axis: int

    kind = "gather_elements"
    onnx = ("GatherElements",)
    roles: ClassVar[tuple[str, ...]] = ("act", "index")
    quant: ClassVar[QuantRule] = QuantRule.SAME
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The shape of the indices."""
        if x[1].dtype not in ("int32", "int64"):
            raise ValueError(f"indices are {x[1]}; they must be int32 or int64")
        _check_elements(x[0], x[1], self.axis)
        return (x[0].with_shape(x[1].shape),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """numpy's integer indexing."""
        return [np.ascontiguousarray(x[0][_coordinates(x[1], x[0].shape, self.axis)])]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef | None:
        """The indices would have to move too."""
        return None

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """GatherElements."""
        b = node.build
        x = node.input(0)
        index = node.input(1)
        axis = axis_of(node.attrs.get("axis", 0), x.type.rank)
        if x.type.rank <= 6:
            return b.add(cls(axis), [x, index], node.name)
        # where all other dimensions agree, they are one before the axis and one after
        # it
        flat = (prod(x.type.shape[:axis]), -1, prod(x.type.shape[axis + 1 :]))
        rows = [
            b.add(Reshape((flat[0], v.type.shape[axis], flat[2])), [v], node.name)
            for v in (x, index)
        ]
        return b.add(
            Reshape(index.type.shape), [b.add(cls(1), rows, node.name)], node.name
        )

    def c(self, op: Op) -> KernelCall:
        """ek_gather_elements_<index type>."""
        x, index = op.inputs
        where = _elements(x.type, index.type, self.axis)
        return KernelCall.of(
            f"ek_gather_elements_{suffix(index.type)}", x, index, op.output, where
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Every axis, fewer indices than elements; every width of element."""
        rng = np.random.default_rng(0)
        s8 = Quant.per_tensor(0.1, 3)
        for axis, dtype in ((0, "int64"), (1, "int32"), (2, "int64")):
            data = rng.integers(-3, 3, (2, 3, 2)).astype(dtype)
            index = Arg(TensorType(data.shape, dtype), True, data)
            for t in (
                TensorType((3, 4, 3)),
                TensorType((3, 4, 3), "int8", s8),
                TensorType((3, 4, 3), "int64"),
            ):
                yield Sample(cls(axis), (Arg(t), index), label=f"axis{axis}_{t.dtype}")


@dataclass(frozen=True)
class _Scatter(OpDef):
    """y = x, then updates are placed in it, or combined with what is there, one after
    the other.
    """

    reduction: str = "none"

    roles: ClassVar[tuple[str, ...]] = ("act", "index", "act")
    plain_int8: ClassVar[bool] = True

    def _check(self, *x: TensorType) -> None:
        if (
            x[1].dtype != "int64"
            or x[0].dtype != x[2].dtype
            or self.reduction not in ("none", *_COMBINED)
        ):
            raise ValueError(
                f"cannot place {x[2]} at {x[1]} in {x[0]} ({self.reduction})"
            )

    def _placed(self, y: Array, where: tuple[Array, ...], update: Array) -> list[Array]:
        with np.errstate(all="ignore"):
            if self.reduction == "none":
                y[where] = update
            else:
                _COMBINED[self.reduction].at(y, where, update)  # type: ignore[attr-defined]
        return [y]

    @staticmethod
    def _index(b: Builder, index: Value) -> Value:
        """The indices as int64."""
        if index.type.dtype == "int64":
            return index
        return b.add(Cast("int64"), [index], index.name)

    @classmethod
    def types(cls) -> Iterator[tuple[str, str]]:
        """Reductions and element types of the samples."""
        yield from (("none", "float32"), ("none", "bool"), ("none", "int64"))
        for reduction in _COMBINED:
            yield from ((reduction, dtype) for dtype in ("float32", *INTEGERS))


@dataclass(frozen=True)
class ScatterElements(_Scatter):
    """y[index[i, j, k], j, k] = update[i, j, k] for axis 0, and so on."""

    axis: int = 0

    kind = "scatter_elements"
    onnx = ("ScatterElements", "Scatter")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The tensor's type."""
        self._check(*x)
        _check_elements(x[0], x[1], self.axis)
        if x[1].shape != x[2].shape:
            raise ValueError(f"indices {x[1]} do not fit updates {x[2]}")
        return (TensorType(x[0].shape, x[0].dtype),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """numpy, in the order of the updates."""
        return self._placed(
            x[0].copy(), _coordinates(x[1], x[0].shape, self.axis), x[2]
        )

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """ScatterElements, and Scatter before opset 11."""
        x = node.input(0)
        spec = cls(
            node.attrs.get("reduction", "none"),
            axis_of(node.attrs.get("axis", 0), x.type.rank),
        )
        return node.build.add(
            spec, [x, cls._index(node.build, node.input(1)), node.input(2)], node.name
        )

    def c(self, op: Op) -> KernelCall:
        """ek_scatter_elements_<reduction>_<type>."""
        x = op.inputs[0].type
        where = _elements(x, op.inputs[1].type, self.axis)
        name = f"ek_scatter_elements_{self.reduction}_{plain_suffix(x)}"
        return KernelCall.of(name, *op.inputs, op.output, where)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Repeated indices, for every reduction and type."""
        data = np.array([[0, 2, 0], [1, 1, -1]], np.int64)
        for reduction, dtype in cls.types():
            for axis in (0, 1) if dtype == "float32" else (1,):
                x = TensorType((3, 4), dtype)
                update = TensorType(data.shape, dtype)
                args = (
                    Arg(x),
                    Arg(TensorType(data.shape, "int64"), True, data),
                    Arg(update),
                )
                if reduction == "none":  # which of two updates remains is not said
                    args = (
                        args[0],
                        Arg(
                            TensorType((2, 3), "int64"),
                            True,
                            np.array([[0, 2, 1], [1, 0, -1]]),
                        ),
                        args[2],
                    )
                yield Sample(
                    cls(reduction, axis), args, label=f"{reduction}_{dtype}_{axis}"
                )


@dataclass(frozen=True)
class ScatterNd(_Scatter):
    """y[index[i..., 0], …, index[i..., k - 1], :] = update[i..., :]."""

    kind = "scatter_nd"
    onnx = ("ScatterND",)
    tflite = ("SCATTER_ND", "SEGMENT_SUM")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The tensor's type."""
        self._check(*x)
        k = x[1].shape[-1] if x[1].rank else 0
        if (
            not 0 < k <= min(6, x[0].rank)
            or x[2].shape != x[1].shape[:-1] + x[0].shape[k:]
        ):
            raise ValueError(f"indices {x[1]} and updates {x[2]} do not fit {x[0]}")
        if x[2].size and 0 in x[0].shape[:k]:
            raise ValueError(f"{x[0]} has no element to replace")
        return (TensorType(x[0].shape, x[0].dtype),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """numpy, in the order of the updates."""
        where = tuple(
            _inside(x[1][..., i], x[0].shape[i]) for i in range(x[1].shape[-1])
        )
        return self._placed(x[0].copy(), where, x[2])

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """ScatterND."""
        spec = cls(node.attrs.get("reduction", "none"))
        index = cls._index(node.build, node.input(1))
        return node.build.add(spec, [node.input(0), index, node.input(2)], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Updates added up in zeros, under a constant shape; SEGMENT_SUM adds up the
        rows of each constant number.
        """
        b = op.build
        out = op.outputs[0]
        if op.name == "SEGMENT_SUM":
            update = op.input(0)
            rows = op.const(1)
            index = b.const(rows.reshape(-1, 1).astype(np.int64), f"{out.name}_rows")
            shape = (int(rows[-1]) + 1, *update.type.shape[1:])
        else:
            index = op.input(0)
            update = op.input(1)
            shape = tuple(ints(op.const(2)) or ())
        if update.type.is_quantized or update.type.dtype == "bool":
            raise ValueError(f"sums of {update.type} are not supported")
        if not out.type.rank:  # the file leaves it open
            out.type = out.type.with_shape(shape)
        zeros = b.const(np.zeros(shape, out.type.np_dtype), f"{out.name}_zeros")
        b.write(cls("add"), [zeros, cls._index(b, index), update], [out])

    def c(self, op: Op) -> KernelCall:
        """ek_scatter_nd_<reduction>_<type>."""
        x = op.inputs[0].type
        index = op.inputs[1].type
        k = index.shape[-1]
        sizes = Struct(
            "ek_scatter_nd_t",
            n=prod(index.shape[:-1]),
            k=k,
            dim=list(x.shape[:k]),
            pitch=element_strides(x.shape)[:k],
            row=prod(x.shape[k:]),
            total=x.size,
        )
        return KernelCall.of(
            f"ek_scatter_nd_{self.reduction}_{plain_suffix(x)}",
            *op.inputs,
            op.output,
            sizes,
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Rows and single elements."""
        for label, index in (
            ("rows", [[1], [-1]]),
            ("elements", [[0, 1, 3], [1, 2, 0]]),
        ):
            data = np.array(index, np.int64)
            for reduction, dtype in cls.types():
                x = TensorType((2 if label == "elements" else 4, 3, 4), dtype)
                update = TensorType((2, *x.shape[data.shape[1] :]), dtype)
                args = (
                    Arg(x),
                    Arg(TensorType(data.shape, "int64"), True, data),
                    Arg(update),
                )
                if dtype in ("float32", "int32"):
                    yield Sample(
                        cls(reduction), args, label=f"{label}_{reduction}_{dtype}"
                    )
