"""min(max(a x + b, 0), 1) becomes relu6(6 a x + 6 b) / 6.

Pattern: a hard sigmoid. Replacement: MUL by 6a (none if that is 1), ADD of 6b, RELU6,
MUL by a sixth, all of which map. Proof: it is the same function; only the order of the
roundings differs. Pays always: there is no TFLite form, and the squeeze-and-excitation
blocks that it gates would each be cut.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Builder, Graph, Op, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.activation import HardSigmoid
from edgec.ops.binary import Add, Mul
from edgec.ops.unary import Relu6

KINDS = ("hard_sigmoid",)
BOUND = 2e-6


def rewrite(r: Rewriter, op: Op) -> bool:
    """Take the activation apart."""
    (y,), name, spec = op.inputs, op.output.name, op.spec
    if not isinstance(spec, HardSigmoid) or y.type.dtype != "float32":
        return False
    slope = np.float32(6 * spec.alpha)
    offset = np.float32(6 * spec.beta)
    if slope != 1:
        y = r.add(
            op, Mul(), [y, r.const(np.array(slope), f"{name}_slope")], f"{name}_sloped"
        )
    shifted = r.add(
        op, Add(), [y, r.const(np.array(offset), f"{name}_offset")], f"{name}_shifted"
    )
    gate = r.add(op, Relu6(), [shifted], f"{name}_gate")
    r.update(op, Mul(), [gate, r.const(np.array(1 / 6, np.float32), f"{name}_sixth")])
    return True


def example(rng: np.random.Generator) -> Graph:
    """The usual slopes and others, falling ones among them; offsets that leave part of
    the inputs in the middle.
    """
    build = Builder("hard_sigmoid")
    x = build.input(
        "x", TensorType((1, *map(int, rng.integers(2, 7, 2)), int(rng.integers(4, 9))))
    )
    alpha = float(rng.choice([0.2, 1 / 6, 0.5, rng.uniform(-1, 1)]))
    build.graph.outputs = [
        build.add(
            HardSigmoid(alpha, float(rng.choice([0.5, rng.uniform(0.2, 0.8)]))), [x]
        )
    ]
    return build.graph
