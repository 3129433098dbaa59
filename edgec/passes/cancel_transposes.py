"""Removes transposes without effect, and merges two in a row into one.

A transpose followed by its inverse thereby disappears.
"""

from __future__ import annotations

from edgec.ir import Graph, Op, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.shape import Transpose


def run(graph: Graph) -> bool:
    """Merge and remove transposes in the order of the graph.

    A chain of any length thereby becomes at most one transpose.
    """
    rw = Rewriter(graph)
    for op, transpose in rw.matches(Transpose):
        before = rw.producer_of(op.inputs[0], Transpose)
        if before is not None:
            first, earlier = before
            _merge(rw, op, first.inputs[0], compose(earlier.perm, transpose.perm))
        elif _trivial(transpose.perm):
            rw.forward(op, op.inputs[0])
    return rw.changed


def _merge(rw: Rewriter, op: Op, x: Value, composed: tuple[int, ...]) -> None:
    """Let `op` transpose the input of the transpose before it, x, by both permutations.

    Without an effect it is removed.
    """
    # The earlier transpose stays if others read it.
    # An input that the graph returns under another name cannot be forwarded.
    forwarded = _trivial(composed) and rw.forward(op, x)
    if not forwarded:
        rw.update(op, Transpose(composed), [x])


def compose(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """Return the permutation that applies `first` and then `second`."""
    return tuple(first[i] for i in second)


def _trivial(perm: tuple[int, ...]) -> bool:
    return perm == tuple(range(len(perm)))
