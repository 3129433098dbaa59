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
from edgec_partitioner.legalize._images import conv1x1, rows_as_image
from edgec_partitioner.legalize._weights import array, constant_weights

KINDS = ("fully_connected",)
BOUND = 1e-5


def rewrite(r: Rewriter, op: Op) -> bool:
    """Lay the rows out as an image and convolve it."""
    x, w, *bias = op.inputs
    if (
        not isinstance(op.spec, FullyConnected)
        or x.const is not None
        or not constant_weights(op)
    ):
        return False
    rows = op.output.type.size // op.output.type.shape[-1]
    if rows == 1 or x.type.dtype != "float32":
        return False
    k = w.type.shape[1]
    lead = x.type.shape[:-1] if x.type.shape[-1] == k else (rows,)
    vector = [r.const(array(b).reshape(-1), b.name) for b in bias]
    conv1x1(r, op, x, rows_as_image(lead, k), array(w), vector, Conv2D(act=op.spec.act))
    return True


def example(rng: np.random.Generator) -> Graph:
    """Rows in one or two dimensions, kept or flattened, or of twice the last dimension;
    bias and activation.
    """
    build = Builder("fully_connected_rows")
    lead = (
        1,
        *map(int, rng.integers(1, 6, int(rng.integers(0, 2)))),
        int(rng.integers(2, 6)) * 2,
    )
    k = int(rng.integers(1, 20))
    o = int(rng.integers(1, 20))
    keep = bool(rng.integers(2))
    x = build.input("x", TensorType((*lead, k)))
    if not keep and prod(lead) > 2 and rng.random() < 0.5:
        k *= 2
    w = build.const(rng.normal(size=(o, k)).astype(np.float32), "w")
    bias = build.const(rng.normal(size=o).astype(np.float32), "b")
    spec = FullyConnected(str(rng.choice(["none", "relu"])), keep)
    build.graph.outputs = [build.add(spec, [x, w, bias][: int(rng.integers(2, 4))])]
    return build.graph
