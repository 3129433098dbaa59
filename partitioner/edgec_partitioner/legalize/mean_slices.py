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

from edgec.ir import Builder, Graph, Op, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.reduce import Mean
from edgec.ops.slice import slice_axes
from edgec_partitioner.legalize._examples import (
    Shape,
    flag,
    int8_input,
    integer,
    random_quant,
    scale_between,
    with_output,
)
from edgec_partitioner.legalize._means import cut

OPS = (Mean,)
BOUND = 0.0


def rewrite(r: Rewriter, op: Op, spec: Mean) -> bool:
    """Cut an axis, take the mean of each part, and join them."""
    x = op.inputs[0]
    y = op.output
    if x.type.dtype != "int8" or y.type.dtype != "int8":
        return False

    # One part means that the mean maps as it is.
    parts = cut(op, spec)
    if parts is None:
        return False
    axis, sizes = parts
    if len(sizes) == 1:
        return False

    means: list[Value] = []
    start = 0
    for size in sizes:
        part = slice_axes(x.type, {axis: (start, size, 1)})
        piece = r.add(op, part, [x], f"{y.name}_slice", x.type.quant)
        mean = r.add(op, replace(spec), [piece], f"{y.name}_mean", y.type.quant)
        means.append(mean)
        start += size

    # Without the summed axes, the cut axis has a lower number.
    join_axis = axis
    if not spec.keep_dims:
        join_axis -= sum(a < axis for a in spec.axes)
    r.update(op, Concat(join_axis), means)
    return True


def example(rng: np.random.Generator) -> Graph:
    """Return a mean over images or lines of many and of few channels.

    The axes are kept or dropped.
    """
    build = Builder("mean_slices")
    size = integer(rng, 80, 130)
    many_channels = integer(rng, 11, 20)
    few_channels = integer(rng, 5, 9)
    cases: list[tuple[Shape, Shape]] = [
        ((1, size, size, many_channels), (1, 2)),
        ((1, 2 * size, size, few_channels), (1, 2)),
        ((1, size, 7, size * 2), (1,)),
        ((1, size, size, 12), (2, 3)),
    ]
    shape, axes = cases[rng.integers(4)]

    x_scale = scale_between(rng, 0.01, 0.1)
    x_quant = random_quant(rng, x_scale)
    y_scale = scale_between(rng, 0.01, 0.1)
    y_quant = random_quant(rng, y_scale)

    x = int8_input(build, shape, x_quant)
    keep = flag(rng)
    y = build.add(Mean(axes, keep), [x], quant=y_quant)
    return with_output(build, y)
