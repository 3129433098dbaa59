"""Channels through functions that keep no factor, from a convolution to a depthwise
one: strands, which can be parted.

A hard-swish of twice a channel is not twice that of the channel, so that no weights
make up for a factor (`Factors`), and one scale must hold all channels, however unlike.
But up to the result of the depthwise convolution each channel is made of itself alone:
some of them can have tensors, and scales, of their own all the way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgec.ir import Array, Graph, Op, OpDef, TensorType, Value
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.slice import Slice
from edgec.passes._channels import Channels, dense, orders, pointwise, reorder
from edgec.quantize.change.factors import NONE, Factors

_BLOCK = 8
"""Channels that kernels compute at once: fewer take much longer (a depthwise
convolution of 4 as long as one of 64).
"""
Parts = Sequence[Array]
"""The numbers of the channels of a strand that are together, in the order in which they
will be.
"""
_PART = re.compile(r"\.part\d+(\.used)?(?=(_int8|_f32)?$)")


def whole(name: str) -> str:
    """The name that a value had before its channels were parted; that of any other as
    it is.
    """
    return _PART.sub("", name)


@dataclass(frozen=True)
class SplittablePath:
    """maker: a dense convolution. between: what is computed of its result alone, each
    element by itself. reader: the depthwise convolution that reads the last of these,
    and nothing else reads any.
    """

    maker: Op
    between: Sequence[Op]
    reader: Op

    @property
    def values(self) -> Sequence[Value]:
        """What its ops write."""
        return [op.output for op in (self.maker, *self.between, self.reader)]

    @property
    def last(self) -> Value:
        """What the reader reads."""
        return self.reader.inputs[0]


def splittable_paths(graph: Graph) -> Iterator[SplittablePath]:
    """Those whose channels keep no factor."""
    users = graph.users()
    factors = Factors(graph)
    for at, op in enumerate(graph.ops):
        if not (isinstance(op.spec, Conv2D) and dense(op)):
            continue
        found = _splittable_path(op, graph.ops[at + 1 :], users)
        if found is None or any(
            v in graph.outputs for o in (op, *found.between) for v in o.outputs
        ):
            continue
        ids = factors.channels(found.last)
        if ids is not None and (ids == NONE).all():
            yield found


def _splittable_path(
    maker: Op, behind: Sequence[Op], users: Mapping[Value, Sequence[Op]]
) -> SplittablePath | None:
    """What begins with an op. behind: the ops after it, each after all that it reads."""
    values = {maker.output}
    between = list[Op]()
    for op in behind:
        computed = [v for v in op.inputs if v.const is None]
        if (
            computed
            and values.issuperset(computed)
            and len(op.outputs) == 1
            and pointwise(op)
        ):
            between.append(op)
            values.add(op.output)
    inside = {*between}
    readers = [op for v in values for op in users.get(v, ()) if op not in inside]
    if (
        len(readers) != 1
        or not between
        or not isinstance(readers[0].spec, DepthwiseConv2D)
    ):
        return None
    plain = all(v.const is not None for v in readers[0].inputs[1:])
    single = readers[0].output.type.shape[-1] == maker.output.type.shape[-1]
    return SplittablePath(maker, between, readers[0]) if plain and single else None


def part(
    graph: Graph, strand: SplittablePath, parts: Parts
) -> Mapping[str, Array] | None:
    """Give each part of the channels a strand of its own; their results are joined.

    The graph is changed.

    Channels that are together lie beside each other then, here and wherever they go:
    the order in which values now have them, by name, as numbers of what they were.
    None, and no change, where something stands in the way of that.
    """
    channels = Channels(graph)
    found = orders(channels, strand.maker.output, np.concatenate(parts))
    if found is None:
        return None
    reorder(channels, found)
    ends = list[Value]()
    start = 0
    for number, numbers in enumerate(parts, 1):
        ends.append(
            _twin(graph, strand, np.arange(start, start + len(numbers)), number)
        )
        start += len(numbers)
    graph.ops[graph.ops.index(strand.reader)] = Op(
        Concat(3), ends, [strand.reader.output], strand.reader.source
    )
    for op in (strand.maker, *strand.between):
        graph.ops.remove(op)
    return {v.name: order for v, order in found.items()}


def part_name(name: str, number: int) -> str:
    """Of what a part has in place of a value; parts are counted from 1."""
    return f"{name}.part{number}"


def used_name(name: str) -> str:
    """Of what a part's result is without the channels that it has twice."""
    return f"{name}.used"


def filled(numbers: Array) -> Array:
    """The channels that tensors of a part have: those of the part, and some of them
    again where they are few.
    """
    return np.resize(numbers, max(len(numbers), _BLOCK))


def _twin(graph: Graph, strand: SplittablePath, numbers: Array, part_: int) -> Value:
    """The strand on some of its channels, right before the reader; returns its result."""
    twins = dict[Value, Value]()
    of = filled(numbers)
    for op in (strand.maker, *strand.between, strand.reader):
        inputs = [twins.get(v) or _of(graph, op, v, of) for v in op.inputs]
        twins[op.output] = _before(
            graph, strand.reader, op.spec, inputs, part_name(op.output.name, part_)
        )
    y = twins[strand.reader.output]
    if len(of) == len(numbers):
        return y
    ends = (*y.type.shape[:3], len(numbers))
    return _before(
        graph, strand.reader, Slice((0,) * 4, ends, (1,) * 4), [y], used_name(y.name)
    )


def _before(
    graph: Graph, op: Op, spec: OpDef, inputs: Sequence[Value], name: str
) -> Value:
    """A new op before another; returns its result."""
    (type_,) = spec.infer(*(v.type for v in inputs))
    y = Value(graph.unique_name(name), type_)
    graph.ops.insert(graph.ops.index(op), Op(spec, [*inputs], [y], op.source))
    return y


def _of(graph: Graph, op: Op, v: Value, of: Array) -> Value:
    """What an op on some channels reads in place of a constant; the maker's image is
    for all.
    """
    if v.const is None or v.type.size == 1:
        return v
    array = v.const[of] if dense(op) else v.const[..., of]
    return Value(
        graph.unique_name(v.name),
        TensorType(array.shape, v.type.dtype),
        np.ascontiguousarray(array),
    )
