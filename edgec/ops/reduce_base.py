"""The base of reductions: axes, file formats and the C kernel's loops.

The reductions themselves are in `reduce`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from edgec.ir import (
    Array,
    Builder,
    KernelCall,
    KernelFamily,
    OnnxNode,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Rounding,
    Sample,
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
    edgetpu_rule,
)
from edgec.ir.c_structs import ReduceParams
from edgec.ir.opdef import Arg
from edgec.ops.common import INTEGERS, axis_of, ints, plain_suffix, rounded_kernel
from edgec.ops.shape import Reshape

MAX_GROUPS = 3
"""Groups of kept axes, and of reduced axes, in the struct ek_reduce_t."""


Groups = list[tuple[int, int]]
"""(elements, element stride) of each group of neighbouring axes."""


@dataclass(frozen=True)
class Reduction(OpDef):
    """A reduction over some axes.

    Attributes:
        axes: reduced axes, counted from the front
        keep_dims: whether a reduced axis stays with a size of 1
    """

    axes: tuple[int, ...]
    keep_dims: bool = True

    fn: ClassVar[Callable[..., Any]]
    kernels: ClassVar[KernelFamily]
    """The plain kernels, by the element type."""
    integers: ClassVar[bool] = True
    """Whether there are kernels for plain integers too; their sums and products wrap as
    two's complement does.
    """
    edgetpu: ClassVar[bool] = True
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of the input without the reduced axes, or with 1 for each.

        Raises ValueError for axes that do not exist or alternate with others too often
        for the kernels.
        """
        rank = x[0].rank
        is_repeated = len(set(self.axes)) < len(self.axes)
        if is_repeated or any(not 0 <= axis < rank for axis in self.axes):
            raise ValueError(f"axes {self.axes} do not fit {x[0]}")

        # Neighbouring axes of one kind are one loop.
        kept, reduced = axis_groups(x[0].shape, self.axes)
        if max(len(kept), len(reduced)) > MAX_GROUPS:
            raise ValueError(f"axes {self.axes} of {x[0]} alternate too often")

        # The axes stay with a size of 1 only where they are kept.
        shape: list[int] = []
        for axis, size in enumerate(x[0].shape):
            if axis not in self.axes:
                shape.append(size)
            elif self.keep_dims:
                shape.append(1)

        quant = x[0].quant if self.quant is QuantRule.SAME else None

        return (TensorType(tuple(shape), x[0].dtype, quant),)

    def count(self, x: TensorType) -> int:
        """Return the number of input elements that make one of the output."""
        return prod(x.shape[a] for a in self.axes)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute float reductions in double, rounded once; integers wrap."""
        # float32 sums would depend on the order of the kernel's loops.
        data = x[0]
        if data.dtype == np.float32:
            data = data.astype(np.float64)

        y = type(self).fn(data, axis=self.axes, keepdims=self.keep_dims)

        return [np.asarray(y).astype(yt[0].np_dtype)]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef | None:
        """Return the reduction over the permuted axes; None when they are dropped.

        Axes that are dropped would leave another rank than that of `perm`.
        """
        if not self.keep_dims:
            return None
        axes = sorted(perm.index(axis) for axis in self.axes)
        return replace(self, axes=tuple(axes))

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read the reduction; a global pool reduces all axes from the third on.

        The axes became an input in opset 13 for ReduceSum and 18 for the others.
        Without axes all are reduced, or none with noop_with_empty_axes.
        """
        b = node.build
        x = node.input(0)

        # Opset 13 changed ReduceSum alone.
        since = 13 if node.op_type == "ReduceSum" else 18
        axes = onnx_axes(node, since)
        if axes is None:
            # Each element is a reduction of itself.
            node.attrs.ignore("keepdims")
            return cls.prepared(node, b, x)

        if node.op_type.startswith("Global"):
            axes = tuple(range(2, x.type.rank)) or axes

        keep_dims = bool(node.attrs.get("keepdims", 1))
        prepared = cls.prepared(node, b, x)

        return reduced(b, cls(axes), prepared, keep_dims, node.name)

    @classmethod
    def prepared(cls, node: OnnxNode, b: Builder, x: Value) -> Value:
        """Return the tensor that an operator reduces, if it is not its input itself."""
        return x

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read the operator with constant axes.

        keepDims is its only option.
        """
        x = op.input(0)
        rank = x.type.rank

        # TFLite allows an axis to be named twice.
        axes: set[int] = set()
        for axis in ints(op.const(1)) or ():
            axes.add(axis_of(axis, rank))

        keep_dims = bool(op.options.keepDims)
        spec = cls(tuple(sorted(axes)), keep_dims)
        op.build.write(spec, [x], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return the operator; version 2 introduced int8.

        Of plain integers TFLite has int32 and int64, and no mean.
        """
        x = op.inputs[0].type
        is_real = x.is_quantized or x.dtype == "float32"
        is_integer = x.dtype in ("int32", "int64") and self.kind != "mean"
        if not is_real and not is_integer:
            return None

        version = 2 if x.dtype == "int8" else 1
        options = ("ReducerOptions", {"keepDims": self.keep_dims})
        axes = np.array(self.axes, np.int32)

        return TfliteCode(self.tflite[0], options, version, (op.inputs[0], axes))

    def c(self, op: Op) -> KernelCall:
        """Return ek_<kind>_<type> over up to three kept and three reduced groups.

        Groups that the op lacks are loops of one round.
        """
        x = op.inputs[0].type
        y = op.output.type
        kept, reduced = axis_groups(x.shape, self.axes)

        # The kernel has a fixed number of loops: the outer ones run once.
        kept = [(1, 0)] * (MAX_GROUPS - len(kept)) + kept
        reduced = [(1, 0)] * (MAX_GROUPS - len(reduced)) + reduced
        shape = ReduceParams(
            keep=[size for size, _ in kept],
            keep_stride=[stride for _, stride in kept],
            red=[size for size, _ in reduced],
            red_stride=[stride for _, stride in reduced],
        )
        if y.is_quantized:
            rounding = getattr(self, "rounding", Rounding.TFLITE)
            kernel = rounded_kernel(self.kernels, y, rounding)
        else:
            kernel = self.kernels.of(plain_suffix(y))

        shape = self.with_scales(shape, x, y)
        return KernelCall.of(kernel, op.inputs[0], op.output, shape)

    def with_scales(
        self, p: ReduceParams, x: TensorType, y: TensorType
    ) -> ReduceParams:
        """Return the parameters with the fields that a quantized reduction has."""
        return p

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield images, channels, all axes and scattered axes, kept and dropped.

        Each in float, in plain integers and in int8, where the kernels have them.
        """
        cases = (
            ("image", cls((1, 2)), (2, 7, 5, 18)),
            ("channels", cls((3,)), (1, 3, 4, 20)),
            ("drop", cls((1,), False), (3, 6, 7)),
            ("all", cls((0, 1), False), (4, 9)),
            ("scattered", cls((0, 2), False), (2, 3, 4, 5)),
        )

        # A sum is larger than a mean, and has a larger scale.
        output_quant = Quant.per_tensor(0.11 if cls.kind == "sum" else 0.03, 4)
        for label, spec, shape in cases:
            yield Sample(spec, (Arg(TensorType(shape)),), label=label)
            for dtype in INTEGERS if cls.integers else ():
                integers = Arg(TensorType(shape, dtype))
                yield Sample(spec, (integers,), label=f"{label}_{dtype}")
            if cls.quant is QuantRule.FLOAT:
                continue
            x = TensorType(shape, "int8", Quant.per_tensor(0.05, -9))
            quant = x.quant if cls.quant is QuantRule.SAME else output_quant
            yield Sample(spec, (Arg(x),), quant, f"{label}_s8")

    @edgetpu_rule(
        fix="run one image per inference, and reduce over height, width and channels alone"
    )
    def _not_over_batch(self, op: Op) -> str | None:
        """Reductions must leave the batch alone."""
        x = op.inputs[0].type
        if 0 in self.axes and x.shape[0] > 1:
            return f"axes {list(self.axes)} of {list(x.shape)}"
        return None


def axis_groups(
    shape: tuple[int, ...],
    axes: tuple[int, ...],
) -> tuple[Groups, Groups]:
    """Return the groups of kept and of reduced axes of a dense tensor.

    Neighbouring axes of one kind are a group; axes of 1 belong to none.
    """
    kept: Groups = []
    reduced: Groups = []
    previous: Groups | None = None
    for axis, size in enumerate(shape):
        if size == 1:
            continue

        # The stride of a group is that of its last axis.
        stride = prod(shape[axis + 1 :])
        groups = reduced if axis in axes else kept
        if groups is previous:
            outer_size, _ = groups[-1]
            groups[-1] = (outer_size * size, stride)
        else:
            groups.append((size, stride))
        previous = groups

    return kept, reduced


def onnx_axes(node: OnnxNode, since: int) -> tuple[int, ...] | None:
    """Return the reduced axes of an ONNX node, None where none is reduced.

    since: the opset in which the axes became an input. Without axes all are reduced,
    unless noop_with_empty_axes is set.
    """
    if node.opset >= since:
        axes = ints(node.const(1))
    else:
        axes = node.attrs.get("axes")

    if node.attrs.get("noop_with_empty_axes", 0) and not axes:
        return None

    rank = node.input(0).type.rank

    return tuple(sorted(axis_of(axis, rank) for axis in axes or range(rank)))


def reduced(b: Builder, spec: Reduction, x: Value, keep: bool, name: str) -> Value:
    """Return the reduction with its axes kept, and dropped by a reshape unless `keep`.

    Layout changes can pass through a reduction that keeps its axes.
    """
    # A reduction that keeps its axes commutes with a transpose.
    y = b.add(spec, [x], name)
    if keep:
        return y

    return without_axes(b, y, spec.axes, name)


def without_axes(b: Builder, y: Value, axes: Sequence[int], name: str) -> Value:
    """Return `y` without the given axes, which have a size of 1."""
    shape = tuple(size for i, size in enumerate(y.type.shape) if i not in axes)
    return b.add(Reshape(shape), [y], name)
