"""Shapes, blocks and packed weights of float convolutions and matrix products.

csrc/simd/ek_gemm_f32_simd.h computes them as a GEMM of M windows of an image by N
channels, with K products for each sum. A register tile is MR windows times two vectors
of channels, and a panel the weights of such channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from edgec.ir import Array
from edgec.schedule.conv import Conv
from edgec.schedule.cores import Core
from edgec.schedule.shares import equal_blocks

_ROWS = {
    16: (6, 5, 4, 3, 2, 1),
    32: (8, 7, 6, 5, 4, 3, 2, 1),
}
"""MR of the tiles of ek_tile_f32_simd.h, by the vector registers of a core."""
_ROWS_AVX512 = (14, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1)

_PARTIAL_SUMS = {1: 4, 2: 2, 3: 2}
"""Partial sums of each result, by MR: with few windows, additions to one sum would wait
for each other.
"""

RGB = "_rgb2"
"""Ending of the names of tiles for an RGB image and a stride of 2."""

MAX_RGB_ROWS_FLOAT16 = 5
"""The most MR of such tiles with float16, which have two partial sums of each result."""

LINE = 16
"""Floats of a cache line."""

ADDITION_LATENCY = 8
"""Vector additions in flight that keep the multipliers of a core busy."""

MAX_BLOCK_WINDOWS = 64
"""Windows of a block at most."""


@dataclass(frozen=True)
class GemmF32Shape(Conv):
    """The shape of a convolution, a transposed one or a product as ek_gemm_f32_t."""

    @property
    def groups(self) -> int:
        """The number of channel groups of the convolution."""
        return self.ic // self.group_ic

    @property
    def taps(self) -> int:
        """Products of a sum (K)."""
        return self.kh * self.kw * self.group_ic

    @property
    def flat(self) -> bool:
        """Whether each window is one pixel, so that all pixels form one long row."""
        is_1x1 = self.kh * self.kw * self.sh * self.sw == 1
        return is_1x1 and (self.oh, self.ow) == (self.ih, self.iw)

    @property
    def known(self) -> str:
        """Ending of the names of tiles written for such windows; "" if there are none."""
        if self.group_ic != self.ic:
            return ""
        # The first layer of an RGB image, of stride 2.
        if (self.kw, self.ic, self.sw, self.dw) == (3, 3, 2, 1):
            return RGB

        # So few products that the loop over them would cost as much.
        if self.flat and self.ic in (8, 16):
            return f"_flat{self.ic}"
        return ""

    def flattened(self) -> GemmF32Shape:
        """Return the same windows in one row, if they are pixels without padding."""
        if not self.flat or self.pt or self.pl:
            return self

        # One long row has a single incomplete tile.
        pixels = self.n * self.oh * self.ow
        return replace(self, n=1, ih=1, oh=1, iw=pixels, ow=pixels)

    def patch(self, tile: int, block: int) -> int:
        """Return the floats of scratch for windows that are copied with padding."""
        # Of a single row of pixels only an incomplete last tile is copied.
        is_one_row = self.flat and self.oh * self.n == 1
        if is_one_row:
            is_complete = self.ow % tile == 0
            return 0 if is_complete else tile * self.group_ic
        return self.padded(block)

    def padded(self, block: int) -> int:
        """Return the floats of a block's windows, with padding around the image."""
        columns = (block - 1) * self.sw + (self.kw - 1) * self.dw + 1
        return self.kh * columns * self.group_ic


@dataclass(frozen=True)
class Blocking:
    """The free parameters of a float GEMM.

    Attributes:
        tile: windows of a tile (MR)
        block: windows that meet one panel after the other
        panels: panels that all windows meet before the next ones are read
        by_panel: 1 if threads share panels rather than blocks, which pays where panels
            are more than image and result
        touch: what is fetched before a block is computed: bit 0 the image, bit 1 the
            result
        blocks: blocks that all groups meet before the next ones are read; 0: all
    """

    tile: int
    block: int
    panels: int
    by_panel: int
    touch: int
    blocks: int


