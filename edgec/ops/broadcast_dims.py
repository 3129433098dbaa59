"""Dimensions and strides of broadcast operands, for the loops of the C kernels.

Broadcasting is that of numpy, which ONNX and TFLite follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from edgec.ir import (
    TensorType,
)
from edgec.ir.c_structs import BroadcastParams

MAX_DIMS = 6
"""Dimensions of the struct ek_broadcast_t."""


def broadcast_strides(
    shape: tuple[int, ...],
    *inputs: tuple[int, ...],
) -> tuple[list[int], list[list[int]]]:
    """Return six dimensions of a dense output, and each input's element strides along
    them.

    shape: of the output. inputs: shapes that broadcast to it. A stride is 0 where the
    input is broadcast. Dimensions of 1 are dropped, and neighbours merged where every
    input allows it. Raises ValueError when more than six remain.
    """
    strides = [_element_strides(input_shape, len(shape)) for input_shape in inputs]
    groups = _merged_dims(shape, strides)
    if len(groups) > MAX_DIMS:
        raise ValueError(
            f"{len(groups)} dimensions are broadcast independently; edgec compiles up to 6"
        )

    # The kernel has a fixed number of loops: the outer ones run once.
    missing = MAX_DIMS - len(groups)
    groups = [(1, [0] * len(inputs))] * missing + groups

    # The struct has an array of sizes, and one of strides for each input.
    dims = [size for size, _ in groups]
    by_input = [[steps[i] for _, steps in groups] for i in range(len(inputs))]

    return dims, by_input


def count_dims(shape: tuple[int, ...], *inputs: tuple[int, ...]) -> int:
    """Return how many dimensions are left of a shape when neighbours are merged."""
    strides = [_element_strides(input_shape, len(shape)) for input_shape in inputs]
    return len(_merged_dims(shape, strides))


def _merged_dims(
    shape: tuple[int, ...],
    strides: Sequence[list[int]],
) -> list[tuple[int, list[int]]]:
    """Return (size, stride of each input) of the output's dimensions, merged.

    Sizes of 1 are left out. Strides are in elements.
    """
    groups: list[tuple[int, list[int]]] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        steps = [input_strides[axis] for input_strides in strides]

        # Two dimensions are one when the outer step passes over the inner dimension in
        # every input.
        if groups and groups[-1][1] == [size * step for step in steps]:
            outer_size, _ = groups[-1]
            groups[-1] = (outer_size * size, steps)
        else:
            groups.append((size, steps))

    return groups


def _element_strides(shape: tuple[int, ...], rank: int) -> list[int]:
    """Return the element strides of a dense tensor broadcast to a rank.

    A broadcast dimension has a stride of 0, so that its one element is read again.
    """
    # Missing axes are at the front.
    dims = (1,) * (rank - len(shape)) + shape
    strides: list[int] = []
    for axis, size in enumerate(dims):
        strides.append(0 if size == 1 else prod(dims[axis + 1 :]))

    return strides


def broadcast(y: TensorType, a: TensorType, b: TensorType) -> BroadcastParams:
    """Return the output's dimensions, and the element strides of both operands."""
    dims, (a_strides, b_strides) = broadcast_strides(y.shape, a.shape, b.shape)
    return BroadcastParams(dim=dims, a=a_strides, b=b_strides)
