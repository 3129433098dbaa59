"""Tiling, and broadcasting to a shape as tiling after a reshape to the target's rank.

Semantics: ONNX Tile and Expand, TFLite TILE and BROADCAST_TO, all as numpy.tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ir.opdef import Arg
from edgec.ops.broadcast_dims import MAX_DIMS, count_dims
from edgec.ops.common import ints
from edgec.ops.shape import Reshape, element_strides, gather, merge_dims


@dataclass(frozen=True)
class Tile(OpDef):
    """The tensor repeated `repeats[i]` times along axis i: out[j] = in[j mod in.shape].

    Semantics: numpy.tile, which ONNX Tile and TFLite TILE follow.

    Attributes:
        repeats: number of copies along each axis (0 gives an empty tensor)
    """

    repeats: tuple[int, ...]

    kind = "tile"
    any_elements: ClassVar[bool] = True
    onnx = ("Tile", "Expand")
    tflite = ("TILE", "BROADCAST_TO")
    edgetpu_versions = {"TILE": Versions(1)}
    quant: ClassVar[QuantRule] = QuantRule.SAME
    plain_int8: ClassVar[bool] = True
    edgetpu: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the input type with each dimension multiplied by its repeats.

        Raises ValueError when the repeats do not fit the rank, and when the gather
        needs more dimensions than the kernel has.
        """
        rank = x[0].rank
        if len(self.repeats) != rank or min(self.repeats, default=0) < 0:
            raise ValueError(f"repeats {list(self.repeats)} do not fit {x[0]}")

        # Each repeated axis takes two dimensions of the kernel's gather.
        merge_dims(*self._gather_dims(x[0]))

        sizes = zip(x[0].shape, self.repeats, strict=True)
        shape = tuple(size * repeat for size, repeat in sizes)

        return (x[0].with_shape(shape),)

    def _gather_dims(self, x: TensorType) -> tuple[list[int], list[int]]:
        """Return the dimensions and element strides of the gather that tiles `x`.

        Each axis becomes two dimensions, (repeat, size). The stride of a repeat is 0,
        so that every copy reads the same elements.
        """
        dims: list[int] = []
        strides: list[int] = []
        axes = zip(self.repeats, x.shape, element_strides(x.shape), strict=True)
        for repeat, size, stride in axes:
            dims += [repeat, size]
            strides += [0, stride if size > 1 else 0]

        return dims, strides

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute numpy.tile."""
        return [np.tile(x[0], self.repeats)]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef:
        """Return a tile with the repeats of the permuted axes."""
        return Tile(tuple(self.repeats[p] for p in perm))

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Tile with constant repeats, and Expand, which broadcasts both ways.

        Expand also keeps an input dimension where the given shape has 1.
        """
        x = node.input(0)
        sizes = ints(node.const(1))
        assert sizes is not None

        # Expand gives a shape, Tile the repeats.
        if node.op_type == "Expand":
            shape = np.broadcast_shapes(x.type.shape, tuple(sizes))
            return broadcast_to(node.build, x, shape, node.name)

        # Tiling needs two gather dimensions an axis and the kernel has six, so that a
        # tensor of more than three axes is tiled in two steps.
        repeats = sizes
        if x.type.rank > 3 and len(repeats) == x.type.rank:
            leading = tuple(r if i < 2 else 1 for i, r in enumerate(repeats))
            x = node.build.add(cls(leading), [x], node.name)
            repeats = [1, 1, *repeats[2:]]

        return node.build.add(cls(tuple(repeats)), [x], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read TILE and BROADCAST_TO, whose repeats follow from the declared output."""
        x = op.input(0)
        out = op.outputs[0]
        shape = out.type.shape

        # BROADCAST_TO may add axes at the front, as numpy does.
        same_rank = (1,) * (len(shape) - x.type.rank) + x.type.shape
        if same_rank != x.type.shape:
            x = op.build.add(Reshape(same_rank), [x], f"{out.name}_rank")

        op.build.write(cls(_repeats(same_rank, shape)), [x], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode:
        """Return TILE, whose repeats are a constant input."""
        repeats = np.array(self.repeats, np.int32)
        return TfliteCode("TILE", None, 1, (op.inputs[0], repeats))

    def c(self, op: Op) -> KernelCall:
        """Return a strided gather whose stride is 0 along the repeats."""
        dims, strides = self._gather_dims(op.inputs[0].type)
        return gather(op, dims, strides)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield a pixel over an image, repeated channels, and repeats of all axes."""
        cases = (
            ("pixel", (1, 4, 5, 1), (1, 1, 1, 6)),
            ("channels", (1, 1, 1, 3), (1, 2, 3, 4)),
            ("all", (2, 1, 3), (2, 3, 2)),
        )
        quant = Quant.per_tensor(0.1, 3)
        for label, repeats, shape in cases:
            real = Arg(TensorType(shape))
            quantized = Arg(TensorType(shape, "int8", quant))
            yield Sample(cls(repeats), (real,), label=label)
            yield Sample(cls(repeats), (quantized,), label=f"{label}_s8")

        yield Sample(cls((3,)), (Arg(TensorType((2,), "int64")),), label="s64")

    @edgetpu_rule(fix=None)
    def _one_pixel(self, op: Op) -> str | None:
        """TILE: one pixel over an image, the only form that was seen mapped."""
        # An image is [1, height, width, channels].
        x = op.inputs[0].type.shape
        if len(x) == 4 and x[1:3] == (1, 1) and self.repeats[0] == self.repeats[3] == 1:
            return None
        return f"{list(x)} repeated {list(self.repeats)} times"


def _repeats(shape: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """Return how often each dimension is repeated to become the target's.

    Raises ValueError when a target size is not a multiple of the dimension.
    """
    repeats: list[int] = []
    for size, target_size in zip(shape, target, strict=True):
        # An empty dimension can only become another empty one.
        remainder = target_size % size if size else target_size
        if remainder:
            raise ValueError(f"{list(shape)} does not repeat to {list(target)}")
        repeats.append(target_size // size if size else 1)

    return tuple(repeats)


def broadcast_to(b: Builder, x: Value, shape: tuple[int, ...], name: str) -> Value:
    """Return `x` broadcast to `shape` by numpy's rule, as a reshape and tiles.

    Raises ValueError when a size of `x` is neither 1 nor that of the shape.
    """
    # numpy adds axes of 1 at the front.
    missing = len(shape) - x.type.rank
    same_rank = (1,) * missing + x.type.shape
    if same_rank != x.type.shape:
        x = b.add(Reshape(same_rank), [x], name)

    repeats = _repeats(same_rank, shape)
    if _fits(repeats, x.type):
        return b.add(Tile(repeats), [x], name)

    # Two axes always fit the dimensions of the kernel.
    repeated = [axis for axis, repeat in enumerate(repeats) if repeat != 1]
    for i in range(0, len(repeated), 2):
        axes = repeated[i : i + 2]
        some = tuple(r if axis in axes else 1 for axis, r in enumerate(repeats))
        x = b.add(Tile(some), [x], name)

    return x


def _fits(repeats: tuple[int, ...], x: TensorType) -> bool:
    """Return whether one op repeats a tensor so often along its axes."""
    try:
        Tile(repeats).infer(x)
    except ValueError:
        return False
    return True


def aligned(b: Builder, values: Sequence[Value], name: str) -> list[Value]:
    """Return operands whose broadcasting has no more dimensions than the kernels.

    Where it has more, the operands are first broadcast along all but the first axes,
    which are one dimension then.
    """
    shapes = [v.type.shape for v in values]
    shape = np.broadcast_shapes(*shapes)
    if count_dims(shape, *shapes) <= MAX_DIMS:
        return list(values)

    kept = MAX_DIMS - 1
    results: list[Value] = []
    for v in values:
        missing = len(shape) - v.type.rank
        leading = ((1,) * missing + v.type.shape)[:kept]
        results.append(broadcast_to(b, v, leading + shape[kept:], name))

    return results
