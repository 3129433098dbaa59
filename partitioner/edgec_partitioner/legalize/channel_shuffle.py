"""A shuffle or a selection of channels becomes slices that are joined, a 1x1
convolution, or nothing.

Pattern: ops that only move elements (reshape, transpose, slice, gather, concat, of any
rank) of which at least one is refused, and which together give an image whose channels
are some channels of another image, at the same place. Replacement: the convolutions
that read the result get their weights in the other order; else up to 4 slices of
consecutive channels and a CONCATENATION; else a 1x1 convolution, each output channel of
which has the weight 1 for one input channel and 0 for all others. Proof: weights in
another order give the same sums; a weight 1 of scale 1 between equal scales is a
multiplier of 1.0, which is exact in TFLite's fixed point (see _one_hot). Pays always
inside of an Edge TPU region: without it every ShuffleNet unit is a region of its own,
with two transfers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgec.ir import Array, Builder, Graph, Op, Quant, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D
from edgec.ops.gather import Gather
from edgec.ops.shape import Reshape, Transpose
from edgec.ops.slice import slice_axes
from edgec.ops.unary import Relu
from edgec_partitioner.legalize._moves import replace_moves
from edgec_partitioner.legalize._one_hot import (
    Pick,
    fold_into_readers,
    pick_by_convolution,
)

KINDS = ("reshape", "transpose", "slice", "gather", "concat")
BOUND = 0.0

_MOST_SLICES = 4


def rewrite(r: Rewriter, op: Op) -> bool:
    """Find the image that the channels come from."""
    return replace_moves(r, op, _make)


def _make(r: Rewriter, move: Op, root: Value, index: Array) -> bool:
    pick = Pick.of(index, root.type)
    if pick is None or index.shape[:3] != root.type.shape[:3] or pick.kernel != (1, 1):
        return False
    pick = replace(pick, stride=(1, 1))
    if fold_into_readers(r, move, root, pick, 0):
        return True
    runs = np.split(pick.channels, np.flatnonzero(np.diff(pick.channels) != 1) + 1)
    if len(runs) > _MOST_SLICES:
        return pick_by_convolution(r, move, root, pick)
    if len(runs) == 1 and len(runs[0]) == root.type.shape[3]:
        return r.forward(move, root)
    name = move.output.name
    ranges = [(int(run[0]), len(run), 1) for run in runs]
    parts = [
        r.add(move, slice_axes(root.type, {3: taken}), [root], f"{name}_part")
        for taken in ranges
    ]
    return r.forward(
        move,
        parts[0]
        if len(parts) == 1
        else r.add(move, Concat(3), parts, f"{name}_shuffled"),
    )


def example(rng: np.random.Generator) -> Graph:
    """A shuffle of groups written in several ways; its result read as it is, in halves,
    or by a convolution.
    """
    build = Builder("channel_shuffle")
    h, w = (int(n) for n in rng.integers(2, 6, 2))
    groups = int(rng.integers(2, 5))
    each = 2 * int(rng.integers(1, 5))
    c = groups * each
    q = Quant.per_tensor(0.05, int(rng.integers(-128, 128)))
    x = build.add(
        Relu(), [build.input("x", TensorType((1, h, w, c), "int8", q))], "x_relu", q
    )
    form = int(rng.integers(3))
    if form == 0:
        y = build.add(Reshape((1, h, w, groups, each)), [x])
        y = build.add(Transpose((0, 1, 2, 4, 3)), [y])
        y = build.add(Reshape((1, h, w, c)), [y])
    elif form == 1:
        y = build.add(Reshape((h, 1, w, groups, each)), [x])
        taken = [
            build.add(slice_axes(y.type, {4: (i, 1, 1)}), [y]) for i in range(each)
        ]
        y = build.add(
            Concat(3), [build.add(Reshape((1, h, w, groups)), [t]) for t in taken]
        )
    else:
        y = build.add(Gather(3), [x, build.const(rng.permutation(c).astype(np.int32))])
    build.graph.outputs = [_reader(build, rng, y)]
    return build.graph


def _reader(build: Builder, rng: np.random.Generator, y: Value) -> Value:
    channels = y.type.shape[3]
    how = int(rng.integers(3))
    if how == 0:
        return build.add(Relu(), [y], quant=y.type.quant)
    if how == 1:
        return build.add(
            slice_axes(y.type, {3: (channels // 2, channels - channels // 2, 1)}), [y]
        )
    weights = rng.integers(-127, 128, (3, 3, 3, channels)).astype(np.int8)
    bias = build.const(
        rng.integers(-500, 500, 3).astype(np.int32),
        "b",
        Quant.per_tensor(y.type.scale * 0.01),
    )
    spec = Conv2D(pads=(1, 1, 1, 1), act=str(rng.choice(["none", "relu6"])))
    return build.add(
        spec,
        [y, build.const(weights, "w", Quant.per_tensor(0.01)), bias],
        quant=Quant.per_tensor(0.2, 3),
    )
