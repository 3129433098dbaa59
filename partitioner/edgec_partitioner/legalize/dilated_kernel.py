"""A dilated convolution that does not map becomes one with a larger kernel, zero
between the taps.

Pattern: a convolution whose dilation is refused: unequal in x and y, or of a depthwise
convolution. Condition: constant weights; the larger kernel breaks no other rule and has
at most 81 taps. Replacement: the same convolution with the smaller of the dilations in
both directions, or none where that is refused too, and weights that are zero where the
old kernel had no tap. Proof: a zero weight adds nothing to the sums, and the window
covers the same elements, so the pads stay. Pays while the zeros are multiplied sooner
than the tensors are transferred; hence the bound on the kernel, which is the largest
that was seen to map (9x9).
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

import numpy as np

from edgec.ir import Array, Builder, Graph, Op, Quant, Rounding, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.window import Pads, Pair
from edgec_partitioner.legalize._examples import (
    choice,
    flag,
    int8_input,
    int8_weights,
    integer,
    integers,
    random_quant,
    with_output,
)
from edgec_partitioner.legalize._weights import array, constant_weights, helps, zeros

OPS = (Conv2D, DepthwiseConv2D)
BOUND = 0.0

MAX_TAPS = 81
"""The taps of the largest kernel that was seen to map, 9x9."""


def rewrite(r: Rewriter, op: Op, spec: Conv2D | DepthwiseConv2D) -> bool:
    """Spread the taps of a dilated kernel."""
    if spec.dilation == (1, 1):
        return False
    if not constant_weights(op):
        return False

    # The common factor may stay as the dilation of both directions.
    common = gcd(*spec.dilation)
    if _spread_to(r, op, spec, common):
        return True
    return common != 1 and _spread_to(r, op, spec, 1)


def _spread_to(
    r: Rewriter, op: Op, spec: Conv2D | DepthwiseConv2D, dilation: int
) -> bool:
    """Give the convolution this dilation in both directions, if that helps it."""
    x, w, *bias = op.inputs
    dilation_y, dilation_x = spec.dilation
    steps = (dilation_y // dilation, dilation_x // dilation)
    # Without a step, nothing would change.
    if steps == (1, 1):
        return False

    filters = _spread(w, steps)
    _, kernel_h, kernel_w, _ = filters.shape
    if kernel_h * kernel_w > MAX_TAPS:
        return False

    sparse = replace(spec, dilation=(dilation, dilation))
    # Ask the rules before the graph changes.
    wide_type = w.type.with_shape(filters.shape)
    weights = Value(w.name, wide_type, filters)
    if not helps(op, sparse, [x, weights, *bias]):
        return False

    constant = r.const(filters, f"{w.name}_spread", w.type.quant)
    r.update(op, sparse, [x, constant, *bias])
    return True


def _spread(w: Value, steps: Pair) -> Array:
    """Return the weights with steps - 1 rows and columns of zeros between the taps."""
    o, kernel_h, kernel_w, c = w.type.shape
    step_y, step_x = steps

    # Behind the last tap there is no zero.
    height = (kernel_h - 1) * step_y + 1
    width = (kernel_w - 1) * step_x + 1
    wide = zeros(w, (o, height, width, c))
    wide[:, ::step_y, ::step_x] = array(w)
    return wide


def example(rng: np.random.Generator) -> Graph:
    """Return a dense or depthwise convolution with unequal dilations.

    Some have asymmetric weights.
    """
    build = Builder("dilated_kernel")
    dense = flag(rng)
    c = integer(rng, 1, 5)
    o = integer(rng, 1, 5)
    dilations = ((1, 2), (2, 1), (2, 4), (1, 3), (4, 1))
    dilation = dilations[rng.integers(5)]
    kernel_h = int(rng.choice([2, 3]))
    kernel_w = int(rng.choice([2, 3]))
    kernel = (kernel_h, kernel_w)
    q = random_quant(rng, 0.05)
    size = integers(rng, 5, 10, 2)
    x = int8_input(build, (1, *size, c), q)

    zero_point = 0
    if rng.random() < 0.3:
        zero_point = integer(rng, -20, 20)
    weight_quant = Quant.per_tensor(0.004, zero_point)
    shape = (o, *kernel, c) if dense else (1, *kernel, c * o)
    w = int8_weights(build, rng, shape, weight_quant)

    kind = Conv2D if dense else DepthwiseConv2D
    act = choice(rng, ["none", "relu"])
    # Asymmetric weights come from uint8 models.
    rounding = Rounding.of_tflite(zero_point != 0)
    pads = _same_pads(kernel, dilation)
    spec = kind((1, 1), pads, dilation, act, rounding)
    out_quant = Quant.per_tensor(0.3, 3)
    y = build.add(spec, [x, w], quant=out_quant)
    return with_output(build, y)


def _same_pads(kernel: Pair, dilation: Pair) -> Pads:
    """Return the pads with which a dilated convolution keeps the size of the image."""
    kernel_h, kernel_w = kernel
    dilation_y, dilation_x = dilation
    height = (kernel_h - 1) * dilation_y
    width = (kernel_w - 1) * dilation_x

    # An odd element goes to the bottom and the right, as in TFLite.
    top = height // 2
    left = width // 2
    bottom = height - top
    right = width - left
    return (top, bottom, left, right)
