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

from edgec.ir import Array, Builder, Graph, Op, Quant, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.transpose_conv import TransposeConv2D
from edgec_partitioner.legalize._examples import (
    int8_input,
    int8_weights,
    integer,
    integers,
    random_quant,
    with_output,
)
from edgec_partitioner.legalize._weights import array, constant_weights, helps, zeros

OPS = (TransposeConv2D,)
BOUND = 0.0

NARROW_TAPS = 2
"""A window of this size was reported to stay on the CPU."""

_Position = int | None
"""1: a zero tap is added before the others, 0: after them, None: none is added."""


def rewrite(r: Rewriter, op: Op, spec: TransposeConv2D) -> bool:
    """Add zero taps to the window."""
    if not constant_weights(op):
        return False
    _, kernel_h, kernel_w, _ = op.inputs[1].type.shape
    if NARROW_TAPS not in (kernel_h, kernel_w):
        return False
    choices = product(_positions(kernel_h), _positions(kernel_w))
    return any(_widen(r, op, spec, top, left) for top, left in choices)


def _positions(taps: int) -> tuple[_Position, ...]:
    return (0, 1) if taps == NARROW_TAPS else (None,)


def _widen(
    r: Rewriter, op: Op, spec: TransposeConv2D, top: _Position, left: _Position
) -> bool:
    """Add zero taps at these positions, if that helps the op."""
    x, w, *bias = op.inputs
    wide = _wide_weights(w, top, left)
    pads = (*_around(spec.pads[:2], top), *_around(spec.pads[2:], left))
    wider = replace(spec, pads=pads)

    weights = Value(w.name, w.type.with_shape(wide.shape), wide)
    # The position that gives SAME or VALID padding helps.
    if not helps(op, wider, [x, weights, *bias]):
        return False
    constant = r.const(wide, f"{w.name}_wide", w.type.quant)
    r.update(op, wider, [x, constant, *bias])
    return True


def _wide_weights(w: Value, top: _Position, left: _Position) -> Array:
    """Return the weights with a row and a column of zeros at these positions."""
    o, kernel_h, kernel_w, c = w.type.shape
    height = kernel_h + (top is not None)
    width = kernel_w + (left is not None)
    wide = zeros(w, (o, height, width, c))
    first_row = top or 0
    first_column = left or 0
    rows = slice(first_row, first_row + kernel_h)
    columns = slice(first_column, first_column + kernel_w)
    wide[:, rows, columns] = array(w)
    return wide


def _around(pads: tuple[int, ...], position: _Position) -> tuple[int, int]:
    """Return the pads that leave the same outputs after a zero tap was added."""
    before, after = pads
    if position is None:
        return before, after
    return before + position, after + 1 - position


def example(rng: np.random.Generator) -> Graph:
    """Return a 2x2 window with stride 2 and VALID, or stride 1 and SAME padding."""
    build = Builder("transpose_conv_window")
    q = random_quant(rng, 0.05)
    x = int8_input(build, (1, *integers(rng, 2, 7, 2), integer(rng, 1, 5)), q)
    shape = (integer(rng, 1, 5), 2, 2, x.type.shape[3])
    w = int8_weights(build, rng, shape, Quant.per_tensor(0.02))
    if rng.random() < 0.5:
        spec = TransposeConv2D((2, 2))
    else:
        spec = TransposeConv2D((1, 1), (0, 1, 0, 1))
    y = build.add(spec, [x, w], quant=Quant.per_tensor(0.1, 3))
    return with_output(build, y)
