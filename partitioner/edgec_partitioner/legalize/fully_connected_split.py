"""A quantized fully connected layer over a few rows becomes one for each row.

Pattern: an int8 fully connected layer whose output has more than one row. Condition:
constant weights; at most 16 rows, and at most 1 MB of weights if each row had its own.
Replacement: slices of the rows, a FULLY_CONNECTED for each, a concatenation. Proof: a
row of the output depends on that row of the input alone. Not a 1x1 convolution, which
rounds otherwise (see fully_connected_rows). Pays for the few rows of heads and memories
of small models.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgec.ir import Builder, Graph, Op, Quant, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.matmul import FullyConnected
from edgec.ops.shape import Reshape
from edgec.ops.slice import slice_axes
from edgec_partitioner.legalize._examples import (
    bias_quant,
    choice,
    flag,
    int8_input,
    int8_weights,
    int32_bias,
    integer,
    random_quant,
    with_output,
)
from edgec_partitioner.legalize._weights import constant_weights

OPS = (FullyConnected,)
BOUND = 0.0

MAX_ROWS = 16
MAX_WEIGHT_BYTES = 1_000_000


def rewrite(r: Rewriter, op: Op, spec: FullyConnected) -> bool:
    """Slice the rows, multiply each, and join the results."""
    x, w, *_ = op.inputs
    if x.const is not None or not x.type.is_quantized:
        return False
    if not constant_weights(op):
        return False

    y = op.output
    shape = y.type.shape
    columns = shape[-1]
    rows = y.type.size // columns
    if rows == 1 or rows > MAX_ROWS:
        return False
    if rows * w.type.size > MAX_WEIGHT_BYTES:
        return False

    # The layer reads its input as rows of this length.
    matrix = (rows, w.type.shape[1])
    flat = x
    if x.type.shape != matrix:
        flat = r.add(op, Reshape(matrix), [x], f"{x.name}_rows", x.type.quant)
    parts = [_row(r, op, spec, flat, i) for i in range(rows)]

    if shape == (rows, columns):
        r.update(op, Concat(0), parts)
        return True
    joined = r.add(op, Concat(0), parts, f"{y.name}_rows")
    r.update(op, Reshape(shape), [joined])
    return True


def _row(r: Rewriter, op: Op, spec: FullyConnected, flat: Value, i: int) -> Value:
    """Return the product for row `i` of the flattened input.

    op, spec: the layer over all rows, and its attributes.
    flat: its input as [rows, K].
    """
    x, *weights = op.inputs
    cut = slice_axes(flat.type, {0: (i, 1, 1)})
    row = r.add(op, cut, [flat], f"{x.name}_row{i}")

    # The parts are joined along the kept first axis.
    single = replace(spec, keep_dims=True)
    inputs = [row, *weights]
    y = op.output
    name = f"{y.name}_row{i}"
    return r.add(op, single, inputs, name, y.type.quant)


def example(rng: np.random.Generator) -> Graph:
    """Return an int8 fully connected layer over rows in one or two dimensions.

    The rows are kept or flattened; bias and activation vary.
    """
    build = Builder("fully_connected_split")
    leads = ((3,), (1, 5), (2, 2), (1, 1, 4), (1, 2, 3))
    lead = leads[rng.integers(5)]
    k = integer(rng, 1, 12)
    o = integer(rng, 1, 12)
    quant = random_quant(rng, 0.05)
    x = int8_input(build, (*lead, k), quant)

    weight_quant = Quant.per_tensor(0.01)
    w = int8_weights(build, rng, (o, k), weight_quant)
    bias_scale = bias_quant(0.05, weight_quant)
    bias = int32_bias(build, rng, o, 3000, bias_scale)

    act = choice(rng, ["none", "relu"])
    keep = flag(rng)
    spec = FullyConnected(act, keep)
    count = integer(rng, 2, 4)
    inputs = [x, w, bias][:count]
    out_quant = Quant.per_tensor(0.1, -9)
    y = build.add(spec, inputs, quant=out_quant)
    return with_output(build, y)
