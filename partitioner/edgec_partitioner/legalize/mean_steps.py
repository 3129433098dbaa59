"""A MEAN over an image that is too large for slices becomes an average pool, then a
MEAN of what is left.

Pattern: a float MEAN over height and width that is refused. Condition: slices of its
channels (see mean_slices) do not map or are too many; a window divides the image so
that what is left maps. Replacement: AVERAGE_POOL_2D with the smallest such window,
MEAN. Proof: the mean of the means of parts of one size is the mean of all; only
rounding differs. On int8 the pool rounds to the input's scale, by at most half a step,
which the second mean levels out. Pays where convolutions follow, as slices do, at one
op more than the MEAN.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Builder, Graph, Op, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.pool import AveragePool2D
from edgec.ops.reduce import Mean
from edgec_partitioner.legalize._means import FEW, cut, mean_maps

KINDS = ("mean",)
BOUND = 1e-4


def rewrite(r: Rewriter, op: Op) -> bool:
    """Pool first."""
    x = op.inputs[0]
    spec = op.spec
    if (
        not isinstance(spec, Mean)
        or x.type.dtype != "float32"
        or x.type.rank != 4
        or not {1, 2} <= {*spec.axes}
    ):
        return False
    slices = cut(op)
    if slices is not None and len(slices[1]) <= FEW:
        return False
    window = _window(spec, x.type)
    if window is None:
        return False
    pooled = r.add(op, AveragePool2D(window, window), [x], f"{x.name}_pooled")
    r.update(op, inputs=[pooled])
    return True


def _window(spec: Mean, x: TensorType) -> tuple[int, int] | None:
    """The smallest window, the squarest of its size, that divides the image and leaves
    what maps.
    """
    n, h, w, c = x.shape
    sizes = [
        (a, b)
        for a in range(1, h + 1)
        if h % a == 0
        for b in range(1, w + 1)
        if w % b == 0
    ]
    for a, b in sorted(sizes, key=lambda s: (s[0] * s[1], s[0] + s[1])):
        if mean_maps(spec, x.with_shape((n, h // a, w // b, c))):
            return a, b
    return None


def example(rng: np.random.Generator) -> Graph:
    """Large images of few and small ones of many channels; means over the channels as
    well.
    """
    build = Builder("mean_steps")
    shape, axes = (
        (
            (
                1,
                int(rng.integers(16, 20)) * 16,
                int(rng.integers(16, 20)) * 16,
                int(rng.integers(1, 4)),
            ),
            (1, 2),
        ),
        (
            (1, int(rng.integers(10, 14)) * 4, int(rng.integers(10, 14)) * 3, 320),
            (1, 2),
        ),
        (
            (1, int(rng.integers(10, 14)) * 9, int(rng.integers(10, 14)) * 9, 12),
            (1, 2, 3),
        ),
    )[rng.integers(3)]
    x = build.input("x", TensorType(shape))
    build.graph.outputs = [build.add(Mean(axes, bool(rng.integers(2))), [x])]
    return build.graph
