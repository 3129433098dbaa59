"""Reshape (a view) and transpose, and the strided gather that reorders elements.

Semantics: numpy.reshape and numpy.transpose, which ONNX and TFLite follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
    Pointer,
    Quant,
    QuantRule,
    Sample,
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ir.c_structs import GatherParams
from edgec.ir.opdef import Arg
from edgec.ops.common import axis_of, ints, suffix
from edgec.ops.limits import size_evidence

COPY = KernelFamily(Kernel("copy", "ek_shape.h"), ("",)).of()
"""Copies bytes."""

_GATHER_TYPES = (
    "f16",
    "f32",
    "f64",
    "s8",
    "u8",
    "s16",
    "u16",
    "s32",
    "u32",
    "s64",
    "u64",
)

GATHER = KernelFamily(Kernel("gather", "ek_shape.h"), _GATHER_TYPES)
"""Copies elements by strides of the operand."""

MAX_GATHER_RANK = 6
"""Dimensions of the struct ek_gather_t."""

_TRANSPOSE_LIMITS = (82_944, 102_400)
_RESHAPE_LIMITS = (110_000, 230_400)
_HEAD_RESHAPE_LIMITS = (408_000, 1_632_000)
"""(mapped, refused) of TRANSPOSE, of RESHAPE and of a RESHAPE of a head: elements of
the largest int8 TRANSPOSE or RESHAPE mapped by the Edge TPU compiler v16 (rounded up a
little), and of the smallest one refused.

