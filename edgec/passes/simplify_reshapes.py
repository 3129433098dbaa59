"""Removes idle reshapes, merges two in a row, and reshapes in place of some transposes.

A transpose that moves only dimensions of 1 keeps the order of the elements, so that it
is a reshape.
"""

from __future__ import annotations

from edgec.ir import Graph, Op
from edgec.ir.rewrite import Rewriter
from edgec.ops.shape import Reshape, Transpose
from edgec.passes._storage import only_moves_ones


def run(graph: Graph) -> bool:
    """Simplify each transpose and reshape.

    No element changes its place in memory, so this is exact for every type.
    """
    rw = Rewriter(graph)
    for op, transpose in rw.matches(Transpose):
        if only_moves_ones(transpose.perm, op.inputs[0].type.shape):
            rw.update(op, Reshape(op.output.type.shape))
    for op in rw.ops("reshape"):
        _simplify(rw, op)
    return rw.changed


def _simplify(rw: Rewriter, op: Op) -> None:
    """Remove a reshape, or let it read what the reshape before it reads."""
    # The earlier reshape stays if others read it.
    before = rw.made_by(op.inputs[0], "reshape")
    if before is not None:
        rw.update(op, inputs=[before.inputs[0]])

    x = op.inputs[0]
    idle = x.type == op.output.type and rw.forward(op, x)
    if not idle:
        _remove_pair(rw, op)


def _remove_pair(rw: Rewriter, op: Op) -> None:
    """Remove two inverse reshapes around an elementwise op.

    reshape(f(reshape(x))) is f(x) if f is elementwise, has one input, and `op` restores
    the shape of x.
    """
    x = op.inputs[0]
    function = rw.private(x)
    if function is None or not function.spec.elementwise:
        return
    if len(function.inputs) != 1:
        return
    first = rw.private(function.inputs[0], "reshape")
    if first is None or x.type.quant != op.output.type.quant:
        return

    restored = function.inputs[0].type.with_shape(op.output.type.shape)
    if first.inputs[0].type != restored:
        return
    rw.update(function, inputs=first.inputs)
    result = function.outputs[0]
    result.type = op.output.type
    rw.forward(op, result)
