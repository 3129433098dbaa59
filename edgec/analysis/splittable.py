"""Finds channels that could have tensors, and so scales, of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgec.analysis.channels import (
    FIXED,
    ChannelFactors,
    has_constant_weights,
    is_pointwise,
    sums_all_channels,
)
from edgec.ir import ChannelFlow, Graph, Op, Value


@dataclass(frozen=True)
class SplittablePath:
    """Channels that each go their own way from a convolution to a depthwise one.

    Some of them can have tensors, and so scales, of their own all the way.

    Attributes:
        producer: a convolution that sums over all channels
        between: pointwise ops that compute from its output alone
        consumer: the depthwise convolution that alone reads their result
    """

    producer: Op
    between: Sequence[Op]
    consumer: Op

    @property
    def values(self) -> Sequence[Value]:
        """The outputs of its ops."""
        ops = (self.producer, *self.between, self.consumer)
        return [op.output for op in ops]

    @property
    def last(self) -> Value:
        """The input of the depthwise convolution."""
        return self.consumer.inputs[0]


def splittable_paths(graph: Graph) -> Iterator[SplittablePath]:
    """Yield the paths whose channels can have no factor.

    Elsewhere factors bring unlike channels to one range without a split.
    """
    users = graph.users()
    factors = ChannelFactors(graph)
    for at, op in enumerate(graph.ops):
        # The weights of fully connected layers are matrices.
        is_convolution = sums_all_channels(op) and op.inputs[1].type.rank == 4
        if not is_convolution:
            continue

        later = graph.ops[at + 1 :]
        path = _path_from(op, later, users)
        if path is None:
            continue

        # The model's outputs must keep their channels together.
        inner = path.values[:-1]
        if any(v in graph.outputs for v in inner):
            continue

        classes = factors.channels(path.last)
        if classes is not None and (classes == FIXED).all():
            yield path


def _path_from(
    producer: Op, later: Sequence[Op], users: Mapping[Value, Sequence[Op]]
) -> SplittablePath | None:
    """Return the path that begins with a convolution.

    later: the ops after it, producers before their consumers. users: the ops that read
    each value.
    """
    between = _pointwise_after(producer, later)
    if not between:
        return None

    inside = {producer, *between}
    readers: list[Op] = []
    for op in inside:
        readers.extend(users.get(op.output, ()))

    consumers = [op for op in readers if op not in inside]
    if len(consumers) != 1 or not _is_depthwise(consumers[0]):
        return None

    # A depthwise convolution may also make several channels of one.
    consumer = consumers[0]
    channels = producer.output.type.shape[-1]
    if consumer.output.type.shape[-1] != channels:
        return None

    return SplittablePath(producer, between, consumer)


def _pointwise_after(producer: Op, later: Sequence[Op]) -> list[Op]:
    """Return the pointwise ops that compute from the output of an op alone."""
    values = {producer.output}
    between: list[Op] = []
    for op in later:
        computed = {v for v in op.inputs if v.const is None}
        is_inside = bool(computed) and computed <= values
        if not is_inside or len(op.outputs) != 1:
            continue
        if is_pointwise(op):
            between.append(op)
            values.add(op.output)
    return between


def _is_depthwise(op: Op) -> bool:
    """Return whether an op is a depthwise convolution with constant weights."""
    if op.spec.channel_flow is not ChannelFlow.DEPTHWISE:
        return False
    return has_constant_weights(op)
