"""Removes and reorders groups of channels (`ChannelGroups`) in a float graph.

A channel is an index of the last axis of a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from edgec.analysis.channels import FIXED, ChannelGroups
from edgec.ir import Array, Graph, Op, TensorType, Value


def without(
    channels: ChannelGroups, dead: set[int], constants: Mapping[Value, Array]
) -> bool:
    """Remove the channels of `dead` groups, and return whether there were any.

    The graph is changed. constants: for each value that a product reads, the numbers
    of its channels, [C]; for removed channels their share goes into the bias of the
    product. A value keeps its first channel if it would have none.
    """
    graph = channels.graph
    values = [v for v in graph.values() if _has_channels(v)]
    # Groups that a value needs are spared before any channel goes.
    for v in values:
        groups = channels.groups(v)
        if groups.size and {*groups.tolist()} <= dead:
            dead.discard(int(groups[0]))

    kept: dict[Value, Array] = {}
    for v in values:
        kept[v] = ~np.isin(channels.groups(v), [*dead])
    reduced = {v for v in values if not kept[v].all()}
    if not reduced:
        return False

    consumers = {*channels.consumers}
    for op in graph.ops:
        if reduced.isdisjoint((*op.inputs, *op.outputs)):
            continue
        _edit(graph, op, kept, constants if op in consumers else None)
    return True


def _has_channels(v: Value) -> bool:
    """Return whether a value is computed, and its channels are real numbers."""
    return v.const is None and v.type.dtype == "float32" and v.type.rank > 0


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
    op.spec = op.spec.with_channels(int(rows.sum()))
    for v in op.outputs:
        v.type = replace(v.type, shape=(*v.type.shape[:-1], int(rows.sum())))


def orders(
    channels: ChannelGroups, v: Value, order: Array
) -> dict[Value, Array] | None:
    """Return the channel orders of all values if `v` has its channels in `order`.

    Each result is a list of old channel numbers, [C]. None if the model's interface,
    an op that mixes channels, or a value with some of the channels prevents it.
    """
    mine = channels.groups(v)
    rank = {group: i for i, group in enumerate(mine[order].tolist())}
    if len(rank) < len(mine) or FIXED in rank:
        return None
    by_value = dict[Value, Array]()
    for u in channels.graph.values():
        groups = channels.groups(u).tolist() if u.const is None and u.type.rank else []
        at = [i for i, group in enumerate(groups) if group in rank]
        if not at:
            continue
        by_value[u] = np.arange(len(groups))
        # A flattened image has the channels several times, pixel after pixel.
        for start in range(0, len(at), len(rank)):
            block = at[start : start + len(rank)]
            if {groups[i] for i in block} != rank.keys():
                return None
            by_value[u][block] = sorted(block, key=lambda i: rank[groups[i]])
    return by_value


def reorder(channels: ChannelGroups, found: Mapping[Value, Array]) -> None:
    """Put channels in the order of `found`, a result of `orders`.

    Only constants of the graph change.
    """
    summing = {*channels.consumers}
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
