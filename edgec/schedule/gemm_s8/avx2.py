"""Tiles for x86 cores with AVX2: csrc/avx2/ek_gemm_s8_avx2.h."""

from __future__ import annotations

from edgec.ir import Array
from edgec.schedule.gemm_s8.panels import GemmTile, GemmTileSet
from edgec.schedule.gemm_s8.vnni import fast_tables

HEIGHTS_BY_WIDTH = {24: (4, 2, 1), 16: (6, 5, 4, 2, 1), 8: (8, 4, 1)}
"""The MR for each NR whose sums fit the 16 registers."""


def weights(w: Array) -> Array:
    """Pack weights [panels, nr, taps, run] to [panels, taps, run / 2, nr, 2].

    vpmaddwd multiplies pairs of int16.
    """
    panels, nr, taps, run = w.shape
    return w.reshape(panels, nr, taps, run // 2, 2).transpose(0, 2, 3, 1, 4)


def _tiles() -> tuple[GemmTile, ...]:
    """Return the tiles of all sizes, which read the input widened to int16."""
    tiles: list[GemmTile] = []
    for nr, heights in HEIGHTS_BY_WIDTH.items():
        # Eight channels of a window become int8 in about four cycles.
        window = 2 + nr / 8 * 4
        for mr in heights:
            tile = GemmTile(
                mr, nr, 2, fixed=25, window=window, element=2, converts=True
            )
            tiles.append(tile)
    return tuple(tiles)


AVX2 = GemmTileSet(
    "avx2",
    "avx2/ek_gemm_s8_avx2.h",
    frozenset({"avx2"}),
    _tiles(),
    weights,
    fast_tables,
    wide=True,
)
"""vpmaddwd, two products of int16 a lane."""
