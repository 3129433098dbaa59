"""Groups of channels that must be removed or reordered together, and both edits.

A channel is an index of the last axis of a value. Channels that an elementwise op adds
belong to one group, for example.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np

from edgec.ir import Array, Graph, Op, TensorType, Value
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.matmul import FullyConnected
from edgec.ops.pad import Pad
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec.ops.prelu import PRelu
from edgec.ops.reduce import Mean
from edgec.ops.resize import ResizeBilinear, ResizeNearest
from edgec.ops.shape import Reshape


class Channels:
    """The channel groups of a float graph.

    Each channel of each value has the number of its group. The groups are disjoint
    sets, joined as the ops are visited (union-find).
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._parent: list[int] = []
        self._locked: set[int] = set()
        self._of: dict[Value, list[int]] = {}
        self.readers: list[Op] = []
        """Convolutions and products, as sums over the channels of their first input."""
        for v in graph.inputs:
            self._lock(v)
        for op in graph.ops:
            self._link(op)
        for v in graph.outputs:
            self._lock(v)

    def groups(self, v: Value) -> Array:
        """Return the group of each channel of a computed value, [C]."""
        return np.array([self._root(i) for i in self._channels(v)], np.int64)

    def locked(self) -> set[int]:
        """Return the groups that must stay as they are.

        They contain channels of the interface or of ops that mix channels.
        """
        return {self._root(i) for i in self._locked}

    def _root(self, i: int) -> int:
        """Return the representative of the group of channel number `i`."""
        while self._parent[i] != i:
            self._parent[i] = self._parent[self._parent[i]]
            i = self._parent[i]
        return i

    def _channels(self, v: Value) -> list[int]:
        """Return the numbers of the channels of a value, new ones at first.

        A scalar counts as one channel.
        """
        if v not in self._of:
            start = len(self._parent)
            count = v.type.shape[-1] if v.type.rank else 1
            self._parent += range(start, start + count)
            self._of[v] = [*range(start, start + count)]
        return self._of[v]

    def _lock(self, v: Value) -> None:
        self._locked.update(self._channels(v))

    def _tie(self, one: list[int], two: list[int]) -> None:
        """Merge the groups of the channels at equal places of both lists."""
        for a, b in zip(one, two, strict=True):
            self._parent[self._root(a)] = self._root(b)

    def _link(self, op: Op) -> None:
        """Join the groups of channels that `op` ties, and lock those that it mixes.

        A concatenation along the last axis ties each of its output channels to one
        channel of an input, a flattened image one channel to one element of each
        pixel.
        """
        computed = [v for v in op.inputs if v.const is None]
        floats = all(
            v.type.dtype == "float32" and v.type.rank for v in (*computed, *op.outputs)
        )
        x = op.inputs[0] if op.inputs else None
        if not floats or x is None or x.const is not None or len(op.outputs) != 1:
            self._lock_all(op)
        elif dense(op):
            self.readers.append(op)
            self._channels(op.output)
        elif computed == [x] and follows(op):
            self._tie(self._channels(op.output), self._channels(x))
        elif (
            isinstance(op.spec, Concat)
            and op.spec.axis == x.type.rank - 1
            and len(computed) == len(op.inputs)
        ):
            self._tie(
                self._channels(op.output),
                [i for v in op.inputs for i in self._channels(v)],
            )
        elif isinstance(op.spec, Reshape) and (copies := flattened(op)):
            self._tie(self._channels(op.output), self._channels(x) * copies)
        elif pointwise(op):
            for v in computed:
                self._tie(self._channels(op.output), self._channels(v))
        else:
            self._lock_all(op)

    def _lock_all(self, op: Op) -> None:
        """Lock the channels of all computed values of an op."""
        for v in (*(v for v in op.inputs if v.const is None), *op.outputs):
            self._lock(v)


def dense(op: Op) -> bool:
    """Return whether each output channel is a weighted sum over all input channels.

    The weights must be constant. A grouped convolution sums over some channels only.
    """
    if any(v.const is None for v in op.inputs[1:]):
        return False
    x = op.inputs[0].type
    w = op.inputs[1].type if len(op.inputs) > 1 else None
    if isinstance(op.spec, Conv2D):
        return w is not None and w.shape[3] == x.shape[3]
    return (
        isinstance(op.spec, FullyConnected)
        and w is not None
        and w.shape[1] == x.shape[-1]
    )


def follows(op: Op) -> bool:
    """Return whether each output channel depends on the same input channel alone.

    The op must have a single computed input.
    """
    x = op.inputs[0].type
    y = op.output.type
    # Slices rather than indices, as scalars have no channels.
    if x.shape[-1:] != y.shape[-1:]:
        return False
    match op.spec:
        case DepthwiseConv2D():
            return all(v.const is not None for v in op.inputs[1:])
        case Pad(pads=pads, mode=mode):
            return mode == "constant" and pads[-1] == (0, 0)
        case Mean(axes=axes):
            return x.rank - 1 not in axes
        case (
            Reshape()
            | MaxPool2D()
            | AveragePool2D()
            | ResizeBilinear()
            | ResizeNearest()
        ):
            return True
    return pointwise(op)


def pointwise(op: Op) -> bool:
    """Return whether each element depends on elements at the same place only.

    A constant operand may have one element, or one for each channel.
    """
    count = op.output.type.shape[-1]
    if not (op.spec.elementwise or isinstance(op.spec, PRelu)):
        return False
    return all(
        _per_channel(v, count) if v.const is not None else v.type.shape[-1:] == (count,)
        for v in op.inputs
    )


def _per_channel(v: Value, count: int) -> bool:
    """Return whether a constant has one element, or one for each channel."""
    return v.type.size == 1 or (v.type.size == count and v.type.shape[-1] == count)


