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

    # The first position that the rules accept is taken.
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
    vertical = _around(spec.pads[:2], top)
    horizontal = _around(spec.pads[2:], left)
    wider = replace(spec, pads=(*vertical, *horizontal))

    # The position that gives SAME or VALID padding helps.
    wide_type = w.type.with_shape(wide.shape)
    weights = Value(w.name, wide_type, wide)
    if not helps(op, wider, [x, weights, *bias]):
        return False

    constant = r.const(wide, f"{w.name}_wide", w.type.quant)
    inputs = [x, constant, *bias]
    r.update(op, wider, inputs)
    return True


def _wide_weights(w: Value, top: _Position, left: _Position) -> Array:
    """Return the weights with a row and a column of zeros at these positions."""
    o, kernel_h, kernel_w, c = w.type.shape
    height = kernel_h
    if top is not None:
        height += 1
    width = kernel_w
    if left is not None:
        width += 1
    wide = zeros(w, (o, height, width, c))

    first_row = top or 0
    first_column = left or 0
    rows = slice(first_row, first_row + kernel_h)
    columns = slice(first_column, first_column + kernel_w)
    wide[:, rows, columns] = array(w)
    return wide


def _around(pads: tuple[int, ...], position: _Position) -> tuple[int, int]:
    """Return the pads that leave the same outputs after a zero tap was added.

    pads: those before and after the image along one axis.
    """
    before, after = pads
    if position is None:
        return before, after

    # The side with the zero tap has one more.
    added_after = 1 - position
    return before + position, after + added_after


def example(rng: np.random.Generator) -> Graph:
    """Return a 2x2 window with stride 2 and VALID, or stride 1 and SAME padding."""
    build = Builder("transpose_conv_window")
    q = random_quant(rng, 0.05)
    size = integers(rng, 2, 7, 2)
    ins = integer(rng, 1, 5)
    x = int8_input(build, (1, *size, ins), q)

    outs = integer(rng, 1, 5)
    weight_scale = Quant.per_tensor(0.02)
    w = int8_weights(build, rng, (outs, 2, 2, ins), weight_scale)

    if rng.random() < 0.5:
        spec = TransposeConv2D((2, 2))
    else:
        spec = TransposeConv2D((1, 1), (0, 1, 0, 1))
    out_quant = Quant.per_tensor(0.1, 3)
    y = build.add(spec, [x, w], quant=out_quant)
    return with_output(build, y)
