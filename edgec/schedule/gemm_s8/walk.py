"""Schedules of int8 GEMM: by which tile and in which blocks csrc/ek_gemm_s8.h runs.

A block of windows meets one panel of weights after the other. It is chosen so that the
windows stay in the first data cache while panels stream past, unless the panels are
more than the second cache holds: then each is read only once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from edgec.ir.c_structs import GemmS8Params
from edgec.schedule.cores import Core
from edgec.schedule.gemm_s8.panels import GATHERED, LINE, GemmTile, Panels, Requant
from edgec.schedule.gemm_s8.windows import GemmS8Shape
from edgec.schedule.shares import equal_blocks

TILE_CALL_LINES = 36
"""Cache lines that the second cache delivers while a call of a tile starts."""

POINTER_GROUP = 8
"""The kernel rounds its table of 8-byte pointers up to whole cache lines of these."""

ROW_NUMBER_GROUP = 16
"""The kernel rounds its table of 4-byte row numbers up to whole lines of these."""


@dataclass(frozen=True)
class GemmSchedule:
    """The free parameters of an int8 GEMM.

    Attributes:
        mr: windows of the tile (MR)
        nr: channels of the tile (NR)
        depth: the only K of the tile; 0: any
        row: windows in a row, free where windows are pixels
        band: rows of a block
        cols: windows of a block's row
        by_panels: 1 if threads share the panels rather than the rows, which pays where
            panels are more bytes than image and result
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
        """The parameters as a `Schedule`."""
        return asdict(self)

    def tile(self, tiles: Sequence[GemmTile]) -> GemmTile:
        """Return the tile with these sizes."""
        size = (self.mr, self.nr, self.depth)
        return next(t for t in tiles if (t.mr, t.nr, t.depth) == size)


def gemm_schedules(
    c: GemmS8Shape, tiles: Sequence[GemmTile], core: Core
) -> Iterator[GemmSchedule]:
    """Yield the legal schedules by any of the tiles, the fastest by estimate first."""
    shortest = _shortest_row(c)
    fitting: list[GemmTile] = []
    for tile in tiles:
        if tile.mr <= shortest and _has_depth(c, tile):
            fitting.append(tile)

    fitting.sort(key=lambda t: _cycles(c, t, core))
    for tile in fitting:
        # Pixels form rows of any length, whereas larger windows have those of an image.
        if c.flat:
            yield from _flat(c, tile, core)
        else:
            yield from _rows(c, tile, core)


def _shortest_row(c: GemmS8Shape) -> int:
    """Return the number of windows of the shortest row.

    The last tile of a row overlaps the one before it, so a row has MR windows at least.
    """
    if c.flat:
        return c.n * c.oh * c.ow
    return min(p.ow if p.oh > 0 else 0 for p in c.parts())


def _has_depth(c: GemmS8Shape, t: GemmTile) -> bool:
    """Return whether the tile can compute the K of a shape."""
    # A depth of 0 stands for tiles that take any K.
    if t.depth == 0:
        return True

    taps, run = t.runs(c.parts()[0])
    is_one_run = taps == 1 and t.depth == t.padded(run)

    # Such a tile always stores all of its channels.
    group_channels = c.oc // c.groups
    has_whole_panels = group_channels % t.nr == 0
    return is_one_run and has_whole_panels


def _cycles(c: GemmS8Shape, t: GemmTile, core: Core) -> float:
    """Estimate the cycles of the whole product."""
    total = 0.0
    for part in c.parts():
        taps, run = t.runs(part)
        depth = taps * t.padded(run)
        if c.flat:
            rows = 1
            length = c.n * c.oh * c.ow
        else:
            rows = c.n * part.oh
            length = part.ow

        # A tile that overlaps the one before it costs as much as any.
        products = t.nr * depth / core.macs_s8
        tile_cycles = t.fixed + t.mr * (t.window + products)
        tiles = rows * _ceil(length, t.mr) * _panel_count(c, t)
        total += tiles * tile_cycles
    return total


