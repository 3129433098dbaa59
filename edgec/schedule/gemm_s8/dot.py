"""Tiles for Arm cores with the dot product: csrc/dot/ek_gemm_s8_dot.h."""

from __future__ import annotations

import numpy as np

from edgec.ir import Array
from edgec.schedule.gemm_s8.panels import GemmTile, GemmTileSet, Requant, right_shifts

TOP_BYTE_SHIFT = 24
"""The left shift that brings the lowest byte of an int32 to its top byte."""


def fast_tables(bias: Array, q: Requant, bound: Array) -> list[Array] | None:
    """Return bias, multiplier, addend and shift of the fast requantization.

    With x = round(sum multiplier / 2^31) and a right shift of s bits, the tile computes
    (x + addend - (sum < 0)) << (24 - s), saturating, whose top byte is the result, where
    addend = 2^(s-1) + (y_zero << s): both roundings of gemmlowp, ties away from zero.
    """
    # A shift of 0 needs no rounding, which the tile skips only for plain results.
    shifts = right_shifts(q, bound, 0 if q.plain else 1)
    if shifts is None:
        return None

    multiplier = shifts[0]
    right = shifts[1].astype(np.int64)
    half = (np.int64(1) << right >> 1) * (right > 0)
    addend = half + (q.y_zero << right)

    # The saturating left shift clamps to int8 as well.
    left = (TOP_BYTE_SHIFT - right).astype(np.int32)
    return [bias, multiplier, addend.astype(np.int32), left]


def weights(w: Array) -> Array:
    """Pack weights [panels, nr, taps, run] for instructions of four products a lane.

    Whole pieces of 16 elements of each tap, [taps, run / 16, 4, nr, 4], precede the
    remainders, [taps, run % 16 / 4, nr, 4].
    """
    panels, nr, taps, run = w.shape
    fours = w.reshape(panels, nr, taps, run // 4, 4)
    fours = fours.transpose(0, 2, 3, 1, 4)

    # The tile loads 16 elements of a window at once, and then the rest by fours.
    n_whole = run // 16 * 4
    whole = fours[:, :, :n_whole].reshape(panels, -1)
    remainder = fours[:, :, n_whole:].reshape(panels, -1)
    return np.concatenate([whole, remainder], 1)


def _tiles_of_any_depth(
    fixed: float, wide: tuple[int, ...], narrow: tuple[int, ...]
) -> tuple[GemmTile, ...]:
    """Return the tiles that loop over K.

    Args:
        fixed: cycles of a tile besides its products
        wide: MR of those of 16 channels, as registers allow
        narrow: MR of those of 8 channels
    """
    return (
        *(GemmTile(mr, 16, 4, fixed=fixed, window=9) for mr in wide),
        *(GemmTile(mr, 8, 4, fixed=fixed, window=4.6) for mr in narrow),
    )


def _tiles_of_one_depth(
    fixed: float, narrow: int, *depths: int
) -> tuple[GemmTile, ...]:
    """Return the tiles whose loop over K is unrolled.

    A depth of 28, the first layer of an RGB image, also has a tile of 8 channels.

    Args:
        fixed: cycles of a tile besides its products
        narrow: MR of that tile
        depths: K of the others
    """
    wide = (GemmTile(4, 16, 4, fixed=fixed, window=8, depth=depth) for depth in depths)
    first_layer = GemmTile(narrow, 8, 4, fixed=fixed, window=4, depth=28)
    return (*wide, first_layer)


DOT = GemmTileSet(
    "dot",
    "dot/ek_gemm_s8_dot.h",
    frozenset({"neon", "dotprod"}),
    (
        *_tiles_of_one_depth(5, 8, 16, 24, 28, 32, 64),
        *_tiles_of_any_depth(22, (4, 3, 2, 1), (8, 7, 4, 1)),
    ),
    weights,
    fast_tables,
    apart=True,
    # The sum of x, which a weight zero point needs, takes registers and time.
    zero=(
        *_tiles_of_one_depth(9, 4, 8, 16, 28, 32),
        *_tiles_of_any_depth(30, (4, 3, 2, 1), (7, 4, 1)),
    ),
)
"""sdot and sqrdmlah (Armv8.2), four products of int8 a lane."""
