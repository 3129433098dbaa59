"""Winograd's 3x3 float convolutions: transforms of weights, tiles and their cost.

A tile of m x m results needs (m + 2)^2 instead of 9 m^2 products for each pair of
channels. With the matrices A, B and G of Toom-Cook interpolation,

    Y = A' [(G w G') * (B' x B)] A

where * multiplies element by element; over many tiles and channels it is (m + 2)^2
matrix products (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks",
2016). csrc/simd/ek_winograd_f32_simd.h has A and B.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod, sqrt

import numpy as np

from edgec.ir import Array
from edgec.schedule.cores import Core
from edgec.schedule.gemm_f32.windows import (
    LINE,
    GemmF32Shape,
    exceeds_l2,
    image_floats,
    is_scattered,
    row_cycles,
    tile_cycles,
    tile_heights,
    tile_rows,
)

POINT_SQUARES: dict[int, tuple[float, ...]] = {2: (1.0,), 4: (0.5, 2.0)}
"""The squares of the interpolation points, by m: the points are 0, their roots of both
signs, and infinity.

For m = 4 they leave twice the error of a plain convolution; the points 1 and 2, which
most programs use, leave seven times as much.
"""

_INPUT_INSTRUCTIONS = {2: 80, 4: 270}
"""Instructions of the transform B' x B, for a vector of channels of a tile, by m."""
_OUTPUT_INSTRUCTIONS = {2: 80, 4: 250}
"""Instructions of the transform A' s A, for a vector of channels of a tile, by m."""

BORDER_PIXEL_INSTRUCTIONS = 12
"""Instructions to copy a pixel at the border of the image, besides its channels."""
BORDER_VECTOR_INSTRUCTIONS = 4
"""Instructions to copy each vector of channels of such a pixel."""

STORED_FLOAT_INSTRUCTIONS = 1
"""Instructions that take as long as to write and read a float of the matrices."""

ONE_VECTOR_PANEL = 0.55
"""The time of a panel with a single vector, in those of a whole one."""

MAX_SCRATCH_BYTES = 192 << 10
"""Scratch of a block, of which a second cache keeps enough."""

MAX_BLOCK_TILES = 48
"""Tiles of a block."""

MAX_PANELS = 2
"""Panels whose sums are transformed back together, by preference."""

FEW_ROWS = (4, 2)
"""MR of the products where scratch is short."""

MIN_SPEEDUP = 1.38
"""The estimated speedup over a plain convolution that is worth larger weights.

Layers of ultraface_rfb320 with less made the network no faster.
"""