def is_scattered(channels: int) -> bool:
    """Return whether the prefetcher misses the cache lines of consecutive pixels.

    A tile reads one line of each pixel. The lines of pixels with many channels are far
    apart, and with a broken number of lines the distance varies.
    """
    return channels >= 3 * LINE or (channels > LINE and channels % LINE > 0)


def exceeds_l2(core: Core, floats: int) -> bool:
    """Return whether the second cache does not keep so many floats."""
    return 4 * floats > core.l2 // 2


def image_floats(c: GemmF32Shape) -> int:
    """Return the floats of image and result together."""
    image = c.ih * c.iw * c.ic
    result = c.oh * c.ow * c.oc
    return c.n * (image + result)


def tile_rows(core: Core) -> tuple[int, ...]:
    """Return the MR of the tiles that a core has, the largest first."""
    return _ROWS_AVX512 if "avx512" in core.isa else _ROWS[core.registers]


def tile_heights(c: GemmF32Shape, core: Core) -> list[int]:
    """Return the MR that fit a row, the fastest by estimate first."""
    most = c.ow
    if core.halves and c.known == RGB:
        most = min(most, MAX_RGB_ROWS_FLOAT16)

    fitting = [r for r in tile_rows(core) if r <= most or r == 1]
    return sorted(fitting, key=lambda r: (row_cycles(c, r), -r))


