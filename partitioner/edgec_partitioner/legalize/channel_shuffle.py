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
    integers,
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
    _, height, width, depth = root.type.shape
    if index.shape[1:3] != (height, width):
        return False

    # An image of one pixel in a direction has no stride; 1 is as good.
    pick = replace(pick, stride=(1, 1))
    if fold_into_readers(r, move, root, pick, 0):
        return True

    # Runs of consecutive channels are slices.
    channels = pick.channels
    steps = np.diff(channels)
    breaks = np.flatnonzero(steps != 1) + 1
    runs = np.split(channels, breaks)
    if len(runs) > MAX_SLICES:
        return pick_by_convolution(r, move, root, pick)

    # All channels in their order: the image itself.
    if len(runs) == 1 and len(channels) == depth:
        return r.forward(move, root)
    joined = _joined(r, move, root, runs)
    return r.forward(move, joined)


def _joined(r: Rewriter, move: Op, root: Value, runs: list[Array]) -> Value:
    """Return the concatenation of slices of the channels of `root`.

    move: the op before which the new ops stand; their names begin with its result's.
    runs: the consecutive channels of each slice.
    """
    name = move.output.name
    parts: list[Value] = []
    for run in runs:
        first = int(run[0])
        cut = slice_axes(root.type, {3: (first, len(run), 1)})
        part = r.add(move, cut, [root], f"{name}_part")
        parts.append(part)

    # A single slice needs no join.
    if len(parts) == 1:
        return parts[0]
    return r.add(move, Concat(3), parts, f"{name}_shuffled")


def example(rng: np.random.Generator) -> Graph:
    """Return a shuffle of groups.

    It is written in several ways, and its result is read as it is, in halves, or by a
    convolution.
    """
    build = Builder("channel_shuffle")
    h, w = integers(rng, 2, 6, 2)
    groups = integer(rng, 2, 5)
    each = 2 * integer(rng, 1, 5)
    c = groups * each
    q = random_quant(rng, 0.05)
    image = int8_input(build, (1, h, w, c), q)
    x = build.add(Relu(), [image], "x_relu", q)

    form = integer(rng, 0, 3)
    if form == 0:
        y = _by_transpose(build, x, groups)
    elif form == 1:
        y = _by_slices(build, x, groups)
    else:
        order = rng.permutation(c)
        indices = build.const(order.astype(np.int32))
        y = build.add(Gather(3), [x, indices])

    result = _reader(build, rng, y)
    return with_output(build, result)


def _by_transpose(build: Builder, x: Value, groups: int) -> Value:
    """Return the shuffle of groups of channels by a transpose of rank 5."""
    _, h, w, c = x.type.shape
    each = c // groups
    grouped = build.add(Reshape((1, h, w, groups, each)), [x])
    swapped = build.add(Transpose((0, 1, 2, 4, 3)), [grouped])
    return build.add(Reshape((1, h, w, c)), [swapped])


def _by_slices(build: Builder, x: Value, groups: int) -> Value:
    """Return the shuffle of groups of channels by slices that are joined."""
    _, h, w, c = x.type.shape
    each = c // groups
    # Other chains keep the batch in front; this one has it between the sides.
    grouped = build.add(Reshape((h, 1, w, groups, each)), [x])

    # Slice i has channel i of each group.
    parts: list[Value] = []
    for i in range(each):
        cut = slice_axes(grouped.type, {4: (i, 1, 1)})
        part = build.add(cut, [grouped])
        parts.append(part)

    flatten = Reshape((1, h, w, groups))
    flat = [build.add(flatten, [part]) for part in parts]
    return build.add(Concat(3), flat)


def _reader(build: Builder, rng: np.random.Generator, y: Value) -> Value:
    """Return the result of a random op that reads the shuffled channels."""
    channels = y.type.shape[3]
    how = integer(rng, 0, 3)
    if how == 0:
        return relu(build, y)

    if how == 1:
        first = channels // 2
        half = (first, channels - first, 1)
        cut = slice_axes(y.type, {3: half})
        return build.add(cut, [y])

    # A convolution can take the shuffle into its weights.
    weights = rng.integers(-127, 128, (3, 3, 3, channels))
    bias_scale = Quant.per_tensor(y.type.scale * 0.01)
    bias = int32_bias(build, rng, 3, 500, bias_scale)
    act = choice(rng, ["none", "relu6"])
    spec = Conv2D(pads=(1, 1, 1, 1), act=act)

    weight_scale = Quant.per_tensor(0.01)
    w = build.const(weights.astype(np.int8), "w", weight_scale)
    result_quant = Quant.per_tensor(0.2, 3)
    return build.add(spec, [y, w, bias], quant=result_quant)
