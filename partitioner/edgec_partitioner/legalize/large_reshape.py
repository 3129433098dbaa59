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

from edgec.ir import Builder, Graph, Op, Quant, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.shape import Reshape
from edgec.ops.slice import slice_axes
from edgec.ops.unary import Relu
from edgec_partitioner.legalize._moves import between_mapped, maps

KINDS = ("reshape",)
BOUND = 0.0

_MOST_PARTS = 8


def rewrite(r: Rewriter, op: Op) -> bool:
    """Cut, reshape, join."""
    x = op.inputs[0]
    y = op.output
    name = op.output.name
    if x.type.quant != y.type.quant or not between_mapped(r, op):
        return False
    before = _outermost(x.type)
    after = _outermost(y.type)
    for count in range(2, _MOST_PARTS + 1):
        if x.type.shape[before] % count or y.type.shape[after] % count:
            continue
        size = x.type.shape[before] // count
        join = Concat(after)
        cuts = [slice_axes(x.type, {before: (i * size, size, 1)}) for i in range(count)]
        part, shaped = (
            Value(f"{name}_part", _part(v.type, a, count))
            for v, a in ((x, before), (y, after))
        )
        view = Reshape(shaped.type.shape)
        made = (
            Op(cuts[0], [x], [part]),
            Op(view, [part], [shaped]),
            Op(join, [shaped] * count, [y]),
        )
        if all(map(maps, made)):
            parts = [r.add(op, cut, [x], f"{name}_cut") for cut in cuts]
            r.update(op, join, [r.add(op, view, [p], f"{name}_part") for p in parts])
            return True
    return False


def _outermost(t: TensorType) -> int:
    """The first dimension above 1."""
    return next((i for i, d in enumerate(t.shape) if d > 1), 0)


def _part(t: TensorType, axis: int, count: int) -> TensorType:
    return t.with_shape((*t.shape[:axis], t.shape[axis] // count, *t.shape[axis + 1 :]))


def example(rng: np.random.Generator) -> Graph:
    """Images of more than 230400 elements whose columns become channels or the other
    way round.
    """
    build = Builder("large_reshape")
    h = 8 * int(rng.integers(6, 9))
    w = 8 * int(rng.integers(6, 9))
    c = 4 * (-(-240_000 // (h * w * 4)) + int(rng.integers(3)))
    by = int(rng.choice([2, 4]))
    shapes = [
        (1, h, w, c),
        (1, h, w // by, c * by),
        (1, h // 2, w * 2, c),
        (1, h // 2, w, c * 2),
    ]
    first, second = rng.permutation(len(shapes))[:2]
    q = Quant.per_tensor(0.05, int(rng.integers(-128, 128)))
    x = build.add(
        Relu(), [build.input("x", TensorType(shapes[first], "int8", q))], quant=q
    )
    build.graph.outputs = [
        build.add(Relu(), [build.add(Reshape(shapes[second]), [x])], quant=q)
    ]
    return build.graph
