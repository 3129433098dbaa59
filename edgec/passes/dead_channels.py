"""Removes the channels of float graphs that are constant whatever the input.

Their contribution to the next layer goes into its bias. Training drives the filters of
unneeded channels to zero. The outputs of a zero filter are all equal, and so are their
functions up to the next sum over channels.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgec.ir import Array, Graph, Op, Value
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.fixed_point import clamp_float
from edgec.ops.matmul import FullyConnected
from edgec.ops.pad import Pad
from edgec.ops.pool import AveragePool2D
from edgec.ops.shape import Reshape
from edgec.passes._channels import (
    Channels,
    dense,
    flattened,
    follows,
    pointwise,
    without,
)
from edgec.passes._linear import has_border

_NOTHING = 1e-12
"""A weight below this part of the largest weight of its layer is taken for zero: its
share is below the precision of float32.
"""


def run(graph: Graph) -> bool:
    """Remove dead channels of convolutions and fully connected layers.

    Channels tied by an add or a concatenation are removed together or not at all. A
    channel stays if a product reads it as unknown, or as a number other than zero next
    to a border of zeros.
    """
    if not any(_has_dead(op) for op in graph.ops):
        return False
    known = constants(graph)
    channels = Channels(graph)
    held = channels.locked()
    for op in channels.readers:
        x = op.inputs[0]
        w = _weights(op)
        k = known[x]
        read = np.any(w != 0, axis=tuple(range(w.ndim - 1)))
        same = np.isfinite(k) & ((k == 0) | (not has_border(op)))
        held.update(channels.groups(x)[read & ~same].tolist())
    dead = {
        int(i)
        for op in graph.ops
        for v in op.outputs
        if v in known
        for i in channels.groups(v)
    } - held
    return without(channels, dead, {v: np.nan_to_num(k) for v, k in known.items()})


def constants(graph: Graph) -> Mapping[Value, Array]:
    """Return the constants that channels of computed float values are.

    The result has an array [C] for each value, with NaN for channels that depend on
    the input.
    """
    found: dict[Value, Array] = {v: _unknown(v) for v in graph.inputs}
    for op in graph.ops:
        for v in op.outputs:
            found[v] = _unknown(v)
        if (
            len(op.outputs) == 1
            and op.output.type.dtype == "float32"
            and op.output.type.rank
        ):
            y = _of_op(op, found)
            if y is not None:
                found[op.output] = y
    return found


def _of_op(op: Op, known: Mapping[Value, Array]) -> Array | None:
    """Return the constants of the output channels of an op, NaN for others.

    None if the op mixes channels. A pad keeps a channel constant only if it adds the
    same number, and an average pool with pads only zeros.
    """
    ins = [known[v] for v in op.inputs if v.const is None]
    if not ins:
        return None
    if isinstance(op.spec, (Conv2D, DepthwiseConv2D, FullyConnected)):
        product = dense(op) or (isinstance(op.spec, DepthwiseConv2D) and follows(op))
        return _of_product(op, ins[0]) if product else None
    if isinstance(op.spec, Concat):
        if op.spec.axis == op.output.type.rank - 1 and len(ins) == len(op.inputs):
            return np.concatenate(ins)
        return None
    if isinstance(op.spec, Reshape) and flattened(op):
        return np.tile(ins[0], flattened(op))
    if pointwise(op):
        return _of_elements(op, known)
    if not follows(op):
        return None
    if isinstance(op.spec, Pad):
        if np.any(op.spec.pads):
            return np.where(ins[0] == op.spec.value, ins[0], np.nan)
        return ins[0]
    if isinstance(op.spec, AveragePool2D) and any(op.spec.pads):
        return np.where(ins[0] == 0, 0.0, np.nan)
    return ins[0]


def _of_product(op: Op, k: Array) -> Array:
    """Return the outputs of a product, NaN where it reads an unknown channel.

    A filter of zeros gives the bias; one that reads only constant channels a constant.
    `k` has the constants of the input channels.
    """
    w = _weights(op)
    if has_border(op):
        k = np.where(k == 0, k, np.nan)
    unknown = ~np.isfinite(k)
    terms = w * np.where(unknown, 0.0, k)
    if isinstance(op.spec, DepthwiseConv2D):
        axes = tuple(range(3))
    else:
        axes = tuple(range(1, w.ndim))
    varies = np.any((w != 0) & unknown, axis=axes)
    bias = op.inputs[2].const if len(op.inputs) > 2 else None
    total = terms.sum(axes) + (0.0 if bias is None else bias)
    return np.where(varies, np.nan, clamp_float(total.astype(np.float32), op.spec.act))  # type: ignore[attr-defined]


def _of_elements(op: Op, known: Mapping[Value, Array]) -> Array:
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
        x = known[v] if v.const is None else np.broadcast_to(v.const.reshape(-1), count)
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
    if not isinstance(op.spec, (Conv2D, DepthwiseConv2D, FullyConnected)):
        return False
    if any(v.const is None for v in op.inputs[1:]) or op.output.type.dtype != "float32":
        return False
    w = _weights(op)
    axes = tuple(i for i in range(w.ndim) if i != op.spec.weight_axis)
    return bool(np.any(~np.any(w != 0, axis=axes)))


def _unknown(v: Value) -> Array:
    """Return NaN for each channel of a value."""
    return np.full(v.type.shape[-1] if v.type.rank else 1, np.nan)
