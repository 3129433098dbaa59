"""A transpose of more elements than map becomes transposes of parts.

Pattern: a TRANSPOSE that only its size keeps from the Edge TPU, between ops that map.
Replacement: unit-step SLICEs along one axis, in the fewest equal parts that map (at
most 4), a TRANSPOSE of each, and a CONCATENATION along its new place. Proof: no element
changes, and a transpose moves a slice along an axis as a whole. Pays inside of an Edge
TPU region, where a transpose on the CPU costs two transfers.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Builder, Graph, Op, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.shape import Transpose
from edgec.ops.slice import slice_axes
from edgec_partitioner.legalize._examples import (
    int8_input,
    integer,
    integers,
    random_quant,
    relu,
    with_output,
)
from edgec_partitioner.legalize._moves import between_mapped, maps

OPS = (Transpose,)
BOUND = 0.0

MOST_PARTS = 4


def rewrite(r: Rewriter, op: Op, spec: Transpose) -> bool:
    """Cut the input, transpose the parts, and join them."""
    x = op.inputs[0]
    y = op.output
    if x.type.quant != y.type.quant:
        return False
    # On the CPU, one transpose is as good as several.
    if not between_mapped(r, op):
        return False
    cut = best_cut(op)
    if cut is None:
        return False

    axis, count = cut
    size = x.type.shape[axis] // count
    slices: list[Value] = []
    for i in range(count):
        part = slice_axes(x.type, {axis: (i * size, size, 1)})
        piece = r.add(op, part, [x], f"{y.name}_cut")
        slices.append(piece)

    turned: list[Value] = []
    for piece in slices:
        part_turned = r.add(op, spec, [piece], f"{y.name}_part")
        turned.append(part_turned)

    # The parts lie where the transpose has moved the cut axis.
    join_axis = spec.perm.index(axis)
    r.update(op, Concat(join_axis), turned)
    return True


def best_cut(op: Op) -> tuple[int, int] | None:
    """Return the axis and the fewest equal parts along it with which a transpose maps.

    The axis is one of the input. None if up to `MOST_PARTS` are too few.
    """
    x = op.inputs[0].type
    for count in range(2, MOST_PARTS + 1):
        for axis, length in enumerate(x.shape):
            # Parts of unequal size would need rules of their own.
            if length % count != 0:
                continue
            if _part_maps(op, axis, length // count):
                return axis, count
    return None


def _part_maps(op: Op, axis: int, size: int) -> bool:
    """Return whether the transpose of a part of the given size along an axis maps."""
    x = op.inputs[0].type
    shape = list(x.shape)
    shape[axis] = size
    part_type = x.with_shape(tuple(shape))
    (turned_type,) = op.spec.infer(part_type)

    part = Value("part", part_type)
    turned = Value("turned", turned_type)
    return maps(Op(op.spec, [part], [turned]))


def example(rng: np.random.Generator) -> Graph:
    """Return a transpose of an image of more than 100000 elements."""
    build = Builder("large_transpose")
    eighths = integers(rng, 5, 8, 2)
    h = 8 * eighths[0]
    w = 8 * eighths[1]
    # Just above the size that maps.
    least_channels = -(-100_000 // (h * w))
    c = least_channels + integer(rng, 1, 20)

    q = random_quant(rng, 0.05)
    image = int8_input(build, (1, h, w, c), q)
    x = relu(build, image)
    perms = ((0, 3, 1, 2), (0, 2, 3, 1), (0, 2, 1, 3))
    perm = perms[rng.integers(3)]
    transposed = build.add(Transpose(perm), [x])
    y = relu(build, transposed)
    return with_output(build, y)
