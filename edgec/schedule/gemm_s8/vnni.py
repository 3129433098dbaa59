"""Tiles for x86 cores with AVX-512 VNNI: csrc/vnni/ek_gemm_s8_vnni.h."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgec.ir import Array
from edgec.schedule.gemm_s8.panels import (
    MAX_RIGHT_SHIFT,
    GemmTile,
    GemmTileSet,
    Requant,
)

MAX_SUM = 1 << 30
"""Sums, after a left shift where there is one, have smaller magnitudes."""


def fast_tables(bias: Array, q: Requant, bound: Array) -> list[Array] | None:
    """Return bias, multiplier, addend and shift of the fast requantization.

    With h = floor((sum multiplier + 2^30) / 2^31) and a right shift of s bits the
    result is floor((h + addend - (h < 0)) / 2^s), where
    addend = 2^(s-1) + (y_zero << s), or y_zero for s = 0 (ek_requant_vnni.h, which
    ek_requant_avx2.h follows).
    """
    assert q.multiplier is not None
    assert q.shift is not None
    is_dead = q.multiplier == 0
    shift = np.where(is_dead, 1, -q.shift.astype(np.int64))
    right = np.maximum(shift, 0)
    left = np.maximum(-shift, 0)

    if (shift > MAX_RIGHT_SHIFT).any():
        return None
    # A dead channel multiplies by 0, whatever its sum is.
    largest = np.where(is_dead, 0, bound)
    if (largest >= MAX_SUM >> np.minimum(left, 31)).any():
        return None

    unit = np.int64(1) << right
    half = (unit >> 1) * (right > 0)
    addend = half + q.y_zero * unit
    return [
        bias,
        q.multiplier.astype(np.int32),
        addend.astype(np.int32),
        shift.astype(np.int32),
    ]


def weights(w: Array) -> Array:
    """Pack weights [panels, nr, taps, run] to [panels, taps, run / 4, nr, 4]."""
    panels, nr, taps, run = w.shape
    return w.reshape(panels, nr, taps, run // 4, 4).transpose(0, 2, 3, 1, 4)


def _tiles(heights_by_width: Mapping[int, Sequence[int]]) -> tuple[GemmTile, ...]:
    """Return the tiles of each NR with these MR."""
    tiles: list[GemmTile] = []
    for nr, heights in heights_by_width.items():
        # 16 channels take ten instructions to become int8, two a cycle.
        window = 3 + nr / 16 * 5
        for mr in heights:
            tile = GemmTile(mr, nr, 4, fixed=25, window=window, converts=True)
            tiles.append(tile)
    return tuple(tiles)


VNNI = GemmTileSet(
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
    fast_tables,
    # The sum of x takes registers that windows would have.
    zero=_tiles({64: (5, 4, 1), 48: (6, 4, 1), 32: (8, 4, 1), 16: (8, 4, 1)}),
    # vpdpbusd multiplies unsigned by signed bytes.
    offset=128,
)
"""vpdpbusd, four products of uint8 and int8 a lane."""
