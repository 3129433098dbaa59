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
from edgec_partitioner.legalize._replacement import Replacement

OPS = (HardSigmoid,)
BOUND = 2e-6


def rewrite(r: Rewriter, op: Op, spec: HardSigmoid) -> bool:
    """Replace the activation by a product, a sum, RELU6 and a product."""
    x = op.inputs[0]
    if x.type.dtype != "float32":
        return False

    # The clamp to 0…1 becomes one to 0…6.
    new = Replacement(r, op)
    sloped = x
    slope = np.float32(6 * spec.alpha)
    if slope != 1:
        factor = new.number("slope", float(slope))
        sloped = new.add("sloped", Mul(), x, factor)

    offset = new.number("offset", 6 * spec.beta)
    shifted = new.add("shifted", Add(), sloped, offset)
    gate = new.add("gate", Relu6(), shifted)

    # Back to 0…1.
    sixth = new.number("sixth", 1 / 6)
    new.finish(Mul(), gate, sixth)
    return True


def example(rng: np.random.Generator) -> Graph:
    """Return a hard sigmoid with a usual or a random slope, which may be negative.

    The offset leaves part of the inputs between the bounds.
    """
    build = Builder("hard_sigmoid")
    size = integers(rng, 2, 7, 2)
    channels = integer(rng, 4, 9)
    x = build.input("x", TensorType((1, *size, channels)))

    random_alpha = rng.uniform(-1, 1)
    alpha = rng.choice([0.2, 1 / 6, 0.5, random_alpha])
    random_beta = rng.uniform(0.2, 0.8)
    beta = rng.choice([0.5, random_beta])
    spec = HardSigmoid(float(alpha), float(beta))
    return one_op(build, spec, x)
