"""hard_swish(x) becomes x * (relu6(x + 3) / 6).

Pattern: a hard-swish. Replacement: ADD, RELU6, MUL by a sixth, MUL, all of which map.
Proof: it is the definition; only the order of the roundings differs. Pays always:
MobileNetV3's other ops all map, and each hard-swish would cut it.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Builder, Graph, Op, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.binary import Add, Mul
from edgec.ops.unary import HardSwish, Relu6
from edgec_partitioner.legalize._examples import integer, integers, one_op

KINDS = ("hard_swish",)
BOUND = 1e-6


def rewrite(r: Rewriter, op: Op) -> bool:
    """Replace the activation by a sum, RELU6 and two products."""
    x = op.inputs[0]
    name = op.output.name
    three = r.const(np.array(3, np.float32), f"{name}_three")
    shifted = r.add(op, Add(), [x, three], f"{name}_shifted")
    gate = r.add(op, Relu6(), [shifted], f"{name}_gate")
    sixth = r.const(np.array(1 / 6, np.float32), f"{name}_sixth")
    scaled = r.add(op, Mul(), [gate, sixth], f"{name}_scaled")
    r.update(op, Mul(), [x, scaled])
    return True


def example(rng: np.random.Generator) -> Graph:
    """Return a graph of one hard-swish."""
    build = Builder("hard_swish")
    size = integers(rng, 1, 7, 2)
    x = build.input("x", TensorType((1, *size, integer(rng, 1, 9))))
    return one_op(build, HardSwish(), x)
