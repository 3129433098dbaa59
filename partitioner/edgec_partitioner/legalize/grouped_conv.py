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

import numpy as np

from edgec.ir import Array, Builder, Graph, Op, Quant, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.slice import slice_axes
from edgec_partitioner.legalize._weights import array, constant_weights, part_of, zeros

KINDS = ("conv2d",)
BOUND = 0.0

_MACS_PER_MS = 1e9
_MS_PER_PARAMETER = 1.9e-6
"""Published: dense convolutions reach 1.0 TMAC/s, and USB 3 streams 520 MB of
parameters a second.
"""
_MS_PER_PART = 0.05
"""Assumed: a slice, a convolution of its own and a share of the concatenation."""


def rewrite(r: Rewriter, op: Op) -> bool:
    """Make it depthwise, dense, or a concatenation of dense ones."""
    spec, (x, w, *bias) = op.spec, op.inputs
    if not isinstance(spec, Conv2D) or not constant_weights(op):
        return False
    depth = w.type.shape[3]
    groups = x.type.shape[3] // depth
    if groups == 1:
        return False
    if depth == 1:
        quant = w.type.quant
        if quant is not None and quant.axis is not None:
            quant = Quant(quant.scale, quant.zero_point, DepthwiseConv2D.weight_axis)
        filters = r.const(array(w).transpose(3, 1, 2, 0), f"{w.name}_depthwise", quant)
        r.update(op, DepthwiseConv2D(*vars(spec).values()), [x, filters, *bias])
        return True
    parts = _parts(op, groups)
    if parts == 1:
        r.update(
            op,
            spec,
            [
                x,
                r.const(_dense(w, array(w), groups), f"{w.name}_dense", w.type.quant),
                *bias,
            ],
        )
    else:
        r.update(
            op,
            Concat(3),
            [_part(r, op, i, parts, groups // parts) for i in range(parts)],
        )
    return True


def _parts(op: Op, groups: int) -> int:
    """Of how many dense convolutions the Edge TPU would take the least time."""

    def ms(parts: int) -> float:
        zeros_too = groups / parts
        computed = (
            op.spec.macs(op) * zeros_too / _MACS_PER_MS
            + op.inputs[1].type.size * zeros_too * _MS_PER_PARAMETER
        )
        return computed + (_MS_PER_PART * parts if parts > 1 else 0)

    return min((n for n in range(1, groups + 1) if groups % n == 0), key=ms)


def _part(r: Rewriter, op: Op, i: int, parts: int, groups: int) -> Value:
    """The i-th part: the convolution of `groups` groups."""
    x, w, *bias = op.inputs
    ins = x.type.shape[3] // parts
    outs = w.type.shape[0] // parts
    rows = slice(i * outs, (i + 1) * outs)
    channels = r.add(
        op, slice_axes(x.type, {3: (i * ins, ins, 1)}), [x], f"{x.name}_part{i}"
    )
    dense = _dense(w, array(w)[rows], groups, rows)
    weights = [r.const(dense, f"{w.name}_part{i}", part_of(w.type.quant, rows))]
    weights += [
        r.const(array(b)[rows], f"{b.name}_part{i}", part_of(b.type.quant, rows))
        for b in bias
    ]
    return r.add(
        op,
        op.spec,
        [channels, *weights],
        f"{op.output.name}_part{i}",
        op.output.type.quant,
    )


def _dense(w: Value, filters: Array, groups: int, rows: slice | None = None) -> Array:
    """Weights [O,KH,KW,C] of grouped ones [O,KH,KW,C/groups], zero between groups."""
    o, kh, kw, depth = filters.shape
    whole = zeros(w, (w.type.shape[0], kh, kw, depth * groups))
    dense = whole if rows is None else whole[rows].copy()
    for g in range(groups):
        own = slice(g * o // groups, (g + 1) * o // groups)
        dense[own, :, :, g * depth : (g + 1) * depth] = filters[own]
    return dense


def example(rng: np.random.Generator) -> Graph:
    """Few or many groups, with and without bias, per tensor or per channel; large
    enough for parts now and then.
    """
    build = Builder("grouped_conv")
    groups = int(rng.choice([2, 3, 4]))
    depth = int(rng.integers(1, 5))
    wide = int(rng.integers(1, 4))
    size = int(rng.integers(3, 7))
    kernel = int(rng.choice([1, 3]))
    if rng.random() < 0.2:
        groups = 4
        depth = 64
        wide = 64
        kernel = 3
    c = groups * depth
    o = groups * wide
    x = build.input(
        "x",
        TensorType(
            (1, size, size, c),
            "int8",
            Quant.per_tensor(0.05, int(rng.integers(-128, 128))),
        ),
    )
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.001, 0.01, o))
    if rng.random() < 0.5:
        quant = Quant(scales, (0,) * o, 0)
    else:
        quant = Quant.per_tensor(0.004)
    w = build.const(
        rng.integers(-127, 128, (o, kernel, kernel, depth)).astype(np.int8), "w", quant
    )
    of_bias = Quant(
        tuple(float(np.float32(0.05) * np.float32(s)) for s in quant.scale),
        quant.zero_point,
        quant.axis,
    )
    bias = build.const(rng.integers(-9000, 9000, o).astype(np.int32), "b", of_bias)
    spec = Conv2D(
        (1, 1), (kernel // 2,) * 4, act=str(rng.choice(["none", "relu", "relu6"]))
    )
    y = build.add(
        spec, [x, w, bias][: int(rng.integers(2, 4))], quant=Quant.per_tensor(0.3, 3)
    )
    build.graph.outputs = [y]
    return build.graph
