"""gelu(x) becomes x * sigmoid(1.702 x).

Pattern: GELU, by the error function or by its tanh approximation. Replacement: MUL by
1.702, LOGISTIC, MUL, all of which map. Proof: it is the approximation of the paper that
introduced GELU; over all x it is at most 0.0207 away from either form, less than half a
step of int8 where activations reach 11; the stated bound is that against a largest
result of 1. Pays always: the Edge TPU compiler gives up a model with a GELU.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Builder, Graph, Op, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.activation import Gelu
from edgec.ops.binary import Mul
from edgec.ops.unary import Logistic

KINDS = ("gelu",)
BOUND = 0.0207

_STEEPNESS = 1.702


def rewrite(r: Rewriter, op: Op) -> bool:
    """Multiply by the sigmoid."""
    (x,), name = op.inputs, op.output.name
    if x.type.dtype != "float32":
        return False
    steep = r.add(
        op,
        Mul(),
        [x, r.const(np.array(_STEEPNESS, np.float32), f"{name}_steepness")],
        f"{name}_steep",
    )
    gate = r.add(op, Logistic(), [steep], f"{name}_gate")
    r.update(op, Mul(), [x, gate])
    return True


def example(rng: np.random.Generator) -> Graph:
    """Either form, of enough elements that one result is above 1."""
    build = Builder("gelu")
    x = build.input(
        "x", TensorType((1, *map(int, rng.integers(4, 9, 2)), int(rng.integers(4, 9))))
    )
    build.graph.outputs = [build.add(Gelu(bool(rng.integers(2))), [x])]
    return build.graph
