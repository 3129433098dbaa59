"""Slices with steps, and what is joined of them (Focus, space to depth), become a
convolution or part of one.

Pattern: ops that only move elements (slice, concat, reshape, transpose, gather) of
which at least one is refused, and which together give an image of channels that each
are every s-th row and column of a channel of another image. Replacement: a convolution
of stride s with one weight 1 per output channel, behind a unit-step SLICE where the
image does not begin or end with such a row; or the convolution that reads the result
takes this into its own weights: a 3x3 convolution behind a Focus becomes one of 6x6 and
stride 2, with as many multiplications. Proof: a weight 1 of scale 1 between equal
scales is a multiplier of 1.0, which is exact in TFLite's fixed point (see _one_hot);
folded weights give the same sums of products, and padding is the zero point on both
sides of the pick. Pays inside of an Edge TPU region, and before one where the CPU would
do the slices.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Array, Builder, Graph, Op, Quant, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D
from edgec.ops.slice import slice_axes
from edgec.ops.unary import Relu
from edgec_partitioner.legalize._moves import replace_moves
from edgec_partitioner.legalize._one_hot import Pick, pick_by_convolution

KINDS = ("slice", "gather", "reshape", "transpose")
BOUND = 0.0


def rewrite(r: Rewriter, op: Op) -> bool:
    """Find the image that the slices are of."""
    return replace_moves(r, op, _make)


def _make(r: Rewriter, move: Op, root: Value, index: Array) -> bool:
    pick = Pick.of(index, root.type)
    if pick is None or (
        pick.kernel == (1, 1) and index.shape[:3] == root.type.shape[:3]
    ):
        return False  # channel_shuffle takes what stays at its place
    return pick_by_convolution(r, move, root, pick)


def example(rng: np.random.Generator) -> Graph:
    """One slice with any steps, or several joined; read as they are or by a
    convolution.
    """
    build = Builder("strided_slice")
    step = (int(rng.integers(1, 4)), int(rng.integers(2, 4)))
    h, w = (s * int(rng.integers(3, 6)) + int(rng.integers(s)) for s in step)
    c = int(rng.integers(1, 5))
    q = Quant.per_tensor(0.05, int(rng.integers(-128, 128)))
    x = build.add(
        Relu(), [build.input("x", TensorType((1, h, w, c), "int8", q))], "x_relu", q
    )
    size = h // step[0], w // step[1]
    first = int(rng.integers(2))
    phases = [(i, j) for i in range(step[0]) for j in range(step[1])]
    chosen = rng.permutation(len(phases))[
        : 1 if first else int(rng.integers(1, len(phases) + 1))
    ]
    parts: list[Value] = []
    for i, j in (phases[k] for k in chosen):
        rows = build.add(slice_axes(x.type, {1: (i, size[0], step[0])}), [x])
        parts.append(
            build.add(slice_axes(rows.type, {2: (j, size[1], step[1])}), [rows])
        )
    y = build.add(Concat(3), parts) if len(parts) > 1 else parts[0]
    if rng.integers(2):
        build.graph.outputs = [build.add(Relu(), [y], quant=q)]
        return build.graph
    kernel = int(rng.integers(1, 4))
    half = int(kernel == 3) * int(rng.integers(2))
    weights = rng.integers(-127, 128, (3, kernel, kernel, y.type.shape[3])).astype(
        np.int8
    )
    bias = build.const(
        rng.integers(-500, 500, 3).astype(np.int32),
        "b",
        Quant.per_tensor(y.type.scale * 0.01),
    )
    spec = Conv2D((1, 1) if half else (int(rng.integers(1, 3)),) * 2, (half,) * 4)
    conv = [y, build.const(weights, "w", Quant.per_tensor(0.01)), bias]
    build.graph.outputs = [build.add(spec, conv, quant=Quant.per_tensor(0.2, 3))]
    return build.graph
