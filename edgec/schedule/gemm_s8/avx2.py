"""The tiles of csrc/avx2/ek_gemm_s8_avx2.h."""

from __future__ import annotations

from edgec.ir import Array
from edgec.schedule.gemm_s8.panels import GemmTile, Tiles
from edgec.schedule.gemm_s8.vnni import tables


def weights(w: Array) -> Array:
    """[panels, taps, run / 2, nr, 2]."""
    panels, nr, taps, run = w.shape
    return w.reshape(panels, nr, taps, run // 2, 2).transpose(0, 2, 3, 1, 4)


AVX2 = Tiles(
    "avx2",
    "avx2/ek_gemm_s8_avx2.h",
    frozenset({"avx2"}),
    tuple(
        GemmTile(mr, nr, 2, fixed=25, window=2 + nr / 8 * 4, element=2, converts=True)
        for nr, heights in {24: (4, 2, 1), 16: (6, 5, 4, 2, 1), 8: (8, 4, 1)}.items()
        for mr in heights
    ),
    weights,
    tables,
    wide=True,
)
