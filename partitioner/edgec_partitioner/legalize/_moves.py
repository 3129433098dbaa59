"""Chains of ops that only move elements, seen as one: where each element of a result
lies in the tensor it comes from.

How a model writes a move (reshapes and transposes of rank 5, slices joined again) does
not matter then, only what it does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgec.ir import Array, Op, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec_partitioner.verdicts import refusals

MOVES = (
    "reshape",
    "transpose",
    "slice",
    "gather",
    "concat",
    "space_to_depth",
    "depth_to_space",
)
"""Ops whose every output element is one of the input's; a gather's indices must be
constant.
"""

_MOST_ELEMENTS = 1 << 22
"""Larger tensors, which no Edge TPU takes, are not traced."""

Make = Callable[[Rewriter, Op, Value, Array], bool]
"""make(r, move, root, index): lets all readers of `move`'s output do without `move`, by
ops that map and read `root`; False, and nothing done, when it cannot. index: for each
element of that output, which element of `root` (counted in memory order) it is.
"""


def replace_moves(r: Rewriter, op: Op, make: Make) -> bool:
    """Let `make` give the results of the chains of moves that run through the refused
    op `op`.

    A chain starts at the input of `op`, or better still before moves that map and lead
    there. Only results that other ops read and that lie behind a refused op are made
    anew. Returns whether any was.
    """
    return any(_replace_from(r, root, make) for root in reversed(_roots(r, op)))


def whole(t: TensorType) -> bool:
    """Whether a tensor is int8 with one scale."""
    return t.dtype == "int8" and t.quant is not None and t.quant.axis is None


def maps(op: Op) -> bool:
    """Whether no rule refuses the op, apart from its not being quantized."""
    return all(x.rule == "int8_tensors" for x in refusals(op))


def between_mapped(r: Rewriter, op: Op) -> bool:
    """Whether what the op reads is made, and some of what reads it done, by ops that
    map.
    """
    source = r.producer.get(op.inputs[0])
    return source is not None and maps(source) and any(map(maps, r.users(op.output)))


def _roots(r: Rewriter, op: Op) -> list[Value]:
    """What to see the chain from: the input of the op, then the inputs of moves before
    it as long as those map.
    """
    roots = [op.inputs[0]]
    while (
        (move := r.made_by(roots[-1], *MOVES)) is not None
        and len(move.inputs) == 1
        and maps(move)
    ):
        roots.append(move.inputs[0])
    return roots


def _replace_from(r: Rewriter, root: Value, make: Make) -> bool:
    """Make the wanted results of moves of one value anew, the nearest to the outputs
    first.
    """
    if (
        root.const is not None
        or not whole(root.type)
        or root.type.size > _MOST_ELEMENTS
    ):
        return False
    index, hard = _trace(r, root)
    changed = False
    needed = set[Value]()
    for value in reversed(list(index)):
        move = r.producer.get(value)
        if move is None or value is root:
            continue
        outside = value in r.graph.outputs or any(
            u.outputs[0] not in index for u in r.users(value)
        )
        if not outside and value not in needed:
            continue
        if value in hard and make(r, move, root, index[value]):
            changed = True
        else:
            needed |= set(move.inputs)
    return changed


def _trace(r: Rewriter, root: Value) -> tuple[dict[Value, Array], set[Value]]:
    """Where the elements of `root` are in every value that moves alone make of it; and
    which of these lie behind a refused move.
    """
    index = {root: np.arange(root.type.size, dtype=np.int32).reshape(root.type.shape)}
    hard: set[Value] = set()
    if not any(u.kind in MOVES for u in r.users(root)):
        return index, hard
    for op in r.graph.ops:
        data = op.inputs[:1] if op.kind == "gather" else op.inputs
        if (
            op.kind not in MOVES
            or not all(v in index for v in data)
            or op.output.type.quant != root.type.quant
        ):
            continue
        arrays = [index.get(v, v.const) for v in op.inputs]
        if any(a is None for a in arrays):
            continue
        types = [TensorType(v.type.shape, "int32") for v in (*op.inputs, op.output)]
        (index[op.output],) = op.spec.ref(
            [a for a in arrays if a is not None], types[:-1], types[-1:]
        )
        if not maps(op) or any(v in hard for v in data):
            hard.add(op.output)
    return index, hard
