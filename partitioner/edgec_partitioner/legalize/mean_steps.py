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

from itertools import product
from math import prod

import numpy as np

from edgec.ir import Builder, Graph, Op, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.pool import AveragePool2D
from edgec.ops.reduce import Mean
from edgec_partitioner.legalize._examples import flag, integer, one_op
from edgec_partitioner.legalize._means import FEW, cut, mean_maps

OPS = (Mean,)
BOUND = 1e-4


def rewrite(r: Rewriter, op: Op, spec: Mean) -> bool:
    """Put an average pool before the mean."""
    x = op.inputs[0]
    if 1 not in spec.axes or 2 not in spec.axes:
        return False
    if x.type.dtype != "float32" or x.type.rank != 4:
        return False

    # mean_slices takes these once they are quantized.
    slices = cut(op, spec)
    if slices is not None:
        _, sizes = slices
        if len(sizes) <= FEW:
            return False

    window = _window(spec, x.type)
    if window is None:
        return False
    pool = AveragePool2D(window, window)
    pooled = r.add(op, pool, [x], f"{x.name}_pooled")
    r.update(op, inputs=[pooled])
    return True


def _window(spec: Mean, x: TensorType) -> tuple[int, int] | None:
    """Return the smallest window that divides the image so that the mean then maps.

    Of windows of one size, it is the squarest. None if there is none.
    """
    n, height, width, c = x.shape
    windows = list(product(_divisors(height), _divisors(width)))

    # Of equal products, the most equal factors have the smallest sum.
    windows.sort(key=lambda window: (prod(window), sum(window)))
    for window_h, window_w in windows:
        pooled_h = height // window_h
        pooled_w = width // window_w
        pooled = x.with_shape((n, pooled_h, pooled_w, c))
        if mean_maps(spec, pooled):
            return window_h, window_w
    return None


def _divisors(size: int) -> list[int]:
    """Return the numbers that divide `size`, the smallest first."""
    return [n for n in range(1, size + 1) if size % n == 0]


def example(rng: np.random.Generator) -> Graph:
    """Return a mean over a large image of few or a small one of many channels.

    Some means are over the channels as well.
    """
    build = Builder("mean_steps")
    height = integer(rng, 16, 20) * 16
    width = integer(rng, 16, 20) * 16
    channels = integer(rng, 1, 4)
    large = (1, height, width, channels)

    height = integer(rng, 10, 14) * 4
    width = integer(rng, 10, 14) * 3
    small = (1, height, width, 320)

    height = integer(rng, 10, 14) * 9
    width = integer(rng, 10, 14) * 9
    square = (1, height, width, 12)

    case = rng.integers(3)
    shape = (large, small, square)[case]
    axes = ((1, 2), (1, 2), (1, 2, 3))[case]
    x = build.input("x", TensorType(shape))
    keep = flag(rng)
    return one_op(build, Mean(axes, keep), x)
