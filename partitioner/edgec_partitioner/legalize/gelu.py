"""gelu(x) becomes x * sigmoid(1.702 x).

Pattern: GELU, by the error function or by its tanh approximation. Replacement: MUL by
1.702, LOGISTIC, MUL, all of which map. Proof: it is the approximation of the paper that
introduced GELU; over all x it is at most 0.0207 away from either form, less than half a
step of int8 where activations reach 11; the stated bound is that against a largest
result of 1. Pays always: the Edge TPU compiler gives up a model with a GELU.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Builder, Graph, Op
from edgec.ir.rewrite import Rewriter
from edgec.ops.activation import Gelu
from edgec.ops.binary import Mul
from edgec.ops.unary import Logistic
from edgec_partitioner.legalize._examples import flag, float_image, one_op
from edgec_partitioner.legalize._replacement import Replacement

OPS = (Gelu,)
BOUND = 0.0207

SIGMOID_STEEPNESS = 1.702
"""The factor of x in the sigmoid (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""


def rewrite(r: Rewriter, op: Op, spec: Gelu) -> bool:
    """Multiply x by a sigmoid of it."""
    x = op.inputs[0]
    if x.type.dtype != "float32":
        return False

    # sigmoid(1.702 x) is the part of x that passes.
    new = Replacement(r, op)
    steepness = new.number("steepness", SIGMOID_STEEPNESS)
    steep = new.add("steep", Mul(), x, steepness)
    gate = new.add("gate", Logistic(), steep)

    new.finish(Mul(), x, gate)
    return True


def example(rng: np.random.Generator) -> Graph:
    """Return a GELU of either form.

    It has enough elements that one result is above 1.
    """
    build = Builder("gelu")
    x = float_image(build, rng, 4, 9)
    return one_op(build, Gelu(flag(rng)), x)
