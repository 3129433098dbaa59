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
from edgec_partitioner.legalize._images import shaped
from edgec_partitioner.legalize._weights import array

KINDS = ("batch_matmul", "fully_connected")
BOUND = 1e-5

_MAX_MATRICES = 16


@dataclass(frozen=True)
class _Product:
    """out[l, r, q] = Σ x[l, r, k] * matrices[l or 0, q, k]; then the last two
    dimensions swapped if `swap`.

    x has its last two dimensions swapped first if `swap_x`.
    """

    x: Value
    swap_x: bool
    matrices: Array
    swap: bool
    act: str = "none"


def rewrite(r: Rewriter, op: Op) -> bool:
    """Convolve, between transposes where they are needed."""
    p = _product(op)
    if p is None or p.x.type.dtype != "float32" or len(p.matrices) > _MAX_MATRICES:
        return False
    lead = prod(op.output.type.shape[:-2])
    if prod(p.x.type.shape[:-2]) != lead or len(p.matrices) not in (1, lead):
        return False
    x = _swapped(r, op, p.x) if p.swap_x else p.x
    rows, k = x.type.shape[-2:]
    images = shaped(r, op, x, (1, lead, rows, k))
    if len(p.matrices) == 1:
        y = _convolved(r, op, images, p.matrices[0], p.act)
    else:
        parts = [
            r.add(
                op, slice_axes(images.type, {1: (i, 1, 1)}), [images], f"{x.name}_{i}"
            )
            for i in range(lead)
        ]
        results = [
            _convolved(r, op, part, m, p.act)
            for part, m in zip(parts, p.matrices, strict=True)
        ]
        y = r.add(op, Concat(1), results, f"{op.output.name}_joined")
    shape = op.output.type.shape
    y = shaped(r, op, y, (*shape[:-2], shape[-1], shape[-2]) if p.swap else shape)
    if p.swap:
        r.update(op, _swap(len(shape)), [y])
        return True
    return r.forward(op, y)


def _product(op: Op) -> _Product | None:
    """What the op computes, if exactly one side is constant."""
    a, b, *bias = op.inputs
    if (a.const is None) == (b.const is None) or bias:
        return None
    if isinstance(op.spec, FullyConnected):
        rows = a.const is not None and a.type.rank == b.type.rank == 2
        return _Product(b, False, array(a)[None], True, op.spec.act) if rows else None
    if not isinstance(op.spec, BatchMatMul):
        return None
    if b.const is not None:
        m = array(b) if op.spec.adj_y else array(b).swapaxes(-1, -2)
        return _Product(a, op.spec.adj_x, m.reshape(-1, *m.shape[-2:]), False)
    m = array(a).swapaxes(-1, -2) if op.spec.adj_x else array(a)
    return _Product(b, not op.spec.adj_y, m.reshape(-1, *m.shape[-2:]), True)


def _convolved(r: Rewriter, op: Op, image: Value, matrix: Array, act: str) -> Value:
    weights = r.const(
        matrix.reshape(matrix.shape[0], 1, 1, matrix.shape[1]),
        f"{op.output.name}_weights",
    )
    return r.add(op, Conv2D(act=act), [image, weights], f"{op.output.name}_image")


def _swap(rank: int) -> Transpose:
    """The last two dimensions exchanged."""
    return Transpose((*range(rank - 2), rank - 1, rank - 2))


def _swapped(r: Rewriter, op: Op, x: Value) -> Value:
    return r.add(op, _swap(x.type.rank), [x], f"{x.name}_swapped")


def example(rng: np.random.Generator) -> Graph:
    """The constant on either side, one matrix or one for each image, either side given
    transposed.
    """
    build = Builder("matmul_const")
    lead = int(rng.integers(1, 4))
    m, k, n = (int(d) for d in rng.integers(2, 8, 3))
    if rng.random() < 0.25:
        rows = build.const(rng.normal(size=(m, k)).astype(np.float32), "rows")
        spec = FullyConnected(str(rng.choice(["none", "relu"])))
        build.graph.outputs = [
            build.add(spec, [rows, build.input("x", TensorType((n, k)))])
        ]
        return build.graph
    adj = (bool(rng.integers(2)), bool(rng.integers(2)))
    shapes = [(k, m) if adj[0] else (m, k), (n, k) if adj[1] else (k, n)]
    left = bool(rng.integers(2))
    many = lead if rng.random() < 0.5 else 1
    constant = build.const(
        rng.normal(size=(many, *shapes[0 if left else 1])).astype(np.float32), "m"
    )
    x = build.input("x", TensorType((1, lead, *shapes[1 if left else 0])))
    build.graph.outputs = [
        build.add(BatchMatMul(*adj), [constant, x] if left else [x, constant])
    ]
    return build.graph
