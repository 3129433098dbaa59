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

from edgec.ir import Array, Builder, Graph, Op, Quant, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D
from edgec.ops.gather import Gather
from edgec.ops.shape import Reshape, Transpose
from edgec.ops.slice import Slice, slice_axes
from edgec.ops.unary import Relu
from edgec.ops.window import Pair
from edgec_partitioner.legalize._examples import (
    int8_input,
    int32_bias,
    integer,
    random_quant,
    relu,
    with_output,
)
from edgec_partitioner.legalize._moves import replace_moves
from edgec_partitioner.legalize._one_hot import Pick, pick_by_convolution

OPS = (Slice, Gather, Reshape, Transpose)
BOUND = 0.0


def rewrite(r: Rewriter, op: Op, spec: Slice | Gather | Reshape | Transpose) -> bool:
    """Replace the chain of moves through `op` if it slices an image with steps."""
    return replace_moves(r, op, _make)


def _make(r: Rewriter, move: Op, root: Value, index: Array) -> bool:
    """Replace `move` by a convolution that picks every s-th pixel of `root`."""
    pick = Pick.of(index, root.type)
    if pick is None:
        return False
    # channel_shuffle takes channels that stay at their pixels.
    if pick.kernel == (1, 1) and index.shape[:3] == root.type.shape[:3]:
        return False
    return pick_by_convolution(r, move, root, pick)


def example(rng: np.random.Generator) -> Graph:
    """Return one slice with any steps, or several joined.

    The result is read as it is or by a convolution.
    """
    build = Builder("strided_slice")
    step = (integer(rng, 1, 4), integer(rng, 2, 4))
    h, w = (s * integer(rng, 3, 6) + integer(rng, 0, s) for s in step)
    c = integer(rng, 1, 5)
    q = random_quant(rng, 0.05)
    image = int8_input(build, (1, h, w, c), q)
    x = build.add(Relu(), [image], "x_relu", q)

    # A phase is every s-th row and column from one of the first s.
    phases = [(i, j) for i in range(step[0]) for j in range(step[1])]
    single = integer(rng, 0, 2)
    order = rng.permutation(len(phases))
    count = 1 if single else integer(rng, 1, len(phases) + 1)
    parts = [_phase(build, x, phases[k], step) for k in order[:count]]
    y = build.add(Concat(3), parts) if len(parts) > 1 else parts[0]

    if rng.integers(2):
        return with_output(build, relu(build, y))
    return with_output(build, _convolved(build, rng, y))


def _phase(build: Builder, x: Value, start: Pair, step: Pair) -> Value:
    """Return every step-th row and column of an image."""
    _, h, w, _ = x.type.shape
    rows = slice_axes(x.type, {1: (start[0], h // step[0], step[0])})
    y = build.add(rows, [x])
    columns = slice_axes(y.type, {2: (start[1], w // step[1], step[1])})
    return build.add(columns, [y])


def _convolved(build: Builder, rng: np.random.Generator, x: Value) -> Value:
    """Return the result of a random convolution of `x`."""
    kernel = integer(rng, 1, 4)
    half = int(kernel == 3) * integer(rng, 0, 2)
    shape = (3, kernel, kernel, x.type.shape[3])
    weights = rng.integers(-127, 128, shape).astype(np.int8)
    bias = int32_bias(build, rng, 3, 500, Quant.per_tensor(x.type.scale * 0.01))

    stride = (1, 1) if half else (integer(rng, 1, 3),) * 2
    spec = Conv2D(stride, (half,) * 4)
    w = build.const(weights, "w", Quant.per_tensor(0.01))
    return build.add(spec, [x, w, bias], quant=Quant.per_tensor(0.2, 3))