def blockings(c: GemmF32Shape, core: Core) -> Iterator[Blocking]:
    """Yield the legal schedules of a shape, the fastest by estimate first."""
    lanes = core.vector // 4
    panels = -(-(c.oc // c.groups) // (2 * lanes))
    floats = image_floats(c)
    is_large = exceeds_l2(core, floats)
    by_panel = int(c.taps * c.oc > floats)

    # What the caches keep has no need to be fetched ahead.
    touch = 0
    if is_large:
        touch = is_scattered(c.ic) + 2 * is_scattered(c.oc)

    has_groups_apart = is_large and c.groups > 1
    for tile in tile_heights(c, core):
        best = _block(c, core, tile)
        if core.threads > 1 and c.n * c.oh == 1:
            # A quarter of the block at least: shorter ones read panels too often.
            shortest = max(tile, best // 4)
            lengths = range(best, shortest - 1, -tile)
            best = equal_blocks(c.ow, lengths, panels, core.threads)

        # The preferred one first, and for searches some that differ much.
        longest = -(-c.ow // tile) * tile
        candidates = {tile, 2 * tile, 4 * tile, best}
        for block in _nearest_first(candidates, best):
            if block > longest:
                continue
            n_blocks = -(-c.ow // block) * c.oh * c.n
            yield Blocking(
                tile=tile,
                block=block,
                panels=_panels(c, core, panels, n_blocks),
                by_panel=by_panel,
                touch=touch,
                blocks=_blocks(c, core, block) if has_groups_apart else 0,
            )


def _nearest_first(blocks: set[int], best: int) -> list[int]:
    """Return lengths of blocks, those nearest to `best` first."""
    return sorted(blocks, key=lambda block: abs(block - best))


def row_cycles(c: GemmF32Shape, tile: int) -> float:
    """Estimate the cycles of one panel's tiles in a row."""
    return -(-c.ow // tile) * tile_cycles(c.taps, tile)


def tile_cycles(taps: int, rows: int) -> float:
    """Estimate the cycles of one tile: MR = `rows` windows by one panel.

    Each of `taps` steps does 2 MR multiply-accumulates of vectors and loads two
    vectors of weights; with too few sums the multiplications wait for additions.
    """
    sums = 2 * rows * _PARTIAL_SUMS.get(rows, 1)
    waiting = max(1, ADDITION_LATENCY / sums)
    multiplications = taps * 2 * rows * waiting
    loads = 2 * taps
    return multiplications + loads + 5 * rows + 20


def _block(c: GemmF32Shape, core: Core, tile: int) -> int:
    """Return the windows of a block whose inputs stay in the first cache.

    They share it with all weights, or with one panel where the weights are too large.
    """
    # A line of the result for each window.
    window_bytes = 4 * c.taps + 64
    weight_bytes = 4 * c.taps * (c.oc // c.groups)

    # A quarter of the cache is left for the result and for other data.
    room = core.l1 // 2
    if weight_bytes < core.l1 // 2:
        room = core.l1 * 3 // 4 - weight_bytes

    longest = -(-c.ow // tile) * tile
    windows = min(room // window_bytes, MAX_BLOCK_WINDOWS)
    return min(longest, max(tile, windows // tile * tile))


def _panels(c: GemmF32Shape, core: Core, panels: int, blocks: int) -> int:
    """Return the panels of one pass over the windows.

    All of them, unless the second cache does not keep them and reading the image once
    more for each pass moves fewer bytes than reading the weights for each block.
    """
    weight_bytes = 4 * c.taps * c.oc // c.groups
    image_bytes = 4 * c.n * c.ih * c.iw * c.ic

    # Each pass takes as many panels as stay in half of the cache.
    passes = -(-weight_bytes // (core.l2 // 2))
    if passes == 1:
        return panels

    # The first block has to read the weights in any case.
    read_again = (blocks - 1) * weight_bytes
    if passes * image_bytes > read_again:
        return panels
    return max(1, panels // passes)


def _blocks(c: GemmF32Shape, core: Core, block: int) -> int:
    """Return the blocks that the second cache keeps until all groups have met them."""
    floats = block * (c.sh * c.sw * c.ic + c.oc)
    return max(1, core.l2 // 4 // (4 * floats))


def pack(w: Array, groups: int, lanes: int, last: int = 0) -> Array:
    """Pack weights [kh, kw, group_ic, oc] to [groups][panels][taps][channels], flat.

    last: the first channel of the last panel, if it overlaps the one before.
    """
    width = 2 * lanes
    panels: list[Array] = []
    for group in np.split(w, groups, axis=3):
        oc = group.shape[3]
        by_tap = group.reshape(-1, oc)
        for channel in range(0, oc, width):
            first = min(channel, last or channel)
            panel = by_tap[:, first : first + width]

            # The last panel may have one vector of channels, but a whole one.
            missing = -panel.shape[1] % lanes
            padded = np.pad(panel, ((0, 0), (0, missing)))
            panels.append(padded.ravel())

    return np.concatenate(panels).astype(np.float32)


def last_vectors(channels: int, lanes: int) -> int:
    """Return the vectors of channels of the last panel, 1 or 2."""
    return 1 if 0 < channels % (2 * lanes) <= lanes else 2


def overlapping(channels: int, lanes: int) -> int:
    """Return the first channel of a last panel of whole vectors.

    0 where the last panel is whole anyway, or larger than all channels.
    """
    width = lanes * last_vectors(channels, lanes)
    if channels % lanes == 0 or channels < width:
        return 0
    return channels - width


def pad_channels(v: Array, groups: int, lanes: int) -> Array:
    """Return one value for each channel [oc], with zeros for the channels of padding."""
    by_group = v.reshape(groups, -1)

    # The tile reads whole vectors, whose last channels it does not store.
    missing = -by_group.shape[1] % lanes
    padded = np.pad(by_group, ((0, 0), (0, missing)))
    return padded.ravel().astype(np.float32)


def transposed_phases(
    w: Array, stride: tuple[int, int], pads: tuple[int, int]
) -> list[Array]:
    """Split weights [kh, kw, ic, oc] of a transposed convolution by phases.

    Results whose row and column have the same remainder by the stride read the same
    taps: each phase is a plain convolution of stride 1 with the taps in reverse order.
    """
    sh, sw = stride
    top, left = pads
    phases: list[Array] = []
    for row in range(sh):
        for column in range(sw):
            first_ky = (row + top) % sh
            first_kx = (column + left) % sw
            taps = w[first_ky::sh, first_kx::sw]
            reversed_taps = taps[::-1, ::-1]
            phases.append(reversed_taps)

    return phases
