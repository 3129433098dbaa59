"""Moves transposes from before a reshape to behind it, where they can meet their
inverse, or into weights.

reshape(transpose(x)) = transpose(reshape(x)) when the reshape joins and splits axes in
groups that the transpose keeps together. When a group is torn apart (the shuffle of
grouped convolutions), what orders the group stays before it. A fully connected layer
does not mind the order of what it sums: its weights take the transpose of a flattened
image.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from edgec.ir import Graph, Op
from edgec.ir.rewrite import Rewriter
from edgec.ops.shape import Reshape, Transpose

Perm = tuple[int, ...]


def run(graph: Graph) -> bool:
    """Each transpose that only a reshape reads."""
    rw = Rewriter(graph)
    for op in rw.ops("reshape"):
        before = rw.private(op.inputs[0], "transpose")
        if before is not None and not _into_weights(rw, before, op):
            _sink(rw, before, op)
    return rw.changed


def _sink(rw: Rewriter, before: Op, op: Op) -> None:
    assert isinstance(before.spec, Transpose)
    x = before.inputs[0]
    plan = through_reshape(x.type.shape, before.spec.perm, op.output.type.shape)
    if plan is None:
        return
    if plan.inner != tuple(range(x.type.rank)):
        x = rw.add(before, Transpose(plan.inner), [x], before.output.name)
    y = rw.add(op, Reshape(plan.shape), [x], op.output.name)
    rw.update(op, Transpose(plan.outer), [y])


def _into_weights(rw: Rewriter, before: Op, op: Op) -> bool:
    """Sort the columns of a fully connected layer that alone reads the flattened image;
    exact for integers too.
    """
    assert isinstance(before.spec, Transpose)
    x = before.inputs[0]
    perm = before.spec.perm
    layer = rw.sole_user(op.output)
    if (
        layer is None
        or layer.kind != "fully_connected"
        or layer.inputs[0] is not op.output
    ):
        return False
    w = layer.inputs[1]
    tail = _flattened(before.output.type.shape, op.output.type.shape[-1])
    if w.const is None or op.output.type.shape[-1] != w.type.shape[1] or tail is None:
        return False
    moved = perm[tail:]
    if sorted(moved) != list(range(tail, x.type.rank)) or sorted(perm[:tail]) != list(
        perm[:tail]
    ):
        return False
    columns = w.const.reshape(w.type.shape[0], *before.output.type.shape[tail:])
    order = (0, *(1 + moved.index(axis) for axis in range(tail, x.type.rank)))
    sorted_columns = np.ascontiguousarray(columns.transpose(order)).reshape(
        w.type.shape
    )
    rw.update(
        layer,
        inputs=[
            op.output,
            rw.const(sorted_columns, w.name, w.type.quant),
            *layer.inputs[2:],
        ],
    )
    rw.update(op, inputs=[x])
    return True


def _flattened(shape: tuple[int, ...], size: int) -> int | None:
    """From which axis on the dimensions multiply to `size`."""
    return next((i for i in range(len(shape), -1, -1) if prod(shape[i:]) == size), None)


@dataclass(frozen=True)
class ReshapePlan:
    """reshape(transpose(x, perm), target) = transpose(reshape(transpose(x, inner),
    shape), outer).
    """

    inner: Perm
    shape: tuple[int, ...]
    outer: Perm


def through_reshape(
    shape: tuple[int, ...], perm: Perm, target: tuple[int, ...]
) -> ReshapePlan | None:
    """How a transpose goes through a reshape; None when nothing of it can."""
    axes = [p for p in perm if shape[p] != 1]
    groups = _groups([shape[p] for p in axes], [d for d in target if d != 1])
    if groups is None:
        return None
    places = [i for i, d in enumerate(target) if d != 1]
    pairs = [([axes[i] for i in a], [places[j] for j in b]) for a, b in groups]
    ordered = sorted(pairs, key=lambda pair: min(pair[0]))
    if ordered == pairs:
        return None
    inner = _fill(
        [a for group, _ in ordered for a in group],
        [i for i, d in enumerate(shape) if d == 1],
    )
    source = _fill(
        [j for _, group in ordered for j in group],
        [j for j, d in enumerate(target) if d == 1],
    )
    return ReshapePlan(
        inner,
        tuple(target[j] for j in source),
        tuple(source.index(j) for j in range(len(target))),
    )


def _groups(
    before: list[int], after: list[int]
) -> list[tuple[list[int], list[int]]] | None:
    """The smallest runs of dimensions of both shapes with equal products, as indices;
    None for empty tensors.
    """
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        a = [i]
        b = [j]
        left = before[i]
        right = after[j]
        while left != right:
            if left < right and a[-1] + 1 < len(before):
                a.append(a[-1] + 1)
                left *= before[a[-1]]
            elif right < left and b[-1] + 1 < len(after):
                b.append(b[-1] + 1)
                right *= after[b[-1]]
            else:
                return None
        groups.append((a, b))
        i = a[-1] + 1
        j = b[-1] + 1
    return groups


def _fill(moving: list[int], fixed: list[int]) -> Perm:
    """The moving entries in their order, around the fixed ones at their own places."""
    rest = iter(moving)
    return tuple(
        i if i in fixed else next(rest) for i in range(len(moving) + len(fixed))
    )
