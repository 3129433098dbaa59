"""ONNX's matrix products, read as layers with weights or as products of two matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
    Sample,
    TensorType,
    Value,
)
from edgec.ir.opdef import Arg
from edgec.ops.binary import Add, Mul
from edgec.ops.common import INTEGERS, UNSIGNED, plain_suffix
from edgec.ops.matmul import MATMULS, BatchMatMul, FullyConnected
from edgec.ops.shape import Reshape, transpose


@dataclass(frozen=True)
class OnnxGemm(OpDef):
    """Reads Gemm; never part of a graph."""

    kind = "gemm"
    onnx = ("Gemm",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Gemm: alpha * A' · B' + beta * C, where A' and B' may be transposed.

        C becomes a bias when it is constant and one number for each output.
        """
        b = node.build
        a = node.input(0)
        w = node.input(1)
        name = node.name
        alpha = float(node.attrs.get("alpha", 1.0))
        beta = float(node.attrs.get("beta", 1.0))
        if node.attrs.get("transA", 0):
            a = transpose(b, a, (1, 0))

        is_transposed = bool(node.attrs.get("transB", 0))
        c = node.optional(2)
        if _is_plain(a.type):
            w = transpose(b, w, (1, 0)) if is_transposed else w
            y = _scaled(b, b.add(MatMulIntegers(), [a, w], name), alpha)
            if c is None or beta == 0:
                return y
            return b.add(Add(), [y, _scaled(b, c, beta)], name)

        if not is_transposed:
            w = transpose(b, w, (1, 0))

        # alpha scales the weights, which usually are constant.
        w = _scaled(b, w, alpha)
        if c is None or beta == 0:
            return b.add(FullyConnected(), [a, w], name)

        c = _scaled(b, c, beta)
        out_channels = w.type.shape[0]
        if c.const is not None and _is_row(c.type, out_channels):
            array = np.broadcast_to(c.const.reshape(-1), (out_channels,)).copy()
            bias = b.const(array, c.name)
            return b.add(FullyConnected(), [a, w, bias], name)

        return b.add(Add(), [b.add(FullyConnected(), [a, w], name), c], name)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield nothing: the op is read as others and never part of a graph."""
        return iter(())


@dataclass(frozen=True)
class OnnxMatMul(OpDef):
    """Reads MatMul; never part of a graph."""

    kind = "matmul"
    onnx = ("MatMul",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read MatMul; a vector is a row on the left and a column on the right.

        A product of floats with one matrix on the right is a fully connected layer.
        """
        b = node.build
        x = node.input(0)
        y = node.input(1)
        is_row = x.type.rank == 1
        is_column = y.type.rank == 1
        if is_row:
            x = b.add(Reshape((1, *x.type.shape)), [x], x.name)

        if is_column:
            y = b.add(Reshape((*y.type.shape, 1)), [y], y.name)

        has_one_matrix = prod(y.type.shape[:-2]) == 1
        if _is_plain(x.type):
            out = b.add(MatMulIntegers(), [x, y], node.name)
        elif has_one_matrix and y.type.rank <= x.type.rank:
            if y.type.rank > 2:
                y = b.add(Reshape(y.type.shape[-2:]), [y], y.name)

            # Weights are [O, K].
            weights = transpose(b, y, (1, 0))
            out = b.add(FullyConnected(), [x, weights], node.name)
        else:
            out = b.add(BatchMatMul(), [x, y], node.name)

        # The added axes are dropped again.
        shape = out.type.shape
        if is_row:
            shape = (*shape[:-2], shape[-1])

        if is_column:
            shape = shape[:-1]

        if shape == out.type.shape:
            return out

        return b.add(Reshape(shape), [out], node.name)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield nothing: the op is read as others and never part of a graph."""
        return iter(())


def _is_plain(t: TensorType) -> bool:
    """Return whether elements are integers without a scale."""
    return t.dtype in INTEGERS and not t.is_quantized


def _is_row(t: TensorType, outputs: int) -> bool:
    """Return whether a tensor broadcasts to one number for each output."""
    return t.size in (1, outputs) and t.shape[-1:] in ((), (1,), (outputs,))


def _scaled(b: Builder, x: Value, factor: float) -> Value:
    """Return factor * x; a constant is multiplied here, without an op.

    A factor of 1 needs no op. Raises ValueError for a fraction of integers.
    """
    if factor == 1.0:
        return x

    if _is_plain(x.type) and not factor.is_integer():
        raise ValueError(f"the factor {factor} of {x.type}")

    number = np.array(factor, np.float32).astype(x.type.np_dtype)
    if x.const is not None:
        scaled = x.const * number
        return b.const(scaled.astype(x.type.np_dtype), x.name)

    return b.add(Mul(), [x, b.const(number, "factor")], x.name)


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
