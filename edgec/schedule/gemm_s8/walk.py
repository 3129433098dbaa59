"""Walks: in which order, and by which tile, csrc/ek_gemm_s8.h goes through a
convolution.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from edgec.ir import Struct
from edgec.schedule.cores import Core
from edgec.schedule.gemm_s8.panels import GATHERED, LINE, GemmTile, Panels, Requant
from edgec.schedule.gemm_s8.windows import GemmS8Shape
from edgec.schedule.shares import equal_blocks


@dataclass(frozen=True)
class GemmSchedule:
    """A schedule: the tile, windows in a row (the caller's choice where they are
    pixels), rows of a band, windows of a block, whether threads share the panels rather
    than the rows: where panels are more than image and result, so that each reads its
    own alone.
    """

    mr: int
    nr: int
    depth: int
    row: int
    band: int
    cols: int
    by_panels: int

    @property
    def schedule(self) -> dict[str, int]:
        """As a schedule."""
        return asdict(self)

    def tile(self, tiles: Sequence[GemmTile]) -> GemmTile:
        """Its tile among some."""
        return next(
            t for t in tiles if (t.mr, t.nr, t.depth) == (self.mr, self.nr, self.depth)
        )


def gemm_schedules(
    c: GemmS8Shape, tiles: Sequence[GemmTile], core: Core
) -> Iterator[GemmSchedule]:
    """Legal schedules by one of these tiles, what analysis says is best first."""
    fit = [t for t in tiles if t.mr <= _narrowest(c) and _takes(c, t)]
    for tile in sorted(fit, key=lambda t: _cycles(c, t, core)):
        yield from _flat(c, tile, core) if c.flat else _rows(c, tile, core)


def _narrowest(c: GemmS8Shape) -> int:
    """Windows of the shortest row."""
    if c.flat:
        return c.n * c.oh * c.ow
    return min(p.ow if p.oh > 0 else 0 for p in c.parts())


def _takes(c: GemmS8Shape, t: GemmTile) -> bool:
    """Whether the depth is one that the tile is made for."""
    taps, run = t.runs(c.parts()[0])
    return t.depth == 0 or (
        taps == 1 and t.depth == t.padded(run) and c.oc // c.groups % t.nr == 0
    )


def _cycles(c: GemmS8Shape, t: GemmTile, core: Core) -> float:
    """An estimate for the whole."""
    total = 0.0
    for part in c.parts():
        taps, run = t.runs(part)
        depth = taps * t.padded(run)
        rows, length = (1, c.n * c.oh * c.ow) if c.flat else (c.n * part.oh, part.ow)
        one = t.fixed + t.mr * (t.window + t.nr * depth / core.macs_s8)
        total += rows * _ceil(length, t.mr) * _panels(c, t) * one
    return total


def _flat(c: GemmS8Shape, t: GemmTile, core: Core) -> Iterator[GemmSchedule]:
    """Rows of pixels such that windows and results stay in the first cache while all
    panels pass, unless the panels are more than the second cache holds: then they pass
    once.
    """
    total = c.n * c.oh * c.ow
    depth = t.padded(c.depth)
    room = max(t.mr, core.l1 // 2 // (depth * t.element + c.oc) // t.mr * t.mr)
    panels = _panels(c, t) * t.nr * depth * t.element
    once = panels > core.l2 // 2 or _once_is_less(
        total, room, depth * t.element, c.oc, panels // LINE, t, core
    )
    default = total if once and not t.converts else room
    by_panels = int(panels > total * (c.ic * t.element + c.oc))
    for wanted in dict.fromkeys(
        min(n, total) for n in (default, room // 2, 2 * room, 4 * room, total)
    ):
        row = _even(total, max(wanted, t.mr), t.mr)
        if core.threads > 1 and not by_panels:
            row = _shared(total, row, t.mr, _panels(c, t), core.threads)
        yield GemmSchedule(
            t.mr, t.nr, t.depth, row, 1, _ceil(row, t.mr) * t.mr, by_panels
        )


_CALL = 36
"""Cache lines that the second cache hands over in the time in which a tile over a row
gets ready.
"""


def _once_is_less(
    total: int, room: int, depth: int, results: int, lines: int, t: GemmTile, core: Core
) -> bool:
    """Whether one pass of all panels, `lines` of the cache, costs less than one for
    each `room` of the windows [total, depth], which stay in the cache then too, but
    leave no room for their results [total, results].
    """
    if total * depth > core.l1 * 3 // 4:
        return False
    calls = _ceil(results, t.nr)
    passes = _ceil(total, room)
    return calls * (_CALL + total) < passes * (calls * _CALL + lines)


def _rows(c: GemmS8Shape, t: GemmTile, core: Core) -> Iterator[GemmSchedule]:
    """Bands of rows that see a panel before the next one: more than one where the
    panels leave the first cache.
    """
    part = c.parts()[0]
    taps, run = t.runs(part)
    line = c.iw * c.ic * t.element
    panels = _panels(c, t) * t.nr * taps * t.padded(run) * t.element
    band = 1
    if panels > core.l1 // 2:
        band = (core.l1 // 2 - ((part.kh - 1) * c.dh + 1) * line) // (
            c.sh * line + part.ow * c.oc
        ) + 1
    cols = _ceil(part.ow, t.mr) * t.mr
    image = c.n * (c.ih * line + c.oh * c.ow * c.oc)
    for b in dict.fromkeys(max(1, min(n, part.oh)) for n in (band, 1, 2, 4, band * 2)):
        yield GemmSchedule(t.mr, t.nr, t.depth, part.ow, b, cols, int(panels > image))


@lru_cache(maxsize=4096)
def _shared(total: int, row: int, mr: int, panels: int, parts: int) -> int:
    """Windows in a row, `row` or a little fewer, such that all parts get as many."""
    counts = dict.fromkeys(
        _ceil(total, n) for n in range(row, max(mr, row // 3) - 1, -mr)
    )
    fewer = (_even(total, _ceil(total, count), mr) for count in counts)
    return equal_blocks(
        total, itertools.chain([row], (n for n in fewer if n <= row)), panels, parts
    )


def _even(total: int, wanted: int, mr: int) -> int:
    """Windows in a row, near `wanted`, such that the last row has mr at least."""
    row = min(total, _ceil(_ceil(total, _ceil(total, wanted)), mr) * mr)
    while total % row and total % row < mr:
        row = min(total, row + mr)
    return row


def kernel_parameters(
    c: GemmS8Shape,
    q: Requant,
    t: GemmTile,
    walk: GemmSchedule,
    panels: Panels,
    pitch: int = 0,
) -> Struct:
    """What ek_gemm_s8 is told. pitch: bytes from pixel to pixel of the result, where
    not side by side.
    """
    (sh, sw), e = c.phases or (1, 1), t.element
    c = c.parts()[0] if (sh, sw) == (1, 1) else c
    part = c.parts()[0]
    taps, run = t.runs(part)
    pitch = pitch or c.oc
    windows = (c.n if c.flat else 1) * c.oh * c.ow
    count = _panels(c, t)
    y_row = c.ow * pitch
    y_image = c.oh * c.ow * pitch
    if c.flat:
        rows = _ceil(windows, walk.row)
        y_row = walk.row * pitch
        part = replace(c, n=1, ih=rows, iw=walk.row, oh=rows, ow=walk.row, dh=1, dw=1)
        c = part
    size = windows * c.ic if c.flat else c.n * c.ih * c.iw * c.ic
    slots, slot_rows, slot_bytes, buffered = _buffers(c, t, walk)
    gather = t.padded(run) * e if t.gathers(c) else 0
    gather_bytes = _ceil(c.ow * gather + GATHERED, LINE) * LINE if gather else 0
    zero_rows = int(any(p.pt > 0 or p.bottom > 0 for p in c.parts()))
    pointers = walk.band * taps + (part.kh if gather else 0)
    scratch = (
        _scratch(pointers, slots, zero_rows, slot_bytes) + walk.band * gather_bytes
    )
    return Struct(
        "ek_gemm_s8_t",
        taps=taps,
        run=t.padded(run),
        step=gather or c.sw * c.ic * e,
        y_step=sw * pitch,
        finish=panels.finish,
        w_zero=q.w_zero,
        x_zero=q.x_zero,
        y_zero=q.y_zero,
        low=q.low,
        high=q.high,
        n=c.n,
        ih=c.ih,
        iw=c.iw,
        ic=c.ic,
        size=size,
        oh=c.oh,
        ow=c.ow,
        windows=windows,
        sh=c.sh,
        dh=c.dh,
        pt=c.pt,
        pl=c.pl,
        kh=part.kh,
        tap_bytes=c.dw * c.ic * e,
        gather=gather,
        gather_run=c.kw * c.ic * e if gather else 0,
        x_step=c.sw * c.ic * e,
        y_row=sh * y_row,
        y_image=y_image,
        group_ic=c.depth,
        group_oc=c.oc // c.groups,
        phase_h=sh,
        phase_w=sw,
        kw=part.kw,
        mr=t.mr,
        nr=t.nr,
        panel_bytes=panels.bytes,
        panels=count,
        group_panels=count // c.groups,
        band=walk.band,
        cols=walk.cols,
        by_panels=walk.by_panels,
        element=e,
        buffered=int(buffered),
        slots=slots,
        slot_rows=slot_rows,
        zero_rows=zero_rows,
        slot_bytes=slot_bytes,
        gather_bytes=gather_bytes,
        scratch_bytes=scratch,
    )


def with_row_length(p: Struct, width: int) -> Struct:
    """What ek_gemm_s8 is told of pixels in rows of another length, at least mr: in a
    block as many as before, about.

    p: of a 1x1 convolution. How many pixels there are is for the caller to set.
    """
    number = p.number
    band = max(1, number("ow") // width)
    cols = _ceil(
        width if band > 1 else min(number("ow"), width), number("mr")
    ) * number("mr")
    slots = band if number("slots") else 0
    slot_bytes = _slot((width - 1) * number("ic") + number("run"), number("element"))
    changed = {
        "iw": width,
        "ow": width,
        "y_row": width * number("y_step"),
        "band": band,
        "cols": cols,
        "slots": slots,
        "slot_bytes": slot_bytes,
        "scratch_bytes": _scratch(band, slots, 0, slot_bytes),
    }
    return Struct(p.ctype, **{**p.fields, **changed})


def _buffers(
    c: GemmS8Shape, t: GemmTile, walk: GemmSchedule
) -> tuple[int, int, int, bool]:
    """Line buffers, image rows to a step of them, bytes of one, and whether all rows
    need them.
    """
    parts = c.parts()
    gathers = t.gathers(c)
    kh, (taps, run) = parts[0].kh, parts[0].taps
    buffered = t.converts or gathers or any(p.pl > 0 or p.right > 0 for p in parts)
    padded = t.padded(run) > run or any(p.pt > 0 or p.bottom > 0 for p in parts)
    many = (walk.band - 1) * c.sh + (kh - 1) * c.dh + 1
    slots, slot_rows = (kh, c.dh) if walk.band == 1 else (many, 1)
    columns = max((p.ow - 1) * c.sw + (taps // kh - 1) * c.dw for p in parts)
    reach = (
        columns * c.ic
        + (c.groups - 1) * c.depth
        + max(t.padded(run), GATHERED if gathers else 0)
    )
    return (
        (slots if buffered or padded else 0),
        slot_rows,
        _slot(reach, t.element),
        buffered,
    )


def _slot(elements: int, size: int) -> int:
    """Bytes of a line buffer of so many elements of a size."""
    return _ceil(elements * size, LINE) * LINE


def _scratch(pointers: int, slots: int, zero_rows: int, slot_bytes: int) -> int:
    """Bytes of pointers, of the rows that slots hold, of slots and rows of padding."""
    return (
        _ceil(pointers, 8) * 64
        + _ceil(slots, 16) * 64
        + (slots + zero_rows if slots else 0) * slot_bytes
    )


def _panels(c: GemmS8Shape, t: GemmTile) -> int:
    """Of all groups."""
    return c.groups * _ceil(c.oc // c.groups, t.nr)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
