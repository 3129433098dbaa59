"""Repetition: tiles, and broadcasts to a shape as tiles of what was first given the
same rank.
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
from edgec.ops.common import ints
from edgec.ops.shape import Reshape, element_strides, gather, merge_dims


@dataclass(frozen=True)
class Tile(OpDef):
    """The whole tensor `repeats` times along each axis, as numpy.tile."""

    repeats: tuple[int, ...]

    kind = "tile"
    onnx = ("Tile", "Expand")
    tflite = ("TILE", "BROADCAST_TO")
    edgetpu_versions = {"TILE": Versions(1)}
    quant: ClassVar[QuantRule] = QuantRule.SAME
    plain_int8: ClassVar[bool] = True
    edgetpu: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Every dimension times its repeats."""
        if len(self.repeats) != x[0].rank or min(self.repeats, default=0) < 0:
            raise ValueError(f"repeats {list(self.repeats)} do not fit {x[0]}")
        merge_dims(*self._walk(x[0]))
        return (
            x[0].with_shape(
                tuple(d * r for d, r in zip(x[0].shape, self.repeats, strict=True))
            ),
        )

    def _walk(self, x: TensorType) -> tuple[list[int], list[int]]:
        """Dimensions and strides of the gather: every repeat is a dimension that stands
        still.
        """
        walk = zip(self.repeats, x.shape, element_strides(x.shape), strict=True)
        pairs = [pair for r, d, s in walk for pair in ((r, 0), (d, s if d > 1 else 0))]
        return [d for d, _ in pairs], [s for _, s in pairs]

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """numpy.tile."""
        return [np.tile(x[0], self.repeats)]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef:
        """The same repeats on permuted axes."""
        return Tile(tuple(self.repeats[p] for p in perm))

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Tile with constant repeats; Expand broadcasts both ways."""
        x = node.input(0)
        given = ints(node.const(1))
        assert given is not None
        if node.op_type == "Expand":
            return broadcast_to(
                node.build,
                x,
                np.broadcast_shapes(x.type.shape, tuple(given)),
                node.name,
            )
        # half of the axes after the other: six move at once
        if x.type.rank > 3 and len(given) == x.type.rank:
            first = tuple(r if i < 2 else 1 for i, r in enumerate(given))
            x = node.build.add(cls(first), [x], node.name)
            given = [1, 1, *given[2:]]
        return node.build.add(cls(tuple(given)), [x], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """TILE and BROADCAST_TO: the declared output shape says the repeats."""
        x = op.input(0)
        shape = op.outputs[0].type.shape
        same_rank = (1,) * (len(shape) - x.type.rank) + x.type.shape
        if same_rank != x.type.shape:
            x = op.build.add(Reshape(same_rank), [x], f"{op.outputs[0].name}_rank")
        op.build.write(cls(_repeats(same_rank, shape)), [x], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode:
        """TILE."""
        return TfliteCode(
            "TILE", None, 1, (op.inputs[0], np.array(self.repeats, np.int32))
        )

    def c(self, op: Op) -> KernelCall:
        """A gather that stands still along the repeats."""
        return gather(op, *self._walk(op.inputs[0].type))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """A pixel over an image, channels, everything."""
        s8 = Quant.per_tensor(0.1, 3)
        for label, repeats, shape in (
            ("pixel", (1, 4, 5, 1), (1, 1, 1, 6)),
            ("channels", (1, 1, 1, 3), (1, 2, 3, 4)),
            ("all", (2, 1, 3), (2, 3, 2)),
        ):
            yield Sample(cls(repeats), (Arg(TensorType(shape)),), label=label)
            yield Sample(
                cls(repeats), (Arg(TensorType(shape, "int8", s8)),), label=f"{label}_s8"
            )
        yield Sample(cls((3,)), (Arg(TensorType((2,), "int64")),), label="s64")

    @edgetpu_rule(fix=None)
    def _one_pixel(self, op: Op) -> str | None:
        """TILE: one pixel over an image, the only form that was seen mapped."""
        x = op.inputs[0].type.shape
        if len(x) == 4 and x[1:3] == (1, 1) and self.repeats[0] == self.repeats[3] == 1:
            return None
        return f"{list(x)} repeated {list(self.repeats)} times"


def _repeats(shape: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """How often each dimension is repeated to become the target's."""
    if any(t % d if d else t for d, t in zip(shape, target, strict=True)):
        raise ValueError(f"{list(shape)} does not repeat to {list(target)}")
    return tuple(t // d if d else 1 for d, t in zip(shape, target, strict=True))


def broadcast_to(b: Builder, x: Value, shape: tuple[int, ...], name: str) -> Value:
    """`x` broadcast to a shape as numpy does."""
    same_rank = (1,) * (len(shape) - x.type.rank) + x.type.shape
    y = x if same_rank == x.type.shape else b.add(Reshape(same_rank), [x], name)
    return b.add(Tile(_repeats(same_rank, shape)), [y], name)
