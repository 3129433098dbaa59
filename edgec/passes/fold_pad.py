"""Gives the border that a pad op writes to the convolution or pool that reads it."""

from __future__ import annotations

import math
from dataclasses import replace

from edgec.ir import Graph, Op, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.fixed_point import ACTIVATIONS
from edgec.ops.pad import Pad
from edgec.ops.pool import AveragePool2D, MaxPool2D


def run(graph: Graph) -> bool:
    """Where each reader's own border means the same."""
    rw = Rewriter(graph)
    for op in rw.ops("pad"):
        if (
            not isinstance(op.spec, Pad)
            or op.inputs[0].type.quant != op.output.type.quant
            or not _spatial(op.spec)
        ):
            continue
        for user in list(rw.users(op.output)):
            if _may_take(rw, op, op.spec, user):
                (_, _), (t, b), (left, r), (_, _) = op.spec.pads
                own = user.spec.pads  # type: ignore[attr-defined]
                pads = (own[0] + t, own[1] + b, own[2] + left, own[3] + r)
                rw.update(
                    user,
                    replace(user.spec, pads=pads),  # type: ignore[call-arg]
                    [op.inputs[0], *user.inputs[1:]],
                )
    return rw.changed


def _spatial(pad: Pad) -> bool:
    """A constant border of height and width alone."""
    return (
        pad.mode == "constant"
        and len(pad.pads) == 4
        and pad.pads[0] == pad.pads[3] == (0, 0)
    )


def _may_take(rw: Rewriter, op: Op, pad: Pad, user: Op) -> bool:
    """A convolution's border is 0, a maximum's below everything, a mean's 0 if it
    counts its own.
    """
    if user.inputs[0] is not op.output or op.output in user.inputs[1:]:
        return False
    if isinstance(user.spec, (Conv2D, DepthwiseConv2D)):
        return pad.value == 0
    if isinstance(user.spec, AveragePool2D):
        return pad.value == 0 and user.spec.count_pads
    if isinstance(user.spec, MaxPool2D):
        below = pad.value == -math.inf or (
            pad.value == 0 and _not_negative(rw, op.inputs[0])
        )
        return below and _every_window_touches(user.spec, pad)
    return False


def _not_negative(rw: Rewriter, x: Value) -> bool:
    """Whether an activation keeps a value at or above 0."""
    op = rw.made_by(x)
    if op is None:
        act = "none"
    else:
        act = op.kind if op.kind in ACTIVATIONS else getattr(op.spec, "act", "none")
    return ACTIVATIONS[act][0] >= 0


def _every_window_touches(pool: MaxPool2D, pad: Pad) -> bool:
    """Whether no window would lie in the joint border alone."""
    borders = [
        own + more
        for own, more in zip(pool.pads, (*pad.pads[1], *pad.pads[2]), strict=True)
    ]
    kernel = (pool.kernel[0], pool.kernel[0], pool.kernel[1], pool.kernel[1])
    return all(border < k for border, k in zip(borders, kernel, strict=True))
