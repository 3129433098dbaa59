"""The tiles of csrc/dot/ek_gemm_s8_dot.h."""

from __future__ import annotations

import numpy as np

from edgec.ir import Array
from edgec.schedule.gemm_s8.panels import Requant, Tile, Tiles, right_shifts


def tables(bias: Array, q: Requant, bound: Array) -> list[Array] | None:
    """Bias, multiplier, addend, shift, as the header says."""
    plain = (q.low, q.high, q.y_zero) == (-128, 127, -128)
    found = right_shifts(q, bound, 0 if plain else 1)
    if found is None:
        return None
    multiplier, right = found[0], found[1].astype(np.int64)
    addend = (np.int64(1) << right >> 1) * (right > 0) + (q.y_zero << right)
    return [bias, multiplier, addend.astype(np.int32), (24 - right).astype(np.int32)]


def weights(w: Array) -> Array:
    """[panels, taps, run / 4, nr, 4]."""
    panels, nr, taps, run = w.shape
    return w.reshape(panels, nr, taps, run // 4, 4).transpose(0, 2, 3, 1, 4)


ANY = (
    *(Tile(mr, 16, 4, fixed=22, window=9) for mr in (6, 5, 4, 3, 2, 1)),
    *(Tile(mr, 8, 4, fixed=22, window=4.6) for mr in (8, 7, 4, 1)),
)
DOT = Tiles(
    "dot",
    frozenset({"neon", "dotprod"}),
    (*(Tile(4, 16, 4, fixed=5, window=8, depth=depth) for depth in (16, 24, 28, 32, 64)), *ANY),
    weights,
    tables,
    zero=(*(Tile(4, 16, 4, fixed=9, window=8, depth=depth) for depth in (16, 28, 32)), *ANY),
)
