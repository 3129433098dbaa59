"""Drops transposes that do nothing and makes one of two in a row (so that a pair of
inverses disappears).
"""

from __future__ import annotations

from edgec.ir import Graph, Op
from edgec.ir.rewrite import Rewriter
from edgec.ops.shape import Transpose


def run(graph: Graph) -> bool:
    """In the order of the graph, so that a chain of any length becomes at most one
    transpose.
    """
    rw = Rewriter(graph)
    for op in rw.ops("transpose"):
        before = rw.made_by(op.inputs[0], "transpose")
        if before is not None:
            composed = compose(_perm(before), _perm(op))
            if not (_trivial(composed) and rw.forward(op, before.inputs[0])):
                rw.update(op, Transpose(composed), [before.inputs[0]])
        elif _trivial(_perm(op)):
            rw.forward(op, op.inputs[0])
    return rw.changed


def compose(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that is `first` and then `second`."""
    return tuple(first[i] for i in second)


def _perm(op: Op) -> tuple[int, ...]:
    assert isinstance(op.spec, Transpose)
    return op.spec.perm


def _trivial(perm: tuple[int, ...]) -> bool:
    return perm == tuple(range(len(perm)))
