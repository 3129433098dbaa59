"""What the passes that fold into weights share: convolutions, fully connected layers
and the like.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Array, Op, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.conv import DepthwiseConv2D


def is_linear(op: Op) -> bool:
    """Whether the op is a float one with constant weights, an optional constant bias
    and no activation yet.
    """
    return (
        op.spec.roles[:3] == ("act", "weight", "bias")
        and getattr(op.spec, "act", "none") == "none"
        and op.outputs[0].type.dtype == "float32"
        and all(v.const is not None for v in op.inputs[1:])
    )


def linear_before(rw: Rewriter, value: Value) -> Op | None:
    """The linear op that writes a value which only one op reads."""
    op = rw.private(value)
    return op if op is not None and is_linear(op) else None


def bias_of(op: Op) -> Array:
    """The bias in double; zeros without."""
    if len(op.inputs) > 2:
        bias = op.inputs[2].const
        assert bias is not None
        return bias.astype(np.float64)
    return np.zeros(op.output.type.shape[-1])


def has_border(op: Op) -> bool:
    """Whether it reads zeros around the image."""
    return any(getattr(op.spec, "pads", ()))


def columns(op: Op, each: Array) -> Array:
    """What there is for each channel that a linear op reads, to broadcast with its
    weights.
    """
    w = op.inputs[1].type
    if isinstance(op.spec, DepthwiseConv2D):
        return np.repeat(each, w.shape[3] // len(each))
    if w.rank == 4:
        of_groups = each.reshape(-1, w.shape[3])
        return np.repeat(of_groups, w.shape[0] // len(of_groups), axis=0)[:, None, None]
    # a flattened image has its channels once for each pixel
    return np.tile(each, w.shape[1] // len(each))


def scaled(rw: Rewriter, op: Op, scale: Array, offset: Array) -> list[Value]:
    """The inputs of a linear op that computes scale * op(x) + offset, both vectors over
    the output channels.
    """
    w = op.inputs[1]
    assert w.const is not None
    along = [1] * w.type.rank
    along[op.spec.weight_axis] = -1
    inputs = [op.inputs[0], w]
    # what is infinite in the file stays so, and is told of
    with np.errstate(over="ignore", invalid="ignore"):
        product = (
            w.const.astype(np.float64) * scale.astype(np.float64).reshape(along)
        ).astype(np.float32)
        bias = (bias_of(op) * scale + offset).astype(np.float32)
    if not (scale == 1).all():
        inputs[1] = rw.const(product, w.name)
    if len(op.inputs) > 2 or bias.any():
        inputs.append(
            rw.const(
                bias, op.inputs[2].name if len(op.inputs) > 2 else f"{w.name}_bias"
            )
        )
    return inputs
