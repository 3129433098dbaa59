"""What csrc/ek_gemm_s8.h is given: geometry, panels of packed weights and tables, and how to walk them. Pure numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from edgec.ir import Array

FAST, LAW, SCALE = range(3)
"""EK_GEMM_* of ek_gemm_s8.h."""

LINE = 64
"""Alignment of panels and buffers, bytes: a cache line."""


@dataclass(frozen=True)
class Windows:
    """The geometry of a convolution, as ek_conv2d_t has it; `ow` windows in a row of the result.

    flat: all windows are one row of pixels, cut into rows of `ow`; the last may be shorter.
    """

    n: int
    ih: int
    iw: int
    ic: int
    oh: int
    ow: int
    oc: int
    kh: int = 1
    kw: int = 1
    sh: int = 1
    sw: int = 1
    dh: int = 1
    dw: int = 1
    pt: int = 0
    pl: int = 0
    group_ic: int = 0
    y_step: int = 0
    y_row: int = 0
    y_image: int = 0

    @property
    def groups(self) -> int:
        """Groups of channels."""
        return self.ic // self.depth

    @property
    def depth(self) -> int:
        """Input channels of one window."""
        return self.group_ic or self.ic

    @property
    def flat(self) -> bool:
        """Whether windows are pixels and all rows one."""
        return (
            (self.kh, self.kw, self.sh, self.sw, self.pt, self.pl) == (1, 1, 1, 1, 0, 0)
            and (self.oh, self.ow) == (self.ih, self.iw)
            and self.y_step in (0, self.oc)
            and self.y_row in (0, self.ow * self.oc)
        )

    @property
    def contiguous(self) -> bool:
        """Whether the taps of a row of the kernel lie side by side."""
        return self.groups == 1 and (self.dw == 1 or self.kw == 1)

    @property
    def right(self) -> int:
        """Columns that windows reach behind the image."""
        return (self.ow - 1) * self.sw + (self.kw - 1) * self.dw + 1 - self.pl - self.iw


@dataclass(frozen=True)
class Requant:
    """How sums become int8: zero points, clamp, and a multiplier and shift (or a float64 scale) for each channel."""

    x_zero: int
    w_zero: int
    y_zero: int
    low: int
    high: int
    multiplier: Array | None = None
    shift: Array | None = None
    scale: Array | None = None


Tables = Callable[[Array, Requant, Array], "list[Array] | None"]
"""Bias [o], how sums become int8, the largest |sum| of each channel [o] -> int32 tables [o] of EK_GEMM_FAST (the bias
first), None where the tile cannot take them."""


@dataclass(frozen=True)
class Tile:
    """One tile of an ISA: `mr` windows times `nr` channels; runs are padded to `unit` elements of `element` bytes."""

    mr: int
    nr: int
    unit: int
    tables: Tables
    weights: Callable[[Array], Array]
    """[panels, nr, taps, run] int8 -> [panels, ...] of any type, as the tile reads them."""
    element: int = 1
    converts: bool = False
    """Whether rows pass through ek_gemm_s8_load_t."""


def sums_bound(w: Array, bias: Array, q: Requant) -> Array:
    """The largest magnitude that the sum of each channel can have: int64 [o], for weights [o, ...]."""
    weights = w.reshape(w.shape[0], -1).astype(np.int64) - q.w_zero
    widest = max(127 - q.x_zero, q.x_zero + 128)
    bound: Array = np.abs(weights).sum(1) * widest + np.abs(bias.astype(np.int64))
    return bound


def right_shifts(q: Requant, bound: Array) -> tuple[Array, Array] | None:
    """Multipliers and right shifts, all from 1 to 23, that give what q gives for sums up to `bound` [o]; None if there
    are none. Channels that always give y_zero get multiplier 0 and shift 1."""
    assert q.multiplier is not None and q.shift is not None
    multiplier, right = q.multiplier.astype(np.int64), -q.shift.astype(np.int64)
    high = (np.minimum(bound, 1 << 31) * multiplier >> 31) + 1
    dead = (multiplier == 0) | ((right > 0) & (high < np.int64(1) << np.clip(right - 1, 0, 62)))
    multiplier, right = np.where(dead, 0, multiplier), np.where(dead, 1, right)
    if ((right < 1) | (right > 23)).any():
        return None
    return multiplier.astype(np.int32), right.astype(np.int32)


def pack(c: Windows, w: Array, bias: Array, q: Requant, tile: Tile) -> tuple[Array, int, int]:
    """Panels [panels, bytes] of weights [o, kh, kw, depth] with their tables, the bytes of one, and EK_GEMM_*."""
    taps, run = taps_of(c)
    padded = -(-run // tile.unit) * tile.unit
    per = c.oc // c.groups
    panels = -(-per // tile.nr)
    rows = w.reshape(c.groups, per, taps, run)
    full = np.full((c.groups, panels * tile.nr, taps, padded), q.w_zero, np.int8)
    full[:, :per, :, :run] = rows
    packed = tile.weights(full.reshape(c.groups * panels, tile.nr, taps, padded))
    packed = np.ascontiguousarray(packed).reshape(c.groups * panels, -1).view(np.int8)
    weights_sum = (w.reshape(c.oc, -1).astype(np.int64) - q.w_zero).sum(1)
    folded = wrap(bias.astype(np.int64) - q.x_zero * weights_sum)
    finish, tables = _tables(folded, q, sums_bound(w, bias, q), tile)
    head = np.zeros((c.groups * panels, 16 * tile.nr), np.int8)
    at = 0
    for table in tables:
        wide = np.zeros((c.groups, panels * tile.nr), table.dtype)
        wide[:, :per] = table.reshape(c.groups, per)
        part = wide.reshape(c.groups * panels, tile.nr).view(np.int8)
        head[:, at : at + part.shape[1]] = part
        at += part.shape[1]
    size = -(-(head.shape[1] + packed.shape[1]) // LINE) * LINE
    blob = np.zeros((c.groups * panels, size), np.int8)
    blob[:, : head.shape[1]] = head
    blob[:, head.shape[1] : head.shape[1] + packed.shape[1]] = packed
    return blob, size, finish


def wrap(sums: Array) -> Array:
    """int64 to int32 modulo 2^32, as C adds them."""
    return sums.astype(np.uint64).astype(np.uint32).view(np.int32)


def _tables(bias: Array, q: Requant, bound: Array, tile: Tile) -> tuple[int, list[Array]]:
    if q.scale is not None:
        return SCALE, [bias, q.scale.astype(np.float64)]
    fast = tile.tables(bias, q, bound)
    if fast is not None:
        return FAST, fast
    assert q.multiplier is not None and q.shift is not None
    return LAW, [bias, q.multiplier.astype(np.int32), q.shift.astype(np.int32)]


def taps_of(c: Windows) -> tuple[int, int]:
    """Pointers of a window and elements behind each."""
    return (c.kh, c.kw * c.depth) if c.contiguous else (c.kh * c.kw, c.depth)


@dataclass(frozen=True)
class Walk:
    """A schedule: windows in a row (of flat ones), rows of a band, windows of a block, whether threads share panels."""

    row: int
    band: int
    cols: int
    by_panels: int


def fields(c: Windows, q: Requant, tile: Tile, walk: Walk, panel_bytes: int, finish: int) -> dict[str, int]:
    """The fields of ek_gemm_s8_t."""
    taps, run = taps_of(c)
    padded, e = -(-run // tile.unit) * tile.unit, tile.element
    windows = c.n * c.oh * c.ow if c.flat else c.oh * c.ow
    size = c.n * c.ih * c.iw * c.ic
    if c.flat:
        c = replace(c, n=1, ih=-(-windows // walk.row), iw=walk.row, oh=-(-windows // walk.row), ow=walk.row, dh=1, dw=1)
    y_step = c.y_step or c.oc
    y_row = c.y_row or c.ow * y_step
    buffered = tile.converts or c.pl > 0 or c.right > 0
    bottom = (c.oh - 1) * c.sh + (c.kh - 1) * c.dh + 1 - c.pt - c.ih
    slots, slot_rows = (c.kh, c.dh) if walk.band == 1 else ((walk.band - 1) * c.sh + (c.kh - 1) * c.dh + 1, 1)
    if not (buffered or padded > run or c.pt > 0 or bottom > 0):
        slots = 0
    reach = (c.ow - 1) * c.sw * c.ic + (taps // c.kh - 1) * c.dw * c.ic + (c.groups - 1) * c.depth + padded
    slot_bytes = _ceil(reach * e, LINE) * LINE
    scratch = _ceil(walk.band * taps, 8) * 64 + _ceil(slots, 16) * 64 + (slots + 1 if slots else 0) * slot_bytes
    per = c.oc // c.groups
    panels = _ceil(per, tile.nr)
    return dict(
        taps=taps, run=padded, step=c.sw * c.ic * e, y_step=y_step, finish=finish, w_zero=q.w_zero, x_zero=q.x_zero,
        y_zero=q.y_zero, low=q.low, high=q.high, n=c.n, ih=c.ih, iw=c.iw, ic=c.ic, size=size, oh=c.oh, ow=c.ow,
        windows=windows, sh=c.sh, dh=c.dh, pt=c.pt, pl=c.pl, kh=c.kh, tap_bytes=c.dw * c.ic * e,
        y_row=y_row, y_image=c.y_image or c.oh * y_row, group_ic=c.depth, group_oc=per, mr=tile.mr, nr=tile.nr,
        panel_bytes=panel_bytes, panels=panels * c.groups, group_panels=panels, band=walk.band, cols=walk.cols,
        by_panels=walk.by_panels, element=e, buffered=int(buffered), slots=slots, slot_rows=slot_rows,
        slot_bytes=slot_bytes, scratch_bytes=scratch,
    )  # fmt: skip


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def walks(c: Windows, tile: Tile, l1: int, l2: int) -> Iterator[Walk]:
    """Legal ways through a convolution for caches of l1 and l2 bytes, the analytic default first; none where a row has
    fewer windows than the tile."""
    taps, run = taps_of(c)
    window = taps * run * tile.element
    panels = _ceil(c.oc // c.groups, tile.nr) * c.groups
    weights = panels * tile.nr * taps * _ceil(run, tile.unit) * tile.unit
    room = max(tile.mr, l1 // 2 // max(1, window + c.oc) // tile.mr * tile.mr)
    if c.flat:
        total = c.n * c.oh * c.ow
        if total < tile.mr:
            return
        default = room if weights > l1 // 2 or tile.converts else max(room, tile.mr)
        for wanted in (default, 2 * default, 4 * default, total):
            row = _even(total, min(wanted, total), tile.mr)
            yield Walk(row, 1, _ceil(row, tile.mr) * tile.mr, int(row >= total))
        return
    if c.ow < tile.mr:
        return
    line = c.iw * c.ic * tile.element
    band = 1
    if weights > l1 // 2:
        band = max(1, min(c.oh, (l1 // 2 // line - (c.kh - 1) * c.dh - 1) // c.sh + 1))
    cols = _ceil(c.ow, tile.mr) * tile.mr
    for b in dict.fromkeys((band, 1, min(2, c.oh), min(4, c.oh), c.oh)):
        yield Walk(c.ow, b, cols, int(b >= c.oh and c.n == 1))


def _even(total: int, wanted: int, mr: int) -> int:
    """Windows in a row, near `wanted`, such that the last row has mr at least."""
    rows = _ceil(total, wanted)
    row = min(total, _ceil(_ceil(total, rows), mr) * mr)
    while total % row and total % row < mr:
        row += mr
    return min(row, total)
