"""Removes the clamps that stand for the int16 tensors of a TFLite file."""

from __future__ import annotations

from edgec.ir import Graph
from edgec.ir.rewrite import Rewriter
from edgec.ops.activation import Clamp


def without_bounds(graph: Graph) -> bool:
    """Remove the clamps to int16 ranges, and return whether the graph had any.

    Calibration finds int8 scales for these tensors; the ranges of the new scales take
    the place of the clamps.
    """
    rw = Rewriter(graph)
    for op, clamp in rw.matches(Clamp):
        if clamp.is_of_int16:
            rw.forward(op, op.inputs[0])
    return rw.changed