@dataclass(frozen=True)
class WinogradTiling:
    """Fields of ek_winograd_f32_t.

    Attributes:
        m: results of a tile in each direction
        rows: tiles of the image in one tile of the products (MR)
        block: tiles that are transformed together
        panels: panels whose sums are transformed back together
        by_panel: 1 if threads share panels rather than blocks
        touch: what is fetched before a block is computed: bit 0 the image, bit 1 the
            result
    """

    m: int
    rows: int = 1
    block: int = 1
    panels: int = 1
    by_panel: int = 0
    touch: int = 0

    def counts(self, c: GemmF32Shape) -> tuple[int, int]:
        """Return the tiles down and across.

        A dilated convolution is dh * dw plain ones, and these are the tiles of one.
        """
        down = -(-c.oh // (c.dh * self.m))
        across = -(-c.ow // (c.dw * self.m))
        return down, across

    def tile_count(self, c: GemmF32Shape) -> int:
        """Return the number of all tiles."""
        return c.n * c.dh * c.dw * prod(self.counts(c))

    def apart(self, c: GemmF32Shape, lanes: int) -> tuple[int, int]:
        """Return the floats from matrix to matrix, before and after the products."""
        # Input channels are padded to a vector, results only in the last panel.
        padded_channels = -(-c.oc // lanes) * lanes
        result_channels = min(self.panels * 2 * lanes, padded_channels)
        return (
            self._pitch(max(c.ic, lanes)),
            self._pitch(result_channels),
        )

    def _pitch(self, channels: int) -> int:
        """Return the floats from matrix to matrix of `block` rows of channels."""
        lines = -(-self.block * channels // LINE)

        # At a multiple of 8 lines, all matrices would compete for few cache sets.
        return (lines + (lines % 8 == 0)) * LINE

    def floats(self, c: GemmF32Shape, lanes: int) -> int:
        """Return the floats of scratch."""
        before, after = self.apart(c, lanes)
        return (self.m + 2) ** 2 * (before + max(after, c.ic))

    def cycles(self, c: GemmF32Shape, core: Core) -> float:
        """Estimate the cycles if one vector of multiply-accumulates took a cycle."""
        lanes = core.vector // 4
        numbers = (self.m + 2) ** 2
        count = self.tile_count(c)
        vectors_in = -(-c.ic // lanes)
        vectors_out = -(-c.oc // lanes)

        # One tile of a product holds `rows` tiles of the image.
        tiles_of_product = numbers * -(-count // self.rows)
        product = tiles_of_product * panels(c, lanes) * tile_cycles(c.ic, self.rows)

        input_transform = vectors_in * _INPUT_INSTRUCTIONS[self.m]
        output_transform = vectors_out * _OUTPUT_INSTRUCTIONS[self.m]
        transforms = count * (input_transform + output_transform)

        # Tiles at the border are copied with padding, all others read in place.
        down, across = self.counts(c)
        inner_of_each = max(0, down - 2) * max(0, across - 2)
        inner = c.n * c.dh * c.dw * inner_of_each
        pixel = BORDER_PIXEL_INSTRUCTIONS + BORDER_VECTOR_INSTRUCTIONS * vectors_in
        border = (count - inner) * numbers * pixel

        stored = count * numbers * (c.ic + c.oc) * STORED_FLOAT_INSTRUCTIONS

        # Weights beyond the cache come from memory again for each block.
        weight_bytes = 4 * numbers * c.ic * c.oc
        reads = -(-count // self.block) if weight_bytes > core.l2 // 2 else 1
        streaming = reads * _stream_cycles(weight_bytes, core)
        return product + transforms + border + stored + streaming


def _stream_cycles(nbytes: int, core: Core) -> float:
    """Return the cycles to read bytes from memory, in those of `cycles`."""
    return nbytes / core.stream * core.macs_f32 * 4 / core.vector


def panels(c: GemmF32Shape, lanes: int) -> float:
    """Return the number of panels, with one of a single vector as its share of time."""
    whole = c.oc // (2 * lanes)
    remainder = c.oc % (2 * lanes)
    if remainder == 0:
        return whole

    # A last panel of one vector has half of the products, but loads all of the image.
    if remainder <= lanes:
        return whole + ONE_VECTOR_PANEL
    return whole + 1


def winograd_tilings(c: GemmF32Shape, core: Core) -> Iterator[WinogradTiling]:
    """Yield the legal tilings of a convolution, the fastest by estimate first."""
    best = [_best(m, c, core) for m in POINT_SQUARES]
    lanes = core.vector // 4
    all_panels = -(-c.oc // (2 * lanes))
    for t in sorted(best, key=lambda t: t.cycles(c, core)):
        largest = -(-t.tile_count(c) // t.rows) * t.rows
        multiples = (t.block // t.rows, 6, 4, 3, 2, 1)
        blocks = [min(multiple * t.rows, largest) for multiple in multiples]
        counts = (t.panels, all_panels, 1)

        # Several of these can be equal; the order is that of preference.
        for block in dict.fromkeys(blocks):
            for together in dict.fromkeys(counts):
                yield replace(t, block=block, panels=together)

        # With less scratch, for a core whose arena has no room.
        for rows in FEW_ROWS:
            if rows < t.rows:
                yield replace(t, rows=rows, block=rows, panels=1)


def _best(m: int, c: GemmF32Shape, core: Core) -> WinogradTiling:
    """Return the tiling that the estimate prefers for tiles of m x m results."""
    lanes = core.vector // 4
    count = WinogradTiling(m).tile_count(c)

    def largest_share(rows: int) -> float:
        # Few tiles may leave most of a high product tile empty.
        products = -(-count // rows)
        return -(-products // core.threads) * tile_cycles(c.ic, rows)

    fitting = [r for r in tile_rows(core) if r <= count]
    rows = min(fitting, key=largest_share)

    all_panels = -(-c.oc // (2 * lanes))
    t = WinogradTiling(m, rows, rows, min(all_panels, MAX_PANELS))
    t = replace(t, block=_block(t, c, core))

    # With fewer blocks than threads some threads would have nothing to do.
    blocks = -(-count // t.block)
    by_panel = int(blocks < core.threads)

    touch = 0
    if exceeds_l2(core, image_floats(c)):
        # Tiles are read in squares, which no prefetcher follows.
        touch = 1 + 2 * is_scattered(c.oc)
    return replace(t, by_panel=by_panel, touch=touch)


def _block(t: WinogradTiling, c: GemmF32Shape, core: Core) -> int:
    """Return the tiles of a block: as many as scratch has room for.

    There is a block for each thread at least.
    """
    products_per_thread = -(-t.tile_count(c) // t.rows) // core.threads
    most = min(MAX_BLOCK_TILES, products_per_thread * t.rows)
    lanes = core.vector // 4

    element_bytes = 2 if core.halves else 4

    # A single row of product tiles is needed, whatever its scratch.
    best = t.rows
    for block in range(t.rows, most + 1, t.rows):
        longer = replace(t, block=block)
        scratch = element_bytes * longer.floats(c, lanes)
        if scratch <= MAX_SCRATCH_BYTES:
            best = block
    return best


def is_worthwhile(c: GemmF32Shape, t: WinogradTiling, core: Core) -> bool:
    """Return whether a tiling is so much faster that it is worth larger weights.

    The comparison is by estimates for this and a plain convolution.
    """
    rows = c.n * c.oh
    best_tile = tile_heights(c, core)[0]
    plain = rows * panels(c, core.vector // 4)
    plain *= row_cycles(c, best_tile)

    # A plain convolution keeps its weights in the cache after the first time.
    plain += _stream_cycles(4 * c.taps * c.oc, core)

    tiled = t.cycles(c, core)
    return plain > MIN_SPEEDUP * tiled


def transforms(m: int) -> Array:
    """Return the matrix G [m + 2, 3] of the weights' transform.

    The row of a point p is [1, p, p^2] / product of (p - q) over the other points q;
    that of infinity is [0, 0, 1].
    """
    points = [0.0]
    for square in POINT_SQUARES[m]:
        points += (sqrt(square), -sqrt(square))

    # The conditions of Lagrange interpolation through these points.
    rows: list[list[float]] = []
    for p in points:
        denominator = prod(p - other for other in points if other != p)
        rows.append([p**k / denominator for k in range(3)])
    return np.array([*rows, [0.0, 0.0, 1.0]])


def pack(w: Array, m: int, lanes: int) -> Array:
    """Transform weights [3, 3, ic, oc] and pack them to panels, flat.

    The order is [panels][numbers of a tile][ic][channels].
    """
    g = transforms(m)

    # In double: the transform would add its rounding to that of the weights.
    wide = w.astype(np.float64)
    transformed = np.einsum("ia,jb,abco->ijco", g, g, wide)
    numbers = transformed.reshape(-1, *w.shape[2:])

    panel_channels = 2 * lanes
    parts: list[Array] = []
    for first in range(0, w.shape[3], panel_channels):
        panel = numbers[..., first : first + panel_channels]
        missing = -panel.shape[2] % lanes
        padded = np.pad(panel, ((0, 0), (0, 0), (0, missing)))
        parts.append(padded.ravel())

    return np.concatenate(parts).astype(np.float32)
