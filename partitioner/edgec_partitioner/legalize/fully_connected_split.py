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

from edgec.ir import Builder, Graph, Op, Quant, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.matmul import FullyConnected
from edgec.ops.shape import Reshape
from edgec.ops.slice import slice_axes
from edgec_partitioner.legalize._weights import constant_weights

KINDS = ("fully_connected",)
BOUND = 0.0

_MAX_ROWS = 16
_MAX_WEIGHTS = 1_000_000


def rewrite(r: Rewriter, op: Op) -> bool:
    """Slice, multiply, join."""
    spec, (x, w, *_), y = op.spec, op.inputs, op.output
    rows = y.type.size // y.type.shape[-1]
    k = w.type.shape[1]
    if (
        not isinstance(spec, FullyConnected)
        or x.const is not None
        or not constant_weights(op)
    ):
        return False
    if (
        not 1 < rows <= _MAX_ROWS
        or rows * w.type.size > _MAX_WEIGHTS
        or not x.type.is_quantized
    ):
        return False
    flat = _shaped(r, op, x, (rows, k), f"{x.name}_rows")
    single = replace(spec, keep_dims=True)
    parts: list[Value] = []
    for i in range(rows):
        row = r.add(
            op, slice_axes(flat.type, {0: (i, 1, 1)}), [flat], f"{x.name}_row{i}"
        )
        parts.append(
            r.add(op, single, [row, *op.inputs[1:]], f"{y.name}_row{i}", y.type.quant)
        )
    if y.type.shape == (rows, y.type.shape[-1]):
        r.update(op, Concat(0), parts)
    else:
        r.update(
            op, Reshape(y.type.shape), [r.add(op, Concat(0), parts, f"{y.name}_rows")]
        )
    return True


def _shaped(r: Rewriter, op: Op, x: Value, shape: tuple[int, ...], name: str) -> Value:
    if x.type.shape == shape:
        return x
    return r.add(op, Reshape(shape), [x], name, x.type.quant)


def example(rng: np.random.Generator) -> Graph:
    """Rows in one or two dimensions, kept or flattened; with and without bias and
    activation.
    """
    build = Builder("fully_connected_split")
    lead = ((3,), (1, 5), (2, 2), (1, 1, 4), (1, 2, 3))[rng.integers(5)]
    k = int(rng.integers(1, 12))
    o = int(rng.integers(1, 12))
    x = build.input(
        "x",
        TensorType(
            (*lead, k), "int8", Quant.per_tensor(0.05, int(rng.integers(-128, 128)))
        ),
    )
    w = build.const(
        rng.integers(-127, 128, (o, k)).astype(np.int8), "w", Quant.per_tensor(0.01)
    )
    product = Quant.per_tensor(float(np.float32(0.05) * np.float32(0.01)))
    bias = build.const(rng.integers(-3000, 3000, o).astype(np.int32), "b", product)
    spec = FullyConnected(str(rng.choice(["none", "relu"])), bool(rng.integers(2)))
    y = build.add(
        spec, [x, w, bias][: int(rng.integers(2, 4))], quant=Quant.per_tensor(0.1, -9)
    )
    build.graph.outputs = [y]
    return build.graph
