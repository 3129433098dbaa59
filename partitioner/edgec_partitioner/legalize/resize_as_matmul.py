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
from edgec_partitioner.legalize._examples import choice, integer, one_op
from edgec_partitioner.legalize._moves import maps
from edgec_partitioner.legalize.large_transpose import best_cut

OPS = (ResizeBilinear,)
BOUND = 1e-6

_TURN = Transpose((0, 3, 1, 2))


def rewrite(r: Rewriter, op: Op, spec: ResizeBilinear) -> bool:
    """Interpolate the columns, then the rows."""
    x = op.inputs[0]
    if x.type.dtype != "float32" or x.type.shape[0] != 1:
        return False
    # tile_one_pixel takes a single pixel once it is quantized.
    if x.type.shape[1:3] == (1, 1):
        return False

    _, h, w, c = x.type.shape
    _, out_h, out_w, _ = op.output.type.shape
    turned_shapes = ((1, h, w, c), (1, c, h, out_w), (1, out_w, c, out_h))
    if not all(_turns(shape) for shape in turned_shapes):
        return False

    # Two neighbours and a weight for each output row and column.
    rows, columns = spec.tables(x.type)
    # The turn brings the columns to the channels, then the rows.
    wide = _product(r, op, x, _matrix(columns, w), "columns")
    resized = _product(r, op, wide, _matrix(rows, h), "rows")
    r.update(op, _TURN, [resized])
    return True


def _product(r: Rewriter, op: Op, x: Value, weights: Array, name: str) -> Value:
    """Return `x` turned, with its last axis interpolated.

    That axis is a side of the resized image. weights: [O, 1, 1, size], from `_matrix`.
    """
    name = f"{op.output.name}_{name}"
    turned = r.add(op, _TURN, [x], f"{name}_in")
    filters = r.const(weights, f"{name}_weights")
    no_bias = r.const(np.zeros(len(weights), np.float32), f"{name}_bias")
    return r.add(op, Conv2D(), [turned, filters, no_bias], name)


def _turns(shape: tuple[int, ...]) -> bool:
    """Return whether the transpose of a tensor maps, whole or in parts."""
    x = Value("x", TensorType(shape))
    (turned_type,) = _TURN.infer(x.type)
    turn = Op(_TURN, [x], [Value("y", turned_type)])
    return maps(turn) or best_cut(turn) is not None


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
    h, w = (int(n) for n in rng.integers(2, 9, 2))
    mode = choice(rng, ["align_corners", "half_pixel", "asymmetric"])
    size = (h + integer(rng, 1, 9), w * integer(rng, 1, 3))
    # The other modes map up to a factor of two.
    if mode != "align_corners":
        size = (h * integer(rng, 3, 5), w + 1)
    x = build.input("x", TensorType((1, h, w, integer(rng, 1, 9))))
    return one_op(build, ResizeBilinear(size, mode), x)
