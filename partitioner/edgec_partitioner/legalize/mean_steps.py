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
from edgec_partitioner.legalize._examples import flag, integer, one_op
from edgec_partitioner.legalize._means import FEW, cut, mean_maps

OPS = (Mean,)
BOUND = 1e-4


def rewrite(r: Rewriter, op: Op, spec: Mean) -> bool:
    """Put an average pool before the mean."""
    x = op.inputs[0]
    if not {1, 2} <= {*spec.axes}:
        return False
    if x.type.dtype != "float32" or x.type.rank != 4:
        return False

    # mean_slices takes these once they are quantized.
    slices = cut(op, spec)
    if slices is not None and len(slices[1]) <= FEW:
        return False

    window = _window(spec, x.type)
    if window is None:
        return False
    pooled = r.add(op, AveragePool2D(window, window), [x], f"{x.name}_pooled")
    r.update(op, inputs=[pooled])
    return True


def _window(spec: Mean, x: TensorType) -> tuple[int, int] | None:
    """Return the smallest window that divides the image so that the mean then maps.

    Of windows of one size, it is the squarest. None if there is none.
    """
    n, height, width, c = x.shape
    heights = [a for a in range(1, height + 1) if height % a == 0]
    widths = [b for b in range(1, width + 1) if width % b == 0]
    windows = [(a, b) for a in heights for b in widths]

    # Of equal products, the most equal factors have the smallest sum.
    windows.sort(key=lambda window: (window[0] * window[1], window[0] + window[1]))
    for a, b in windows:
        pooled = x.with_shape((n, height // a, width // b, c))
        if mean_maps(spec, pooled):
            return a, b
    return None


def example(rng: np.random.Generator) -> Graph:
    """Return a mean over a large image of few or a small one of many channels.

    Some means are over the channels as well.
    """
    build = Builder("mean_steps")
    height = integer(rng, 16, 20) * 16
    width = integer(rng, 16, 20) * 16
    large = (1, height, width, integer(rng, 1, 4))
    small = (1, integer(rng, 10, 14) * 4, integer(rng, 10, 14) * 3, 320)
    square = (1, integer(rng, 10, 14) * 9, integer(rng, 10, 14) * 9, 12)

    case = rng.integers(3)
    shape = (large, small, square)[case]
    axes = ((1, 2), (1, 2), (1, 2, 3))[case]
    x = build.input("x", TensorType(shape))
    return one_op(build, Mean(axes, flag(rng)), x)
