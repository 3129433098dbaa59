"""The tiles of csrc/vnni/ek_gemm_s8_vnni.h."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgec.ir import Array
from edgec.schedule.gemm_s8.panels import GemmTile, Requant, Tiles

_SUMS = 1 << 30
_RIGHT = 23
"""Sums are less, shifted to the left where they are; the largest shift to the right."""


def tables(bias: Array, q: Requant, bound: Array) -> list[Array] | None:
    """Bias, multiplier, addend, shift, as ek_requant_vnni.h and ek_requant_avx2.h say."""
    assert q.multiplier is not None
    assert q.shift is not None
    dead = q.multiplier == 0
    shift = np.where(dead, 1, -q.shift.astype(np.int64))
    right = np.maximum(shift, 0)
    left = np.maximum(-shift, 0)
    if (shift > _RIGHT).any() or (
        np.where(dead, 0, bound) >= _SUMS >> np.minimum(left, 31)
    ).any():
        return None
    addend = (np.int64(1) << right >> 1) * (right > 0) + q.y_zero * (
        np.int64(1) << right
    )
    return [
        bias,
        q.multiplier.astype(np.int32),
        addend.astype(np.int32),
        shift.astype(np.int32),
    ]


def weights(w: Array) -> Array:
    """[panels, taps, run / 4, nr, 4]."""
    panels, nr, taps, run = w.shape
    return w.reshape(panels, nr, taps, run // 4, 4).transpose(0, 2, 3, 1, 4)


def _tiles(shapes: Mapping[int, Sequence[int]]) -> tuple[GemmTile, ...]:
    """By channels, the windows of each.

    A window's channels take ten instructions to become int8, two a cycle.
    """
    return tuple(
        GemmTile(mr, nr, 4, fixed=25, window=3 + nr / 16 * 5, converts=True)
        for nr, heights in shapes.items()
        for mr in heights
    )


VNNI = Tiles(
    "vnni",
    "vnni/ek_gemm_s8_vnni.h",
    frozenset({"vnni"}),
    _tiles(
        {
            64: (6, 5, 4, 3, 2, 1),
            48: (8, 7, 6, 4, 1),
            32: (12, 8, 7, 4, 1),
            16: (12, 8, 7, 4, 1),
        }
    ),
    weights,
    tables,
    zero=_tiles({64: (5, 4, 1), 48: (6, 4, 1), 32: (8, 4, 1), 16: (8, 4, 1)}),
    offset=128,
)