def _flat(c: GemmS8Shape, t: GemmTile, core: Core) -> Iterator[GemmSchedule]:
    """Yield the schedules of a shape whose windows are pixels.

    Rows are as long as windows and results stay in the first cache while all panels
    pass. Where the panels are more than the second cache holds, one row has all pixels.
    """
    total = c.n * c.oh * c.ow
    panels = _panel_count(c, t)
    depth_bytes = t.padded(c.depth) * t.element

    # Half of the cache is left for the panel that passes.
    windows = core.l1 // 2 // (depth_bytes + c.oc)
    fitting = max(t.mr, windows // t.mr * t.mr)

    panel_bytes = panels * t.nr * depth_bytes
    passes = _Passes(total, fitting, depth_bytes, c.oc, panel_bytes // LINE)
    exceeds_l2 = panel_bytes > core.l2 // 2
    in_one_pass = exceeds_l2 or _once_is_less(passes, t, core)

    # Converted rows are in a line buffer, which has to stay small.
    preferred = fitting
    if in_one_pass and not t.converts:
        preferred = total

    image_bytes = total * (c.ic * t.element + c.oc)
    by_panels = int(panel_bytes > image_bytes)
    lengths = (preferred, fitting // 2, 2 * fitting, 4 * fitting, total)
    for wanted in dict.fromkeys(min(n, total) for n in lengths):
        row = _row_length(total, max(wanted, t.mr), t.mr)

        # Threads that share panels have equal parts anyway.
        if core.threads > 1 and not by_panels:
            row = _balanced_row(total, row, t.mr, panels, core.threads)

        cols = _ceil(row, t.mr) * t.mr
        yield GemmSchedule(t.mr, t.nr, t.depth, row, 1, cols, by_panels)


@dataclass(frozen=True)
class _Passes:
    """Sizes of a product of windows by panels.

    Attributes:
        total: windows
        fitting: windows of one pass that stay in the first cache with their results
        depth_bytes: bytes of a window
        channels: bytes of a window's results
        panel_lines: cache lines of all panels
    """

    total: int
    fitting: int
    depth_bytes: int
    channels: int
    panel_lines: int


def _once_is_less(passes: _Passes, t: GemmTile, core: Core) -> bool:
    """Return whether one pass of all panels costs less than a pass for each block.

    In one pass the windows still fit the first cache but their results do not: every
    panel then fetches one line of results for each window. In several passes every one
    reads all panels again.
    """
    if passes.total * passes.depth_bytes > core.l1 * 3 // 4:
        return False
    calls = _ceil(passes.channels, t.nr)
    count = _ceil(passes.total, passes.fitting)
    one_pass = calls * (TILE_CALL_LINES + passes.total)
    several = count * (calls * TILE_CALL_LINES + passes.panel_lines)
    return one_pass < several


def _rows(c: GemmS8Shape, t: GemmTile, core: Core) -> Iterator[GemmSchedule]:
    """Yield the schedules of a shape with larger windows, by rows of the result.

    Several rows meet a panel before the next one where all panels leave the first
    cache: then b rows of results and the image rows that these read fill half of it,

        ((kh - 1) dh + 1 + (b - 1) sh) * line + b * ow * oc <= l1 / 2.
    """
    part = c.parts()[0]
    taps, run = t.runs(part)
    line = c.iw * c.ic * t.element
    depth_bytes = taps * t.padded(run) * t.element
    panel_bytes = _panel_count(c, t) * t.nr * depth_bytes

    # Panels that stay in the cache can pass each row again.
    preferred = 1
    if panel_bytes > core.l1 // 2:
        first_row = ((part.kh - 1) * c.dh + 1) * line
        next_row = c.sh * line + part.ow * c.oc
        preferred = (core.l1 // 2 - first_row) // next_row + 1

    cols = _ceil(part.ow, t.mr) * t.mr
    image_bytes = c.n * (c.ih * line + c.oh * c.ow * c.oc)
    by_panels = int(panel_bytes > image_bytes)

    bands = [preferred, 1, 2, 4, preferred * 2]
    legal_bands = [max(1, min(band, part.oh)) for band in bands]
    for band in dict.fromkeys(legal_bands):
        yield GemmSchedule(t.mr, t.nr, t.depth, part.ow, band, cols, by_panels)


@lru_cache(maxsize=4096)
def _balanced_row(total: int, row: int, mr: int, panels: int, threads: int) -> int:
    """Return a row of `row` windows or a little fewer that gives threads equal work."""
    # A third of the row at least: shorter ones would read the panels too often.
    shortest = max(mr, row // 3)
    lengths = range(row, shortest - 1, -mr)
    counts = dict.fromkeys(_ceil(total, n) for n in lengths)

    # A generator, since one of the first is mostly good.
    rows = itertools.chain([row], _shorter_rows(total, row, mr, counts))
    return equal_blocks(total, rows, panels, threads)


def _shorter_rows(
    total: int, row: int, mr: int, counts: Iterable[int]
) -> Iterator[int]:
    """Yield the lengths up to `row` by which there are these numbers of rows."""
    for count in counts:
        length = _row_length(total, _ceil(total, count), mr)
        if length <= row:
            yield length


def _row_length(total: int, wanted: int, mr: int) -> int:
    """Return a number of windows near `wanted` by which the last row has MR at least.

    A tile cannot compute fewer windows, and there is none before it to overlap.
    """
    rows = _ceil(total, wanted)
    equal = _ceil(total, rows)
    row = min(total, _ceil(equal, mr) * mr)

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
) -> GemmS8Params:
    """Return the ek_gemm_s8_t of a layer.

    Args:
        c: its shape
        q: its requantization
        t: the tile
        walk: the schedule
        panels: the packed weights
        pitch: bytes from pixel to pixel of the result; 0: they are side by side
    """
    phase_h, phase_w = c.phases or (1, 1)
    if (phase_h, phase_w) == (1, 1):
        # A transposed convolution of stride 1 is one plain convolution.
        c = c.parts()[0]

    e = t.element
    pitch = pitch or c.oc
    windows = c.oh * c.ow
    y_image = windows * pitch
    size = c.n * c.ih * c.iw * c.ic
    if c.flat:
        windows *= c.n
        size = windows * c.ic
        c = _in_rows(c, _ceil(windows, walk.row), walk.row)

    part = c.parts()[0]
    taps, run = t.runs(part)
    count = _panel_count(c, t)
    buffers = _buffers(c, t, walk)
    gather = t.padded(run) * e if t.gathers(c) else 0
    # A gathered row is copied 16 bytes at a time, so the last copy may reach further.
    gather_bytes = _ceil(c.ow * gather + GATHERED, LINE) * LINE if gather else 0
    pointers = walk.band * taps + (part.kh if gather else 0)
    scratch_bytes = _scratch_bytes(pointers, buffers) + walk.band * gather_bytes
    return GemmS8Params(
        taps=taps,
        run=t.padded(run),
        step=gather or c.sw * c.ic * e,
        y_step=phase_w * pitch,
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
        y_row=phase_h * c.ow * pitch,
        y_image=y_image,
        group_ic=c.depth,
        group_oc=c.oc // c.groups,
        phase_h=phase_h,
        phase_w=phase_w,
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
        buffered=int(buffers.holds_all_rows),
        slots=buffers.slots,
        slot_rows=buffers.slot_rows,
        zero_rows=buffers.zero_rows,
        slot_bytes=buffers.slot_bytes,
        gather_bytes=gather_bytes,
        scratch_bytes=scratch_bytes,
    )


def _in_rows(c: GemmS8Shape, rows: int, row: int) -> GemmS8Shape:
    """Return a shape of pixels as one image with rows of `row` pixels."""
    return replace(c, n=1, ih=rows, iw=row, oh=rows, ow=row, dh=1, dw=1)


def with_row_length(p: GemmS8Params, width: int) -> GemmS8Params:
    """Return the ek_gemm_s8_t of a 1x1 convolution with rows of `width` pixels.

    A block has about as many pixels as before. How many pixels there are is for the
    caller to set.

    Args:
        p: the parameters
        width: pixels in a row, MR at least
    """
    band = max(1, p.ow // width)
    columns = width if band > 1 else min(p.ow, width)

    reach = (width - 1) * p.ic + p.run
    buffers = _LineBuffers(
        slots=band if p.slots else 0,
        slot_rows=1,
        zero_rows=0,
        slot_bytes=_slot_bytes(reach, p.element),
        holds_all_rows=False,
    )
    return replace(
        p,
        iw=width,
        ow=width,
        y_row=width * p.y_step,
        band=band,
        cols=_ceil(columns, p.mr) * p.mr,
        slots=buffers.slots,
        slot_bytes=buffers.slot_bytes,
        scratch_bytes=_scratch_bytes(band, buffers),
    )


@dataclass(frozen=True)
class _LineBuffers:
    """The line buffers of a part of the work: copies of image rows with padding.

    Attributes:
        slots: buffers; 0 where every row can be read in the image itself
        slot_rows: image rows from one buffer to the next
        zero_rows: 1 if there is a row of padding for windows above or below the image
        slot_bytes: bytes of a buffer
        holds_all_rows: whether all rows pass through buffers, not only the last ones
            of an image, behind which a tile would read past its end
    """

    slots: int
    slot_rows: int
    zero_rows: int
    slot_bytes: int
    holds_all_rows: bool


def _buffers(c: GemmS8Shape, t: GemmTile, walk: GemmSchedule) -> _LineBuffers:
    """Return the line buffers that a schedule needs."""
    parts = c.parts()
    gathers = t.gathers(c)
    kh = parts[0].kh
    taps, run = parts[0].taps
    has_padded_rows = any(p.needs_padded_rows for p in parts)
    holds_all_rows = t.converts or gathers or any(p.needs_padded_columns for p in parts)
    # A padded run may reach behind the image's last element.
    holds_some = t.padded(run) > run or has_padded_rows
    slots, slot_rows = _slots(c, kh, walk.band)

    # From the first element of a row to the last one that a tile may read.
    widest = max(p.ow for p in parts)
    columns = (widest - 1) * c.sw + (taps // kh - 1) * c.dw
    last_run = max(t.padded(run), GATHERED if gathers else 0)
    last_group = (c.groups - 1) * c.depth
    reach = columns * c.ic + last_group + last_run
    return _LineBuffers(
        slots=slots if holds_all_rows or holds_some else 0,
        slot_rows=slot_rows,
        zero_rows=int(has_padded_rows),
        slot_bytes=_slot_bytes(reach, t.element),
        holds_all_rows=holds_all_rows,
    )


def _slots(c: GemmS8Shape, kh: int, band: int) -> tuple[int, int]:
    """Return the line buffers of a band, and the image rows from one to the next."""
    # The windows of one row read every dh-th image row, those of a band all between.
    if band == 1:
        return kh, c.dh
    rows = (band - 1) * c.sh + (kh - 1) * c.dh + 1
    return rows, 1


def _slot_bytes(elements: int, element_bytes: int) -> int:
    """Return the bytes of a line buffer, in whole cache lines."""
    return _ceil(elements * element_bytes, LINE) * LINE


def _scratch_bytes(pointers: int, buffers: _LineBuffers) -> int:
    """Return the scratch of one part, laid out as ek_gemm_s8_start does.

    It holds the pointers of a band, the number of the image row in each buffer, the
    row of padding, and the buffers.
    """
    pointer_bytes = _ceil(pointers, POINTER_GROUP) * LINE
    number_bytes = _ceil(buffers.slots, ROW_NUMBER_GROUP) * LINE
    lines = buffers.slots + buffers.zero_rows if buffers.slots else 0
    return pointer_bytes + number_bytes + lines * buffers.slot_bytes


def _panel_count(c: GemmS8Shape, t: GemmTile) -> int:
    """Return the number of panels of all groups."""
    return c.groups * _ceil(c.oc // c.groups, t.nr)


def _ceil(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    return -(-a // b)
