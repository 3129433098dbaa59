"""Tiles for Arm cores without the dot product: csrc/neon/ek_gemm_s8_neon.h and _lanes_.

Products of int8 are summed in 16 bits before the sums are added to 32. The packer cuts
windows into pieces of 16 elements, and proves that no 16-bit sum overflows: a lane adds
the products of two elements of a piece, so the magnitudes of their weights may sum to
255. Two pieces that fit together are a "four" (four products a lane), the others "twos",
and pieces of 8 elements "ones". What a weight has above the bound follows as remainder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgec.ir import Array
from edgec.schedule.cores import Core
from edgec.schedule.gemm_s8.dot import fast_tables
from edgec.schedule.gemm_s8.panels import GemmTile, GemmTileSet, Requant
from edgec.schedule.gemm_s8.windows import GemmS8Shape

NR = 8
"""Channels of a tile."""
UNIT = 8
"""Elements that a run is padded to."""

MAX_LANE_MAGNITUDE = 255
"""The largest sum of weight magnitudes whose products with int8 sum up within int16.

255 * 128 < 2^15.
"""

POINTER_BYTES = 8
"""Bytes of a pointer in C."""

OVERREAD_BYTES = 128
"""Bytes behind the weights that the tile loads and does not use."""

PIECE = np.dtype([("tap", "<i4"), ("element", "<i4")])
"""ek_gemm_s8_piece_t: bytes into the table of pointers, and behind the pointer."""

REMAINDER = np.dtype([("at", PIECE), ("w", "i1", (NR,))])
"""ek_gemm_s8_rest_t: an element of a window, and a weight of each channel for it."""

Pairing = Callable[[Array], tuple[list[tuple[int, int]], list[int]]]
"""Returns the pairs of pieces to sum together and the pieces left alone.

