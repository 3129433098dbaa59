"""A fully connected layer over many rows becomes a 1x1 convolution.

Pattern: a fully connected layer whose output has more than one row. Condition: constant
weights. Replacement: CONV_2D over the rows as an image, [1, 1, rows, C] or [1, a, b,
C], between reshapes that only add or drop ones where the rows have at most two
dimensions. Proof: both are the same sums of products. On int8 they are not:
FULLY_CONNECTED rounds once, CONV_2D twice, and the results differ in the last bit at
about every second step of the output; so it is made before quantization (see
fully_connected_split for int8 files). Pays always: it maps, and gets a scale per
channel.
"""

from __future__ import annotations

from math import prod

import numpy as np

from edgec.ir import Builder, Graph, Op, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import Conv2D
from edgec.ops.matmul import FullyConnected
from edgec_partitioner.legalize._examples import (
    choice,
    flag,
    float_constant,
    integer,
    integers,
    with_output,
)
from edgec_partitioner.legalize._images import conv1x1
from edgec_partitioner.legalize._weights import array, constant_weights

OPS = (FullyConnected,)
BOUND = 1e-5


def rewrite(r: Rewriter, op: Op, spec: FullyConnected) -> bool:
    """Lay the rows out as an image and convolve it."""
    x, w, *bias = op.inputs
    if x.const is not None:
        return False
    if not constant_weights(op) or x.type.dtype != "float32":
        return False
    y = op.output.type
    if y.size == y.shape[-1]:
        return False

    # CONV_2D has a vector as bias.
    vectors = [r.const(array(b).reshape(-1), b.name) for b in bias]
    conv1x1(r, op, x, array(w), vectors, Conv2D(act=spec.act))
    return True


def example(rng: np.random.Generator) -> Graph:
    """Return a fully connected layer over rows in one or two dimensions.

    The rows are kept, flattened, or of twice the last dimension; bias and activation
    vary.
    """
    build = Builder("fully_connected_rows")
    middle = integers(rng, 1, 6, integer(rng, 0, 2))
    lead = (1, *middle, integer(rng, 2, 6) * 2)
    k = integer(rng, 1, 20)
    o = integer(rng, 1, 20)
    keep = flag(rng)
    x = build.input("x", TensorType((*lead, k)))
    if not keep and prod(lead) > 2 and rng.random() < 0.5:
        # Two rows of the input make one row of the product.
        k *= 2

    w = float_constant(build, rng, (o, k), "w")
    bias = float_constant(build, rng, o, "b")
    spec = FullyConnected(choice(rng, ["none", "relu"]), keep)
    inputs = [x, w, bias][: integer(rng, 2, 4)]
    return with_output(build, build.add(spec, inputs))
