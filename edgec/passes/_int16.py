"""The bounds of floats that stand for int16 of the file."""

from __future__ import annotations

from edgec.ir import Graph
from edgec.ir.rewrite import Rewriter
from edgec.ops.activation import Clamp


def without_bounds(graph: Graph) -> bool:
    """Take them out, where the scales of int8 that calibration finds come in their
    place; tells whether any was.
    """
    rw = Rewriter(graph)
    for op in rw.ops("clamp"):
        if isinstance(op.spec, Clamp) and op.spec.is_of_int16:
            rw.forward(op, op.inputs[0])
    return rw.changed
