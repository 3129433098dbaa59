"""Panels: the weights and tables of nr channels, packed in the order in which a tile
reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from edgec.ir import Array
from edgec.ops.fixed_point import multiply_by_quantized_multiplier
from edgec.schedule.cores import Core
from edgec.schedule.gemm_s8.windows import GemmS8Shape

FAST = "EK_GEMM_FAST"
LAW = "EK_GEMM_LAW"
SCALE = "EK_GEMM_SCALE"
EVEN = "EK_GEMM_EVEN"
"""How sums become int8, as ek_gemm_s8.h names it."""

LINE = 64
"""Panels take whole cache lines, bytes."""


GATHERED = 16
"""Bytes of a row of a window that is gathered, at most."""


@dataclass(frozen=True)
class Requant:
    """How sums become int8: zero points, clamp, and a multiplier and shift (or a scale)
    for each channel.

    scale: float64 (EK_GEMM_SCALE) or float32 (EK_GEMM_EVEN).
    """

    x_zero: int
    w_zero: int
    y_zero: int
    low: int
    high: int
    multiplier: Array | None = None
    shift: Array | None = None
    scale: Array | None = None

    @property
    def plain(self) -> bool:
        """Of multipliers, whether saturation does what the clamp does, and what is
        negative gives the least result.
        """
        return self.scale is None and (self.low, self.high, self.y_zero) == (
            -128,
            127,
            -128,
        )


@dataclass(frozen=True)
class GemmTile:
    """A tile of `mr` windows times `nr` channels; runs are padded to `unit` elements of
    `element` bytes.

    fixed, window: cycles that a tile takes besides its products, and for each window,
    to choose among tiles. converts: rows pass through ek_gemm_s8_load_t. depth: the one
    that it takes, as one run, of layers whose channels are a multiple of nr and whose
    results are plain; 0 takes any.
    """

    mr: int
    nr: int
    unit: int
    fixed: float
    window: float
    element: int = 1
    converts: bool = False
    depth: int = 0

    def padded(self, run: int) -> int:
        """Elements that are read of a run."""
        return -(-run // self.unit) * self.unit

    def gathers(self, c: GemmS8Shape) -> bool:
        """Whether windows are gathered: those of few bytes in a row, of which padding
        would be a good part.
        """
        taps, run = c.taps
        few = (
            taps == c.kh > 1
            and run * self.element <= GATHERED
            and c.groups == 1
            and not c.phase
            and c.phases is None
        )
        return few and taps * self.padded(run) > 1.15 * self.padded(taps * run)

    def runs(self, c: GemmS8Shape) -> tuple[int, int]:
        """Pointers of a window and elements behind each, as the tile sees them."""
        taps, run = c.taps
        return (1, taps * run) if self.gathers(c) else (taps, run)


@dataclass(frozen=True)
class Tiles:
    """The tiles of an ISA: functions ek_gemm_s8_m<mr>_<suffix>; with n<nr> where tiles
    differ in width, k<depth> where they are made for one, z for weights with a zero
    point.

    weights: [panels, nr, taps, run] int8 as the tile reads them, [panels, ...] of any
    type. tables: int32 [o] each, the bias first, from the bias [o], how sums become
    int8 and the largest |sum| of each channel [o]; None where the fast way cannot be
    exact. zero: the tiles for weights with a zero point, where they are others. wide:
    `weights` takes int16 less the zero point, of which the tiles know nothing. offset:
    what ek_gemm_s8_load_t adds to elements. apart: functions of EK_GEMM_EVEN are
    others, with an x. takes: whether they are for such windows, weights and core.
    """

    suffix: str
    header: str
    isa: frozenset[str]
    tiles: tuple[GemmTile, ...]
    weights: Callable[[Array], Array]
    tables: Callable[[Array, Requant, Array], list[Array] | None]
    zero: tuple[GemmTile, ...] = ()
    wide: bool = False
    offset: int = 0
    apart: bool = False
    takes: Callable[[GemmS8Shape, Requant, Core], bool] = lambda c, q, core: True

    def of(self, q: Requant) -> tuple[GemmTile, ...]:
        """Those that may be used: for weights with this zero point, and for a depth
        where results are plain.
        """
        few = self.zero if q.w_zero and self.zero else self.tiles
        return few if q.plain else tuple(t for t in few if not t.depth)

    def function(self, tile: GemmTile, w_zero: int, finish: str) -> str:
        """The name of a tile's function."""
        width = f"n{tile.nr}" if len({t.nr for t in self.tiles}) > 1 else ""
        other = "x" if self.apart and finish == EVEN else ""
        depth = f"k{tile.depth}" if tile.depth and not other else ""
        zero = "z" if w_zero and not self.wide else ""
        return f"ek_gemm_s8_m{tile.mr}{width}{depth}{zero}{other}_{self.suffix}"


