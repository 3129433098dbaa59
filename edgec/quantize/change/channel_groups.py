"""Splits the channels of a tensor into several tensors with scales of their own.

Outlier channels widen the range, and so the steps, of all others. Cross-layer
equalization brings channels to one size by factors, but a hard-swish of twice a channel
is not twice that of the channel, so that no weights could make up for a factor. Up to
the result of a depthwise convolution each channel is computed from itself alone,
though: some of them can have tensors, and so scales, of their own along such a path
(`SplittablePath`). Outlier channel splitting (Zhao et al. 2019, arXiv:1901.09504)
halves a channel instead; here the channels stay whole, and no sum gets a term more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from edgec.analysis.channels import ChannelGroups, sums_all_channels
from edgec.analysis.splittable import SplittablePath
from edgec.ir import Array, Graph, Op, OpDef, TensorType, Value
from edgec.ops.concat import Concat
from edgec.ops.slice import Slice
from edgec.passes._channel_edits import orders, reorder

_BLOCK = 8
"""Channels that kernels compute at once: fewer take much longer (a depthwise
convolution of 4 as long as one of 64).
"""
Parts = Sequence[Array]
"""The numbers of the channels of each part, in the order in which the parts will lie."""
_PART_SUFFIX = re.compile(r"\.part\d+(\.used)?(?=(_int8|_f32)?$)")
"""The end of a name that `part_name` or `used_name` made."""


def whole(name: str) -> str:
    """Return the name that a value had before its channels were split.

    Any other name is returned as it is.
    """
    return _PART_SUFFIX.sub("", name)


def part(
    graph: Graph, path: SplittablePath, parts: Parts
) -> Mapping[str, Array] | None:
    """Split the channels of a path into parts, and join their results again.

    The graph is changed: each part gets ops of its own in place of those of the path.
    The channels of a part must lie beside each other, so that channels change their
    places here and wherever they go. Returns the new order of each value by its name,
    [C] old channel numbers; None, and no change, where the order cannot change.
    """
    channels = ChannelGroups(graph)
    new_orders = orders(channels, path.producer.output, np.concatenate(parts))
    if new_orders is None:
        return None

    reorder(channels, new_orders)
    results: list[Value] = []
    start = 0
    for number, members in enumerate(parts, 1):
        numbers = np.arange(start, start + len(members))
        results.append(_copy(graph, path, numbers, number))
        start += len(members)

    consumer = path.consumer
    joined = Op(Concat(3), results, [consumer.output], consumer.source)
    graph.ops[graph.ops.index(consumer)] = joined
    for op in (path.producer, *path.between):
        graph.ops.remove(op)
    return {v.name: order for v, order in new_orders.items()}


def part_name(name: str, number: int) -> str:
    """Return the name of a part of a value; parts are counted from 1."""
    return f"{name}.part{number}"


def used_name(name: str) -> str:
    """Return the name of a part's result without the channels that it has twice."""
    return f"{name}.used"


def filled(numbers: Array) -> Array:
    """Return the channels of a part, some of them again where they are few.

    Kernels take no longer for a whole block.
    """
    return np.resize(numbers, max(len(numbers), _BLOCK))


def _copy(graph: Graph, path: SplittablePath, numbers: Array, part_: int) -> Value:
    """Add the ops of a path for some of its channels, and return their result.

    They stand right before the depthwise convolution. part_: number of the part.
    """
    copies: dict[Value, Value] = {}
    channels = filled(numbers)
    for op in (path.producer, *path.between, path.consumer):
        inputs: list[Value] = []
        for v in op.inputs:
            inputs.append(copies.get(v) or _of_channels(graph, op, v, channels))
        name = part_name(op.output.name, part_)
        copies[op.output] = _insert(graph, path.consumer, op.spec, inputs, name)

    result = copies[path.consumer.output]
    if len(channels) == len(numbers):
        return result

    # Channels that were repeated to fill a block are dropped.
    ends = (*result.type.shape[:3], len(numbers))
    first = Slice((0,) * 4, ends, (1,) * 4)
    return _insert(graph, path.consumer, first, [result], used_name(result.name))


def _insert(
    graph: Graph, before: Op, spec: OpDef, inputs: Sequence[Value], name: str
) -> Value:
    """Insert an op before another one, and return its output."""
    (type_,) = spec.infer(*(v.type for v in inputs))
    output = Value(graph.unique_name(name), type_)
    op = Op(spec, [*inputs], [output], before.source)
    graph.ops.insert(graph.ops.index(before), op)
    return output


def _of_channels(graph: Graph, op: Op, v: Value, channels: Array) -> Value:
    """Return what an op on some output channels reads in place of a value.

    That is some rows of a constant; the producer's image and scalars serve all parts.
    """
    if v.const is None or v.type.size == 1:
        return v

    # Dense weights have the output channels first, all other constants last.
    if sums_all_channels(op):
        array = v.const[channels]
    else:
        array = v.const[..., channels]

    type_ = TensorType(array.shape, v.type.dtype)
    return Value(graph.unique_name(v.name), type_, np.ascontiguousarray(array))
