"""The activation that a pool has fused becomes an op of its own.

Pattern: an average or maximum pool with a fused activation. Condition: equal results
for all 256 values that the pool can give at its scale, which are compared. Replacement:
the pool without, then RELU, RELU6 or RELU_N1_TO_1. Proof: the pool clamps after its one
rounding to the output's scale, and the activation clamps the same integers. Pays
always: both map, and the fused form does not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgec.ir import Builder, Graph, Op, OpDef
from edgec.ir.rewrite import Rewriter
from edgec.ops.fixed_point import activation_range
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec_partitioner.legalize._examples import (
    choice,
    flag,
    int8_input,
    integer,
    one_op,
    random_quant,
    scale_between,
)
from edgec_partitioner.legalize._unary import ALL, applied

OPS = (MaxPool2D, AveragePool2D)
BOUND = 0.0


def rewrite(r: Rewriter, op: Op, spec: MaxPool2D | AveragePool2D) -> bool:
    """Put the activation behind the pool."""
    y = op.output
    if spec.act == "none":
        return False
    if y.type.dtype != "int8":
        return False

    # Compare both forms over all results that the pool can give.
    activation = OpDef.registry[spec.act]()
    separate = applied(activation, ALL, y.type, y.type)
    low, high = activation_range(spec.act, y.type)
    fused = np.clip(ALL, low, high)
    if not np.array_equal(separate, fused):
        return False

    bare = replace(spec, act="none")
    pooled = r.add(op, bare, op.inputs, f"{y.name}_pooled", y.type.quant)
    r.update(op, activation, [pooled])
    return True


def example(rng: np.random.Generator) -> Graph:
    """Return a pool with an activation.

    The scales put the bounds of the activation inside and outside of int8.
    """
    build = Builder("pool_activation")
    size = integer(rng, 2, 6) * 2
    channels = integer(rng, 1, 9)
    scale = scale_between(rng, 0.005, 0.1)
    quant = random_quant(rng, scale)
    x = int8_input(build, (1, size, size, channels), quant)

    act = choice(rng, ["relu", "relu6", "relu_n1_to_1"])
    maximum = flag(rng)
    pool = MaxPool2D if maximum else AveragePool2D
    spec = pool((2, 2), (2, 2), act=act)
    return one_op(build, spec, x)
