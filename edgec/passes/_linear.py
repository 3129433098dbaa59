"""Helpers of the passes that fold constants into the weights of linear ops.

Linear ops are convolutions, transposed convolutions and fully connected layers.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Array, ChannelFlow, Op, Value
from edgec.ir.rewrite import Rewriter


def is_linear(op: Op) -> bool:
    """Return whether `op` is a float linear op with constant weights.

    Its bias, if it has one, is constant too, and it has no activation.
    """
    return (
        op.spec.roles[:3] == ("act", "weight", "bias")
        and getattr(op.spec, "act", "none") == "none"
        and op.outputs[0].type.dtype == "float32"
        and all(v.const is not None for v in op.inputs[1:])
    )


def linear_before(rw: Rewriter, value: Value) -> Op | None:
    """Return the linear op that writes `value`, if the value has a single user.

    None for other values.
    """
    op = rw.private(value)
    return op if op is not None and is_linear(op) else None


def bias_of(op: Op) -> Array:
    """Return the bias of a linear op in double, zeros if it has none.

    The shape is [C], for C output channels.
    """
    if len(op.inputs) > 2:
        bias = op.inputs[2].const
        assert bias is not None
        return bias.astype(np.float64)
    return np.zeros(op.output.type.shape[-1])


def columns(op: Op, each: Array) -> Array:
    """Return a vector over the input channels in a shape that broadcasts with weights.

    each: one number for each channel that the linear op `op` reads.
    """
    w = op.inputs[1].type
    if op.spec.channel_flow is ChannelFlow.DEPTHWISE:
        return np.repeat(each, w.shape[3] // len(each))
    if w.rank == 4:
        # Weights are [N, KH, KW, C / groups], with the outputs of a group in a row.
        of_groups = each.reshape(-1, w.shape[3])
        return np.repeat(of_groups, w.shape[0] // len(of_groups), axis=0)[:, None, None]
    # A flattened image has its channels once for each pixel.
    return np.tile(each, w.shape[1] // len(each))


def scaled(rw: Rewriter, op: Op, scale: Array, offset: Array) -> list[Value]:
    """Return the inputs with which `op` computes scale * op(x) + offset.

    Scale and offset are vectors over the output channels. The constants are new where
    they differ from the old ones.
    """
    w = op.inputs[1]
    assert w.const is not None
    along = [1] * w.type.rank
    along[op.spec.weight_axis] = -1
    inputs = [op.inputs[0], w]
    # An infinite weight of the file stays infinite, and is reported.
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
