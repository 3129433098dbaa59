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

from edgec.ir import Builder, Graph, Op, OpDef, Quant, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.fixed_point import activation_range
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec_partitioner.legalize._unary import ALL, applied

KINDS = ("max_pool2d", "average_pool2d")
BOUND = 0.0


def rewrite(r: Rewriter, op: Op) -> bool:
    """Clamp behind the pool."""
    spec = op.spec
    y = op.output
    if (
        not isinstance(spec, MaxPool2D | AveragePool2D)
        or spec.act == "none"
        or y.type.dtype != "int8"
    ):
        return False
    clamp = OpDef.registry[spec.act]()
    if not np.array_equal(
        applied(clamp, ALL, y.type, y.type),
        np.clip(ALL, *activation_range(spec.act, y.type)),
    ):
        return False
    bare = r.add(
        op, replace(spec, act="none"), op.inputs, f"{y.name}_pooled", y.type.quant
    )
    r.update(op, clamp, [bare])
    return True


def example(rng: np.random.Generator) -> Graph:
    """Either pool, every activation, at scales that put the bounds inside and outside
    of int8.
    """
    build = Builder("pool_activation")
    size = int(rng.integers(2, 6)) * 2
    channels = int(rng.integers(1, 9))
    quant = Quant.per_tensor(
        float(np.float32(rng.uniform(0.005, 0.1))), int(rng.integers(-128, 128))
    )
    x = build.input("x", TensorType((1, size, size, channels), "int8", quant))
    act = str(rng.choice(["relu", "relu6", "relu_n1_to_1"]))
    pool = MaxPool2D if rng.integers(2) else AveragePool2D
    build.graph.outputs = [build.add(pool((2, 2), (2, 2), act=act), [x])]
    return build.graph
