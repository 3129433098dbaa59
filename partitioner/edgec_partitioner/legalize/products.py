"""-x and x² become products.

Pattern: a negation or a square. Replacement: MUL by -1, MUL of x with itself. Proof:
the numbers are the same; on int8 the rounding differs, so it is made before
quantization (TFLite has neither for int8). Pays always: MUL maps.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Builder, Graph, Op, OpDef, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.binary import Mul
from edgec.ops.unary import Neg, Square
from edgec_partitioner.legalize._examples import flag, integer, integers, one_op

OPS = (Neg, Square)
BOUND = 1e-7


def rewrite(r: Rewriter, op: Op, spec: OpDef) -> bool:
    """Replace the function by a product."""
    (x,) = op.inputs
    if x.type.dtype != "float32":
        return False

    factor = x
    if op.kind == "neg":
        minus_one = np.array(-1, np.float32)
        name = f"{op.output.name}_minus_one"
        factor = r.const(minus_one, name)
    r.update(op, Mul(), [x, factor])
    return True


def example(rng: np.random.Generator) -> Graph:
    """Return a negation or a square of a tensor of any rank."""
    build = Builder("products")
    dimensions = integer(rng, 1, 4)
    sizes = integers(rng, 1, 9, dimensions)
    x = build.input("x", TensorType((1, *sizes)))

    spec: OpDef = Square()
    if flag(rng):
        spec = Neg()
    return one_op(build, spec, x)
