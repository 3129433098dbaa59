"""Products of two matrices of plain integers, which wrap around.

Semantics: ONNX MatMul and Gemm of integers without a scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from edgec.ir import Array, KernelCall, Op, OpDef, Sample, TensorType
from edgec.ir.opdef import Arg
from edgec.ops.common import INTEGERS, UNSIGNED, plain_suffix
from edgec.ops.matmul import MATMULS, BatchMatMul


@dataclass(frozen=True)
class MatMulIntegers(OpDef):
    """A batched matrix product, whose sums keep the low bits of the element type."""

    kind = "matmul_integers"
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of numpy.matmul.

        Raises ValueError but for integers of one type, and sizes that do not fit.
        """
        dtype = x[0].dtype
        is_plain = not any(t.is_quantized for t in x)
        if dtype not in INTEGERS or x[1].dtype != dtype or not is_plain:
            raise ValueError(f"cannot multiply {x[0]} and {x[1]} as integers")

        # The product of floats has the same sizes.
        (product,) = BatchMatMul().infer(*(TensorType(t.shape) for t in x))

        return (TensorType(product.shape, dtype),)

    def macs(self, op: Op) -> int:
        """Return one multiplication for each output and term of its sum."""
        return BatchMatMul().macs(op)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute numpy.matmul in 64 bits, of which the low ones are right."""
        wide = np.uint64 if xt[0].dtype in UNSIGNED else np.int64
        product = np.matmul(x[0].astype(wide), x[1].astype(wide))
        return [product.astype(xt[0].dtype)]

    def c(self, op: Op) -> KernelCall:
        """Return ek_batch_matmul_<type>, with the operands of that of floats."""
        kernel = MATMULS.of(plain_suffix(op.inputs[0].type))
        return replace(BatchMatMul().c(op), kernel=kernel)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield a broadcast batch of every element type."""
        for dtype in INTEGERS:
            a = Arg(TensorType((2, 3, 4, 5), dtype))
            b = Arg(TensorType((3, 5, 6), dtype))
            yield Sample(cls(), (a, b), label=dtype)
