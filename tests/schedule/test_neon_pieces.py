"""Pieces of weights for cores without the dot product: which of them are summed in 16
bits together.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Array
from edgec.schedule.cores import core
from edgec.schedule.gemm_s8.neon import MAX_LANE_MAGNITUDE, NEON, NR, TWOS
from edgec.schedule.gemm_s8.panels import GemmTileSet, Requant
from edgec.schedule.gemm_s8.windows import GemmS8Shape


def counts(tiles: GemmTileSet, w: Array) -> list[int]:
    """Fours, twos, ones and rests of one panel."""
    return [int(n) for n in tiles.pack_weights(w).view(np.int8)[0, :16].view("<i4")]


def test_two_pieces_are_summed_at_once_on_cores_in_order_alone() -> None:
    """Where they fit: an out-of-order core sums up beside the products, and takes
    pieces as they come.
    """
    # six pieces of two products each, of which any two are within MAX_LANE_MAGNITUDE
    w = np.full((1, NR, 1, 96), 60, np.int16)
    assert MAX_LANE_MAGNITUDE >= 4 * 60
    assert counts(NEON, w) == [2, 2, 0, 0]
    assert counts(TWOS, w) == [0, 6, 0, 0]
    plain = Requant(0, 0, -128, -128, 127)
    one = GemmS8Shape(1, 8, 8, 128, 8, 8, 16)
    taken = {
        name: [t.suffix for t in (NEON, TWOS) if t.accepts(one, plain, core(name))]
        for name in CORES
    }
    assert taken == CORES


CORES = {
    "cortex_a53": ["neon"],
    "cortex_a72": ["twos_neon"],
    "cortex_a76": ["twos_neon"],
}


def test_what_exceeds_16_bits_follows_alone() -> None:
    w = np.full((1, NR, 1, 32), 127, np.int16)
    w[0, 3, 0, 5], w[0, 3, 0, 13] = -128, -128  # in one lane: 256 in all
    for tiles in (NEON, TWOS):
        fours, twos, _, rests = counts(tiles, w)
        assert (fours, twos, rests) == (0, 2, 1)
