"""LEAKY_RELU and ABS become PRELU.

Pattern: an int8 leaky rectifier, or a magnitude (whose slope below zero is -1).
Condition: equal results for all 256 inputs at the scales given, which are compared;
only ties under a negative slope can fail it. Replacement: PRELU with one slope for each
channel: the integer 1 (or -1, or 0) with the slope's magnitude as its scale. Proof:
both kernels multiply x by x_scale / y_scale above zero, and below by the same quotient
x_scale * slope / y_scale taken in float32. Pays always: PRELU maps, and the two do not.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Builder, Graph, Op, OpDef, Quant, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.activation import LeakyRelu
from edgec.ops.prelu import PRelu
from edgec.ops.unary import Abs
from edgec_partitioner.legalize._examples import (
    int8_input,
    integer,
    integers,
    random_quant,
    scale_between,
    with_output,
)
from edgec_partitioner.legalize._unary import ALL, applied, int8_table

OPS = (LeakyRelu, Abs)
BOUND = 0.0


def rewrite(r: Rewriter, op: Op, spec: OpDef) -> bool:
    """Give every channel the slope."""
    x = op.inputs[0]
    table = int8_table(op)
    if table is None or x.const is not None or x.type.rank == 0:
        return False
    slope = -1.0
    if isinstance(spec, LeakyRelu):
        slope = float(np.float32(spec.alpha))

    # The integer is the sign of the slope, its scale the magnitude.
    sign = np.array(np.sign(slope), np.int8)
    quant = Quant.per_tensor(abs(slope) or 1.0)
    scalar = TensorType((), "int8", quant)
    results = applied(PRelu(), ALL, x.type, op.output.type, (sign, scalar))
    # Ties under a negative slope round the other way.
    if not np.array_equal(results, table):
        return False

    # One slope for each channel, aligned to an image without its batch.
    channels = x.type.shape[-1]
    dimensions = min(x.type.rank, 3) - 1
    shape = (1,) * dimensions + (channels,)
    slopes = np.full(shape, sign)
    constant = r.const(slopes, f"{op.output.name}_slope", quant)
    r.update(op, PRelu(), [x, constant])
    return True


def example(rng: np.random.Generator) -> Graph:
    """Return a leaky rectifier or a magnitude of a tensor of any rank.

    Slopes are gentle, steep or zero; the scales of input and output may be equal.
    """
    build = Builder("two_slopes")
    dimensions = integer(rng, 1, 4)
    sizes = integers(rng, 1, 9, dimensions)
    scale = scale_between(rng, 0.002, 0.3)
    x_quant = random_quant(rng, scale)
    x = int8_input(build, (1, *sizes), x_quant)

    if rng.random() < 0.3:
        spec = Abs()
    else:
        slopes = [0.0, 0.01, 0.1, 0.3, rng.uniform(0, 3)]
        spec = LeakyRelu(float(rng.choice(slopes)))

    out_scale = scale
    if rng.random() >= 0.3:
        factor = rng.uniform(0.3, 2)
        out_scale = float(np.float32(scale * factor))
    out_quant = random_quant(rng, out_scale)
    y = build.add(spec, [x], quant=out_quant)
    return with_output(build, y)
