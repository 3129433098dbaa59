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

from edgec.ir import Array, Builder, Graph, Op, Quant, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D
from edgec.ops.gather import Gather
from edgec.ops.shape import Reshape, Transpose
from edgec.ops.slice import Slice, slice_axes
from edgec.ops.unary import Relu
from edgec_partitioner.legalize._examples import (
    choice,
    int8_input,
    int32_bias,
    integer,
    random_quant,
    relu,
    with_output,
)
from edgec_partitioner.legalize._moves import replace_moves
from edgec_partitioner.legalize._one_hot import (
    Pick,
    fold_into_readers,
    pick_by_convolution,
)

OPS = (Reshape, Transpose, Slice, Gather, Concat)
BOUND = 0.0

MAX_SLICES = 4


def rewrite(
    r: Rewriter, op: Op, spec: Reshape | Transpose | Slice | Gather | Concat
) -> bool:
    """Replace the chain of moves through `op` if it only picks channels."""
    return replace_moves(r, op, _make)


def _make(r: Rewriter, move: Op, root: Value, index: Array) -> bool:
    """Replace `move` by a selection of the channels of `root`."""
    pick = Pick.of(index, root.type)
    if pick is None or pick.kernel != (1, 1):
        return False
    if index.shape[:3] != root.type.shape[:3]:
        return False
    # An image of one pixel in a direction has no stride; 1 is as good.
    pick = replace(pick, stride=(1, 1))
    if fold_into_readers(r, move, root, pick, 0):
        return True

    # Runs of consecutive channels are slices.
    breaks = np.flatnonzero(np.diff(pick.channels) != 1) + 1
    runs = np.split(pick.channels, breaks)
    if len(runs) > MAX_SLICES:
        return pick_by_convolution(r, move, root, pick)
    # All channels in their order: the image itself.
    if len(runs) == 1 and len(runs[0]) == root.type.shape[3]:
        return r.forward(move, root)
    return r.forward(move, _joined(r, move, root, runs))


def _joined(r: Rewriter, move: Op, root: Value, runs: list[Array]) -> Value:
    """Return the concatenation of slices of the channels of `root`."""
    name = move.output.name
    parts: list[Value] = []
    for run in runs:
        cut = slice_axes(root.type, {3: (int(run[0]), len(run), 1)})
        parts.append(r.add(move, cut, [root], f"{name}_part"))
    if len(parts) == 1:
        return parts[0]
    return r.add(move, Concat(3), parts, f"{name}_shuffled")


def example(rng: np.random.Generator) -> Graph:
    """Return a shuffle of groups.

    It is written in several ways, and its result is read as it is, in halves, or by a
    convolution.
    """
    build = Builder("channel_shuffle")
    h, w = (int(n) for n in rng.integers(2, 6, 2))
    groups = integer(rng, 2, 5)
    each = 2 * integer(rng, 1, 5)
    c = groups * each
    q = random_quant(rng, 0.05)
    image = int8_input(build, (1, h, w, c), q)
    x = build.add(Relu(), [image], "x_relu", q)

    form = integer(rng, 0, 3)
    if form == 0:
        y = build.add(Reshape((1, h, w, groups, each)), [x])
        y = build.add(Transpose((0, 1, 2, 4, 3)), [y])
        y = build.add(Reshape((1, h, w, c)), [y])
    elif form == 1:
        y = build.add(Reshape((h, 1, w, groups, each)), [x])
        cuts = [slice_axes(y.type, {4: (i, 1, 1)}) for i in range(each)]
        parts = [build.add(cut, [y]) for cut in cuts]
        flat = [build.add(Reshape((1, h, w, groups)), [part]) for part in parts]
        y = build.add(Concat(3), flat)
    else:
        order = rng.permutation(c).astype(np.int32)
        y = build.add(Gather(3), [x, build.const(order)])
    return with_output(build, _reader(build, rng, y))


def _reader(build: Builder, rng: np.random.Generator, y: Value) -> Value:
    """Return the result of a random op that reads the shuffled channels."""
    channels = y.type.shape[3]
    how = integer(rng, 0, 3)
    if how == 0:
        return relu(build, y)
    if how == 1:
        first = channels // 2
        return build.add(slice_axes(y.type, {3: (first, channels - first, 1)}), [y])
    # A convolution can take the shuffle into its weights.
    weights = rng.integers(-127, 128, (3, 3, 3, channels)).astype(np.int8)
    bias = int32_bias(build, rng, 3, 500, Quant.per_tensor(y.type.scale * 0.01))
    spec = Conv2D(pads=(1, 1, 1, 1), act=choice(rng, ["none", "relu6"]))
    w = build.const(weights, "w", Quant.per_tensor(0.01))
    return build.add(spec, [y, w, bias], quant=Quant.per_tensor(0.2, 3))
