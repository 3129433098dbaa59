"""A single pixel resized to an image becomes a TILE.

Pattern: a nearest or bilinear resize of an image of 1x1. Replacement: TILE, which
repeats the pixel. Proof: every neighbour of every place is that pixel, and the weights
sum to 1, in TFLite's fixed point to 2^20 exactly. Pays always: the resize is refused
(image pooling of DeepLab would cut its model), and this TILE was seen mapped.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Builder, Graph, Op, Quant, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.broadcast import Tile
from edgec.ops.resize import ResizeBilinear
from edgec_partitioner.legalize._moves import whole

KINDS = ("resize_bilinear", "resize_nearest")
BOUND = 0.0


def rewrite(r: Rewriter, op: Op) -> bool:
    """Repeat the pixel."""
    x = op.inputs[0].type
    y = op.output.type
    if x.shape[1:3] != (1, 1) or not whole(x) or x.quant != y.quant:
        return False
    r.update(op, Tile((1, *y.shape[1:3], 1)))
    return True


def example(rng: np.random.Generator) -> Graph:
    """Every coordinate mode, with the rounding of int8 and of uint8 models."""
    build = Builder("tile_one_pixel")
    q = Quant.per_tensor(0.1, int(rng.integers(-128, 128)))
    x = build.input("x", TensorType((1, 1, 1, int(rng.integers(1, 40))), "int8", q))
    mode = str(rng.choice(["align_corners", "half_pixel", "asymmetric"]))
    size = (int(rng.integers(3, 9)), int(rng.integers(1, 9)))
    build.graph.outputs = [
        build.add(ResizeBilinear(size, mode, uint8=bool(rng.integers(2))), [x])
    ]
    return build.graph
