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
    last = x.type.rank - 1
    if last not in spec.axes:
        return False
    if x.type.dtype != "float32" or x.const is not None:
        return False
    channels = x.type.shape[-1]
    # Other means map as they are, or have no image form.
    if channels % 4 == 0 or prod(x.type.shape[:-3]) > 1:
        return False

    # The other axes first: a mean of means of equal size is the mean.
    others = tuple(a for a in spec.axes if a != last)
    if others:
        x = r.add(op, Mean(others), [x], f"{op.output.name}_pixel")
    conv1x1(r, op, x, np.full((1, channels), 1 / channels, np.float32))
    return True


def example(rng: np.random.Generator) -> Graph:
    """Return a mean over the channels, and maybe over sides of the image.

    The axes are kept or dropped.
    """
    build = Builder("mean_channels")
    channels = integer(rng, 0, 5) * 4 + integer(rng, 1, 4)
    lead = (1, *integers(rng, 2, 7, integer(rng, 1, 3)))
    x = build.input("x", TensorType((*lead, channels)))
    more = tuple(a for a in range(1, len(lead)) if rng.random() < 0.4)
    return one_op(build, Mean((*more, len(lead)), flag(rng)), x)
