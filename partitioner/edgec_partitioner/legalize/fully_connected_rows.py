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

from edgec.ir import Builder, Graph, Op, TensorType, Value
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
    x, w, *biases = op.inputs
    if x.const is not None or x.type.dtype != "float32":
        return False
    if not constant_weights(op):
        return False
    # A single row maps as it is.
    y = op.output.type
    if y.size == y.shape[-1]:
        return False

    # CONV_2D has a vector as bias.
    vectors: list[Value] = []
    for bias in biases:
        vector = array(bias).reshape(-1)
        vectors.append(r.const(vector, bias.name))

    convolution = Conv2D(act=spec.act)
    conv1x1(r, op, x, array(w), vectors, convolution)
    return True


def example(rng: np.random.Generator) -> Graph:
    """Return a fully connected layer over rows in one or two dimensions.

    The rows are kept, flattened, or of twice the last dimension; bias and activation
    vary.
    """
    build = Builder("fully_connected_rows")
    dimensions = integer(rng, 0, 2)
    middle = integers(rng, 1, 6, dimensions)
    last = integer(rng, 2, 6) * 2
    lead = (1, *middle, last)
    k = integer(rng, 1, 20)
    o = integer(rng, 1, 20)
    keep = flag(rng)
    x = build.input("x", TensorType((*lead, k)))

    if not keep and prod(lead) > 2 and rng.random() < 0.5:
        # Two rows of the input make one row of the product.
        k *= 2

    w = float_constant(build, rng, (o, k), "w")
    bias = float_constant(build, rng, o, "b")
    act = choice(rng, ["none", "relu"])
    spec = FullyConnected(act, keep)
    count = integer(rng, 2, 4)
    inputs = [x, w, bias][:count]
    y = build.add(spec, inputs)
    return with_output(build, y)
