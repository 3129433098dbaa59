"""Depth to space, in any order of channels and however it is written, becomes a
transposed convolution.

Pattern: DEPTH_TO_SPACE, or ops that only move elements (reshapes and transposes of rank
5 or 6) of which at least one is refused, that together spread the channels of each
pixel over a block of pixels. Replacement: a TRANSPOSE_CONV whose stride is the block,
with one weight 1 for each output channel and place in the block; a block of 2 has a
kernel of 3 (the form that was seen mapped), whose last row and column are 0. Proof:
every sum has one term that is not 0; a weight 1 of scale 1 between equal scales is a
multiplier of 1.0, which is exact in TFLite's fixed point (see _one_hot). Pays inside of
an Edge TPU region, for up to a million weights; at the end of a model the CPU moves the
same bytes as they arrive.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Array, Builder, Graph, Op, Quant, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.shape import Reshape, Transpose
from edgec.ops.space_depth import DepthToSpace
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.ops.unary import Relu
from edgec_partitioner.legalize._moves import replace_moves
from edgec_partitioner.legalize._one_hot import MOST_WEIGHTS, one_hot

KINDS = ("depth_to_space", "reshape", "transpose")
BOUND = 0.0


def rewrite(r: Rewriter, op: Op) -> bool:
    """Find the image that the blocks come from."""
    return replace_moves(r, op, _make)


def _make(r: Rewriter, move: Op, root: Value, index: Array) -> bool:
    channels = _block_channels(index, root.type)
    if channels is None:
        return False
    height, width, depth = channels.shape
    kernel = tuple(3 if side == 2 else side for side in (height, width))
    weights = np.zeros((depth, *kernel, root.type.shape[3]), np.int8)
    i, j, c = np.indices(channels.shape)
    weights[c, i, j, channels] = 1
    if weights.size > MOST_WEIGHTS:
        return False
    spec = TransposeConv2D(
        (height, width), (0, kernel[0] - height, 0, kernel[1] - width)
    )
    return r.forward(move, one_hot(r, move, spec, root, weights, move.output))


def _block_channels(index: Array, root: TensorType) -> Array | None:
    """For each place in a block and each output channel, the channel of the one pixel
    that the block comes from.
    """
    if (
        index.ndim != 4
        or root.rank != 4
        or index.shape[0] != 1
        or root.shape[0] != 1
        or index.size == 0
    ):
        return None
    (_, height, width, depth), (_, h, w, c) = root.shape, index.shape
    if h % height or w % width or (h, w) == (height, width):
        return None
    block = (h // height, w // width)
    blocks = index.reshape(height, block[0], width, block[1], c).transpose(
        0, 2, 1, 3, 4
    )
    pixels = np.arange(height * width, dtype=np.int32).reshape(height, width, 1, 1, 1)
    channels: Array = blocks[0, 0]
    inside = channels.min() >= 0 and channels.max() < depth
    return channels if inside and (blocks == pixels * depth + channels).all() else None


def example(rng: np.random.Generator) -> Graph:
    """Both orders of DEPTH_TO_SPACE, and blocks that are not square from reshapes and a
    transpose.
    """
    build = Builder("pixel_shuffle")
    h, w, c = (int(n) for n in rng.integers(1, 5, 3))
    form = int(rng.integers(3))
    b = int(rng.integers(2, 4))
    across = int(rng.integers(1, 4)) if form == 2 else b
    q = Quant.per_tensor(0.05, int(rng.integers(-128, 128)))
    y = build.add(
        Relu(),
        [build.input("x", TensorType((1, h, w, b * across * c), "int8", q))],
        "x_relu",
        q,
    )
    if form < 2:
        y = build.add(DepthToSpace(b, ("DCR", "CRD")[form]), [y])
    else:
        y = build.add(Reshape((h, w, b, c, across)), [y])
        y = build.add(Transpose((0, 2, 1, 4, 3)), [y])
        y = build.add(Reshape((1, h * b, w * across, c)), [y])
    build.graph.outputs = [build.add(Relu(), [y], quant=q)]
    return build.graph
