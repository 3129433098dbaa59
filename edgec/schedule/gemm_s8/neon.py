"""The tiles of csrc/neon/ek_gemm_s8_neon.h and ek_gemm_s8_lanes_neon.h."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgec.ir import Array
from edgec.schedule.cores import Core
from edgec.schedule.gemm_s8.dot import tables
from edgec.schedule.gemm_s8.panels import GemmTile, Requant, Tiles
from edgec.schedule.gemm_s8.windows import GemmS8Shape

NR = 8
UNIT = 8
"""Elements that a run is padded to."""

MOST = 255
"""The sum of magnitudes of weights whose products with any int8 values sum up within
int16.
"""

POINTER = 8
"""Bytes of a pointer in C."""

PIECE = np.dtype([("tap", "<i4"), ("element", "<i4")])
"""ek_gemm_s8_piece_t."""

REST = np.dtype([("at", PIECE), ("w", "i1", (NR,))])
"""ek_gemm_s8_rest_t."""


def weights(w: Array) -> Array:
    """[panels, bytes]: weights [panels, nr, taps, run] in pieces, as the header says."""
    return _together(w, _fours)


def weights_apart(w: Array) -> Array:
    """The same without fours."""
    return _together(w, lambda lanes: ([], list(range(lanes.shape[1]))))


Pairing = Callable[[Array], tuple[list[tuple[int, int]], list[int]]]
"""Which pieces [nr, pieces, 8] go together, and the others."""


def _together(w: Array, pairing: Pairing) -> Array:
    left = w.astype(np.int32)
    panels = [_panel(rows, pairing) for rows in left]
    out = np.zeros((len(panels), max(map(len, panels))), np.uint8)
    for row, panel in zip(out, panels, strict=True):
        row[: len(panel)] = np.frombuffer(panel, np.uint8)
    return out.view(np.int8)


def _panel(left: Array, pairing: Pairing) -> bytes:
    """Of weights [nr, taps, run], less their zero point."""
    wide, places, narrow, ends = _pieces(left)
    main = _within(wide)
    last = np.clip(narrow, -128, 127)
    pairs, alone = pairing(np.abs(main).sum(2))
    order = [i for pair in pairs for i in pair]
    # what is loaded behind the last four and the last two
    some = np.concatenate([places, ends])[:1]
    at = np.concatenate([places[order], some, some, places[alone], some, ends])
    rests = np.concatenate(
        [_rests(wide - main, places), _rests((narrow - last)[:, :, None], ends)]
    )
    counts = np.array([len(pairs), len(alone), len(ends), len(rests)], "<i4")
    pieces = main.transpose(1, 0, 2, 3).astype(np.int8).reshape(-1, NR, 16)
    fours = pieces[order].reshape(-1, 2, NR, 16).transpose(0, 2, 1, 3)
    parts = (
        counts,
        at,
        fours,
        pieces[alone],
        last.transpose(1, 0, 2).astype(np.int8),
        np.zeros(128, np.int8),
        rests,
    )
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


def _pieces(w: Array) -> tuple[Array, Array, Array, Array]:
    """Weights [nr, taps, run] in pieces [nr, pieces, 2, 8] and where those are, and
    [nr, pieces, 8] and where: these for runs of 8 and for 24 elements in all. Else,
    where a run has 8 more than pieces of 16, the last of these begins 8 earlier, with
    weights of 0: it may fit another.
    """
    _, taps, run = w.shape
    if run < 16:
        return (
            np.zeros((NR, 0, 2, 8), np.int32),
            np.zeros(0, PIECE),
            w,
            _places(taps, [0]),
        )
    if run == 24 and taps == 1:
        return (
            w[..., :16].reshape(NR, 1, 2, 8),
            _places(1, [0]),
            w[..., 16:],
            _places(1, [16]),
        )
    begins = list(range(0, run - 15, 16))
    parts = [w[..., e : e + 16] for e in begins]
    if run % 16:
        begins.append(run - 16)
        parts.append(np.concatenate([np.zeros_like(w[..., :8]), w[..., run - 8 :]], 2))
    wide = np.stack(parts, 2).reshape(NR, -1, 2, 8)
    return (
        wide,
        _places(taps, begins),
        np.zeros((NR, 0, 8), np.int32),
        np.zeros(0, PIECE),
    )


def _places(taps: int, begins: list[int]) -> Array:
    """Pieces at some elements of each tap: [taps * begins] PIECE."""
    places = np.zeros((taps, len(begins)), PIECE)
    places["tap"], places["element"] = POINTER * np.arange(taps)[:, None], begins
    return places.reshape(-1)


def _fours(lanes: Array) -> tuple[list[tuple[int, int]], list[int]]:
    """Pairs of pieces whose lanes [nr, pieces, 8] of summed magnitudes stay within MOST
    together, and the others. Greedy: the heaviest first, each with the heaviest that
    fits.
    """
    lanes = np.ascontiguousarray(
        lanes.transpose(1, 0, 2).reshape(lanes.shape[1], NR * 8)
    )
    free = list(np.argsort(-lanes.max(1), kind="stable"))
    pairs = []
    alone = []
    while free:
        first = free.pop(0)
        fit = np.nonzero((lanes[free] + lanes[first] <= MOST).all(1))[0]
        if fit.size:
            pairs.append((int(first), int(free.pop(int(fit[0])))))
        else:
            alone.append(int(first))
    # the tile begins with a piece alone, to which there is nothing to add
    if pairs and not alone:
        alone.extend(pairs.pop())
    return pairs, alone


def _within(w: Array) -> Array:
    """The largest parts of weights [nr, pieces, 2, 8] such that magnitudes of the two
    of a lane sum to at most MOST.
    """
    main = np.clip(w, -128, 127)
    main[:, :, 1] += np.abs(main).sum(2) > MOST  # -128 twice
    return main


def _rests(lacks: Array, places: Array) -> Array:
    """Rests of one panel: what its weights [nr, pieces, n, 8], which are at `places`,
    lack.
    """
    found = [np.zeros(0, REST)]
    while lacks.any():
        part = np.clip(lacks, -128, 127).reshape(NR, len(places), -1)
        lacks = lacks - part.reshape(lacks.shape)
        piece, element = np.nonzero(part.any(0))
        rest = np.zeros(len(piece), REST)
        rest["at"], rest["w"] = places[piece], part[:, piece, element].T
        rest["at"]["element"] += element
        found.append(rest)
    return np.concatenate(found)


_IN_ORDER = {"cortex_a53"}


def _tiles(suffix: str, pack: Callable[[Array], Array], in_order: bool) -> Tiles:
    # of 1: for one alone
    tiles = (
        GemmTile(2, NR, UNIT, fixed=20, window=16),
        GemmTile(1, NR, UNIT, fixed=1e6, window=16),
    )
    isa = frozenset({"neon"})
    return Tiles(
        suffix,
        "neon/ek_gemm_s8_neon.h",
        isa,
        tiles,
        pack,
        tables,
        wide=True,
        apart=True,
        takes=lambda c, q, core: (core.name in _IN_ORDER) == in_order,
    )


NEON = _tiles("neon", weights, in_order=True)
TWOS = _tiles("twos_neon", weights_apart, in_order=False)
"""For cores that sum up beside the products, for which fours are not worth while."""


def by_channel(w: Array) -> Array:
    """[panels, elements]: weights [taps, run, nr] int16, and 64 bytes more."""
    return np.pad(w.transpose(0, 2, 3, 1).reshape(len(w), -1), ((0, 0), (0, 32)))


_LANES = GemmTile(8, NR, UNIT, fixed=30, window=8)


def _few(c: GemmS8Shape, q: Requant, core: Core) -> bool:
    """What was faster: on the Cortex-A72 what has no room for a piece of 16, with a
    zero point to make it worse.
    """
    most = {
        "cortex_a53": 96 if q.plain and not q.w_zero else 64,
        "cortex_a72": 8 if q.w_zero else 0,
    }
    taps, run = _LANES.runs(c.parts()[0])
    alone = run == 16 and not q.w_zero  # one piece, to which there is nothing to add
    return taps == 1 and _LANES.padded(run) <= most.get(core.name, 0) and not alone


LANES = Tiles(
    "lanes_neon",
    "neon/ek_gemm_s8_lanes_neon.h",
    frozenset({"neon"}),
    (_LANES,),
    by_channel,
    tables,
    wide=True,
    apart=True,
    takes=_few,
)
"""For windows of few elements, on a core that does one product a cycle."""
