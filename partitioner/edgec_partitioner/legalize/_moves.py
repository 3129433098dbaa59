"""Chains of ops that only move elements, seen as one op.

A chain is described by the place of each result element in the tensor it comes from.
How a model writes a move (reshapes and transposes of rank 5, slices joined again) does
not matter then, only its effect.
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

MAX_TRACED_ELEMENTS = 1 << 22
"""Larger tensors, which no Edge TPU takes, are not traced."""

Make = Callable[[Rewriter, Op, Value, Array], bool]
"""make(r, move, root, index) replaces the op `move` by ops that map and read `root`.

index: for each element of the output of `move`, the number of the same element of
`root`, counted in memory order. The result is False, and the graph unchanged, if there
is no replacement.
"""


def replace_moves(r: Rewriter, op: Op, make: Make) -> bool:
    """Let `make` replace the chains of moves that run through the refused op `op`.

    A chain starts at the input of `op`, or preferably before moves that map and lead
    there. Only results that other ops read and that lie behind a refused op are
    replaced. Return whether any was.
    """
    return any(_replace_from(r, root, make) for root in reversed(_roots(r, op)))


def whole(t: TensorType) -> bool:
    """Return whether a tensor is int8 with one scale."""
    return t.dtype == "int8" and t.quant is not None and t.quant.axis is None


def maps(op: Op) -> bool:
    """Return whether no rule refuses the op, apart from it not being quantized."""
    return all(x.rule == "int8_tensors" for x in refusals(op))


def between_mapped(r: Rewriter, op: Op) -> bool:
    """Return whether the producer and a user of `op` map.

    Only then does a rewrite of `op` save transfers to the CPU and back.
    """
    source = r.producer.get(op.inputs[0])
    if source is None or not maps(source):
        return False

    users = r.users(op.output)
    return any(maps(user) for user in users)


def _roots(r: Rewriter, op: Op) -> list[Value]:
    """Return the values from which the chain through `op` can be traced.

    These are the input of the op, and the inputs of the moves before it, as long as
    the moves map.
    """
    roots = [op.inputs[0]]
    while True:
        move = r.made_by(roots[-1], *MOVES)
        # A concatenation has no single input to continue from.
        if move is None or len(move.inputs) != 1 or not maps(move):
            return roots
        roots.append(move.inputs[0])


def _replace_from(r: Rewriter, root: Value, make: Make) -> bool:
    """Replace the moves of one value whose results other ops need.

    The ones nearest to the outputs are replaced first, as they may make earlier ones
    unnecessary.
    """
    if root.const is not None or not whole(root.type):
        return False
    if root.type.size > MAX_TRACED_ELEMENTS:
        return False

    index, behind_refused = _trace(r, root)
    changed = False
    needed: set[Value] = set()
    for value in reversed(list(index)):
        move = r.producer.get(value)
        if move is None or value is root:
            continue
        if value not in needed and not _read_outside(r, value, index):
            continue
        # Moves that map already stay as they are.
        if value in behind_refused and make(r, move, root, index[value]):
            changed = True
        else:
            needed.update(move.inputs)
    return changed


def _read_outside(r: Rewriter, value: Value, index: dict[Value, Array]) -> bool:
    """Return whether anything but a traced move reads a value.

    index: the traced values (see `_trace`).
    """
    if value in r.graph.outputs:
        return True

    for user in r.users(value):
        result = user.outputs[0]
        if result not in index:
            return True
    return False


def _trace(r: Rewriter, root: Value) -> tuple[dict[Value, Array], set[Value]]:
    """Return the values that moves alone make of `root`.

    The first result has, for each of them, the number of each element in `root`. The
    second has the values that lie behind a refused move.
    """
    # int32 numbers all elements that are traced.
    numbers = np.arange(root.type.size, dtype=np.int32)
    index = {root: numbers.reshape(root.type.shape)}
    behind_refused: set[Value] = set()
    if not any(user.kind in MOVES for user in r.users(root)):
        return index, behind_refused

    for op in r.graph.ops:
        if op.kind not in MOVES:
            continue
        result = op.output
        # A change of scale changes the elements.
        if result.type.quant != root.type.quant:
            continue

        # The second input of a gather is its indices.
        data = op.inputs
        if op.kind == "gather":
            data = op.inputs[:1]
        if not all(v in index for v in data):
            continue
        moved = _moved_numbers(op, index)
        if moved is None:
            continue

        index[result] = moved
        if not maps(op) or any(v in behind_refused for v in data):
            behind_refused.add(result)
    return index, behind_refused


def _moved_numbers(op: Op, index: dict[Value, Array]) -> Array | None:
    """Return the element numbers behind a move, by its reference implementation.

    None if the indices of a gather are computed.
    """
    arrays: list[Array] = []
    types: list[TensorType] = []
    for v in op.inputs:
        array = index.get(v, v.const)
        if array is None:
            return None
        arrays.append(array)
        # The element numbers take the place of the elements.
        types.append(TensorType(v.type.shape, "int32"))

    result_type = TensorType(op.output.type.shape, "int32")
    (moved,) = op.spec.ref(arrays, types, [result_type])
    return moved
