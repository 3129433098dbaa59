"""A reshape of more elements than map becomes reshapes of parts.

Pattern: a RESHAPE that only its size keeps from the Edge TPU, between ops that map.
Condition: the outermost dimensions above 1, before and after, divide into the same
number of parts (at most 8), and the SLICEs and all else map. Replacement: unit-step
SLICEs along the outermost dimension, a RESHAPE of each, and the CONCATENATION. Proof: a
part is a run of elements in memory order, before and after. Pays inside of an Edge TPU
region, where a reshape on the CPU costs two transfers.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Builder, Graph, Op, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.shape import Reshape
from edgec.ops.slice import Slice, slice_axes
from edgec_partitioner.legalize._examples import (
    Shape,
    int8_input,
    integer,
    random_quant,
    relu,
    with_output,
)
from edgec_partitioner.legalize._moves import between_mapped, maps

OPS = (Reshape,)
BOUND = 0.0

MAX_PARTS = 8


def rewrite(r: Rewriter, op: Op, spec: Reshape) -> bool:
    """Cut the input, reshape the parts, and join them."""
    x = op.inputs[0].type
    y = op.output.type
    if x.quant != y.quant:
        return False
    # On the CPU, one reshape is as good as several.
    if not between_mapped(r, op):
        return False
    count = part_count(op)
    if count is None:
        return False
    reshape_parts(r, op, count)
    return True


def part_count(op: Op) -> int | None:
    """Return the fewest parts in which a reshape maps; None if `MAX_PARTS` are too few.

    The parts are equal, along the outermost dimensions before and after.
    """
    x = op.inputs[0].type
    y = op.output.type
    x_length = x.shape[_outermost(x)]
    y_length = y.shape[_outermost(y)]
    for count in range(2, MAX_PARTS + 1):
        # Parts must be equal on both sides, to hold the same elements.
        if x_length % count or y_length % count:
            continue
        if _parts_map(op, count):
            return count
    return None


def _parts_map(op: Op, count: int) -> bool:
    """Return whether all ops of a reshape in `count` parts map."""
    x = op.inputs[0]
    y = op.output
    name = f"{y.name}_part"
    part = Value(name, _part_type(x.type, count))
    shaped = Value(name, _part_type(y.type, count))

    # The first part stands for all, as they differ only in their place.
    first = _cut(x.type, count, 0)
    if not maps(Op(first, [x], [part])):
        return False
    view = Reshape(shaped.type.shape)
    if not maps(Op(view, [part], [shaped])):
        return False

    join = Concat(_outermost(y.type))
    parts = [shaped] * count
    return maps(Op(join, parts, [y]))


def reshape_parts(r: Rewriter, op: Op, count: int) -> None:
    """Replace a reshape by reshapes of `count` slices."""
    x = op.inputs[0]
    y = op.output
    slices: list[Value] = []
    for i in range(count):
        cut = _cut(x.type, count, i)
        piece = r.add(op, cut, [x], f"{y.name}_cut")
        slices.append(piece)

    # All parts have the same shapes.
    part_type = _part_type(y.type, count)
    view = Reshape(part_type.shape)
    parts: list[Value] = []
    for piece in slices:
        part = r.add(op, view, [piece], f"{y.name}_part")
        parts.append(part)

    join = Concat(_outermost(y.type))
    r.update(op, join, parts)


def _cut(t: TensorType, count: int, i: int) -> Slice:
    """Return the slice with part `i` of `count` along the outermost dimension.

    The dimension must be a multiple of `count`.
    """
    axis = _outermost(t)
    length = t.shape[axis]
    size = length // count
    first = i * size
    return slice_axes(t, {axis: (first, size, 1)})


def _outermost(t: TensorType) -> int:
    """Return the first axis longer than 1, 0 if there is none."""
    return next((i for i, d in enumerate(t.shape) if d > 1), 0)


def _part_type(t: TensorType, count: int) -> TensorType:
    """Return the type of one of `count` parts along the outermost dimension.

    The dimension must be a multiple of `count`.
    """
    axis = _outermost(t)
    shape = list(t.shape)
    shape[axis] //= count
    return t.with_shape(tuple(shape))


def example(rng: np.random.Generator) -> Graph:
    """Return a reshape of an image of more than 230400 elements.

    Its columns or rows become channels, or the other way round.
    """
    build = Builder("large_reshape")
    h = 8 * integer(rng, 6, 9)
    w = 8 * integer(rng, 6, 9)
    # Just above the size that maps.
    least_channels = -(-240_000 // (h * w * 4))
    more_channels = integer(rng, 0, 3)
    c = 4 * (least_channels + more_channels)
    by = int(rng.choice([2, 4]))

    shapes: list[Shape] = [
        (1, h, w, c),
        (1, h, w // by, c * by),
        (1, h // 2, w * 2, c),
        (1, h // 2, w, c * 2),
    ]
    order = rng.permutation(len(shapes))
    before = shapes[order[0]]
    after = shapes[order[1]]

    q = random_quant(rng, 0.05)
    image = int8_input(build, before, q)
    x = relu(build, image)
    reshaped = build.add(Reshape(after), [x])
    y = relu(build, reshaped)
    return with_output(build, y)
