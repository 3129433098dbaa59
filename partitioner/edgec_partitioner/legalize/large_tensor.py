"""A chain of ops through tensors that are too large is computed in bands of rows.

Pattern: an op whose result, but not its input, is larger than any tensor that was seen
to map, and the ops behind it until the image is small enough again: convolutions, pools
without pads, zero borders, and what treats every pixel alike. Condition: nothing else
reads a tensor on the way; up to 64 bands make all of them small enough. Replacement:
for each band of the last result a slice of the rows that it depends on, the ops on
these rows, with the part of their pads that lies outside of the image; a concatenation
of the bands. Proof: each row of the result is computed from the rows that it was
computed from before. Pays where the model would not compile; neighbouring bands compute
the rows of their overlap twice.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Builder, Graph, Op, OpDef
from edgec.ir.opdef import LARGEST_MAPPED
from edgec.ir.rewrite import Rewriter
from edgec.ops.binary import Add, Mul
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.pad import Pad
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec.ops.unary import Logistic, Relu, Relu6
from edgec_partitioner.legalize._bands import bands, chain, compute
from edgec_partitioner.legalize._examples import (
    int8_input,
    integer,
    random_quant,
    relu,
    with_output,
)

OPS = (
    Conv2D,
    DepthwiseConv2D,
    MaxPool2D,
    AveragePool2D,
    Pad,
    Add,
    Mul,
    Relu,
    Relu6,
    Logistic,
)
BOUND = 0.0


def rewrite(r: Rewriter, op: Op, spec: OpDef) -> bool:
    """Compute the chain that begins with `op` in stripes."""
    return in_bands(r, op, LARGEST_MAPPED)


def in_bands(r: Rewriter, op: Op, limit: int) -> bool:
    """Compute the chain that begins with `op` in stripes of at most `limit` elements.

    Return whether that was possible. Only an op whose result exceeds the limit, and
    whose input does not, begins a chain.
    """
    x = op.inputs[0]
    y = op.outputs[0]
    if x.const is not None or x.type.size > limit or y.type.size <= limit:
        return False
    ops = chain(r, op, limit)
    if ops is None:
        return False
    stripes = bands(ops, limit)
    if stripes is None:
        return False

    parts = []
    for i, stripe in enumerate(stripes):
        parts.append(compute(r, op, ops, stripe, f"band{i}"))
    r.update(ops[-1], Concat(1), parts)
    return True


def example(rng: np.random.Generator) -> Graph:
    """Return a border that makes an image too large, and a maximum pool.

    Some have an activation in between.
    """
    build = Builder("large_tensor")
    q = random_quant(rng, 0.05)
    height = integer(rng, 2000, 2100)
    # The largest width at which the input still maps.
    width = LARGEST_MAPPED // height
    x = int8_input(build, (1, height, width, 1), q)

    top = integer(rng, 1, 4)
    right = integer(rng, 0, 3)
    border = ((0, 0), (top, 2), (1, right), (0, 0))
    y = build.add(Pad(border), [x])
    if rng.random() < 0.5:
        y = relu(build, y)

    kernel = integer(rng, 1, 3)
    stride = integer(rng, 3, 9)
    pool = MaxPool2D((kernel, kernel), (stride, stride))
    y = build.add(pool, [y])
    return with_output(build, y)
