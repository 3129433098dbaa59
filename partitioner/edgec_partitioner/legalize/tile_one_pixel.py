"""A single pixel resized to an image becomes a TILE.

Pattern: a nearest or bilinear resize of an image of 1x1. Replacement: TILE, which
repeats the pixel. Proof: every neighbour of every place is that pixel, and the weights
sum to 1, in TFLite's fixed point to 2^20 exactly. Pays always: the resize is refused
(image pooling of DeepLab would cut its model), and this TILE was seen mapped.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Builder, Graph, Op, Rounding
from edgec.ir.rewrite import Rewriter
from edgec.ops.broadcast import Tile
from edgec.ops.resize import ResizeBilinear, ResizeNearest
from edgec_partitioner.legalize._examples import (
    choice,
    flag,
    int8_input,
    integer,
    one_op,
    random_quant,
)
from edgec_partitioner.legalize._moves import whole

OPS = (ResizeBilinear, ResizeNearest)
BOUND = 0.0


def rewrite(r: Rewriter, op: Op, spec: ResizeBilinear | ResizeNearest) -> bool:
    """Repeat the pixel."""
    x = op.inputs[0].type
    y = op.output.type
    if x.shape[1:3] != (1, 1):
        return False

    # TILE moves integers as they are.
    if not whole(x) or x.quant != y.quant:
        return False

    _, height, width, _ = y.shape
    r.update(op, Tile((1, height, width, 1)))
    return True


def example(rng: np.random.Generator) -> Graph:
    """Return a resize in any coordinate mode.

    It rounds like int8 or like uint8 models.
    """
    build = Builder("tile_one_pixel")
    q = random_quant(rng, 0.1)
    channels = integer(rng, 1, 40)
    x = int8_input(build, (1, 1, 1, channels), q)

    mode = choice(rng, ["align_corners", "half_pixel", "asymmetric"])
    height = integer(rng, 3, 9)
    width = integer(rng, 1, 9)
    rounding = Rounding.of_tflite(flag(rng))
    spec = ResizeBilinear((height, width), mode, rounding=rounding)
    return one_op(build, spec, x)
