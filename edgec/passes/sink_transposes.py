"""Moves transposes from before a reshape to behind it, or into weights.

Behind the reshape they can meet their inverse.

reshape(transpose(x)) = transpose(reshape(x)) when the reshape joins and splits axes in
groups that the transpose keeps together. When a group is torn apart (the shuffle of
grouped convolutions), a transpose that orders the group stays before it. A fully
connected layer does not depend on the order of its sum: its weights take the transpose
of a flattened image.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from edgec.ir import Array, Graph, Op
from edgec.ir.rewrite import Rewriter
from edgec.ops.shape import Reshape, Transpose

Perm = tuple[int, ...]
Shape = tuple[int, ...]
AxisGroup = tuple[list[int], list[int]]
"""Axes before and after a reshape that hold the same elements."""


def run(graph: Graph) -> bool:
    """Move each transpose whose only user is a reshape."""
    rw = Rewriter(graph)
    for op in rw.ops("reshape"):
        producer = rw.producer_of(op.inputs[0], Transpose)
        if producer is None or rw.sole_user(op.inputs[0]) is None:
            continue
        transpose, spec = producer
        if not _fold_into_weights(rw, transpose, spec, op):
            _sink(rw, transpose, spec, op)
    return rw.changed


def _sink(rw: Rewriter, transpose: Op, spec: Transpose, op: Op) -> None:
    """Move a transpose behind the reshape `op`, as far as that is possible."""
    x = transpose.inputs[0]
    perm = spec.perm
    plan = through_reshape(x.type.shape, perm, op.output.type.shape)
    if plan is None:
        return

    # The part of the permutation within groups stays before the reshape.
    if plan.inner != tuple(range(x.type.rank)):
        name = transpose.output.name
        x = rw.add(transpose, Transpose(plan.inner), [x], name)
    y = rw.add(op, Reshape(plan.shape), [x], op.output.name)
    rw.update(op, Transpose(plan.outer), [y])


def _fold_into_weights(
    rw: Rewriter, transpose: Op, spec: Transpose, reshape: Op
) -> bool:
    """Sort the weights of a fully connected layer that reads a flattened image.

    The layer must be the only user. This is exact for integers too. Return whether the
    transpose was removed.
    """
    layer = rw.sole_user(reshape.output)
    if layer is None or layer.kind != "fully_connected":
        return False
    w = layer.inputs[1]
    if layer.inputs[0] is not reshape.output or w.const is None:
        return False
    # The layer may sum over a part of the flattened image only.
    flat_size = reshape.output.type.shape[-1]
    if flat_size != w.type.shape[1]:
        return False

    image_shape = transpose.output.type.shape
    first = _flattened(image_shape, flat_size)
    if first is None or not _keeps_leading(spec.perm, first):
        return False

    axis_order = spec.perm[first:]
    weights = _sorted_weights(w.const, image_shape[first:], axis_order)
    constant = rw.const(weights, w.name, w.type.quant)
    rw.update(layer, inputs=[reshape.output, constant, *layer.inputs[2:]])
    rw.update(reshape, inputs=[transpose.inputs[0]])
    return True


def _keeps_leading(perm: Perm, first: int) -> bool:
    """Return whether `perm` leaves the axes before `first` where they are."""
    return perm[:first] == tuple(range(first))


def _sorted_weights(weights: Array, image_shape: Shape, axis_order: Perm) -> Array:
    """Return [N, K] weights for the image before its axes were permuted.

    `image_shape` is the shape after the permutation, and `axis_order` numbers the axes
    that the permutation picked.
    """
    rows = len(weights)
    # The columns of the weights are the elements of the image.
    by_axis = weights.reshape(rows, *image_shape)
    order = [0]
    for axis in sorted(axis_order):
        order.append(1 + axis_order.index(axis))
    columns = np.ascontiguousarray(by_axis.transpose(order))
    return columns.reshape(weights.shape)


def _flattened(shape: Shape, size: int) -> int | None:
    """Return the axis from which on the dimensions multiply to `size`.

    None if there is no such axis; the last one of several.
    """
    for first in range(len(shape), -1, -1):
        if prod(shape[first:]) == size:
            return first
    return None


@dataclass(frozen=True)
class ReshapePlan:
    """A transpose before a reshape, split in two around the reshape.

        reshape(transpose(x, perm), target)
        = transpose(reshape(transpose(x, inner), shape), outer)

    Attributes:
        inner: the permutation that stays before the reshape.
        shape: the target of the reshape.
        outer: the permutation behind the reshape.
    """

    inner: Perm
    shape: Shape
    outer: Perm


def through_reshape(shape: Shape, perm: Perm, target: Shape) -> ReshapePlan | None:
    """Return how a transpose goes through a reshape, None if it cannot.

    `shape` is the shape before the transpose, `target` the one after the reshape.
    """
    pairs = _axis_groups(shape, perm, target)
    if pairs is None:
        return None
    # The order of the groups before the transpose.
    ordered = sorted(pairs, key=lambda pair: min(pair[0]))
    if ordered == pairs:
        return None

    moving_axes: list[int] = []
    moving_places: list[int] = []
    for axes, places in ordered:
        moving_axes += axes
        moving_places += places

    inner = _fill(moving_axes, _ones(shape))
    source = _fill(moving_places, _ones(target))
    inner_shape = tuple(target[j] for j in source)
    outer = tuple(source.index(j) for j in range(len(target)))
    return ReshapePlan(inner, inner_shape, outer)


def _ones(shape: Shape) -> list[int]:
    return [i for i, size in enumerate(shape) if size == 1]


def _axis_groups(shape: Shape, perm: Perm, target: Shape) -> list[AxisGroup] | None:
    """Return the axes that a reshape behind a transpose joins and splits.

    Each group has axes of `shape`, in the order of the transpose, and the axes of
    `target` with the same elements. Dimensions of 1 hold no order and belong to no
    group. None for empty tensors.
    """
    axes = [p for p in perm if shape[p] != 1]
    places = [i for i, size in enumerate(target) if size != 1]
    sizes_before = [shape[p] for p in axes]
    sizes_after = [target[i] for i in places]
    groups = _groups(sizes_before, sizes_after)
    if groups is None:
        return None

    pairs: list[AxisGroup] = []
    for before, after in groups:
        group_axes = [axes[i] for i in before]
        group_places = [places[j] for j in after]
        pairs.append((group_axes, group_places))
    return pairs


def _groups(before: list[int], after: list[int]) -> list[AxisGroup] | None:
    """Return the smallest runs of dimensions of both shapes with equal products.

    The runs are lists of indices. None for empty tensors.
    """
    groups: list[AxisGroup] = []
    i = 0
    j = 0
    while i < len(before) and j < len(after):
        run_before = [i]
        run_after = [j]
        size_before = before[i]
        size_after = after[j]
        # Extend the run of the smaller product until both are equal.
        while size_before != size_after:
            if size_before < size_after and run_before[-1] + 1 < len(before):
                run_before.append(run_before[-1] + 1)
                size_before *= before[run_before[-1]]
            elif size_after < size_before and run_after[-1] + 1 < len(after):
                run_after.append(run_after[-1] + 1)
                size_after *= after[run_after[-1]]
            else:
                return None
        groups.append((run_before, run_after))
        i = run_before[-1] + 1
        j = run_after[-1] + 1
    return groups


def _fill(moving: list[int], fixed: list[int]) -> Perm:
    """Return a permutation with `fixed` axes at their places.

    The `moving` axes fill the other places in their order.
    """
    # Dimensions of 1 may stand anywhere; at their places they need no transpose.
    next_moving = iter(moving)
    rank = len(moving) + len(fixed)
    return tuple(i if i in fixed else next(next_moving) for i in range(rank))
