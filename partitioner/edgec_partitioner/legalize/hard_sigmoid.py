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
from edgec_partitioner.legalize._examples import integer, integers, one_op

KINDS = ("hard_sigmoid",)
BOUND = 2e-6


def rewrite(r: Rewriter, op: Op) -> bool:
    """Replace the activation by a product, a sum, RELU6 and a product."""
    y = op.inputs[0]
    name = op.output.name
    spec = op.spec
    if not isinstance(spec, HardSigmoid) or y.type.dtype != "float32":
        return False

    slope = np.float32(6 * spec.alpha)
    if slope != 1:
        factor = r.const(np.array(slope), f"{name}_slope")
        y = r.add(op, Mul(), [y, factor], f"{name}_sloped")
    # The clamp to 0…1 becomes one to 0…6.
    offset = np.float32(6 * spec.beta)
    term = r.const(np.array(offset), f"{name}_offset")
    shifted = r.add(op, Add(), [y, term], f"{name}_shifted")
    gate = r.add(op, Relu6(), [shifted], f"{name}_gate")
    sixth = r.const(np.array(1 / 6, np.float32), f"{name}_sixth")
    r.update(op, Mul(), [gate, sixth])
    return True


def example(rng: np.random.Generator) -> Graph:
    """Return a hard sigmoid with a usual or a random slope, which may be negative.

    The offset leaves part of the inputs between the bounds.
    """
    build = Builder("hard_sigmoid")
    size = integers(rng, 2, 7, 2)
    x = build.input("x", TensorType((1, *size, integer(rng, 4, 9))))
    alpha = float(rng.choice([0.2, 1 / 6, 0.5, rng.uniform(-1, 1)]))
    beta = float(rng.choice([0.5, rng.uniform(0.2, 0.8)]))
    return one_op(build, HardSigmoid(alpha, beta), x)
