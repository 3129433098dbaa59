"""The tiles of csrc/neon/ek_gemm_s8_neon.h."""

from __future__ import annotations

import numpy as np

from edgec.ir import Array
from edgec.schedule.gemm_s8.dot import tables
from edgec.schedule.gemm_s8.panels import Tile, Tiles

NR = 8
UNIT = 8
"""Elements that a run is padded to."""

MOST = 255
"""The sum of magnitudes of weights whose products with any int8 values sum up within int16."""

POINTER = 8
"""Bytes of a pointer in C."""

PIECE = np.dtype([("tap", "<i4"), ("element", "<i4")])
"""ek_gemm_s8_piece_t."""

REST = np.dtype([("at", PIECE), ("w", "i1", (NR,))])
"""ek_gemm_s8_rest_t."""


def weights(w: Array) -> Array:
    """[panels, bytes]: weights [panels, nr, taps, run] in pieces, as the header says."""
    left = w.astype(np.int32)
    panels = [_panel(rows) for rows in left]
    out = np.zeros((len(panels), max(map(len, panels))), np.uint8)
    for row, panel in zip(out, panels, strict=True):
        row[: len(panel)] = np.frombuffer(panel, np.uint8)
    return out.view(np.int8)


def _panel(left: Array) -> bytes:
    """Of weights [nr, taps, run], less their zero point."""
    _, taps, run = left.shape
    places = np.array([(POINTER * t, e) for t in range(taps) for e in range(0, run - 15, 16)], np.int32).reshape(-1, 2)
    ends = np.array([(POINTER * t, run - 8) for t in range(taps) if run & 8], np.int32).reshape(-1, 2)
    wide = left[..., : run - run % 16].reshape(NR, -1, 2, 8)  # [nr, pieces, 2, 8]
    main, last = _within(wide.transpose(0, 1, 3, 2)).transpose(0, 1, 3, 2), np.zeros((NR, 0, 8), np.int32)
    if run & 8:
        last = np.clip(left[..., run - 8 :], -128, 127)
    lacks = np.concatenate([(wide - main).reshape(NR, taps, -1), left[..., run - run % 16 :]], 2)
    if run & 8:
        lacks[..., run - 8 :] -= last
    pairs, alone = _fours(np.abs(main).sum(2))
    order = [i for pair in pairs for i in pair]
    pieces = main.transpose(1, 0, 2, 3).astype(np.int8).reshape(-1, NR, 16)
    fours = pieces[order].reshape(-1, 2, NR, 16).transpose(0, 2, 1, 3)
    guards = (
        (places[order[:2]] if order else np.zeros((2, 2), np.int32)),
        (places[alone[:1]] if alone else np.zeros((1, 2), np.int32)),
    )
    at = np.concatenate([places[order], guards[0], places[alone], guards[1], ends]).astype("<i4")
    rests = _rests(lacks)
    counts = np.array([len(pairs), len(alone), len(ends), len(rests)], "<i4")
    parts = (counts, at, fours, pieces[alone], last.transpose(1, 0, 2).astype(np.int8), np.zeros(128, np.int8), rests)
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


def _fours(lanes: Array) -> tuple[list[tuple[int, int]], list[int]]:
    """Pairs of pieces whose lanes [nr, pieces, 8] of summed magnitudes stay within MOST together, and the others. Greedy:
    the heaviest first, each with the heaviest that fits."""
    lanes = np.ascontiguousarray(lanes.transpose(1, 0, 2).reshape(lanes.shape[1], NR * 8))
    free = list(np.argsort(-lanes.max(1), kind="stable"))
    pairs, alone = [], []
    while free:
        first = free.pop(0)
        fit = np.nonzero((lanes[free] + lanes[first] <= MOST).all(1))[0]
        if fit.size:
            pairs.append((int(first), int(free.pop(int(fit[0])))))
        else:
            alone.append(int(first))
    if pairs and not alone:  # the tile begins with a piece alone, to which there is nothing to add
        alone.extend(pairs.pop())
    return pairs, alone


def _within(w: Array) -> Array:
    """The largest parts of weights [..., 2] such that the magnitudes of the two sum to at most MOST."""
    main = np.clip(w, -128, 127)
    both = np.abs(main).sum(-1) > MOST  # -128 twice
    main[both, 1] += 1
    return main


def _rests(lacks: Array) -> Array:
    """Rests of one panel: [nr, taps, run] of what its weights lack."""
    found = [np.zeros(0, REST)]
    while lacks.any():
        piece = np.clip(lacks, -128, 127)
        lacks = lacks - piece
        tap, element = np.nonzero(piece.any(0))
        rest = np.zeros(len(tap), REST)
        rest["at"]["tap"], rest["at"]["element"] = POINTER * tap, element
        rest["w"] = piece[:, tap, element].T
        found.append(rest)
    return np.concatenate(found)


NEON = Tiles(
    "neon",
    frozenset({"neon"}),
    tuple(Tile(mr, NR, UNIT, fixed=20, window=16) for mr in (2, 1)),
    weights,
    tables,
    wide=True,
)
