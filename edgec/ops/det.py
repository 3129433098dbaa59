"""Determinants of square matrices.

Semantics: ONNX Det, computed in double as numpy.linalg.det (an LU factorization).
"""

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
from edgec.ops.common import float_kernel, real_types

_DET = float_kernel("det", "ek_det.h")


@dataclass(frozen=True)
class Det(OpDef):
    """The determinants of the matrices in the last two axes: [..., n, n] to [...]."""

    kind = "det"
    onnx = ("Det",)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return float32 with the leading dimensions.

        Raises ValueError unless the last two dimensions are equal.
        """
        real_types(self, x[0], int8=False)
        shape = x[0].shape
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise ValueError(f"{x[0]} is not a square matrix")

        return (TensorType(shape[:-2]),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the determinants in double and round them to float32."""
        # The kernel eliminates in double as well.
        determinants = np.linalg.det(x[0].astype(np.float64))
        # A pivot of zero would make zero of it.
        has_nan = np.isnan(x[0]).any((-2, -1))
        return [np.where(has_nan, np.nan, determinants).astype(np.float32)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Det, which has no attributes."""
        return node.build.add(cls(), [node.input(0)], node.name)

    def c(self, op: Op) -> KernelCall:
        """Return ek_det_f32, whose scratch memory holds one matrix in double."""
        # The kernel eliminates in a copy of the matrix.
        x = op.inputs[0]
        y = op.output
        n = x.type.shape[-1]
        matrix_bytes = max(1, n * n) * 8

        return KernelCall.of(
            _DET,
            x,
            y,
            Scratch(matrix_bytes),
            y.type.size,
            n,
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield one matrix, several, matrices of one element, and a singular one."""
        for shape in ((4, 4), (2, 3, 5, 5), (3, 1, 1)):
            matrices = Arg(TensorType(shape))
            yield Sample(cls(), (matrices,), label=f"{len(shape)}d")

        singular = np.array([[1, 2], [2, 4]], np.float32)
        constant = Arg(TensorType((2, 2)), True, singular)
        yield Sample(cls(), (constant,), label="singular")
