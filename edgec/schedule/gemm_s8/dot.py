"""The tiles of csrc/dot/ek_gemm_s8_dot.h."""

from __future__ import annotations

import numpy as np

from edgec.ir import Array
from edgec.schedule.gemm_s8.panels import Requant, Tile, Tiles, right_shifts


def tables(bias: Array, q: Requant, bound: Array) -> list[Array] | None:
    """Bias, multiplier, addend, shift, as the header says."""
    found = right_shifts(q, bound)
    if found is None:
        return None
    multiplier, right = found
    addend = (np.int64(1) << (right.astype(np.int64) - 1)) + (q.y_zero << right.astype(np.int64))
    return [bias, multiplier, addend.astype(np.int32), (24 - right).astype(np.int32)]


def weights(w: Array) -> Array:
    """[panels, taps, run / 4, nr, 4]."""
    panels, nr, taps, run = w.shape
    return w.reshape(panels, nr, taps, run // 4, 4).transpose(0, 2, 3, 1, 4)


DOT = Tiles(
    "dot",
    frozenset({"neon", "dotprod"}),
    (
        *(Tile(4, 16, 4, fixed=5, window=8, name=f"m4n16k{depth}", depth=depth) for depth in (16, 24, 28, 32, 64)),
        *(Tile(mr, 8, 4, fixed=25, window=4.6) for mr in (8, 7, 6, 5, 4, 3, 2, 1)),
        *(Tile(mr, 16, 4, fixed=30, window=9, name=f"m{mr}n16") for mr in (6, 5, 4, 3, 2, 1)),
    ),
    weights,
    tables,
)