@dataclass(frozen=True)
class Panels:
    """array: [panels, bytes / 8] int64, those of all phases and groups one behind the
    other. finish: EK_GEMM_*.
    """

    array: Array
    finish: str

    @property
    def bytes(self) -> int:
        """Of one."""
        return int(self.array.shape[1]) * 8


def pack(
    c: GemmS8Shape, w: Array, bias: Array, q: Requant, tiles: Tiles, tile: GemmTile
) -> Panels:
    """Panels of weights [o, kh, kw, depth] and a bias [o]."""
    w, bias, q = settled(w, bias, q)
    bound = sums_bound(w, bias, q)
    blocks = []
    finish = FAST
    for part, phase in zip(c.parts(), _phases(c, w, q.w_zero), strict=True):
        packed = _weights(part, phase, q, tiles, tile)
        taken = (phase.reshape(c.oc, -1).astype(np.int64) - q.w_zero).sum(1)
        folded = wrap(bias.astype(np.int64) - (q.x_zero + tiles.offset) * taken)
        finish, tables = _tables(folded, q, bound, tiles)
        blocks.append(np.concatenate([_head(c, tables, tile), packed], 1))
    size = -(-max(b.shape[1] for b in blocks) // LINE) * LINE
    padded = [np.pad(b, ((0, 0), (0, size - b.shape[1]))) for b in blocks]
    return Panels(np.concatenate(padded).view(np.int64), finish)


def _head(c: GemmS8Shape, tables: list[Array], tile: GemmTile) -> Array:
    """Tables [o] as the bytes before the weights of each panel: [panels, 16 * nr]."""
    parts = [
        _by_panel(t.reshape(c.groups, -1), tile.nr, 0)
        .reshape(-1, tile.nr)
        .view(np.int8)
        for t in tables
    ]
    head = np.concatenate(parts, 1)
    return np.pad(head, ((0, 0), (0, 16 * tile.nr - head.shape[1])))


def _weights(
    part: GemmS8Shape, w: Array, q: Requant, tiles: Tiles, tile: GemmTile
) -> Array:
    """Bytes [panels, ...] of the weights of one part."""
    taps, run = tile.runs(part)
    rows = np.full(
        (part.groups, part.oc // part.groups, taps, tile.padded(run)), q.w_zero, np.int8
    )
    rows[..., :run] = w.reshape(*rows.shape[:3], run)
    panels = _by_panel(rows, tile.nr, q.w_zero).reshape(-1, tile.nr, *rows.shape[2:])
    if tiles.wide:
        panels = panels.astype(np.int16) - np.int16(q.w_zero)
    packed = np.ascontiguousarray(tiles.weights(panels))
    return packed.reshape(len(packed), -1).view(np.int8)


def _phases(c: GemmS8Shape, w: Array, w_zero: int) -> list[Array]:
    """The weights of each part of `c`."""
    if c.phases is None:
        return [w]
    (sh, sw), out = c.phases, []
    kh = -(-c.kh // sh)
    kw = -(-c.kw // sw)
    padded = np.full((c.oc, kh * sh, kw * sw, c.depth), w_zero, np.int8)
    padded[:, : c.kh, : c.kw] = w
    for a in range(sh):
        for b in range(sw):
            taps = padded[:, (a + c.pt) % sh :: sh, (b + c.pl) % sw :: sw]
            out.append(taps[:, ::-1, ::-1])
    return out


def _by_panel(rows: Array, nr: int, fill: int) -> Array:
    """[groups, channels, ...] with the channels of each group padded to a multiple of
    nr, contiguous.
    """
    pads = [(0, 0), (0, -rows.shape[1] % nr), *[(0, 0)] * (rows.ndim - 2)]
    return np.ascontiguousarray(np.pad(rows, pads, constant_values=fill))


def sums_bound(w: Array, bias: Array, q: Requant) -> Array:
    """The largest magnitude that the sum of each channel can have: int64 [o], for
    weights [o, ...].
    """
    weights = w.reshape(w.shape[0], -1).astype(np.int64) - q.w_zero
    widest = max(127 - q.x_zero, q.x_zero + 128)
    bound: Array = np.abs(weights).sum(1) * widest + np.abs(bias.astype(np.int64))
    return bound


def settled(w: Array, bias: Array, q: Requant) -> tuple[Array, Array, Requant]:
    """The same with other weights [o, ...], bias [o] and multipliers for channels whose
    result no input changes: dead ones with a bias of 2^30 and a multiplier of 2^-27,
    say, which would bar a whole layer from the fast way.
    """
    if q.multiplier is None or q.shift is None:
        return w, bias, q
    span = sums_bound(w, np.zeros_like(bias), q)
    ends = [bias.astype(np.int64) - span, bias.astype(np.int64) + span]
    if any((np.abs(end) >= 1 << 31).any() for end in ends):
        return w, bias, q
    results = (
        multiply_by_quantized_multiplier(end.astype(np.int32), q.multiplier, q.shift)
        for end in ends
    )
    least, most = (np.clip(r, q.low - q.y_zero, q.high - q.y_zero) for r in results)
    left = np.clip(q.shift.astype(np.int64), 0, 31)
    # beyond, sums wrap
    one = (least == most) & (np.maximum(*np.abs(ends)) < np.int64(1) << 31 - left)
    w = np.where(one.reshape(-1, *[1] * (w.ndim - 1)), np.int8(q.w_zero), w)
    multiplier = np.where(one, 1 << 30, q.multiplier)
    shift = np.where(one, -1, q.shift)
    q = replace(q, multiplier=multiplier.astype(np.int32), shift=shift.astype(np.int32))
    return w, np.where(one, 4 * least, bias).astype(np.int32), q


def right_shifts(
    q: Requant, bound: Array, least: int = 1
) -> tuple[Array, Array] | None:
    """Multipliers and right shifts, all from `least` to 23, that give what q gives for
    sums up to `bound` [o]; None if there are none. Channels that always give y_zero get
    multiplier 0 and shift 1.
    """
    assert q.multiplier is not None
    assert q.shift is not None
    multiplier = q.multiplier.astype(np.int64)
    right = -q.shift.astype(np.int64)
    high = (np.minimum(bound, 1 << 31) * multiplier >> 31) + 1
    dead = (multiplier == 0) | (
        (right > 0) & (high < np.int64(1) << np.clip(right - 1, 0, 62))
    )
    multiplier = np.where(dead, 0, multiplier)
    right = np.where(dead, 1, right)
    if ((right < least) | (right > 23)).any():
        return None
    return multiplier.astype(np.int32), right.astype(np.int32)


def wrap(sums: Array) -> Array:
    """int64 to int32 modulo 2^32, as C adds them."""
    return sums.astype(np.uint64).astype(np.uint32).view(np.int32)


def _tables(
    bias: Array, q: Requant, bound: Array, tiles: Tiles
) -> tuple[str, list[Array]]:
    if q.scale is not None:
        zeros = np.full_like(bias, q.y_zero)
        if q.scale.dtype == np.float32:
            return (EVEN, [bias, q.scale, zeros])
        return (SCALE, [bias, q.scale])
    fast = tiles.tables(bias, q, bound)
    if fast is not None:
        return FAST, fast
    assert q.multiplier is not None
    assert q.shift is not None
    return LAW, [bias, q.multiplier.astype(np.int32), q.shift.astype(np.int32)]
