"""The different elements of a constant.

Semantics: ONNX Unique. ONNX's own reference has another order in some cases: of one
output alone, and of elements along another axis than the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import Array, OnnxNode, Value
from edgec.ops.common import axis_of
from edgec.ops.compositions import SizedByData


@dataclass(frozen=True)
class Unique(SizedByData):
    """The different elements, or the different slices of an axis, of a constant."""

    kind = "unique"
    onnx = ("Unique",)
    of_constants: ClassVar[bool] = False

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> list[Value]:
        """Read the node as constants: elements, first places, inverse and counts.

        The inverse has the place of each element of x among the different ones.
        """
        x = node.input(0)
        if x.const is None:
            return super().from_onnx(node)

        axis = node.attrs.get("axis")
        if axis is not None:
            axis = axis_of(axis, x.type.rank)

        array = x.const if axis is not None else x.const.reshape(-1)
        results = _unique(array, axis or 0, bool(node.attrs.get("sorted", 1)))

        return [node.build.const(a, node.name) for a in results]


def _unique(x: Array, axis: int, is_sorted: bool) -> list[Array]:
    """Return the different slices of an axis, in order or as they come first."""
    _, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    order = np.arange(len(first)) if is_sorted else np.argsort(first)

    # The place of each slice in the new order.
    rank = np.argsort(order)
    places = [first[order], rank[inverse.reshape(-1)], counts[order]]

    return [np.take(x, first[order], axis), *(p.astype(np.int64) for p in places)]
