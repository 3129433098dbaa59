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

KINDS = ("hard_swish",)
BOUND = 1e-6


def rewrite(r: Rewriter, op: Op) -> bool:
    """Take the activation apart."""
    (x,), name = op.inputs, op.output.name
    shifted = r.add(
        op,
        Add(),
        [x, r.const(np.array(3, np.float32), f"{name}_three")],
        f"{name}_shifted",
    )
    gate = r.add(op, Relu6(), [shifted], f"{name}_gate")
    scaled = r.add(
        op,
        Mul(),
        [gate, r.const(np.array(1 / 6, np.float32), f"{name}_sixth")],
        f"{name}_scaled",
    )
    r.update(op, Mul(), [x, scaled])
    return True


def example(rng: np.random.Generator) -> Graph:
    """One activation."""
    build = Builder("hard_swish")
    x = build.input(
        "x", TensorType((1, *map(int, rng.integers(1, 7, 2)), int(rng.integers(1, 9))))
    )
    build.graph.outputs = [build.add(HardSwish(), [x])]
    return build.graph
