"""A grouped convolution becomes dense: one convolution, or a few over slices of the
channels.

Pattern: a convolution of several groups. Condition: constant weights. Replacement:
groups of one channel each: a depthwise convolution. Else the groups are taken together
in as many parts as an Edge TPU does soonest; each part is a dense convolution whose
weights are zero between groups, and if there are several, they read slices and are
concatenated. Proof: a zero weight adds nothing to an integer sum; each output channel
keeps its weights, scale and bias. Pays while what the zeros cost (multiplications,
parameters) is less than another transfer: `_parts` decides.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgec.ir import Array, Builder, Graph, Op, Quant, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.slice import slice_axes
from edgec_partitioner.legalize._examples import (
    bias_quant,
    choice,
    int8_input,
    int8_weights,
    int32_bias,
    integer,
    random_quant,
    weight_quant,
    with_output,
)
from edgec_partitioner.legalize._weights import array, constant_weights, part_of, zeros

OPS = (Conv2D,)
BOUND = 0.0

MACS_PER_MS = 1e9
MS_PER_PARAMETER = 1.9e-6
"""Published: dense convolutions reach 1.0 TMAC/s, and USB 3 streams 520 MB of
parameters a second.
"""
MS_PER_PART = 0.05
"""Assumed: a slice, a convolution of its own and a share of the concatenation."""


def rewrite(r: Rewriter, op: Op, spec: Conv2D) -> bool:
    """Make the convolution depthwise, dense, or a concatenation of dense ones."""
    x, w, *bias = op.inputs
    if not constant_weights(op):
        return False
    depth = w.type.shape[3]
    groups = x.type.shape[3] // depth
    if groups == 1:
        return False
    if depth == 1:
        _make_depthwise(r, op, spec)
        return True

    count = _parts(op, groups)
    if count == 1:
        dense = _dense(w, array(w), groups)
        weights = r.const(dense, f"{w.name}_dense", w.type.quant)
        r.update(op, spec, [x, weights, *bias])
        return True

    parts: list[Value] = []
    for i in range(count):
        part = _part(r, op, i, count, groups // count)
        parts.append(part)
    r.update(op, Concat(3), parts)
    return True


def _make_depthwise(r: Rewriter, op: Op, spec: Conv2D) -> None:
    """Replace a convolution of groups of one channel by a depthwise one."""
    x, w, *bias = op.inputs
    # The output channels move from the first axis to the last.
    quant = w.type.quant
    if quant is not None and quant.axis is not None:
        axis = DepthwiseConv2D.weight_axis
        quant = replace(quant, axis=axis)

    # [O, KH, KW, 1] → [1, KH, KW, O]
    filters = array(w).transpose(3, 1, 2, 0)
    weights = r.const(filters, f"{w.name}_depthwise", quant)

    # Both kinds have the same attributes.
    attributes = vars(spec).values()
    depthwise = DepthwiseConv2D(*attributes)
    r.update(op, depthwise, [x, weights, *bias])


def _parts(op: Op, groups: int) -> int:
    """Return the number of dense convolutions with the lowest estimated time.

    It divides the number of groups.
    """
    macs = op.spec.macs(op)
    parameters = op.inputs[1].type.size

    def ms(parts: int) -> float:
        # A dense convolution of g groups has g times the weights, most of them zero.
        density = groups / parts
        computing = macs * density / MACS_PER_MS
        streaming = parameters * density * MS_PER_PARAMETER
        splitting = MS_PER_PART * parts if parts > 1 else 0
        return computing + streaming + splitting

    counts = range(1, groups + 1)
    divisors = [count for count in counts if groups % count == 0]
    return min(divisors, key=ms)


def _part(r: Rewriter, op: Op, i: int, parts: int, groups: int) -> Value:
    """Return the result of the i-th part: the dense convolution of `groups` groups.

    parts: the number of parts.
    """
    x, w, *biases = op.inputs
    ins = x.type.shape[3] // parts
    outs = w.type.shape[0] // parts
    rows = slice(i * outs, (i + 1) * outs)

    cut = slice_axes(x.type, {3: (i * ins, ins, 1)})
    channels = r.add(op, cut, [x], f"{x.name}_part{i}")

    filters = array(w)[rows]
    dense = _dense(w, filters, groups, rows)
    quant = part_of(w.type.quant, rows)
    weights = r.const(dense, f"{w.name}_part{i}", quant)
    inputs = [channels, weights]

    # The bias has one number for each output channel.
    for bias in biases:
        numbers = array(bias)[rows]
        quant = part_of(bias.type.quant, rows)
        part = r.const(numbers, f"{bias.name}_part{i}", quant)
        inputs.append(part)

    y = op.output
    return r.add(op, op.spec, inputs, f"{y.name}_part{i}", y.type.quant)


def _dense(w: Value, filters: Array, groups: int, rows: slice | None = None) -> Array:
    """Return weights [O, KH, KW, C] of grouped ones [O, KH, KW, C/groups].

    Weights between groups are zero. rows: the output channels of `w` in `filters`, all
    if missing.
    """
    o, kernel_h, kernel_w, depth = filters.shape
    all_outputs = w.type.shape[0]
    shape = (all_outputs, kernel_h, kernel_w, depth * groups)

    # Zero points are looked up by output channel, hence all of them first.
    dense = zeros(w, shape)
    if rows is not None:
        dense = dense[rows].copy()

    for g in range(groups):
        first = g * o // groups
        end = (g + 1) * o // groups
        outputs = slice(first, end)
        inputs = slice(g * depth, (g + 1) * depth)
        dense[outputs, :, :, inputs] = filters[outputs]
    return dense


def example(rng: np.random.Generator) -> Graph:
    """Return a convolution of a few groups.

    Bias and scales per channel vary. Some are large enough that several parts cost
    less.
    """
    build = Builder("grouped_conv")
    groups = int(rng.choice([2, 3, 4]))
    depth = integer(rng, 1, 5)
    wide = integer(rng, 1, 4)
    size = integer(rng, 3, 7)
    kernel = int(rng.choice([1, 3]))
    if rng.random() < 0.2:
        groups = 4
        depth = 64
        wide = 64
        kernel = 3
    c = groups * depth
    o = groups * wide
    x_quant = random_quant(rng, 0.05)
    x = int8_input(build, (1, size, size, c), x_quant)

    quant = weight_quant(rng, 0.004, 0.001, 0.01, o)
    shape = (o, kernel, kernel, depth)
    w = int8_weights(build, rng, shape, quant)
    bias = int32_bias(build, rng, o, 9000, bias_quant(0.05, quant))

    act = choice(rng, ["none", "relu", "relu6"])
    half = kernel // 2
    spec = Conv2D((1, 1), (half, half, half, half), act=act)
    count = integer(rng, 2, 4)
    inputs = [x, w, bias][:count]
    out_quant = Quant.per_tensor(0.3, 3)
    y = build.add(spec, inputs, quant=out_quant)
    return with_output(build, y)
