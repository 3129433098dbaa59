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
    x = op.inputs[0]
    y = op.output
    if x.type.quant != y.type.quant or not between_mapped(r, op):
        return False
    for count in range(2, MAX_PARTS + 1):
        # Parts must be equal on both sides, to hold the same elements.
        if x.type.shape[_outermost(x.type)] % count:
            continue
        if y.type.shape[_outermost(y.type)] % count:
            continue
        if _parts_map(op, count):
            _reshape_parts(r, op, count)
            return True
    return False


def _parts_map(op: Op, count: int) -> bool:
    """Return whether all ops of a reshape in `count` parts map."""
    x = op.inputs[0]
    y = op.output
    part = Value(f"{y.name}_part", _part_type(x.type, count))
    shaped = Value(f"{y.name}_part", _part_type(y.type, count))
    cut = Op(_cut(x.type, count, 0), [x], [part])
    view = Op(Reshape(shaped.type.shape), [part], [shaped])
    join = Op(Concat(_outermost(y.type)), [shaped] * count, [y])
    return maps(cut) and maps(view) and maps(join)


def _reshape_parts(r: Rewriter, op: Op, count: int) -> None:
    """Replace a reshape by reshapes of `count` slices."""
    x = op.inputs[0]
    y = op.output
    slices: list[Value] = []
    for i in range(count):
        slices.append(r.add(op, _cut(x.type, count, i), [x], f"{y.name}_cut"))
    # All parts have the same shapes.
    view = Reshape(_part_type(y.type, count).shape)
    parts = [r.add(op, view, [part], f"{y.name}_part") for part in slices]
    r.update(op, Concat(_outermost(y.type)), parts)


def _cut(t: TensorType, count: int, i: int) -> Slice:
    """Return the slice with part `i` of `count` along the outermost dimension."""
    axis = _outermost(t)
    size = t.shape[axis] // count
    return slice_axes(t, {axis: (i * size, size, 1)})


def _outermost(t: TensorType) -> int:
    """Return the first axis longer than 1, 0 if there is none."""
    return next((i for i, d in enumerate(t.shape) if d > 1), 0)


def _part_type(t: TensorType, count: int) -> TensorType:
    """Return the type of one of `count` parts along the outermost dimension."""
    shape = list(t.shape)
    shape[_outermost(t)] //= count
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
    c = 4 * (least_channels + integer(rng, 0, 3))
    by = int(rng.choice([2, 4]))
    shapes: list[Shape] = [
        (1, h, w, c),
        (1, h, w // by, c * by),
        (1, h // 2, w * 2, c),
        (1, h // 2, w, c * 2),
    ]
    first, second = rng.permutation(len(shapes))[:2]
    q = random_quant(rng, 0.05)
    x = relu(build, int8_input(build, shapes[first], q))
    y = build.add(Reshape(shapes[second]), [x])
    return with_output(build, relu(build, y))
