"""A MEAN over an image that is too large becomes means of slices of its channels.

Pattern: an int8 MEAN that is refused. Condition: it keeps an axis (the channels, most
often) a part of which maps. Replacement: STRIDED_SLICE of that axis into as few parts
as map, MEAN of each, CONCATENATION. Proof: no output depends on more than its own
slice, and the number of elements and the scales, which give the multiplier, are the
same. Pays where convolutions follow: a gate of squeeze-and-excitation would cut the
model in two.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgec.ir import Builder, Graph, Op, Quant, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.reduce import Mean
from edgec.ops.slice import slice_axes
from edgec_partitioner.legalize._means import cut

KINDS = ("mean",)
BOUND = 0.0


def rewrite(r: Rewriter, op: Op) -> bool:
    """Cut, take the means, join."""
    x = op.inputs[0]
    y = op.output
    spec = op.spec
    if isinstance(spec, Mean) and x.type.dtype == y.type.dtype == "int8":
        found = cut(op)
    else:
        found = None
    if not isinstance(spec, Mean) or found is None or len(found[1]) == 1:
        return False
    axis, sizes = found
    means = []
    for i, n in enumerate(sizes):
        part = slice_axes(x.type, {axis: (sum(sizes[:i]), n, 1)})
        piece = r.add(op, part, [x], f"{y.name}_slice", x.type.quant)
        means.append(r.add(op, replace(spec), [piece], f"{y.name}_mean", y.type.quant))
    dropped = 0 if spec.keep_dims else sum(a < axis for a in spec.axes)
    r.update(op, Concat(axis - dropped), means)
    return True


def example(rng: np.random.Generator) -> Graph:
    """Images of many and of few channels, means over lines too, axes kept and dropped."""
    build = Builder("mean_slices")
    size = int(rng.integers(80, 130))
    shape, axes = (
        ((1, size, size, int(rng.integers(11, 20))), (1, 2)),
        ((1, 2 * size, size, int(rng.integers(5, 9))), (1, 2)),
        ((1, size, 7, size * 2), (1,)),
        ((1, size, size, 12), (2, 3)),
    )[rng.integers(4)]
    quants = [
        Quant.per_tensor(
            float(np.float32(rng.uniform(0.01, 0.1))), int(rng.integers(-128, 128))
        )
        for _ in "xy"
    ]
    x = build.input("x", TensorType(shape, "int8", quants[0]))
    build.graph.outputs = [
        build.add(Mean(axes, bool(rng.integers(2))), [x], quant=quants[1])
    ]
    return build.graph
