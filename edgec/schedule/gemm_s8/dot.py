"""The tiles of csrc/dot/ek_gemm_s8_dot.h."""

from __future__ import annotations

import numpy as np

from edgec.ir import Array
from edgec.schedule.gemm_s8.panels import GemmTile, Requant, Tiles, right_shifts


def tables(bias: Array, q: Requant, bound: Array) -> list[Array] | None:
    """Bias, multiplier, addend, shift, as the header says."""
    found = right_shifts(q, bound, 0 if q.plain else 1)
    if found is None:
        return None
    multiplier = found[0]
    right = found[1].astype(np.int64)
    addend = (np.int64(1) << right >> 1) * (right > 0) + (q.y_zero << right)
    return [bias, multiplier, addend.astype(np.int32), (24 - right).astype(np.int32)]


def weights(w: Array) -> Array:
    """[panels, elements]: whole pieces of 16 elements of a tap [taps, run / 16, 4, nr,
    4], then what is left of each [taps, run % 16 / 4, nr, 4].
    """
    panels, nr, taps, run = w.shape
    fours = w.reshape(panels, nr, taps, run // 4, 4).transpose(0, 2, 3, 1, 4)
    whole = run // 16 * 4
    return np.concatenate(
        [
            fours[:, :, :whole].reshape(panels, -1),
            fours[:, :, whole:].reshape(panels, -1),
        ],
        1,
    )


def _any(
    fixed: float, wide: tuple[int, ...], narrow: tuple[int, ...]
) -> tuple[GemmTile, ...]:
    """Tiles of any depth: heights of those of 16 and of 8 channels, for which there are
    registers.
    """
    return (
        *(GemmTile(mr, 16, 4, fixed=fixed, window=9) for mr in wide),
        *(GemmTile(mr, 8, 4, fixed=fixed, window=4.6) for mr in narrow),
    )


def _lines(fixed: float, narrow: int, *depths: int) -> tuple[GemmTile, ...]:
    """Tiles of a straight line, of which that for the first layer of an image also
    comes with 8 channels.
    """
    first = GemmTile(narrow, 8, 4, fixed=fixed, window=4, depth=28)
    return (
        *(GemmTile(4, 16, 4, fixed=fixed, window=8, depth=depth) for depth in depths),
        first,
    )


DOT = Tiles(
    "dot",
    "dot/ek_gemm_s8_dot.h",
    frozenset({"neon", "dotprod"}),
    (*_lines(5, 8, 16, 24, 28, 32, 64), *_any(22, (4, 3, 2, 1), (8, 7, 4, 1))),
    weights,
    tables,
    apart=True,
    zero=(*_lines(9, 4, 8, 16, 28, 32), *_any(30, (4, 3, 2, 1), (7, 4, 1))),
)
