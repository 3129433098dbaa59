"""Removes the channels of float graphs that are constant whatever the input.

Their contribution to the next layer goes into its bias. Training drives the filters of
unneeded channels to zero. The outputs of a zero filter are all equal, and so are their
functions up to the next sum over channels.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgec.analysis.channels import (
    FIXED,
    ChannelGroups,
    is_pointwise,
    maps_channels,
    sums_all_channels,
)
from edgec.ir import Array, ChannelFlow, Graph, Op, Value
from edgec.ops.fixed_point import clamp_float
from edgec.passes._channel_edits import without

_NOTHING = 1e-12
"""A weight below this part of the largest weight of its layer is taken for zero: its
share is below the precision of float32.
"""


def run(graph: Graph) -> bool:
    """Remove dead channels of convolutions and fully connected layers.

    Channels tied by an add or a concatenation are removed together or not at all. A
    channel stays if its value is not a known constant where a layer multiplies it, or
    if that constant is not zero next to a border of zeros.
    """
    if not any(_has_dead(op) for op in graph.ops):
        return False
    known = constants(graph)
    channels = ChannelGroups(graph)
    fixed = {FIXED}
    for op in channels.consumers:
        x = op.inputs[0]
        w = _weights(op)
        k = known[x]
        read = np.any(w != 0, axis=tuple(range(w.ndim - 1)))
        same = np.isfinite(k) & ((k == 0) | (op.spec.border() is None))
        fixed.update(channels.groups(x)[read & ~same].tolist())
    dead = {
        int(i)
        for op in graph.ops
        for v in op.outputs
        if v in known
        for i in channels.groups(v)
    } - fixed
    return without(channels, dead, {v: np.nan_to_num(k) for v, k in known.items()})


def constants(graph: Graph) -> Mapping[Value, Array]:
    """Return the constants that channels of computed float values are.

    The result has an array [C] for each value, with NaN for channels that depend on
    the input.
    """
    elements: dict[Value, Array] = {v: _unknown(v) for v in graph.inputs}
    for op in graph.ops:
        for v in op.outputs:
            elements[v] = _unknown(v)
        if (
            len(op.outputs) == 1
            and op.output.type.dtype == "float32"
            and op.output.type.rank
        ):
            y = _of_op(op, elements)
            if y is not None:
                elements[op.output] = y
    return elements


def _of_op(op: Op, constants: Mapping[Value, Array]) -> Array | None:
    """Return the constants of the output channels of an op, NaN for others.

    None if the op mixes channels. A pad keeps a channel constant only if it adds the
    same number, and an average pool with pads only zeros.
    """
    if all(v.const is not None for v in op.inputs):
        return None

    flow = op.spec.channel_flow
    if flow.has_weights:
        has_own = flow is ChannelFlow.DEPTHWISE and maps_channels(op)
        is_known = sums_all_channels(op) or has_own
        return _of_product(op, constants[op.inputs[0]]) if is_known else None

    if flow is ChannelFlow.MOVES:
        channels = [None if v.const is not None else constants[v] for v in op.inputs]
        return op.spec.move_channels(op, channels)

    if is_pointwise(op):
        return _of_elements(op, constants)

    if not maps_channels(op):
        return None

    # Next to a border of another number a channel is not constant.
    x = constants[op.inputs[0]]
    border = op.spec.border()
    return x if border is None else np.where(x == border, x, np.nan)


def _of_product(op: Op, k: Array) -> Array:
    """Return the outputs of a product, NaN where it reads an unknown channel.

    A filter of zeros gives the bias; one that reads only constant channels a constant.
    `k` has the constants of the input channels.
    """
    w = _weights(op)
    if op.spec.border() is not None:
        k = np.where(k == 0, k, np.nan)
    unknown = ~np.isfinite(k)
    terms = w * np.where(unknown, 0.0, k)
    if op.spec.channel_flow is ChannelFlow.DEPTHWISE:
        axes = tuple(range(3))
    else:
        axes = tuple(range(1, w.ndim))
    varies = np.any((w != 0) & unknown, axis=axes)
    bias = op.inputs[2].const if len(op.inputs) > 2 else None
    total = terms.sum(axes) + (0.0 if bias is None else bias)
    return np.where(varies, np.nan, clamp_float(total.astype(np.float32), op.spec.act))  # type: ignore[attr-defined]


def _of_elements(op: Op, constants: Mapping[Value, Array]) -> Array:
    """Return the result of an elementwise op on one pixel of constants.

    The op's reference implementation computes it; a channel with an unknown operand is
    NaN.
    """
    rank = op.output.type.rank
    count = op.output.type.shape[-1]
    pixel = (*(1,) * (rank - 1), count)
    unknown = np.zeros(count, bool)
    args = []
    for v in op.inputs:
        x = (
            constants[v]
            if v.const is None
            else np.broadcast_to(v.const.reshape(-1), count)
        )
        unknown |= ~np.isfinite(x)
        args.append(np.nan_to_num(x).astype(np.float32).reshape(pixel))
    types = [v.type.with_shape(pixel) for v in op.inputs]
    (y,) = op.spec.ref(args, types, [op.output.type.with_shape(pixel)])
    return np.where(unknown, np.nan, y.reshape(-1))


def _weights(op: Op) -> Array:
    """Return the weights in double, with negligible ones set to zero."""
    w = op.inputs[1].const
    assert w is not None
    real = w.astype(np.float64)
    return np.where(np.abs(real) > _NOTHING * np.abs(real).max(initial=0.0), real, 0.0)


def _has_dead(op: Op) -> bool:
    """Return whether a filter of a float product is zero.

    Without a zero filter, no channel of the graph is constant.
    """
    if op.spec.channel_flow not in (ChannelFlow.SUMS, ChannelFlow.DEPTHWISE):
        return False
    if any(v.const is None for v in op.inputs[1:]) or op.output.type.dtype != "float32":
        return False
    w = _weights(op)
    axes = tuple(i for i in range(w.ndim) if i != op.spec.weight_axis)
    return bool(np.any(~np.any(w != 0, axis=axes)))


def _unknown(v: Value) -> Array:
    """Return NaN for each channel of a value."""
    return np.full(v.type.shape[-1] if v.type.rank else 1, np.nan)
