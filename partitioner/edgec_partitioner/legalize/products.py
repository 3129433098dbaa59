"""-x and x² become products.

Pattern: a negation or a square. Replacement: MUL by -1, MUL of x with itself. Proof:
the numbers are the same; on int8 the rounding differs, so it is made before
quantization (TFLite has neither for int8). Pays always: MUL maps.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Builder, Graph, Op, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.binary import Mul
from edgec.ops.unary import Neg, Square

KINDS = ("neg", "square")
BOUND = 1e-7


def rewrite(r: Rewriter, op: Op) -> bool:
    """Multiply."""
    (x,) = op.inputs
    if x.type.dtype != "float32":
        return False
    if isinstance(op.spec, Square):
        other = x
    else:
        other = r.const(np.array(-1, np.float32), f"{op.output.name}_minus_one")
    r.update(op, Mul(), [x, other])
    return True


def example(rng: np.random.Generator) -> Graph:
    """Either, of any rank."""
    build = Builder("products")
    x = build.input(
        "x", TensorType((1, *map(int, rng.integers(1, 9, int(rng.integers(1, 4))))))
    )
    build.graph.outputs = [build.add(Neg() if rng.integers(2) else Square(), [x])]
    return build.graph
