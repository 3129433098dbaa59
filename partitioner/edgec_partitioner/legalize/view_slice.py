"""A slice taken of another view of a tensor becomes a slice of the tensor itself.

Pattern: ops that only move elements of which at least one is refused, for instance a
slice of a tensor of rank 5, and which together take a box out of a tensor. Replacement:
a SLICE with unit steps, and a RESHAPE if the result has another shape; nothing where
the result is the whole tensor. Proof: no element changes. Pays always: it is less work
everywhere.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Array, Builder, Graph, Op, Quant, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.shape import Reshape
from edgec.ops.slice import slice_axes
from edgec.ops.unary import Relu
from edgec_partitioner.legalize._moves import maps, replace_moves

KINDS = ("slice", "gather", "reshape", "transpose")
BOUND = 0.0


def rewrite(r: Rewriter, op: Op) -> bool:
    """Find the tensor that the box is of."""
    return replace_moves(r, op, _make)


def _make(r: Rewriter, move: Op, root: Value, index: Array) -> bool:
    if index.size == 0:
        return False
    places = np.unravel_index(index.reshape(-1), root.type.shape)
    ranges = {
        i: (int(p.min()), int(p.max() - p.min()) + 1, 1) for i, p in enumerate(places)
    }
    cut = slice_axes(root.type, ranges)
    shape = move.output.type.shape
    everything = np.arange(root.type.size, dtype=index.dtype).reshape(root.type.shape)
    if not np.array_equal(everything[cut.index()].reshape(-1), index.reshape(-1)):
        return False
    part = Value(f"{move.output.name}_part", root.type.with_shape(cut.shape))
    view = Op(Reshape(shape), [part], [move.output])
    if not maps(Op(cut, [root], [part])) or (shape != cut.shape and not maps(view)):
        return False
    if cut.shape == root.type.shape:
        taken = root
    else:
        taken = r.add(move, cut, [root], part.name)
    if cut.shape == shape:
        viewed = taken
    else:
        viewed = r.add(move, Reshape(shape), [taken], f"{move.output.name}_view")
    return r.forward(move, viewed)


def example(rng: np.random.Generator) -> Graph:
    """The queries, keys or values of attention, which a model takes from a tensor of
    rank 5.
    """
    build = Builder("view_slice")
    tokens, heads, depth = (int(n) for n in rng.integers(2, 6, 3))
    q = Quant.per_tensor(0.05, int(rng.integers(-128, 128)))
    x = build.input("x", TensorType((1, tokens, 3 * heads * depth), "int8", q))
    y = build.add(
        Reshape((1, tokens, 3, heads, depth)), [build.add(Relu(), [x], quant=q)]
    )
    which = int(rng.integers(3))
    y = build.add(slice_axes(y.type, {2: (which, 1, 1)}), [y])
    shape = (
        (1, tokens, heads * depth),
        (tokens, heads, depth),
        (tokens * heads, depth),
    )[rng.integers(3)]
    build.graph.outputs = [build.add(Relu(), [build.add(Reshape(shape), [y])], quant=q)]
    return build.graph
