"""Elements picked along an axis by index, and elements placed or combined by index.

Semantics: ONNX GatherElements, ScatterElements, Scatter and ScatterND; TFLite
SCATTER_ND and SEGMENT_SUM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from edgec.ir import (
    Array,
    Builder,
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
    TfliteOp,
    Value,
)
from edgec.ir.c_structs import ElementsParams, ScatterNdParams
from edgec.ir.opdef import Arg
from edgec.ops.cast import Cast
from edgec.ops.common import (
    INTEGERS,
    NUMBER_KERNELS,
    axis_of,
    ints,
    plain_suffix,
    suffix,
)
from edgec.ops.shape import Reshape, element_strides


def _scatter_kernels(name: str) -> dict[str, KernelFamily]:
    """Return the kernels of a scatter by its reduction."""
    families: dict[str, KernelFamily] = {}
    for reduction in ("none", "add", "mul", "max", "min"):
        template = Kernel(f"{name}_{reduction}", "ek_scatter.h")
        families[reduction] = KernelFamily(template, NUMBER_KERNELS)

    return families


_SCATTER_ELEMENTS = _scatter_kernels("scatter_elements")
_SCATTER_ND = _scatter_kernels("scatter_nd")

_GATHER_ELEMENTS = KernelFamily(
    Kernel("gather_elements", "ek_scatter.h"), ("s32", "s64")
)

_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
"""numpy's ufunc for each reduction of ONNX's scatters but "none"."""

MAX_RANK = 6
"""Dimensions of the struct ek_elements_t, and coordinates of ek_scatter_nd_t."""


def _clamped(index: Array, size: int) -> Array:
    """Return the indices counted from the front and clamped to the dimension."""
    from_front = np.where(index < 0, index + size, index)
    return np.clip(from_front, 0, size - 1).astype(np.int64)


def _check_elements(x: TensorType, index: TensorType, axis: int) -> None:
    """Raise ValueError unless the indices fit the tensor.

    They must have its rank, and no dimension larger but along the axis.
    """
    is_rank_fitting = x.rank == index.rank and 0 <= axis < x.rank
    if not is_rank_fitting or x.rank > MAX_RANK:
        raise ValueError(
            f"indices {index} along axis {axis} of {x}; edgec compiles up to 6 dimensions"
        )

    # A clamped index needs an element.
    is_empty = bool(index.size) and not x.shape[axis]
    others = [i for i in range(x.rank) if i != axis]
    is_larger = any(index.shape[i] > x.shape[i] for i in others)
    if is_larger or is_empty:
        raise ValueError(f"indices {index} do not fit {x}")


def _elements_struct(x: TensorType, index: TensorType, axis: int) -> ElementsParams:
    """Return ek_elements_t, which walks the indices of elements of `x`.

    dim: of the indices. stride: elements of x between neighbours, 0 along the axis,
    where the index times `step` is added. size: of the axis.
    """
    strides = element_strides(x.shape)
    step = strides[axis]
    strides[axis] = 0
    missing = MAX_RANK - x.rank

    return ElementsParams(
        dim=[1] * missing + list(index.shape),
        stride=[0] * missing + strides,
        size=x.shape[axis],
        step=step,
        bytes=x.np_dtype.itemsize,
        total=x.size,
    )


def _coordinates(index: Array, shape: Sequence[int], axis: int) -> tuple[Array, ...]:
    """Return for each index the coordinates of its element, as numpy indexes by them.

    Along the axis it is the index, along the others the element's own place.
    """
    # Along the other axes an element stays at its own place.
    grid = np.indices(index.shape)
    grid[axis] = _clamped(index, shape[axis])
    return tuple(grid)


@dataclass(frozen=True)
class GatherElements(OpDef):
    """y[i, j, k] = x[index[i, j, k], j, k] along axis 0, as numpy.take_along_axis.

    An index out of range is clamped.

    Attributes:
        axis: along which the indices count
    """

    axis: int

    kind = "gather_elements"
    any_elements: ClassVar[bool] = True
    onnx = ("GatherElements",)
    roles: ClassVar[tuple[str, ...]] = ("act", "index")
    quant: ClassVar[QuantRule] = QuantRule.SAME
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of x with the shape of the indices.

        Raises ValueError when the indices do not fit the tensor.
        """
        data, index = x
        if index.dtype not in ("int32", "int64"):
            raise ValueError(f"indices are {index}; they must be int32 or int64")

        _check_elements(data, index, self.axis)

        return (data.with_shape(index.shape),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute numpy's integer indexing by the clamped indices."""
        data, index = x
        coordinates = _coordinates(index, data.shape, self.axis)

        return [np.ascontiguousarray(data[coordinates])]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef | None:
        """Return None: the indices would have to be transposed too."""
        return None

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read GatherElements.

        Above six dimensions those before the axis are joined, and those after it, which
        needs all of them to agree with those of the indices.
        """
        b = node.build
        x = node.input(0)
        index = node.input(1)
        name = node.name
        axis = axis_of(node.attrs.get("axis", 0), x.type.rank)
        if x.type.rank <= MAX_RANK:
            return b.add(cls(axis), [x, index], name)

        before = prod(x.type.shape[:axis])
        after = prod(x.type.shape[axis + 1 :])

        # All other axes are the same for both.
        rows: list[Value] = []
        for value in (x, index):
            shape = (before, value.type.shape[axis], after)
            rows.append(b.add(Reshape(shape), [value], name))

        picked = b.add(cls(1), rows, name)

        return b.add(Reshape(index.type.shape), [picked], name)

    def c(self, op: Op) -> KernelCall:
        """Return ek_gather_elements_<index type>.

        Elements are copied by their width in bytes.
        """
        x, index = op.inputs
        elements = _elements_struct(x.type, index.type, self.axis)
        kernel = _GATHER_ELEMENTS.of(suffix(index.type))
        return KernelCall.of(kernel, x, index, op.output, elements)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield every axis, fewer indices than elements, and every width of element."""
        rng = np.random.default_rng(0)
        shape = (3, 4, 3)
        types = (
            TensorType(shape),
            TensorType(shape, "int8", Quant.per_tensor(0.1, 3)),
            TensorType(shape, "int64"),
        )
        for axis, dtype in ((0, "int64"), (1, "int32"), (2, "int64")):
            data = rng.integers(-3, 3, (2, 3, 2)).astype(dtype)
            index = Arg(TensorType(data.shape, dtype), True, data)
            for x in types:
                label = f"axis{axis}_{x.dtype}"
                yield Sample(cls(axis), (Arg(x), index), label=label)


@dataclass(frozen=True)
class _Scatter(OpDef):
    """y = x, in which updates are placed, or combined with the elements there.

    Inputs: x, int64 indices, updates. Updates are taken one after the other, so that
    repeated indices combine.

    Attributes:
        reduction: none, add, mul, max or min
    """

    reduction: str = "none"

    roles: ClassVar[tuple[str, ...]] = ("act", "index", "act")
    plain_int8: ClassVar[bool] = True

    def _check(self, *x: TensorType) -> None:
        """Raise ValueError for types of the inputs or a reduction without a kernel.

        Updates have the element type of x.
        """
        data, index, update = x
        is_known = self.reduction in ("none", *_REDUCTIONS)
        if index.dtype != "int64" or data.dtype != update.dtype or not is_known:
            raise ValueError(
                f"cannot place {update} at {index} in {data} ({self.reduction})"
            )

    def _combined(
        self,
        y: Array,
        coordinates: tuple[Array, ...],
        update: Array,
    ) -> list[Array]:
        """Place the updates in `y`, or combine them with its elements."""
        with np.errstate(all="ignore"):
            if self.reduction == "none":
                y[coordinates] = update
            else:
                # The ufunc's `at` combines repeated indices one after the other.
                ufunc = _REDUCTIONS[self.reduction]
                ufunc.at(y, coordinates, update)  # type: ignore[attr-defined]

        return [y]

    @staticmethod
    def _index(b: Builder, index: Value) -> Value:
        """Return the indices as int64.

        The kernels have int64 indices alone.
        """
        if index.type.dtype == "int64":
            return index
        return b.add(Cast("int64"), [index], index.name)

    @classmethod
    def types(cls) -> Iterator[tuple[str, str]]:
        """Yield the (reduction, element type) pairs of the samples."""
        yield from (("none", "float32"), ("none", "bool"), ("none", "int64"))
        for reduction in _REDUCTIONS:
            for dtype in ("float32", *INTEGERS):
                yield reduction, dtype


@dataclass(frozen=True)
class ScatterElements(_Scatter):
    """y[index[i, j, k], j, k] = update[i, j, k] along axis 0, or combined with it.

    Attributes:
        axis: along which the indices count
    """

    axis: int = 0

    kind = "scatter_elements"
    onnx = ("ScatterElements", "Scatter")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of x, without quantization.

        Raises ValueError when indices or updates do not fit the tensor.
        """
        self._check(*x)
        data, index, update = x
        _check_elements(data, index, self.axis)

        # Each update has one index.
        if index.shape != update.shape:
            raise ValueError(f"indices {index} do not fit updates {update}")

        return (TensorType(data.shape, data.dtype),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute numpy's indexed assignment, in the order of the updates."""
        data, index, update = x
        coordinates = _coordinates(index, data.shape, self.axis)

        return self._combined(data.copy(), coordinates, update)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read ScatterElements, and Scatter, its name before opset 11."""
        x = node.input(0)

        # A negative axis counts from the back.
        axis = axis_of(node.attrs.get("axis", 0), x.type.rank)
        spec = cls(node.attrs.get("reduction", "none"), axis)
        index = cls._index(node.build, node.input(1))

        return node.build.add(spec, [x, index, node.input(2)], node.name)

    def c(self, op: Op) -> KernelCall:
        """Return ek_scatter_elements_<reduction>_<type>.

        The kernel copies x to the output first.
        """
        x = op.inputs[0].type
        elements = _elements_struct(x, op.inputs[1].type, self.axis)
        kernel = _SCATTER_ELEMENTS[self.reduction].of(plain_suffix(x))
        return KernelCall.of(kernel, *op.inputs, op.output, elements)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield repeated indices for every reduction and element type.

        Without a reduction indices are distinct: ONNX leaves open which of two updates
        remains.
        """
        # The last index counts from the back.
        repeated = np.array([[0, 2, 0], [1, 1, -1]], np.int64)
        distinct = np.array([[0, 2, 1], [1, 0, -1]])
        for reduction, dtype in cls.types():
            data = distinct if reduction == "none" else repeated
            x = Arg(TensorType((3, 4), dtype))
            index = Arg(TensorType(data.shape, "int64"), True, data)
            update = Arg(TensorType(data.shape, dtype))
            for axis in (0, 1) if dtype == "float32" else (1,):
                label = f"{reduction}_{dtype}_{axis}"
                yield Sample(cls(reduction, axis), (x, index, update), label=label)


@dataclass(frozen=True)
class ScatterNd(_Scatter):
    """y[index[i..., 0], …, index[i..., k - 1], :] = update[i..., :], or combined."""

    kind = "scatter_nd"
    onnx = ("ScatterND",)
    tflite = ("SCATTER_ND", "SEGMENT_SUM")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of x, without quantization.

        Raises ValueError when indices or updates do not fit the tensor.
        """
        self._check(*x)
        data, index, update = x

        # A scalar index has no coordinates.
        k = index.shape[-1] if index.rank else 0
        is_fitting = 0 < k <= min(MAX_RANK, data.rank)
        if not is_fitting or update.shape != index.shape[:-1] + data.shape[k:]:
            raise ValueError(f"indices {index} and updates {update} do not fit {data}")

        if update.size and 0 in data.shape[:k]:
            raise ValueError(f"{data} has no element to replace")

        return (TensorType(data.shape, data.dtype),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute numpy's indexed assignment, in the order of the updates.

        Each coordinate is clamped to its own dimension.
        """
        data, index, update = x
        coordinates: list[Array] = []
        for axis in range(index.shape[-1]):
            coordinates.append(_clamped(index[..., axis], data.shape[axis]))

        return self._combined(data.copy(), tuple(coordinates), update)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read ScatterND.

        Its attribute is the reduction, "none" by default.
        """
        data = node.input(0)
        update = node.input(2)
        spec = cls(node.attrs.get("reduction", "none"))

        # ONNX has int64 indices, other readers may not.
        index = cls._index(node.build, node.input(1))
        return node.build.add(spec, [data, index, update], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read SCATTER_ND and SEGMENT_SUM as updates added to zeros.

        SCATTER_ND has a constant output shape. SEGMENT_SUM has constant segment numbers
        in ascending order, each the row that an update is added to.
        """
        b = op.build
        out = op.outputs[0]

        # Both add to zeros, as repeated indices are summed.
        if op.name == "SEGMENT_SUM":
            update = op.input(0)
            segments = op.const(1)
            column = segments.reshape(-1, 1).astype(np.int64)
            index = b.const(column, f"{out.name}_rows")
            shape = (int(segments[-1]) + 1, *update.type.shape[1:])
        else:
            index = op.input(0)
            update = op.input(1)
            shape = tuple(ints(op.const(2)) or ())

        if update.type.is_quantized or update.type.dtype == "bool":
            raise ValueError(f"sums of {update.type} are not supported")

        # The file may leave the declared output's shape open.
        if not out.type.rank:
            out.type = out.type.with_shape(shape)

        zeros = b.const(np.zeros(shape, out.type.np_dtype), f"{out.name}_zeros")
        b.write(cls("add"), [zeros, cls._index(b, index), update], [out])

    def c(self, op: Op) -> KernelCall:
        """Return ek_scatter_nd_<reduction>_<type>.

        pitch: elements between neighbours along each indexed dimension.
        """
        x = op.inputs[0].type
        index = op.inputs[1].type
        k = index.shape[-1]
        spec = ScatterNdParams(
            n=prod(index.shape[:-1]),
            k=k,
            dim=list(x.shape[:k]),
            pitch=element_strides(x.shape)[:k],
            row=prod(x.shape[k:]),
            total=x.size,
        )
        kernel = _SCATTER_ND[self.reduction].of(plain_suffix(x))

        return KernelCall.of(kernel, *op.inputs, op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield rows and single elements, for every reduction of float32 and int32."""
        cases = (
            ("rows", (4, 3, 4), [[1], [-1]]),
            ("elements", (2, 3, 4), [[0, 1, 3], [1, 2, 0]]),
        )
        for label, shape, coordinates in cases:
            data = np.array(coordinates, np.int64)
            index = Arg(TensorType(data.shape, "int64"), True, data)
            update_shape = (2, *shape[data.shape[1] :])
            for reduction, dtype in cls.types():
                if dtype not in ("float32", "int32"):
                    continue
                x = Arg(TensorType(shape, dtype))
                update = Arg(TensorType(update_shape, dtype))
                name = f"{label}_{reduction}_{dtype}"
                yield Sample(cls(reduction), (x, index, update), label=name)
