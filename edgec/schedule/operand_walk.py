"""The loops by which a kernel goes through an operand, and what copies do to them.

A slice or transpose of an operand is a table of where its elements were. Loops with
strides through the copy may be loops with other strides through the original, which the
kernel can then read without the copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgec.ir import Pointer

Indices = NDArray[np.int64]
"""Positions of elements."""


def positions(dims: Sequence[int], strides: Sequence[int]) -> Indices:
    """Return what loops with some strides reach from 0 on, in the shape of the loops."""
    total = np.zeros((), np.int64)
    for dim, stride in zip(dims, strides, strict=True):
        steps = np.arange(dim, dtype=np.int64) * stride
        total = np.add.outer(total, steps)
    return total


@dataclass(frozen=True)
class OperandWalk:
    """The elements that a kernel goes through, as loops over a tensor.

    Attributes:
        first: the first element
        dims: four leading dimensions, rows and columns
        strides: elements between neighbours along each of them
    """

    first: Pointer
    dims: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def has_adjacent_columns(self) -> bool:
        """Whether the elements of a row lie side by side."""
        return self.dims[-1] == 1 or self.strides[-1] == 1

    def moved(self, table: Indices, start: int, target: Pointer) -> OperandWalk | None:
        """Return the same walk through a tensor that has the elements elsewhere.

        None where the loops have no strides there.

        Args:
            table: where each element lies there, from `target` on
            start: the position in the table of the walk's first element
            target: the tensor, from which the table counts
        """
        here = start + positions(self.dims, self.strides)
        there = table[here]
        first = int(there.flat[0])

        # The second element along a dimension tells its stride there, and all elements
        # whether that holds.
        strides: list[int] = []
        for axis, dim in enumerate(self.dims):
            second = there.take(min(1, dim - 1), axis).flat[0]
            strides.append(int(second) - first)
        if (first + positions(self.dims, strides) != there).any():
            return None

        pointer = replace(target, offset=target.offset + first)
        return OperandWalk(pointer, self.dims, tuple(strides))
