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

from edgec.ir import Array, Builder, Graph, Op, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.shape import Reshape, Transpose
from edgec.ops.space_depth import DepthToSpace
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.ops.unary import Relu
from edgec_partitioner.legalize._examples import (
    int8_input,
    integer,
    integers,
    random_quant,
    relu,
    with_output,
)
from edgec_partitioner.legalize._moves import replace_moves
from edgec_partitioner.legalize._one_hot import MOST_WEIGHTS, one_hot

OPS = (DepthToSpace, Reshape, Transpose)
BOUND = 0.0


def rewrite(r: Rewriter, op: Op, spec: DepthToSpace | Reshape | Transpose) -> bool:
    """Replace the chain of moves through `op` if it spreads channels over blocks."""
    return replace_moves(r, op, _make)


def _make(r: Rewriter, move: Op, root: Value, index: Array) -> bool:
    """Replace `move` by a transposed convolution whose stride is the block."""
    channels = _block_channels(index, root.type)
    if channels is None:
        return False
    height, width, depth = channels.shape
    ins = root.type.shape[3]

    # A kernel of 2 was not seen to map; the third row and column stay zero.
    kernel_h = 3 if height == 2 else height
    kernel_w = 3 if width == 2 else width
    weights = np.zeros((depth, kernel_h, kernel_w, ins), np.int8)
    if weights.size > MOST_WEIGHTS:
        return False

    rows, columns, outputs = np.indices(channels.shape)
    weights[outputs, rows, columns, channels] = 1

    # The rows and columns beyond the block are cut off again.
    pads = (0, kernel_h - height, 0, kernel_w - width)
    spec = TransposeConv2D((height, width), pads)
    spread = one_hot(r, move, spec, root, weights, move.output)
    return r.forward(move, spread)


def _block_channels(index: Array, root: TensorType) -> Array | None:
    """Return the input channel for each place in a block and each output channel.

    The result is [block height, block width, C]. index: the element numbers of the
    result in `root`. None if its blocks are not made of one pixel each, all alike.
    """
    if index.ndim != 4 or root.rank != 4 or index.size == 0:
        return None
    if index.shape[0] != 1 or root.shape[0] != 1:
        return None

    # Every pixel becomes a block of the same size.
    _, height, width, depth = root.shape
    _, h, w, c = index.shape
    if h % height or w % width:
        return None
    if (h, w) == (height, width):
        return None

    # [H, W, block height, block width, C]
    rows = h // height
    columns = w // width
    split = index.reshape(height, rows, width, columns, c)
    blocks = split.transpose(0, 2, 1, 3, 4)

    # The first block tells the channels; the others must be the same ones of theirs.
    channels: Array = blocks[0, 0]
    if channels.min() < 0 or channels.max() >= depth:
        return None
    pixels = np.arange(height * width, dtype=np.int32)
    first_elements = pixels.reshape(height, width, 1, 1, 1) * depth
    if (blocks != first_elements + channels).any():
        return None
    return channels


def example(rng: np.random.Generator) -> Graph:
    """Return a DEPTH_TO_SPACE of either order, or one written as moves.

    The moves are reshapes and a transpose, with blocks that need not be square.
    """
    build = Builder("pixel_shuffle")
    h, w, c = integers(rng, 1, 5, 3)
    form = integer(rng, 0, 3)
    down = integer(rng, 2, 4)
    across = down
    if form == 2:
        across = integer(rng, 1, 4)
    q = random_quant(rng, 0.05)
    depth = down * across * c
    image = int8_input(build, (1, h, w, depth), q)
    x = build.add(Relu(), [image], "x_relu", q)

    if form < 2:
        order = ("DCR", "CRD")[form]
        spread = build.add(DepthToSpace(down, order), [x])
    else:
        split = build.add(Reshape((h, w, down, c, across)), [x])
        turned = build.add(Transpose((0, 2, 1, 4, 3)), [split])
        shape = (1, h * down, w * across, c)
        spread = build.add(Reshape(shape), [turned])

    y = relu(build, spread)
    return with_output(build, y)