Its log of a YOLOv8n of 192 pixels has all operators mapped, among them the TRANSPOSE
of a head of [1,24,24,144], and at 640 pixels refuses those of 102400 elements and more.
"""


@dataclass(frozen=True)
class Reshape(OpDef):
    """The same elements in the same order (row-major) under another shape.

    Attributes:
        shape: dimensions of the output; their product is the input's number of elements
    """

    shape: tuple[int, ...]

    kind = "reshape"
    any_elements: ClassVar[bool] = True
    onnx = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")
    tflite = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
    edgetpu_versions = {
        name: Versions(1) for name in ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
    }
    quant: ClassVar[QuantRule] = QuantRule.SAME
    edgetpu: ClassVar[bool] = True
    plain_int8: ClassVar[bool] = True
    view: ClassVar[bool] = True
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.MOVES

    def move_channels(self, op: Op, channels: Sequence[Array | None]) -> Array | None:
        """Return the channels of the input, once for each pixel that is put in a row.

        None where the output has neither the input's channels nor all of its elements
        as channels of one pixel.
        """
        (x,) = channels
        shape = op.inputs[0].type.shape
        pixels = prod(shape[:-1])
        if x is None or shape[-1:] == self.shape[-1:]:
            return x

        is_row = len(shape) > 1 and self.shape[-1:] == (prod(self.shape),)
        return np.tile(x, pixels) if is_row and pixels > 1 else None

    def with_channels(self, count: int) -> OpDef:
        """Return the reshape to the same dimensions but the last."""
        return replace(self, shape=(*self.shape[:-1], count))

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the input type with `shape`; per-channel scales move with their axis.

        Raises ValueError when the number of elements differs.
        """
        if prod(self.shape) != x[0].size:
            raise ValueError(f"{x[0]} does not fit the shape {list(self.shape)}")

        # Per-channel scales stay where their axis keeps its size and place.
        quant = x[0].quant and x[0].quant.reshaped(x[0].shape, self.shape)

        return (TensorType(self.shape, x[0].dtype, quant),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute numpy.reshape."""
        return [x[0].reshape(self.shape)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value | list[Value]:
        """Read the reshaping ops with constant shapes and axes, Identity and Dropout.

        Dropout outside training is the identity, and its optional mask is all true.
        """
        x = node.input(0)
        is_dropout = node.op_type == "Dropout"
        if is_dropout:
            _check_inference(node)

        shape = _onnx_shape(node, x.type.shape)
        y = node.build.add(cls(shape), [x], node.name)

        # The mask tells which elements were kept: without training all are.
        if is_dropout and node.n_outputs > 1:
            mask = np.ones(x.type.shape, bool)
            return [y, node.build.const(mask, f"{node.name}_mask")]

        return y

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read RESHAPE, SQUEEZE and EXPAND_DIMS.

        A constant shape input of RESHAPE (-1 is computed) takes precedence; otherwise
        the declared output shape is the target.
        """
        x = op.input(0)
        shape = op.outputs[0].type.shape
        has_shape_input = op.name == "RESHAPE" and len(op.inputs) > 1
        shape_input = op.inputs[1] if has_shape_input else None

        # A computed shape is known from the declared output alone.
        target = shape_input.const if shape_input else None
        if target is not None and target.ndim == 1:
            sizes = [int(size) for size in target]
            shape = _with_computed_size(sizes, x.type.size)

        # The options repeat what the shape input or the declared output says.
        op.ignore("newShape", "squeezeDims")
        op.build.write(cls(shape), [x], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode:
        """Return RESHAPE with its shape both as an option and as a constant input.

        SQUEEZE and EXPAND_DIMS are written as this too.
        """
        options = ("ReshapeOptions", {"newShape": list(self.shape)})
        shape = np.array(self.shape, np.int32)
        return TfliteCode("RESHAPE", options, 1, (op.inputs[0], shape))

    def c(self, op: Op) -> KernelCall:
        """Return a copy.

        The memory planner usually makes the output a view, and then drops this call.
        """
        x = op.inputs[0]
        return KernelCall.of(COPY, x, op.output, x.type.nbytes)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield a float and an int8 tensor."""
        # Both have as many elements as the target shape.
        real = Arg(TensorType((1, 3, 4)))
        quantized = Arg(TensorType((1, 2, 2, 3), "int8", Quant.per_tensor(0.5, 1)))
        yield Sample(cls((2, 6)), (real,))
        yield Sample(cls((1, 12)), (quantized,), label="s8")

    @edgetpu_rule(
        fix="keep the tensor as it is on the Edge TPU and reshape it on the CPU, "
        "or use a smaller image"
    )
    def _reshape_size(self, op: Op) -> str | None:
        """RESHAPE: at most 110000 elements (408000 where [h, w, a*b] becomes [h*w, a,
        b]); refused from 230400 on.
        """
        x = op.inputs[0].type
        before = [size for size in x.shape if size > 1]
        after = [size for size in self.shape if size > 1]

        # Sizes of 1 move no element.
        if before == after:
            return None

        is_head = len(before) == len(after) == 3 and after[0] == before[0] * before[1]
        limits = _HEAD_RESHAPE_LIMITS if is_head else _RESHAPE_LIMITS
        evidence = f"{list(x.shape)} to {list(self.shape)} moves {x.size} elements"

        return size_evidence(x.size, *limits, evidence)


def _onnx_shape(node: OnnxNode, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the output shape of an ONNX op that reshapes an input of `shape`."""
    if node.op_type in ("Identity", "Dropout"):
        return shape

    if node.op_type == "Flatten":
        return _flattened_shape(node, shape)

    if node.op_type == "Reshape":
        return _reshaped_shape(node, shape)

    # Squeeze and Unsqueeze: the axes became an input in opset 13.
    axes = node.attrs.get("axes") if node.opset < 13 else ints(node.const(1))
    if node.op_type == "Squeeze":
        return _squeezed_shape(shape, axes)

    return _unsqueezed_shape(shape, axes or [])


def _flattened_shape(node: OnnxNode, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the matrix shape of Flatten: the sizes before and from `axis` multiplied.

    The attribute counts from the back when it is negative, and is 1 by default.
    """
    rank = len(shape)
    axis = node.attrs.get("axis", 1)
    # The axis may also be the rank, which gives one column.
    if axis != rank:
        axis = axis_of(axis, rank)

    return (prod(shape[:axis]), prod(shape[axis:]))


def _squeezed_shape(
    shape: tuple[int, ...],
    axes: Sequence[int] | None,
) -> tuple[int, ...]:
    """Return `shape` without `axes`, or without all sizes of 1 when `axes` is None.

    Negative axes count from the back.
    """
    if axes is None:
        return tuple(size for size in shape if size != 1)

    dropped = {axis_of(axis, len(shape)) for axis in axes}

    return tuple(size for i, size in enumerate(shape) if i not in dropped)


def _unsqueezed_shape(shape: tuple[int, ...], axes: Sequence[int]) -> tuple[int, ...]:
    """Return `shape` with a 1 inserted at each of `axes`.

    Raises ValueError for an axis that is there twice.
    """
    # Axes count in the output, which has more of them.
    rank = len(shape) + len(axes)
    inserted = {axis_of(axis, rank) for axis in axes}
    if len(inserted) < len(axes):
        raise ValueError(f"axes {list(axes)} name one of {rank} twice")

    sizes = iter(shape)
    return tuple(1 if i in inserted else next(sizes) for i in range(rank))


def _check_inference(node: OnnxNode) -> None:
    """Raise ValueError for a Dropout in training mode, which drops elements at random.

    The training mode is an input since opset 12; with a ratio of 0 it has no effect.
    """
    node.attrs.ignore("ratio", "seed")
    if node.optional(2) is None:
        return

    training = node.const(2)
    ratio = node.const(1)
    is_training = training is not None and bool(training.any())
    drops = ratio is None or bool(ratio.any())
    if is_training and drops:
        raise ValueError("training_mode; export the model for inference")


def _reshaped_shape(node: OnnxNode, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the target shape of an ONNX Reshape of an input of `shape`.

    A target of 0 copies the input's dimension (unless allowzero); -1 is computed.
    """
    target = node.const(1) if node.opset >= 5 else np.array(node.attrs["shape"])
    assert target is not None
    sizes = [int(size) for size in target.reshape(-1)]
    if not node.attrs.get("allowzero", 0):
        sizes = [shape[i] if size == 0 else size for i, size in enumerate(sizes)]

    return _with_computed_size(sizes, prod(shape))


def _with_computed_size(sizes: Sequence[int], total: int) -> tuple[int, ...]:
    """Return `sizes` with -1 replaced so that the product is `total` elements.

    The size is 0 where the other sizes have no element.
    """
    # At most one size is -1.
    known = prod(size for size in sizes if size != -1)
    computed = total // known if known else 0

    return tuple(computed if size == -1 else size for size in sizes)


@dataclass(frozen=True)
class Transpose(OpDef):
    """A permutation of the axes: out.shape[i] = in.shape[perm[i]], as numpy.transpose.

    Attributes:
        perm: for each output axis the input axis it comes from
    """

    perm: tuple[int, ...]

    kind = "transpose"
    any_elements: ClassVar[bool] = True
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.MOVES
    onnx = ("Transpose",)
    tflite = ("TRANSPOSE",)
    edgetpu_versions = {"TRANSPOSE": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.SAME
    edgetpu: ClassVar[bool] = True
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the input type with its dimensions in the order of `perm`.

        Raises ValueError when `perm` is no permutation of the axes, and when the gather
        needs more dimensions than the kernel has.
        """
        if sorted(self.perm) != list(range(x[0].rank)):
            raise ValueError(f"perm {self.perm} does not fit {x[0]}")

        # The kernel must be able to walk the input in the order of the output.
        merge_dims(*self._gather_dims(x[0]))

        shape = tuple(x[0].shape[axis] for axis in self.perm)
        quant = x[0].quant and x[0].quant.permuted(self.perm)

        return (TensorType(shape, x[0].dtype, quant),)

    def _gather_dims(self, x: TensorType) -> tuple[list[int], list[int]]:
        """Return the dimensions and element strides of `x` in the order of `perm`.

        A gather over them writes the output densely.
        """
        strides = element_strides(x.shape)
        permuted_dims = [x.shape[axis] for axis in self.perm]
        permuted_strides = [strides[axis] for axis in self.perm]
        return permuted_dims, permuted_strides

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute numpy.transpose as a dense array."""
        return [np.ascontiguousarray(x[0].transpose(self.perm))]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Transpose; without `perm` the dimensions are reversed.

        The attribute has the input axis of each output axis, as numpy.transpose.
        """
        x = node.input(0)

        # numpy.transpose reverses the dimensions as well when it gets no permutation.
        perm = node.attrs.get("perm") or range(x.type.rank)[::-1]
        spec = cls(tuple(int(axis) for axis in perm))
        return node.build.add(spec, [x], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read TRANSPOSE with a constant permutation."""
        perm = tuple(int(axis) for axis in op.const(1))
        op.build.write(cls(perm), [op.input(0)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode:
        """Return TRANSPOSE; version 2 introduced int8.

        The permutation is a constant input.
        """
        x = op.inputs[0]
        version = 2 if x.type.dtype == "int8" else 1
        perm = np.array(self.perm, np.int32)
        return TfliteCode("TRANSPOSE", ("TransposeOptions", {}), version, (x, perm))

    def c(self, op: Op) -> KernelCall:
        """Return a strided gather."""
        dims, strides = self._gather_dims(op.inputs[0].type)
        return gather(op, dims, strides)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield image layouts, a matrix, five dimensions, and images of many tiles."""
        quant = Quant.per_tensor(0.5, 1)
        yield Sample(cls((0, 3, 1, 2)), (Arg(TensorType((1, 4, 5, 3))),))

        image = Arg(TensorType((1, 4, 5, 3), "int8", quant))
        yield Sample(cls((0, 2, 3, 1)), (image,), label="s8")

        matrix = Arg(TensorType((4, 5), "int8", quant))
        yield Sample(cls((1, 0)), (matrix,), label="s8_2d")

        five_dims = Arg(TensorType((1, 2, 3, 4, 5), "int32"))
        yield Sample(cls((0, 1, 4, 2, 3)), (five_dims,), label="s32_5d")

        # Larger than a tile of the transposing kernels, and no multiple of one.
        tiled_shape = (2, 15, 21, 70)
        for tiled in (
            TensorType(tiled_shape),
            TensorType(tiled_shape, "int8", quant),
        ):
            label = f"{tiled.dtype}_tiles"
            yield Sample(cls((0, 3, 1, 2)), (Arg(tiled),), label=label)

    @edgetpu_rule(
        fix="keep the tensor as it is on the Edge TPU and transpose it on the CPU, "
        "or use a smaller image"
    )
    def _transpose_size(self, op: Op) -> str | None:
        """TRANSPOSE: at most 82944 elements; refused from 102400 on."""
        x = op.inputs[0].type
        evidence = f"input {list(x.shape)} has {x.size} elements"
        return size_evidence(x.size, *_TRANSPOSE_LIMITS, evidence)


def element_strides(shape: Sequence[int]) -> list[int]:
    """Return the elements between neighbours along each dimension of a dense tensor."""
    return [prod(shape[i + 1 :]) for i in range(len(shape))]


def merge_dims(
    dims: Sequence[int],
    strides: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Return (dims, strides) of the same walk through memory in six dimensions.

    Dimensions of 1 are dropped, and a dimension whose stride is the extent of the next
    one is merged with it. Raises ValueError when more than six remain.
    """
    merged: list[tuple[int, int]] = []
    for dim, stride in zip(dims, strides, strict=True):
        if dim == 1:
            continue
        if merged and merged[-1][1] == dim * stride:
            outer_dim, _ = merged[-1]
            merged[-1] = (outer_dim * dim, stride)
        else:
            merged.append((dim, stride))

    if len(merged) > MAX_GATHER_RANK:
        raise ValueError(
            f"{len(merged)} dimensions move independently; edgec compiles up to 6"
        )

    # The kernel has a fixed number of loops: the outer ones run once.
    merged = [(1, 0)] * (MAX_GATHER_RANK - len(merged)) + merged

    return [dim for dim, _ in merged], [stride for _, stride in merged]


def gather(
    op: Op,
    dims: Sequence[int],
    strides: Sequence[int],
    offset: int = 0,
) -> KernelCall:
    """Return the call that writes the output densely from strided input elements.

    out[i0, i1, …] = in[offset + i0 strides[0] + i1 strides[1] + …], in elements.
    """
    x = op.inputs[0]

    # Fewer dimensions are longer inner loops.
    dim, stride = merge_dims(dims, strides)
    spec = GatherParams(dim=dim, stride=stride)
    kernel = GATHER.of(suffix(x.type))

    return KernelCall.of(kernel, Pointer(x, offset), op.output, spec)


def reshape_to(b: Builder, x: Value, out: Value) -> None:
    """Write `x` into a value of the file whose shape may differ."""
    b.write(Reshape(out.type.shape), [x], [out])


def transpose(b: Builder, x: Value, perm: tuple[int, ...]) -> Value:
    """Return `x` transposed; a constant is transposed here, without an op.

    Per-channel scales move with their axis.
    """
    # Weights are transposed while the model is read, so that no op is left of it.
    if x.const is not None:
        quant = x.type.quant and x.type.quant.permuted(perm)
        array = np.ascontiguousarray(x.const.transpose(perm))
        return b.const(array, x.name, quant)

    return b.add(Transpose(perm), [x], x.name)


def to_nhwc(b: Builder, x: Value) -> Value:
    """Return an NCHW image as NHWC."""
    return transpose(b, x, (0, 2, 3, 1))


def from_nhwc(b: Builder, x: Value) -> Value:
    """Return an NHWC image as NCHW."""
    return transpose(b, x, (0, 3, 1, 2))
