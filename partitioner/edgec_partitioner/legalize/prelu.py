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

from edgec.ir import Array, Builder, Graph, Op, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.arithmetic import Maximum, Minimum
from edgec.ops.binary import Mul, Sub
from edgec.ops.prelu import PRelu
from edgec.ops.unary import Relu

KINDS = ("prelu",)
BOUND = 1e-7


def rewrite(r: Rewriter, op: Op) -> bool:
    """The form that fits the slopes."""
    (x, slope), name = op.inputs, op.output.name
    if x.type.dtype != "float32":
        return False
    if slope.const is not None:
        row = _of_channels(slope.const, x.type.shape[-1])
    else:
        row = None
    if row is not None:
        r.update(op, PRelu(), [x, r.const(row, slope.name)])
    elif slope.const is not None and (
        (slope.const <= 1).all() or (slope.const >= 1).all()
    ):
        sloped = r.add(op, Mul(), [x, slope], f"{name}_sloped")
        r.update(op, Maximum() if (slope.const <= 1).all() else Minimum(), [x, sloped])
    else:
        minus_one = r.const(np.array(-1, np.float32), f"{name}_minus_one")
        negative = r.add(
            op,
            Relu(),
            [r.add(op, Mul(), [x, minus_one], f"{name}_negated")],
            f"{name}_negative",
        )
        sloped = r.add(op, Mul(), [negative, slope], f"{name}_sloped")
        r.update(op, Sub(), [r.add(op, Relu(), [x], f"{name}_positive"), sloped])
    return True


def _of_channels(slope: Array, channels: int) -> Array | None:
    """The slopes of the channels, if all pixels have the same."""
    if slope.shape[-1:] != (channels,):
        return None
    rows = slope.reshape(-1, channels)
    return rows[0].copy() if (rows == rows[0]).all() else None


def example(rng: np.random.Generator) -> Graph:
    """Slopes below 1, above 1, of both kinds, negative ones, of pixels or lines,
    repeated, computed.
    """
    build = Builder("prelu")
    h, w, c = (int(n) for n in rng.integers(2, 6, 3))
    x = build.input("x", TensorType((1, h, w, c)))
    low, high = ((-0.5, 1.0), (1.0, 2.0), (-2.0, 2.0))[rng.integers(3)]
    shape = ((h, w, c), (h, w, 1), (h, 1, 1))[rng.integers(3)]
    data = rng.uniform(low, high, shape).astype(np.float32)
    form = rng.integers(3)
    if form == 0:
        data = np.ascontiguousarray(
            np.broadcast_to(data[:1, :1], (h, w, data.shape[-1]))
        )
    if form == 1:
        slope = build.input("slope", TensorType(shape))
    else:
        slope = build.const(data, "slope")
    build.graph.outputs = [build.add(PRelu(), [x, slope])]
    return build.graph
