"""A parametric rectifier whose slopes differ from pixel to pixel, or are computed, is
taken apart.

Pattern: PRELU whose slope is not one value for each channel. Replacement: where every
slope is at most 1, MAXIMUM of x and MUL of x by the slopes; where every one is at least
1, MINIMUM; otherwise RELU(x) less the slopes times RELU(-x). Slopes that only repeat
those of the channels stay a PRELU, with one for each. Proof: slope * x is below x for a
positive x exactly if the slope is less than 1, and above it for a negative one; of the
two rectified terms one is zero. Pays always: all parts map.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Array, Builder, Graph, Op, OpDef, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.arithmetic import Maximum, Minimum
from edgec.ops.binary import Mul, Sub
from edgec.ops.prelu import PRelu
from edgec.ops.unary import Relu
from edgec_partitioner.legalize._examples import integer, integers, with_output
from edgec_partitioner.legalize._replacement import Replacement

OPS = (PRelu,)
BOUND = 1e-7


def rewrite(r: Rewriter, op: Op, spec: PRelu) -> bool:
    """Replace the rectifier by the form that fits its slopes."""
    x, slope = op.inputs
    if x.type.dtype != "float32":
        return False
    # Computed slopes may be of any size.
    slopes = slope.const
    if slopes is None:
        _subtract_negative_part(r, op)
        return True

    # PRELU maps with one slope for each channel.
    row = _channel_slopes(slopes, x.type.shape[-1])
    if row is not None:
        constant = r.const(row, slope.name)
        r.update(op, PRelu(), [x, constant])
    elif (slopes <= 1).all():
        # Below zero, slope * x is then the larger one.
        _bound_by_sloped(r, op, Maximum())
    elif (slopes >= 1).all():
        _bound_by_sloped(r, op, Minimum())
    else:
        _subtract_negative_part(r, op)
    return True


def _bound_by_sloped(r: Rewriter, op: Op, bound: OpDef) -> None:
    """Replace a PRELU by the maximum or minimum of x and slope * x."""
    x, slope = op.inputs
    new = Replacement(r, op)
    sloped = new.add("sloped", Mul(), x, slope)
    new.finish(bound, x, sloped)


def _subtract_negative_part(r: Rewriter, op: Op) -> None:
    """Replace a PRELU by relu(x) - slope * relu(-x), for slopes of any size."""
    x, slope = op.inputs
    new = Replacement(r, op)

    # relu(-x) is what PRELU multiplies by the slope.
    minus_one = new.number("minus_one", -1)
    negated = new.add("negated", Mul(), x, minus_one)
    negative = new.add("negative", Relu(), negated)
    sloped = new.add("sloped", Mul(), negative, slope)

    # One of the two terms is zero.
    positive = new.add("positive", Relu(), x)
    new.finish(Sub(), positive, sloped)


def _channel_slopes(slope: Array, channels: int) -> Array | None:
    """Return the slope of each channel, if all pixels have the same.

    None if they differ between pixels.
    """
    if slope.shape[-1:] != (channels,):
        return None
    rows = slope.reshape(-1, channels)
    first = rows[0]
    return first.copy() if (rows == first).all() else None


def example(rng: np.random.Generator) -> Graph:
    """Return a PRELU with slopes below 1, above 1, or of both kinds.

    There is one slope for each element, pixel or line; some repeat those of the
    channels, and some are computed.
    """
    build = Builder("prelu")
    h, w, c = integers(rng, 2, 6, 3)
    x = build.input("x", TensorType((1, h, w, c)))

    ranges = ((-0.5, 1.0), (1.0, 2.0), (-2.0, 2.0))
    low, high = ranges[rng.integers(3)]
    shapes = ((h, w, c), (h, w, 1), (h, 1, 1))
    shape = shapes[rng.integers(3)]
    uniform = rng.uniform(low, high, shape)
    data = uniform.astype(np.float32)

    form = integer(rng, 0, 3)
    if form == 0:
        depth = data.shape[-1]
        repeated = np.broadcast_to(data[:1, :1], (h, w, depth))
        data = np.ascontiguousarray(repeated)
    if form == 1:
        slope = build.input("slope", TensorType(shape))
    else:
        slope = build.const(data, "slope")

    y = build.add(PRelu(), [x, slope])
    return with_output(build, y)
