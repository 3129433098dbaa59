"""A MEAN over channels whose number is no multiple of 4 becomes a 1x1 convolution.

Pattern: a float MEAN over the last axis, alone or with others. Condition: the others'
mean comes first and maps or is rewritten itself. Replacement: MEAN over the other axes,
CONV_2D with one filter of equal weights over the vectors laid out as an image, reshapes
that only add or drop ones. Proof: it is the same sum. Pays where convolutions are
around it (channel attention).
"""

from __future__ import annotations

from math import prod

import numpy as np

from edgec.ir import Builder, Graph, Op, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.reduce import Mean
from edgec_partitioner.legalize._examples import flag, integer, integers, one_op
from edgec_partitioner.legalize._images import conv1x1

OPS = (Mean,)
BOUND = 1e-5


def rewrite(r: Rewriter, op: Op, spec: Mean) -> bool:
    """Add up the channels with equal weights."""
    x = op.inputs[0]
    shape = x.type.shape
    last = x.type.rank - 1
    if last not in spec.axes:
        return False
    if x.type.dtype != "float32" or x.const is not None:
        return False

    # Other means map as they are, or have no image form.
    channels = shape[-1]
    if channels % 4 == 0 or prod(shape[:-3]) > 1:
        return False

    # The other axes first: a mean of means of equal size is the mean.
    others = tuple(a for a in spec.axes if a != last)
    if others:
        x = r.add(op, Mean(others), [x], f"{op.output.name}_pixel")

    weight = 1 / channels
    weights = np.full((1, channels), weight, np.float32)
    conv1x1(r, op, x, weights)
    return True


def example(rng: np.random.Generator) -> Graph:
    """Return a mean over the channels, and maybe over sides of the image.

    The axes are kept or dropped.
    """
    build = Builder("mean_channels")
    fours = integer(rng, 0, 5)
    channels = fours * 4 + integer(rng, 1, 4)
    dimensions = integer(rng, 1, 3)
    sides = integers(rng, 2, 7, dimensions)
    x = build.input("x", TensorType((1, *sides, channels)))

    axes: list[int] = []
    for axis in range(1, dimensions + 1):
        if rng.random() < 0.4:
            axes.append(axis)
    axes.append(dimensions + 1)
    spec = Mean(tuple(axes), flag(rng))
    return one_op(build, spec, x)
