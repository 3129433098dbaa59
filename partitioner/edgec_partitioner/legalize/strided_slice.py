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

from itertools import product

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
    flag,
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
    same_pixels = index.shape[:3] == root.type.shape[:3]
    if same_pixels and pick.kernel == (1, 1):
        return False
    return pick_by_convolution(r, move, root, pick)


def example(rng: np.random.Generator) -> Graph:
    """Return one slice with any steps, or several joined.

    The result is read as it is or by a convolution.
    """
    build = Builder("strided_slice")
    step_y = integer(rng, 1, 4)
    step_x = integer(rng, 2, 4)
    h = step_y * integer(rng, 3, 6) + integer(rng, 0, step_y)
    w = step_x * integer(rng, 3, 6) + integer(rng, 0, step_x)
    c = integer(rng, 1, 5)
    q = random_quant(rng, 0.05)
    image = int8_input(build, (1, h, w, c), q)
    x = build.add(Relu(), [image], "x_relu", q)

    # A phase is every s-th row and column from one of the first s.
    phases = list(product(range(step_y), range(step_x)))
    single = flag(rng)
    order = rng.permutation(len(phases))
    count = 1
    if not single:
        count = integer(rng, 1, len(phases) + 1)

    parts: list[Value] = []
    for k in order[:count]:
        part = _phase(build, x, phases[k], (step_y, step_x))
        parts.append(part)
    y = parts[0]
    if len(parts) > 1:
        y = build.add(Concat(3), parts)

    plain = flag(rng)
    result = relu(build, y) if plain else _convolved(build, rng, y)
    return with_output(build, result)


def _phase(build: Builder, x: Value, start: Pair, step: Pair) -> Value:
    """Return every step-th row and column of an image.

    start: the first row and column.
    """
    _, h, w, _ = x.type.shape
    start_y, start_x = start
    step_y, step_x = step

    # As many as every phase has, also the last.
    rows = (start_y, h // step_y, step_y)
    columns = (start_x, w // step_x, step_x)

    every_row = slice_axes(x.type, {1: rows})
    y = build.add(every_row, [x])
    every_column = slice_axes(y.type, {2: columns})
    return build.add(every_column, [y])


def _convolved(build: Builder, rng: np.random.Generator, x: Value) -> Value:
    """Return the result of a random convolution of `x`."""
    kernel = integer(rng, 1, 4)
    half = integer(rng, 0, 2)
    # Only a kernel of 3 has pads.
    if kernel != 3:
        half = 0
    channels = x.type.shape[3]
    shape = (3, kernel, kernel, channels)
    weights = rng.integers(-127, 128, shape)
    bias_scale = Quant.per_tensor(x.type.scale * 0.01)
    bias = int32_bias(build, rng, 3, 500, bias_scale)

    stride = 1
    if half == 0:
        stride = integer(rng, 1, 3)
    spec = Conv2D((stride, stride), (half, half, half, half))

    weight_scale = Quant.per_tensor(0.01)
    w = build.const(weights.astype(np.int8), "w", weight_scale)
    out_quant = Quant.per_tensor(0.2, 3)
    return build.add(spec, [x, w, bias], quant=out_quant)