Its argument are the magnitudes of the lanes, [nr, pieces, 8].
"""


def weights(w: Array) -> Array:
    """Pack int16 weights [panels, nr, taps, run] with fours, to int8 [panels, bytes].

    ek_gemm_s8_neon.h describes the format.
    """
    return _pack_panels(w, _pair_fours)


def weights_apart(w: Array) -> Array:
    """Pack weights [panels, nr, taps, run] without fours."""
    return _pack_panels(w, _leave_alone)


def _leave_alone(lanes: Array) -> tuple[list[tuple[int, int]], list[int]]:
    """Return no pairs, and all pieces."""
    return [], list(range(lanes.shape[1]))


def _pack_panels(w: Array, pairing: Pairing) -> Array:
    """Pack weights [panels, nr, taps, run] less their zero point."""
    panels = [_panel(rows, pairing) for rows in w.astype(np.int32)]

    # Panels differ in their remainders and pairs; the kernel wants one size.
    size = max(map(len, panels))
    packed = np.zeros((len(panels), size), np.uint8)
    for row, panel in zip(packed, panels, strict=True):
        data = np.frombuffer(panel, np.uint8)
        row[: len(panel)] = data

    return packed.view(np.int8)


def _panel(w: Array, pairing: Pairing) -> bytes:
    """Pack the weights [nr, taps, run] of one panel."""
    pieces = _pieces(w)
    bounded = _bounded(pieces.wide)
    ones = np.clip(pieces.narrow, -128, 127)
    pairs, alone = pairing(np.abs(bounded).sum(2))
    order = [i for pair in pairs for i in pair]

    # The tile loads the place of the next piece early, also behind the last one.
    dummy = np.concatenate([pieces.places, pieces.narrow_places])[:1]
    places = np.concatenate(
        [
            pieces.places[order],
            dummy,
            dummy,
            pieces.places[alone],
            dummy,
            pieces.narrow_places,
        ]
    )
    missing_wide = pieces.wide - bounded
    missing_narrow = (pieces.narrow - ones)[:, :, None]
    remainders = np.concatenate(
        [
            _remainders(missing_wide, pieces.places),
            _remainders(missing_narrow, pieces.narrow_places),
        ]
    )
    counts = [len(pairs), len(alone), len(pieces.narrow_places), len(remainders)]

    twos = bounded.transpose(1, 0, 2, 3).astype(np.int8).reshape(-1, NR, 16)
    fours = twos[order].reshape(-1, 2, NR, 16).transpose(0, 2, 1, 3)
    parts = (
        np.array(counts, "<i4"),
        places,
        fours,
        twos[alone],
        ones.transpose(1, 0, 2).astype(np.int8),
        np.zeros(OVERREAD_BYTES, np.int8),
        remainders,
    )
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


@dataclass(frozen=True)
class _Pieces:
    """Weights cut into pieces.

    Attributes:
        wide: pieces of 16 elements, [nr, pieces, 2, 8]
        places: where those are, PIECE [pieces]
        narrow: pieces of 8 elements, [nr, pieces, 8]
        narrow_places: where those are, PIECE [pieces]
    """

    wide: Array
    places: Array
    narrow: Array
    narrow_places: Array


def _pieces(w: Array) -> _Pieces:
    """Cut weights [nr, taps, run] into pieces.

    Runs of 8 elements, and windows of 24, have pieces of 8. In other runs of 16 n + 8
    elements the last piece of 16 begins 8 elements earlier and has weights of 0 for
    what the piece before it did: such a piece often fits another one.
    """
    _, taps, run = w.shape
    no_wide = np.zeros((NR, 0, 2, 8), np.int32)
    no_narrow = np.zeros((NR, 0, 8), np.int32)
    no_places = np.zeros(0, PIECE)
    if run < 16:
        return _Pieces(no_wide, no_places, w, _places(taps, [0]))

    # With a single piece of 16 there is no other that a half-empty one could fit.
    if run == 24 and taps == 1:
        first = w[..., :16].reshape(NR, 1, 2, 8)
        last = w[..., 16:]
        return _Pieces(first, _places(1, [0]), last, _places(1, [16]))

    begins = list(range(0, run - 15, 16))
    parts = [w[..., e : e + 16] for e in begins]
    if run % 16:
        last = w[..., run - 8 :]
        no_weights = np.zeros_like(last)
        begins.append(run - 16)
        parts.append(np.concatenate([no_weights, last], 2))

    wide = np.stack(parts, 2).reshape(NR, -1, 2, 8)
    return _Pieces(wide, _places(taps, begins), no_narrow, no_places)


def _places(taps: int, begins: list[int]) -> Array:
    """Return PIECE [taps * begins]: pieces that begin at these elements of each tap."""
    places = np.zeros((taps, len(begins)), PIECE)

    # Offsets in bytes spare the kernel a shift for each piece.
    offsets = POINTER_BYTES * np.arange(taps)
    places["tap"] = offsets[:, None]
    places["element"] = begins
    return places.reshape(-1)


def _pair_fours(lanes: Array) -> tuple[list[tuple[int, int]], list[int]]:
    """Return pairs of pieces that stay within the bound together, and the others.

    Greedy: the heaviest piece first, each with the heaviest that fits it.

    Args:
        lanes: sums of magnitudes of each lane [nr, pieces, 8]
    """
    by_piece = lanes.transpose(1, 0, 2).reshape(lanes.shape[1], NR * 8)
    by_piece = np.ascontiguousarray(by_piece)
    free = list(np.argsort(-by_piece.max(1), kind="stable"))
    pairs: list[tuple[int, int]] = []
    alone: list[int] = []
    while free:
        first = free.pop(0)

        # The others are in descending order still, so the first that fits is heaviest.
        sums = by_piece[free] + by_piece[first]
        fitting = np.nonzero((sums <= MAX_LANE_MAGNITUDE).all(1))[0]
        if fitting.size:
            second = free.pop(int(fitting[0]))
            pairs.append((int(first), int(second)))
        else:
            alone.append(int(first))

    # The tile begins with a piece alone, which sets the sums instead of adding to them.
    if pairs and not alone:
        alone.extend(pairs.pop())
    return pairs, alone


def _bounded(w: Array) -> Array:
    """Return the largest parts of weights [nr, pieces, 2, 8] within the bound."""
    bounded = np.clip(w, -128, 127)

    # Of int8 only -128 twice exceeds it, by one.
    bounded[:, :, 1] += np.abs(bounded).sum(2) > MAX_LANE_MAGNITUDE
    return bounded


def _remainders(missing: Array, places: Array) -> Array:
    """Return the REMAINDERs of one panel.

    Args:
        missing: what weights have above their parts in the pieces [nr, pieces, n, 8]
        places: where the pieces are
    """
    remainders = [np.zeros(0, REMAINDER)]
    # Weights less their zero point have 9 bits, so that one turn may leave some.
    while missing.any():
        part = np.clip(missing, -128, 127).reshape(NR, len(places), -1)
        missing = missing - part.reshape(missing.shape)

        # One entry serves all channels, those without a remainder with a weight of 0.
        piece, element = np.nonzero(part.any(0))
        entries = np.zeros(len(piece), REMAINDER)
        entries["at"] = places[piece]
        entries["at"]["element"] += element
        entries["w"] = part[:, piece, element].T

        remainders.append(entries)
    return np.concatenate(remainders)


def _tiles(suffix: str, pack: Callable[[Array], Array], in_order: bool) -> GemmTileSet:
    """Return the tiles by pieces.

    Args:
        suffix: end of their functions' names
        pack: how they want weights
        in_order: whether they are for cores that issue in order, or for the others,
            which sum up beside the products and gain nothing by fewer sums
    """

    def accepts(c: GemmS8Shape, q: Requant, core: Core) -> bool:
        return core.in_order == in_order

    # The tile of one window is for products of a single one, so its cost bars others.
    tiles = (
        GemmTile(2, NR, UNIT, fixed=20, window=16),
        GemmTile(1, NR, UNIT, fixed=1e6, window=16),
    )
    return GemmTileSet(
        suffix,
        "neon/ek_gemm_s8_neon.h",
        frozenset({"neon"}),
        tiles,
        pack,
        fast_tables,
        wide=True,
        apart=True,
        accepts=accepts,
    )


NEON = _tiles("neon", weights, in_order=True)
"""Tiles by pieces for cores that issue in order."""
TWOS = _tiles("twos_neon", weights_apart, in_order=False)
"""Tiles by pieces for cores that sum up beside the products."""


def by_channel(w: Array) -> Array:
    """Pack weights [panels, nr, taps, run] to int16 [panels, taps run nr + 32]."""
    by_element = w.transpose(0, 2, 3, 1)
    rows = by_element.reshape(len(w), -1)

    # The tile loads 64 bytes more than it uses.
    return np.pad(rows, ((0, 0), (0, 32)))


_LANES_TILE = GemmTile(8, NR, UNIT, fixed=30, window=8)


def _is_short(c: GemmS8Shape, q: Requant, core: Core) -> bool:
    """Return whether windows are so short that lanes were measured to be faster.

    On the Cortex-A72 that is for less than a piece of 16 elements, with a weight zero
    point, which makes pieces worse.
    """
    max_run = {
        "cortex_a53": 96 if q.plain and not q.w_zero else 64,
        "cortex_a72": 8 if q.w_zero else 0,
    }
    taps, run = _LANES_TILE.runs(c.parts()[0])
    if taps != 1 or _LANES_TILE.padded(run) > max_run.get(core.name, 0):
        return False
    # One piece of 16 is a product without any sum to add.
    is_one_piece = run == 16 and not q.w_zero
    return not is_one_piece


LANES = GemmTileSet(
    "lanes_neon",
    "neon/ek_gemm_s8_lanes_neon.h",
    frozenset({"neon"}),
    (_LANES_TILE,),
    by_channel,
    fast_tables,
    wide=True,
    apart=True,
    accepts=_is_short,
)
"""Tiles with channels along the lanes, for windows of few elements.

They suit cores that do one product instruction a cycle.
"""
