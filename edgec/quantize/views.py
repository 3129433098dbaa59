"""What a photo shows in other ways: more to judge a model by, where photos are few."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

from edgec.ir import Array
from edgec.quantize.calibration import Sample

_CHANNELS = (1, 3, 4)
_LEAST = 8
"""Rows and columns of what may be a picture."""
_AWAY = 12
"""A picture is moved by this part of its size."""
_DIM = np.float32(0.7)

Picture = tuple[int, int]
"""The axes of its rows and its columns."""


def views(sample: Sample, most: int) -> list[Sample]:
    """The sample itself, then what its pictures are when seen in other ways, all in the
    same; `most` of these at most. Without pictures there is none.
    """
    pictures = {
        name: axes
        for name, x in sample.items()
        if (axes := picture(x.shape, x.dtype)) is not None
    }
    others = islice(_WAYS, max(most, 0) if pictures else 0)
    return [
        sample,
        *(
            {
                **sample,
                **{n: _seen(way, sample[n], axes) for n, axes in pictures.items()},
            }
            for way in others
        ),
    ]


def picture(shape: Sequence[int], dtype: np.dtype) -> Picture | None:
    """Of an array [1, H, W, C] or [1, C, H, W] of floats with the channels of a
    picture.
    """
    if len(shape) != 4 or shape[0] != 1 or dtype != np.float32:
        return None
    for channel, axes in ((3, (1, 2)), (1, (2, 3))):
        if shape[channel] in _CHANNELS and min(shape[i] for i in axes) >= _LEAST:
            return axes
    return None


def _seen(way: Callable[[Array, Picture], Array], x: Array, axes: Picture) -> Array:
    return np.ascontiguousarray(way(x, axes))


def _mirrored(x: Array, axes: Picture) -> Array:
    return np.flip(x, axes[1])


def _moved(x: Array, axes: Picture, down: int = 1, right: int = -1) -> Array:
    """What leaves it on one side is gone; its edge is seen again on the other."""
    for axis, way in zip(axes, (down, right), strict=True):
        size = x.shape[axis]
        x = x.take(
            (np.arange(size) - way * max(1, size // _AWAY)).clip(0, size - 1), axis
        )
    return x


def _dimmed(x: Array, axes: Picture) -> Array:
    """Towards its darkest element."""
    low = x.min()
    return np.asarray(low + (x - low) * _DIM)


def _both(x: Array, axes: Picture) -> Array:
    return _mirrored(_moved(x, axes, -1, 1), axes)


_WAYS = (_mirrored, _moved, _dimmed, _both)
