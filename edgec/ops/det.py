"""Determinants of square matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edgec.ir import (
    Array,
    KernelCall,
    OnnxNode,
    Op,
    OpDef,
    Sample,
    Scratch,
    TensorType,
    Value,
)
from edgec.ir.opdef import Arg
from edgec.ops.common import real_types


@dataclass(frozen=True)
class Det(OpDef):
    """The determinant of the last two axes, which go."""

    kind = "det"
    onnx = ("Det",)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The leading dimensions."""
        real_types(self, x[0], int8=False)
        if x[0].rank < 2 or x[0].shape[-1] != x[0].shape[-2]:
            raise ValueError(f"{x[0]} is no square matrix")
        return (TensorType(x[0].shape[:-2]),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """In double."""
        return [np.asarray(np.linalg.det(x[0].astype(np.float64)), np.float32)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Det."""
        return node.build.add(cls(), [node.input(0)], node.name)

    def c(self, op: Op) -> KernelCall:
        """ek_det_f32."""
        x = op.inputs[0]
        y = op.output
        n = x.type.shape[-1]
        return KernelCall.of(
            "ek_det_f32", x, y, Scratch(max(1, n * n) * 8), y.type.size, n
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """One matrix, several, a singular one, one of one element."""
        for shape in ((4, 4), (2, 3, 5, 5), (3, 1, 1)):
            yield Sample(cls(), (Arg(TensorType(shape)),), label=f"{len(shape)}d")
        singular = np.array([[1, 2], [2, 4]], np.float32)
        yield Sample(
            cls(), (Arg(TensorType((2, 2)), True, singular),), label="singular"
        )
