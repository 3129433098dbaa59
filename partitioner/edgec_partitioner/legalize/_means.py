"""Into how many pieces a MEAN must be cut so that each maps, as the support rules have
it.
"""

from __future__ import annotations

from edgec.ir import Op, TensorType, Value
from edgec.ops.reduce import Mean
from edgec_partitioner.legalize._moves import maps

FEW = 6
"""The most inputs of a CONCATENATION seen mapped."""

_LANES = 4
"""Channels are laid out in fours."""


def mean_maps(spec: Mean, x: TensorType) -> bool:
    """Whether a MEAN of this input would map, once quantized."""
    (y,) = spec.infer(x)
    return maps(Op(spec, [Value("x", x)], [Value("y", y)]))


def cut(op: Op) -> tuple[int, list[int]] | None:
    """An axis that a MEAN keeps, and the sizes of consecutive parts of it each of which
    maps; None: none does.

    As few as can be; all but the last a multiple of four where the axis is that of the
    channels and allows it.
    """
    spec = op.spec
    x = op.inputs[0].type
    assert isinstance(spec, Mean)
    kept = [a for a in range(1, x.rank) if a not in spec.axes and x.shape[a] > 1]
    for axis in reversed(kept):
        n = _largest(spec, x, axis)
        if axis == x.rank - 1 and n > _LANES:
            n -= n % _LANES
        if n:
            whole, rest = divmod(x.shape[axis], n)
            return axis, [n] * whole + [rest] * (rest > 0)
    return None


def _largest(spec: Mean, x: TensorType, axis: int) -> int:
    """How much of an axis one MEAN takes."""
    low = 0
    high = x.shape[axis]
    while low < high:
        middle = (low + high + 1) // 2
        shape = (*x.shape[:axis], middle, *x.shape[axis + 1 :])
        low, high = (
            (middle, high)
            if mean_maps(spec, x.with_shape(shape))
            else (low, middle - 1)
        )
    return low
