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

from edgec.ir import Builder, Graph, Op, Quant, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.activation import LeakyRelu
from edgec.ops.prelu import PRelu
from edgec.ops.unary import Abs
from edgec_partitioner.legalize._unary import ALL, applied, int8_table

KINDS = ("leaky_relu", "abs")
BOUND = 0.0


def rewrite(r: Rewriter, op: Op) -> bool:
    """Give every channel the slope."""
    x = op.inputs[0]
    want = int8_table(op)
    if want is None or x.const is not None or x.type.rank == 0:
        return False
    slope = float(np.float32(op.spec.alpha)) if isinstance(op.spec, LeakyRelu) else -1.0
    quant = Quant.per_tensor(abs(slope) or 1.0)
    one = np.array(np.sign(slope), np.int8)
    got = applied(
        PRelu(), ALL, x.type, op.output.type, (one, TensorType((), "int8", quant))
    )
    if not np.array_equal(got, want):
        return False
    shape = (1,) * (min(x.type.rank, 3) - 1) + x.type.shape[-1:]
    r.update(
        op, PRelu(), [x, r.const(np.full(shape, one), f"{op.output.name}_slope", quant)]
    )
    return True


def example(rng: np.random.Generator) -> Graph:
    """Any rank, slopes gentle, steep and none, equal and unequal scales."""
    build = Builder("two_slopes")
    shape = (1, *map(int, rng.integers(1, 9, int(rng.integers(1, 4)))))
    scale = float(np.float32(rng.uniform(0.002, 0.3)))
    zero = int(rng.integers(-128, 128))
    x = build.input("x", TensorType(shape, "int8", Quant.per_tensor(scale, zero)))
    if rng.random() < 0.3:
        spec = Abs()
    else:
        spec = LeakyRelu(float(rng.choice([0.0, 0.01, 0.1, 0.3, rng.uniform(0, 3)])))
    if rng.random() < 0.3:
        out = scale
    else:
        out = float(np.float32(scale * rng.uniform(0.3, 2)))
    build.graph.outputs = [
        build.add(spec, [x], quant=Quant.per_tensor(out, int(rng.integers(-128, 128))))
    ]
    return build.graph
