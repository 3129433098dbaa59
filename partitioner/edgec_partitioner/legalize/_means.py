"""The number of parts into which a MEAN must be cut so that each part maps."""

from __future__ import annotations

from edgec.ir import Op, TensorType, Value
from edgec.ops.reduce import Mean
from edgec_partitioner.legalize._moves import maps

FEW = 6
"""The most inputs of a CONCATENATION seen mapped."""

CHANNEL_LANES = 4
"""The Edge TPU lays channels out in fours."""


def mean_maps(spec: Mean, x: TensorType) -> bool:
    """Return whether a MEAN of a tensor of type `x` would map, once quantized."""
    (result,) = spec.infer(x)
    source = Value("x", x)
    mean = Value("y", result)
    return maps(Op(spec, [source], [mean]))


def cut(op: Op, spec: Mean) -> tuple[int, list[int]] | None:
    """Return an axis along which a MEAN can be cut, and the sizes of the parts.

    Each part maps. There are as few as possible; all but the last are a multiple of
    four if the axis is that of the channels and allows it. None if no part maps.
    """
    x = op.inputs[0].type
    last_axis = x.rank - 1
    for axis in range(last_axis, 0, -1):
        # Parts of a summed axis would have to be added.
        length = x.shape[axis]
        if axis in spec.axes or length == 1:
            continue

        size = _largest_part(spec, x, axis)
        if axis == last_axis and size > CHANNEL_LANES:
            size -= size % CHANNEL_LANES
        if size == 0:
            continue

        count, remainder = divmod(length, size)
        sizes = [size] * count
        if remainder > 0:
            sizes.append(remainder)
        return axis, sizes
    return None


def _largest_part(spec: Mean, x: TensorType, axis: int) -> int:
    """Return the largest size of an axis with which a MEAN maps, 0 if none does.

    The rules are monotonic in the size, so that a binary search finds it.
    """
    low = 0
    high = x.shape[axis]
    while low < high:
        middle = (low + high + 1) // 2
        shape = list(x.shape)
        shape[axis] = middle
        if mean_maps(spec, x.with_shape(tuple(shape))):
            low = middle
        else:
            high = middle - 1
    return low
