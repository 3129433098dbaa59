"""A transposed convolution with a window of two becomes one with a window of three, the
third tap zero.

Pattern: a transposed convolution with a window of 2 in x or y that is refused (2x2 was
reported to stay on the CPU, 3x3 is what was seen to map). Condition: constant weights;
TFLite has the padding of the larger window. Replacement: a row or column of zero
weights before or after, whichever gives SAME or VALID padding. Proof: a zero weight
adds nothing to the sums. Pays always: 9 / 4 of the multiplications, and no cut.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from edgec.ir import Builder, Graph, Op, Quant, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.transpose_conv import TransposeConv2D
from edgec_partitioner.legalize._weights import array, constant_weights, helps, zeros

KINDS = ("transpose_conv2d",)
BOUND = 0.0

_NARROW = 2


def rewrite(r: Rewriter, op: Op) -> bool:
    """Add zero taps."""
    spec, (x, w, *bias) = op.spec, op.inputs
    if not isinstance(spec, TransposeConv2D) or not constant_weights(op):
        return False
    o, kh, kw, c = w.type.shape
    ahead = [(0, 1) if k == _NARROW else (None,) for k in (kh, kw)]
    for top, left in product(*ahead):
        if top is None and left is None:
            return False
        wide = zeros(w, (o, kh + (top is not None), kw + (left is not None), c))
        wide[:, (top or 0) : (top or 0) + kh, (left or 0) : (left or 0) + kw] = array(w)
        pads = (*_around(spec.pads[:2], top), *_around(spec.pads[2:], left))
        wider = replace(spec, pads=pads)
        if helps(
            op, wider, [x, Value(w.name, w.type.with_shape(wide.shape), wide), *bias]
        ):
            r.update(
                op, wider, [x, r.const(wide, f"{w.name}_wide", w.type.quant), *bias]
            )
            return True
    return False


def _around(pads: tuple[int, ...], ahead: int | None) -> tuple[int, int]:
    """The pads that leave the same outputs when a zero tap was put before (1) or after
    (0) the others.
    """
    before, after = pads
    return (before, after) if ahead is None else (before + ahead, after + 1 - ahead)


def example(rng: np.random.Generator) -> Graph:
    """2x2 with strides 2 and 1, SAME and VALID."""
    build = Builder("transpose_conv_window")
    q = Quant.per_tensor(0.05, int(rng.integers(-128, 128)))
    x = build.input(
        "x",
        TensorType(
            (1, *map(int, rng.integers(2, 7, 2)), int(rng.integers(1, 5))), "int8", q
        ),
    )
    shape = (int(rng.integers(1, 5)), 2, 2, x.type.shape[3])
    w = build.const(
        rng.integers(-127, 128, shape).astype(np.int8), "w", Quant.per_tensor(0.02)
    )
    if rng.random() < 0.5:
        spec = TransposeConv2D((2, 2))
    else:
        spec = TransposeConv2D((1, 1), (0, 1, 0, 1))
    build.graph.outputs = [build.add(spec, [x, w], quant=Quant.per_tensor(0.1, 3))]
    return build.graph
