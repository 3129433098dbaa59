"""A transpose of more elements than map becomes transposes of parts.

Pattern: a TRANSPOSE that only its size keeps from the Edge TPU, between ops that map.
Replacement: unit-step SLICEs along one axis, in the fewest equal parts that map (at
most 4), a TRANSPOSE of each, and a CONCATENATION along its new place. Proof: no element
changes, and a transpose moves a slice along an axis as a whole. Pays inside of an Edge
TPU region, where a transpose on the CPU costs two transfers.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Builder, Graph, Op, Quant, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.shape import Transpose
from edgec.ops.slice import slice_axes
from edgec.ops.unary import Relu
from edgec_partitioner.legalize._moves import between_mapped, maps

KINDS = ("transpose",)
BOUND = 0.0

MOST_PARTS = 4


def rewrite(r: Rewriter, op: Op) -> bool:
    """Cut, transpose, join."""
    spec = op.spec
    x = op.inputs[0]
    name = op.output.name
    if (
        not isinstance(spec, Transpose)
        or x.type.quant != op.output.type.quant
        or not between_mapped(r, op)
    ):
        return False
    cut = best_cut(op)
    if cut is None:
        return False
    axis, count = cut
    size = x.type.shape[axis] // count
    parts = [
        r.add(op, slice_axes(x.type, {axis: (i * size, size, 1)}), [x], f"{name}_cut")
        for i in range(count)
    ]
    r.update(
        op,
        Concat(spec.perm.index(axis)),
        [r.add(op, spec, [part], f"{name}_part") for part in parts],
    )
    return True


def best_cut(op: Op) -> tuple[int, int] | None:
    """The axis of the input, and the number of equal parts along it, that make parts of
    a transpose map.
    """
    x = op.inputs[0].type
    for count in range(2, MOST_PARTS + 1):
        for axis, size in enumerate(x.shape):
            if size % count == 0:
                part = Value(
                    "part",
                    x.with_shape(
                        (*x.shape[:axis], size // count, *x.shape[axis + 1 :])
                    ),
                )
                if maps(
                    Op(op.spec, [part], [Value("turned", op.spec.infer(part.type)[0])])
                ):
                    return axis, count
    return None


def example(rng: np.random.Generator) -> Graph:
    """Images of more than 100000 elements under the permutations of the axes."""
    build = Builder("large_transpose")
    h, w = (8 * int(n) for n in rng.integers(5, 8, 2))
    c = -(-100_000 // (h * w)) + int(rng.integers(1, 20))
    q = Quant.per_tensor(0.05, int(rng.integers(-128, 128)))
    x = build.add(
        Relu(), [build.input("x", TensorType((1, h, w, c), "int8", q))], quant=q
    )
    perm = ((0, 3, 1, 2), (0, 2, 3, 1), (0, 2, 1, 3))[rng.integers(3)]
    build.graph.outputs = [
        build.add(Relu(), [build.add(Transpose(perm), [x])], quant=q)
    ]
    return build.graph
