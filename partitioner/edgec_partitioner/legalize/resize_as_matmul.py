"""A bilinear resize that does not map becomes two matrix products, one for each
direction.

Pattern: a bilinear resize of a float image that the rules refuse: aligned corners, more
than twice as large. Condition: the transposes that it takes map, or do so in parts (see
large_transpose). Replacement: the pixels of a row are brought to the channels by a
TRANSPOSE, a 1x1 convolution whose weights are the resize's makes the columns of the
result of them, and likewise the rows:

    [1,H,W,C] -T-> [1,C,H,W] -conv-> [1,C,H,W'] -T-> [1,W',C,H] -conv-> [1,W',C,H'] -T->
        [1,H',W',C]

with T = (0,3,1,2), the permutation that was seen mapped. Proof: a resize is linear and
separable; only the order of the float roundings differs. Quantized, it rounds once
more, between the directions, and its weights to 1/127 of the largest of each row: about
half a step of the output, root mean square. Pays inside of an Edge TPU region, where a
resize on the CPU costs two transfers.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Array, Builder, Graph, Op, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import Conv2D
from edgec.ops.resampling import Neighbours
from edgec.ops.resize import ResizeBilinear
from edgec.ops.shape import Transpose
from edgec_partitioner.legalize._examples import choice, integer, integers, one_op
from edgec_partitioner.legalize._moves import maps
from edgec_partitioner.legalize.large_transpose import best_cut

OPS = (ResizeBilinear,)
BOUND = 1e-6

_TURN = Transpose((0, 3, 1, 2))


def rewrite(r: Rewriter, op: Op, spec: ResizeBilinear) -> bool:
    """Interpolate the columns, then the rows."""
    x = op.inputs[0]
    batch, h, w, c = x.type.shape
    if x.type.dtype != "float32" or batch != 1:
        return False
    # tile_one_pixel takes a single pixel once it is quantized.
    if (h, w) == (1, 1):
        return False

    # The shapes before each of the three turns.
    _, out_h, out_w, _ = op.output.type.shape
    turned_shapes = ((1, h, w, c), (1, c, h, out_w), (1, out_w, c, out_h))
    if not all(_turns(shape) for shape in turned_shapes):
        return False

    # Two neighbours and a weight for each output row and column.
    rows, columns = spec.tables(x.type)
    across = _matrix(columns, w)
    down = _matrix(rows, h)

    # The turn brings the columns to the channels, then the rows.
    wide = _product(r, op, x, across, "columns")
    resized = _product(r, op, wide, down, "rows")
    r.update(op, _TURN, [resized])
    return True


def _product(r: Rewriter, op: Op, x: Value, weights: Array, name: str) -> Value:
    """Return the product of x and the weights, whose result has its axes rotated.

    It interpolates the last axis of x, a side of the resized image.

    op: the resize, before which the new ops stand.
    weights: [O, 1, 1, size], from `_matrix`.
    name: the suffix of the names of the new values.
    """
    name = f"{op.output.name}_{name}"
    turned = r.add(op, _TURN, [x], f"{name}_in")

    filters = r.const(weights, f"{name}_weights")
    zeros = np.zeros(len(weights), np.float32)
    no_bias = r.const(zeros, f"{name}_bias")
    inputs = [turned, filters, no_bias]
    return r.add(op, Conv2D(), inputs, name)


def _turns(shape: tuple[int, ...]) -> bool:
    """Return whether the transpose of a tensor maps, whole or in parts."""
    x = Value("x", TensorType(shape))
    (turned_type,) = _TURN.infer(x.type)
    y = Value("y", turned_type)

    turn = Op(_TURN, [x], [y])
    if maps(turn):
        return True
    # large_transpose will cut it.
    return best_cut(turn) is not None


def _matrix(places: Neighbours, size: int) -> Array:
    """Return the weights [O, 1, 1, size] of a 1x1 convolution that interpolates.

    out[o] = (1 - weight[o]) * in[low[o]] + weight[o] * in[high[o]]
    """
    count = len(places.low)
    weight = places.weight.astype(np.float32)
    matrix = np.zeros((count, size), np.float32)
    outputs = np.arange(count)

    # At the edges both neighbours are the same, and their weights add up.
    matrix[outputs, places.low] += 1 - weight
    matrix[outputs, places.high] += weight
    return matrix.reshape(count, 1, 1, size)


def example(rng: np.random.Generator) -> Graph:
    """Return a resize with aligned corners, or an enlargement by more than two."""
    build = Builder("resize_as_matmul")
    h, w = integers(rng, 2, 9, 2)
    mode = choice(rng, ["align_corners", "half_pixel", "asymmetric"])
    out_h = h + integer(rng, 1, 9)
    out_w = w * integer(rng, 1, 3)

    # The other modes map up to a factor of two.
    if mode != "align_corners":
        out_h = h * integer(rng, 3, 5)
        out_w = w + 1

    channels = integer(rng, 1, 9)
    x = build.input("x", TensorType((1, h, w, channels)))
    spec = ResizeBilinear((out_h, out_w), mode)
    return one_op(build, spec, x)
