"""A product of an activation with constant matrices becomes 1x1 convolutions.

Pattern: a batched matrix product one side of which is constant, and a fully connected
layer whose rows are constant and whose weights are computed. Condition: at most 16
different matrices; no bias on constant rows. Replacement: the vectors of the activation
along the summed dimension are laid out as an image; CONV_2D with the constant as its
weights, one for each matrix, concatenated; transposes where the summed dimension is not
the last, and where the constant is on the left. Proof: the same sums of products. Pays
where the operations around it map; else `_stranded` takes it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from edgec.ir import Array, Builder, Graph, Op, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D
from edgec.ops.matmul import BatchMatMul, FullyConnected
from edgec.ops.shape import Transpose
from edgec.ops.slice import slice_axes
from edgec_partitioner.legalize._examples import (
    choice,
    flag,
    float_constant,
    integer,
    integers,
    with_output,
)
from edgec_partitioner.legalize._images import shaped
from edgec_partitioner.legalize._weights import array

OPS = (BatchMatMul, FullyConnected)
BOUND = 1e-5

MAX_MATRICES = 16


@dataclass(frozen=True)
class _Product:
    """A product of computed matrices with constant ones.

    out[l, r, q] = Σ x[l, r, k] * matrices[l or 0, q, k]

    Attributes:
        x: the computed operand.
        swap_x: whether the last two dimensions of x are swapped first.
        matrices: the constant operand [L or 1, Q, K].
        swap: whether the last two dimensions of the result are swapped at the end.
        act: the activation behind the product.
    """

    x: Value
    swap_x: bool
    matrices: Array
    swap: bool
    act: str = "none"


def rewrite(r: Rewriter, op: Op, spec: BatchMatMul | FullyConnected) -> bool:
    """Convolve the rows, between transposes where they are needed."""
    product = _product(op)
    if product is None:
        return False
    x = product.x
    if x.type.dtype != "float32":
        return False

    shape = op.output.type.shape
    lead = prod(shape[:-2])
    count = len(product.matrices)
    if count > MAX_MATRICES or count not in (1, lead):
        return False
    # A broadcast operand has fewer matrices.
    if prod(x.type.shape[:-2]) != lead:
        return False

    if product.swap_x:
        swap = _swap(x.type.rank)
        x = r.add(op, swap, [x], f"{x.name}_swapped")
    # One image with a line for each matrix.
    rows, k = x.type.shape[-2:]
    images = shaped(r, op, x, (1, lead, rows, k))
    if count == 1:
        y = _convolved(r, op, images, product.matrices[0], product.act)
    else:
        y = _convolved_each(r, op, x.name, images, product)

    if not product.swap:
        result = shaped(r, op, y, shape)
        return r.forward(op, result)
    *leading, m, n = shape
    swapped = shaped(r, op, y, (*leading, n, m))
    r.update(op, _swap(len(shape)), [swapped])
    return True


def _convolved_each(
    r: Rewriter, op: Op, name: str, images: Value, product: _Product
) -> Value:
    """Return the products of the rows of `images` with a matrix each.

    name: the name of the computed operand.
    """
    count = len(product.matrices)
    parts: list[Value] = []
    # Each line of the image belongs to one matrix.
    for i in range(count):
        cut = slice_axes(images.type, {1: (i, 1, 1)})
        part = r.add(op, cut, [images], f"{name}_{i}")
        parts.append(part)

    results: list[Value] = []
    for i in range(count):
        matrix = product.matrices[i]
        result = _convolved(r, op, parts[i], matrix, product.act)
        results.append(result)

    joined_name = f"{op.output.name}_joined"
    return r.add(op, Concat(1), results, joined_name)


def _product(op: Op) -> _Product | None:
    """Return the product that `op` computes, if exactly one side is constant.

    None for a fully connected layer of constant weights, and one with a bias.
    """
    a, b, *bias = op.inputs
    # A bias would belong to the other axis.
    if bias:
        return None
    if (a.const is None) == (b.const is None):
        return None
    if isinstance(op.spec, FullyConnected):
        return _fully_connected_product(op.spec, a, b)
    if isinstance(op.spec, BatchMatMul):
        return _batch_product(op.spec, a, b)
    return None


def _fully_connected_product(
    spec: FullyConnected, a: Value, b: Value
) -> _Product | None:
    """Return the product of constant rows `a` with computed weights `b`."""
    if a.const is None:
        return None
    if a.type.rank != 2 or b.type.rank != 2:
        return None

    # (A W^T)^T = W A^T: the weights are the rows now.
    matrices = a.const[None]
    return _Product(b, False, matrices, True, spec.act)


def _batch_product(spec: BatchMatMul, a: Value, b: Value) -> _Product:
    """Return the product of `a` and `b`, one of which is constant."""
    if b.const is not None:
        matrices = b.const
        if not spec.adj_y:
            matrices = matrices.swapaxes(-1, -2)
        return _Product(a, spec.adj_x, _stacked(matrices), False)

    # A constant on the left is transposed: (A X)^T = X^T A^T.
    matrices = array(a)
    if spec.adj_x:
        matrices = matrices.swapaxes(-1, -2)
    return _Product(b, not spec.adj_y, _stacked(matrices), True)


def _stacked(matrices: Array) -> Array:
    """Return matrices with any leading dimensions as [count, Q, K]."""
    return matrices.reshape(-1, *matrices.shape[-2:])


def _convolved(r: Rewriter, op: Op, image: Value, matrix: Array, act: str) -> Value:
    """Return the product of an image of vectors with a matrix [Q, K].

    op: the op before which the convolution stands.
    act: the activation behind the product.
    """
    name = op.output.name
    rows, columns = matrix.shape
    # A 1x1 convolution multiplies each pixel by its matrix.
    filters = matrix.reshape(rows, 1, 1, columns)
    weights = r.const(filters, f"{name}_weights")
    spec = Conv2D(act=act)
    return r.add(op, spec, [image, weights], f"{name}_image")


def _swap(rank: int) -> Transpose:
    """Return the transpose that exchanges the last two dimensions."""
    return Transpose((*range(rank - 2), rank - 1, rank - 2))


def example(rng: np.random.Generator) -> Graph:
    """Return a product with a constant on either side.

    There is one matrix or one for each image, and either side may be transposed.
    """
    build = Builder("matmul_const")
    lead = integer(rng, 1, 4)
    m, k, n = integers(rng, 2, 8, 3)
    if rng.random() < 0.25:
        rows = float_constant(build, rng, (m, k), "rows")
        act = choice(rng, ["none", "relu"])
        weights = build.input("x", TensorType((n, k)))
        return with_output(build, build.add(FullyConnected(act), [rows, weights]))

    adj_x = flag(rng)
    adj_y = flag(rng)
    left_shape = (k, m) if adj_x else (m, k)
    right_shape = (n, k) if adj_y else (k, n)
    constant_left = flag(rng)
    count = lead if rng.random() < 0.5 else 1

    spec = BatchMatMul(adj_x, adj_y)
    if constant_left:
        constant = float_constant(build, rng, (count, *left_shape), "m")
        x = build.input("x", TensorType((1, lead, *right_shape)))
        return with_output(build, build.add(spec, [constant, x]))

    constant = float_constant(build, rng, (count, *right_shape), "m")
    x = build.input("x", TensorType((1, lead, *left_shape)))
    return with_output(build, build.add(spec, [x, constant]))
