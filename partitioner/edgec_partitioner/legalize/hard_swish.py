"""hard_swish(x) becomes x * (relu6(x + 3) / 6).

Pattern: a hard-swish. Replacement: ADD, RELU6, MUL by a sixth, MUL, all of which map.
Proof: it is the definition; only the order of the roundings differs. Pays always:
MobileNetV3's other ops all map, and each hard-swish would cut it.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Builder, Graph, Op, OpDef, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.binary import Add, Mul
from edgec.ops.unary import HardSwish, Relu6
from edgec_partitioner.legalize._examples import integer, integers, one_op
from edgec_partitioner.legalize._replacement import Replacement

OPS = (HardSwish,)
BOUND = 1e-6


def rewrite(r: Rewriter, op: Op, spec: OpDef) -> bool:
    """Replace the activation by a sum, RELU6 and two products."""
    x = op.inputs[0]
    new = Replacement(r, op)

    # The sum is clamped to 0…6.
    three = new.number("three", 3)
    shifted = new.add("shifted", Add(), x, three)
    gate = new.add("gate", Relu6(), shifted)

    # The gate is within 0…1 before it meets x.
    sixth = new.number("sixth", 1 / 6)
    scaled = new.add("scaled", Mul(), gate, sixth)
    new.finish(Mul(), x, scaled)
    return True


def example(rng: np.random.Generator) -> Graph:
    """Return a graph of one hard-swish."""
    build = Builder("hard_swish")
    size = integers(rng, 1, 7, 2)
    channels = integer(rng, 1, 9)

    shape = (1, *size, channels)
    x = build.input("x", TensorType(shape))
    return one_op(build, HardSwish(), x)
