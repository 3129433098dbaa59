"""Removes transposes without effect, and merges two in a row into one.

A transpose followed by its inverse thereby disappears.
"""

from __future__ import annotations

from edgec.ir import Graph, Op
from edgec.ir.rewrite import Rewriter
from edgec.ops.shape import Transpose


def run(graph: Graph) -> bool:
    """Merge and remove transposes in the order of the graph.

    A chain of any length thereby becomes at most one transpose.
    """
    rw = Rewriter(graph)
    for op in rw.ops("transpose"):
        before = rw.made_by(op.inputs[0], "transpose")
        if before is not None:
            _merge(rw, before, op)
        elif _trivial(_perm(op)):
            rw.forward(op, op.inputs[0])
    return rw.changed


def _merge(rw: Rewriter, before: Op, op: Op) -> None:
    """Let `op` do the work of both transposes, or forward the input if that is none."""
    x = before.inputs[0]
    # The earlier transpose stays if others read it.
    composed = compose(_perm(before), _perm(op))
    # An input that the graph returns under another name cannot be forwarded.
    forwarded = _trivial(composed) and rw.forward(op, x)
    if not forwarded:
        rw.update(op, Transpose(composed), [x])


def compose(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """Return the permutation that applies `first` and then `second`."""
    return tuple(first[i] for i in second)


def _perm(op: Op) -> tuple[int, ...]:
    assert isinstance(op.spec, Transpose)
    return op.spec.perm


def _trivial(perm: tuple[int, ...]) -> bool:
    return perm == tuple(range(len(perm)))
