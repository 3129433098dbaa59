"""A slice taken of another view of a tensor becomes a slice of the tensor itself.

Pattern: ops that only move elements of which at least one is refused, for instance a
slice of a tensor of rank 5, and which together take a box out of a tensor. Replacement:
a SLICE with unit steps, and a RESHAPE if the result has another shape; nothing where
the result is the whole tensor. Proof: no element changes. Pays always: it is less work
everywhere.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Array, Builder, Graph, Op, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.gather import Gather
from edgec.ops.shape import Reshape, Transpose
from edgec.ops.slice import Slice, slice_axes
from edgec_partitioner.legalize._examples import (
    int8_input,
    integer,
    integers,
    random_quant,
    relu,
    with_output,
)
from edgec_partitioner.legalize._moves import maps, replace_moves

OPS = (Slice, Gather, Reshape, Transpose)
BOUND = 0.0


def rewrite(r: Rewriter, op: Op, spec: Slice | Gather | Reshape | Transpose) -> bool:
    """Replace the chain of moves through `op` if it takes a box out of a tensor."""
    return replace_moves(r, op, _make)


def _make(r: Rewriter, move: Op, root: Value, index: Array) -> bool:
    """Replace `move` by a slice of `root` and a reshape, as far as they are needed."""
    cut = _box(root, index)
    if cut is None:
        return False
    if not _maps(move, root, cut):
        return False

    name = move.output.name
    y = root
    if cut.shape != root.type.shape:
        y = r.add(move, cut, [root], f"{name}_part")

    # The box may have to be seen in another shape.
    shape = move.output.type.shape
    if cut.shape != shape:
        y = r.add(move, Reshape(shape), [y], f"{name}_view")
    return r.forward(move, y)


def _box(root: Value, index: Array) -> Slice | None:
    """Return the slice of `root` with the element numbers `index`.

    None if the elements are no box, or are in another order.
    """
    if index.size == 0:
        return None

    flat_index = index.reshape(-1)
    places = np.unravel_index(flat_index, root.type.shape)
    ranges = {}
    for axis, coordinates in enumerate(places):
        first = int(coordinates.min())
        last = int(coordinates.max())
        length = last - first + 1
        ranges[axis] = (first, length, 1)

    # The box around the elements must have all of them, in this order.
    cut = slice_axes(root.type, ranges)
    numbers = np.arange(root.type.size, dtype=index.dtype)
    box = numbers.reshape(root.type.shape)[cut.index()]
    if not np.array_equal(box.reshape(-1), flat_index):
        return None
    return cut


def _maps(move: Op, root: Value, cut: Slice) -> bool:
    """Return whether the slice and the reshape to the result of `move` map."""
    y = move.output
    part_type = root.type.with_shape(cut.shape)
    part = Value(f"{y.name}_part", part_type)

    # A replacement that does not map either would be no gain.
    if not maps(Op(cut, [root], [part])):
        return False

    shape = y.type.shape
    if shape == cut.shape:
        return True
    view = Op(Reshape(shape), [part], [y])
    return maps(view)


def example(rng: np.random.Generator) -> Graph:
    """Return the queries, keys or values of attention.

    Models slice them from a tensor of rank 5.
    """
    build = Builder("view_slice")
    tokens, heads, depth = integers(rng, 2, 6, 3)
    q = random_quant(rng, 0.05)
    width = 3 * heads * depth
    image = int8_input(build, (1, tokens, width), q)
    x = relu(build, image)

    split = build.add(Reshape((1, tokens, 3, heads, depth)), [x])
    which = integer(rng, 0, 3)
    cut = slice_axes(split.type, {2: (which, 1, 1)})
    part = build.add(cut, [split])

    shapes = (
        (1, tokens, heads * depth),
        (tokens, heads, depth),
        (tokens * heads, depth),
    )
    shape = shapes[rng.integers(3)]
    view = build.add(Reshape(shape), [part])
    y = relu(build, view)
    return with_output(build, y)