def flattened(op: Op) -> int:
    """Return how many pixels a reshape puts in a row, 0 for other reshapes.

    The output then has one row with all channels of all pixels of the image.
    """
    x = op.inputs[0].type
    y = op.output.type
    pixels = prod(x.shape[:-1])
    if x.rank > 1 and y.size == y.shape[-1] == x.size and pixels > 1:
        return pixels
    return 0


def without(
    channels: Channels, dead: set[int], constants: Mapping[Value, Array]
) -> bool:
    """Remove the channels of `dead` groups, and return whether there were any.

    The graph is changed. constants: for each value that a product reads, the numbers
    of its channels, [C]; for removed channels their share goes into the bias of the
    product. A value keeps its first channel if it would have none.
    """
    graph = channels.graph
    values = [
        v
        for v in graph.values()
        if v.const is None and v.type.dtype == "float32" and v.type.rank
    ]
    for v in values:
        groups = channels.groups(v)
        if groups.size and {*groups.tolist()} <= dead:
            dead.discard(int(groups[0]))
    kept = {v: ~np.isin(channels.groups(v), [*dead]) for v in values}
    if all(k.all() for k in kept.values()):
        return False
    readers = {*channels.readers}
    for op in graph.ops:
        if any(v in kept and not kept[v].all() for v in (*op.inputs, *op.outputs)):
            _edit(graph, op, kept, constants if op in readers else None)
    return True


def _edit(
    graph: Graph,
    op: Op,
    kept: Mapping[Value, Array],
    constants: Mapping[Value, Array] | None,
) -> None:
    """Let `op` work on the kept channels of its values.

    kept: a mask over the channels of each value. constants: the numbers of the removed
    channels for a product, None for another op.
    """
    rows = kept[op.output]
    if constants is not None:
        _fold(graph, op, kept[op.inputs[0]], constants)
        columns = kept[op.inputs[0]]
        _put(graph, op, 1, _array(op, 1)[..., columns][rows])
        if len(op.inputs) > 2:
            _put(graph, op, 2, _array(op, 2)[rows])
    else:
        for i, v in enumerate(op.inputs):
            if v.const is not None and v.type.size > 1:
                _put(graph, op, i, v.const[..., rows])
    if isinstance(op.spec, Reshape):
        op.spec = replace(op.spec, shape=(*op.spec.shape[:-1], int(rows.sum())))
    for v in op.outputs:
        v.type = replace(v.type, shape=(*v.type.shape[:-1], int(rows.sum())))


def orders(channels: Channels, v: Value, order: Array) -> dict[Value, Array] | None:
    """Return the channel orders of all values if `v` has its channels in `order`.

    Each result is a list of old channel numbers, [C]. None if the model's interface,
    an op that mixes channels, or a value with some of the channels prevents it.
    """
    mine = channels.groups(v)
    rank = {group: i for i, group in enumerate(mine[order].tolist())}
    if len(rank) < len(mine) or channels.locked() & rank.keys():
        return None
    found = dict[Value, Array]()
    for u in channels.graph.values():
        groups = channels.groups(u).tolist() if u.const is None and u.type.rank else []
        at = [i for i, group in enumerate(groups) if group in rank]
        if not at:
            continue
        found[u] = np.arange(len(groups))
        # A flattened image has the channels several times, pixel after pixel.
        for start in range(0, len(at), len(rank)):
            block = at[start : start + len(rank)]
            if {groups[i] for i in block} != rank.keys():
                return None
            found[u][block] = sorted(block, key=lambda i: rank[groups[i]])
    return found


def reorder(channels: Channels, found: Mapping[Value, Array]) -> None:
    """Put channels in the order of `found`, a result of `orders`.

    Only constants of the graph change.
    """
    summing = {*channels.readers}
    for op in channels.graph.ops:
        rows = found.get(op.output) if len(op.outputs) == 1 else None
        if op in summing:
            columns = found.get(op.inputs[0])
            if columns is not None:
                _put(channels.graph, op, 1, _array(op, 1)[..., columns])
            for i in range(1, len(op.inputs)) if rows is not None else ():
                _put(channels.graph, op, i, _array(op, i)[rows])
        elif rows is not None:
            for i, v in enumerate(op.inputs):
                if v.const is not None and v.type.size > 1:
                    _put(channels.graph, op, i, v.const[..., rows])


def _fold(
    graph: Graph, op: Op, columns: Array, constants: Mapping[Value, Array]
) -> None:
    """Add to the bias of a product what the removed channels contributed to it.

    columns: a mask of the kept input channels.
    """
    w = _array(op, 1).astype(np.float64)[..., ~columns]
    # Zero times infinity is NaN.
    with np.errstate(invalid="ignore"):
        more = (w * constants[op.inputs[0]][~columns]).reshape(len(w), -1).sum(1)
    if not more.any():
        return
    if len(op.inputs) > 2:
        _put(graph, op, 2, (_array(op, 2) + more).astype(np.float32))
    else:
        name = graph.unique_name(f"{op.output.name}_bias")
        op.inputs.append(Value(name, TensorType((len(w),)), more.astype(np.float32)))


def _array(op: Op, i: int) -> Array:
    """Return the constant input `i` of `op`."""
    array = op.inputs[i].const
    assert array is not None
    return array


def _put(graph: Graph, op: Op, i: int, array: Array) -> None:
    """Replace the constant input `i` of `op` by a new one.

    The old constant stays, as other ops may read it.
    """
    old = op.inputs[i]
    array = np.ascontiguousarray(array)
    op.inputs[i] = Value(
        graph.unique_name(old.name), replace(old.type, shape=array.shape), array
    )
