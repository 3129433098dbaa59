"""Adds the border of a pad op to the pads of the convolution or pool that reads it."""

from __future__ import annotations

import math
from dataclasses import replace

from edgec.ir import ChannelFlow, Graph, Op, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.fixed_point import ACTIVATIONS
from edgec.ops.pad import Pad
from edgec.ops.pool import AveragePool2D, MaxPool2D


def run(graph: Graph) -> bool:
    """Fold each pad op into those of its users whose pads stand for the same value."""
    rw = Rewriter(graph)
    for op, pad in rw.matches(Pad):
        if not _spatial(pad):
            continue
        if op.inputs[0].type.quant != op.output.type.quant:
            continue
        # Users without pads of the right value keep the pad op.
        for user in list(rw.users(op.output)):
            if _accepts(rw, op, pad, user):
                _fold(rw, op, pad, user)
    return rw.changed


def _fold(rw: Rewriter, op: Op, pad: Pad, user: Op) -> None:
    """Let `user` read the input of the pad op, with the sum of both pads."""
    _, (top, bottom), (left, right), _ = pad.pads
    present = user.spec.pads  # type: ignore[attr-defined]
    pads = (
        present[0] + top,
        present[1] + bottom,
        present[2] + left,
        present[3] + right,
    )
    spec = replace(user.spec, pads=pads)  # type: ignore[call-arg]
    rw.update(user, spec, [op.inputs[0], *user.inputs[1:]])


def _spatial(pad: Pad) -> bool:
    """Return whether a pad adds a constant border of height and width alone.

    The tensor is then a batch of images, [N, H, W, C].
    """
    if pad.mode != "constant" or len(pad.pads) != 4:
        return False
    return pad.pads[0] == pad.pads[3] == (0, 0)


def _accepts(rw: Rewriter, op: Op, pad: Pad, user: Op) -> bool:
    """Return whether a user's own pads stand for the value that the pad op writes.

    The border of a convolution is 0, that of a maximum below every number, and that of
    a mean 0 if it counts its pads as elements.
    """
    # The padded tensor must be the image, not a filter or a second operand.
    if user.inputs[0] is not op.output or op.output in user.inputs[1:]:
        return False
    if user.spec.channel_flow in (ChannelFlow.SUMS, ChannelFlow.DEPTHWISE):
        return pad.value == 0
    # Without `count_pads` the mean is over the elements of the image alone.
    if isinstance(user.spec, AveragePool2D):
        return pad.value == 0 and user.spec.count_pads
    if isinstance(user.spec, MaxPool2D):
        # Zeros never exceed the maximum of numbers that are not negative.
        never_largest = pad.value == -math.inf
        if pad.value == 0 and _not_negative(rw, op.inputs[0]):
            never_largest = True
        return never_largest and _every_window_touches(user.spec, pad)
    return False


def _not_negative(rw: Rewriter, x: Value) -> bool:
    """Return whether an activation keeps a value at or above 0."""
    op = rw.made_by(x)
    if op is None:
        return False
    if op.kind in ACTIVATIONS:
        act = op.kind
    else:
        act = getattr(op.spec, "act", "none")
    low, _ = ACTIVATIONS[act]
    return low >= 0


def _every_window_touches(pool: MaxPool2D, pad: Pad) -> bool:
    """Return whether every window has an element of the image.

    A window within the joint border would have no maximum.
    """
    kernel_h, kernel_w = pool.kernel
    kernel = (kernel_h, kernel_h, kernel_w, kernel_w)
    added = (*pad.pads[1], *pad.pads[2])
    for size, present, more in zip(kernel, pool.pads, added, strict=True):
        if present + more >= size:
            return False
    return True
