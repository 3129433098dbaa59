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
from edgec_partitioner.legalize._moves import maps
from edgec_partitioner.legalize.large_transpose import best_cut

KINDS = ("resize_bilinear",)
BOUND = 1e-6

_TURN = Transpose((0, 3, 1, 2))


def rewrite(r: Rewriter, op: Op) -> bool:
    """Columns, then rows."""
    spec = op.spec
    x = op.inputs[0]
    if (
        not isinstance(spec, ResizeBilinear)
        or x.type.dtype != "float32"
        or x.type.shape[0] != 1
    ):
        return False
    if x.type.shape[1:3] == (1, 1):  # tile_one_pixel takes it once it is quantized
        return False
    (_, h, w, c), (_, out_h, out_w, _) = x.type.shape, op.output.type.shape
    if not all(
        _turns(shape)
        for shape in ((1, h, w, c), (1, c, h, out_w), (1, out_w, c, out_h))
    ):
        return False
    rows, columns = spec.tables(x.type)
    r.update(
        op,
        _TURN,
        [_product(r, op, _product(r, op, x, columns, 2, "columns"), rows, 1, "rows")],
    )
    return True


def _product(
    r: Rewriter, op: Op, x: Value, places: Neighbours, axis: int, name: str
) -> Value:
    """`x` turned, and its last axis, which has been `axis` of the resized image,
    interpolated.
    """
    size = op.inputs[0].type.shape[axis]
    name = f"{op.output.name}_{name}"
    weights = _matrix(places, size)
    bias = np.zeros(len(places.low), np.float32)
    inputs = [
        r.add(op, _TURN, [x], f"{name}_in"),
        r.const(weights, f"{name}_weights"),
        r.const(bias, f"{name}_bias"),
    ]
    return r.add(op, Conv2D(), inputs, name)


def _turns(shape: tuple[int, ...]) -> bool:
    """Whether the transpose of such a tensor maps, whole or in parts."""
    x = Value("x", TensorType(shape))
    turn = Op(_TURN, [x], [Value("y", _TURN.infer(x.type)[0])])
    return maps(turn) or best_cut(turn) is not None


def _matrix(places: Neighbours, size: int) -> Array:
    """Weights [O,1,1,size] of a 1x1 convolution that interpolates."""
    low = places.low
    high = places.high
    weight = places.weight.astype(np.float32)
    matrix = np.zeros((len(low), size), np.float32)
    every = np.arange(len(low))
    matrix[every, low] += 1 - weight
    matrix[every, high] += weight
    return matrix.reshape(len(low), 1, 1, size)


def example(rng: np.random.Generator) -> Graph:
    """Aligned corners, and enlargements by more than two in the other modes."""
    build = Builder("resize_as_matmul")
    h, w = (int(n) for n in rng.integers(2, 9, 2))
    mode = str(rng.choice(["align_corners", "half_pixel", "asymmetric"]))
    size = (h + int(rng.integers(1, 9)), w * int(rng.integers(1, 3)))
    if mode != "align_corners":
        size = (h * int(rng.integers(3, 5)), w + 1)
    x = build.input("x", TensorType((1, h, w, int(rng.integers(1, 9)))))
    build.graph.outputs = [build.add(ResizeBilinear(size, mode), [x])]
    return build.graph
