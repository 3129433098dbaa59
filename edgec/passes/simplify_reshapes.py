"""Drops idle reshapes, makes one of two in a row, and sees the reshape in a transpose
that only moves ones.
"""

from __future__ import annotations

from edgec.ir import Graph, Op
from edgec.ir.rewrite import Rewriter
from edgec.ops.shape import Reshape, Transpose
from edgec.passes._storage import only_moves_ones


def run(graph: Graph) -> bool:
    """Elements keep their order through all of these, so they are exact for every type."""
    rw = Rewriter(graph)
    for op in rw.ops("transpose", "reshape"):
        if isinstance(op.spec, Transpose) and only_moves_ones(
            op.spec.perm, op.inputs[0].type.shape
        ):
            rw.update(op, Reshape(op.output.type.shape))
        if op.kind == "reshape":
            _reshape(rw, op)
    return rw.changed


def _reshape(rw: Rewriter, op: Op) -> None:
    before = rw.made_by(op.inputs[0], "reshape")
    if before is not None:
        rw.update(op, inputs=[before.inputs[0]])
    x = op.inputs[0]
    if x.type == op.output.type and rw.forward(op, x):
        return
    # reshape(f(reshape(x))) with an elementwise f of one input: f(x) between the same
    # shapes needs neither
    middle = rw.private(x)
    if middle is None or not middle.spec.elementwise or len(middle.inputs) != 1:
        return
    first = rw.private(middle.inputs[0], "reshape")
    same_scales = x.type.quant == op.output.type.quant
    if (
        first is not None
        and same_scales
        and first.inputs[0].type
        == middle.inputs[0].type.with_shape(op.output.type.shape)
    ):
        rw.update(middle, inputs=first.inputs)
        middle.outputs[0].type = op.output.type
        rw.forward(op, middle.outputs[0])
