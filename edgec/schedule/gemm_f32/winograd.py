"""Winograd's float convolutions (csrc/simd/ek_winograd_f32_simd.h): transforms of
weights, tiles and their cost.
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
    ROWS,
    GemmF32Shape,
    exceeds_l2,
    is_scattered,
    row_cycles,
    tile_cycles,
    tile_heights,
)

POINT_SQUARES: dict[int, tuple[float, ...]] = {2: (1.0,), 4: (0.5, 2.0)}
"""By the results of a tile in each direction: the transforms are of 0, the roots of
these, and infinity.

Those of 4 leave twice the error of a plain convolution; 1 and 4, which most use, leave
seven times as much.
"""

_TO = {2: 80, 4: 270}
_FROM = {2: 80, 4: 250}
"""Instructions for a vector of channels of one tile: to what is multiplied, and from
the sums.
"""

_PIXEL = 12
_COPY = 4
"""Instructions to copy a pixel at the border: for itself and for each vector of its
channels.
"""

_BETWEEN = 1
"""Instructions that it takes as long as to write and read a float of the matrices."""

_HALF = 0.55
"""Of the time of a panel, what one with a single vector takes."""

_ROOM = 192 << 10
"""Bytes of scratch at most, of which a second cache keeps enough."""

_TOGETHER = 48
_PANELS = 2
"""Tiles and panels at most."""

_FEW = (4, 2)
"""Tiles of the product where scratch is short."""

_GAIN = 1.38
"""Times that a plain convolution must be slower, by analysis, for the other to be worth
its weights: what was below (layers of ultraface_rfb320) made a network no faster.
"""


@dataclass(frozen=True)
class WinogradTiling:
    """Fields of ek_winograd_f32_t. m: results of a tile in each direction. rows: tiles
    in one tile of the product. block: those that are transformed together. panels: of
    channels whose sums are transformed back together. by_panel: whether threads share
    panels rather than blocks.
    """

    m: int
    rows: int = 1
    block: int = 1
    panels: int = 1
    by_panel: int = 0
    touch: int = 0

    def counts(self, c: GemmF32Shape) -> tuple[int, int]:
        """Tiles down and across one of the plain convolutions that a dilated one is."""
        return -(-c.oh // (c.dh * self.m)), -(-c.ow // (c.dw * self.m))

    def tile_count(self, c: GemmF32Shape) -> int:
        """All of them."""
        return c.n * c.dh * c.dw * prod(self.counts(c))

    def apart(self, c: GemmF32Shape, lanes: int) -> tuple[int, int]:
        """Floats between the matrices before and after the product; never such that all
        fall on the same lines.
        """
        wide = min(self.panels * 2 * lanes, -(-c.oc // lanes) * lanes)
        before, after = (-(-self.block * n // LINE) for n in (max(c.ic, lanes), wide))
        return (before + (before % 8 == 0)) * LINE, (after + (after % 8 == 0)) * LINE

    def floats(self, c: GemmF32Shape, lanes: int) -> int:
        """Of scratch."""
        before, after = self.apart(c, lanes)
        return (self.m + 2) ** 2 * (before + max(after, c.ic))

    def cycles(self, c: GemmF32Shape, core: Core) -> float:
        """About, if the core did one vector of multiply-accumulates in each."""
        lanes = core.vector // 4
        numbers = (self.m + 2) ** 2
        count, (down, across) = self.tile_count(c), self.counts(c)
        product = (
            numbers
            * -(-count // self.rows)
            * panels(c, lanes)
            * tile_cycles(c.ic, self.rows)
        )
        vectors_in = -(-c.ic // lanes)
        vectors_out = -(-c.oc // lanes)
        around = count * (vectors_in * _TO[self.m] + vectors_out * _FROM[self.m])
        border = count - c.n * c.dh * c.dw * max(0, down - 2) * max(0, across - 2)
        weights = 4 * numbers * c.ic * c.oc
        between = count * numbers * (c.ic + c.oc) * _BETWEEN
        times = -(-count // self.block) if weights > core.l2 // 2 else 1
        return (
            product
            + around
            + border * numbers * (_PIXEL + _COPY * vectors_in)
            + between
            + times * _read(weights, core)
        )


def _read(weights: int, core: Core) -> float:
    """Of bytes that come from memory: weights do once, or for each block if they are
    more than the cache keeps.
    """
    return weights / core.stream * core.macs_f32 * 4 / core.vector


def panels(c: GemmF32Shape, lanes: int) -> float:
    """Panels of channels; one of a single vector takes little more than half of the
    time.
    """
    left = c.oc % (2 * lanes)
    return c.oc // (2 * lanes) + (0 if not left else _HALF if left <= lanes else 1)


def winograd_tilings(c: GemmF32Shape, core: Core) -> Iterator[WinogradTiling]:
    """The ways to do a convolution by tiles, what analysis says is best first."""
    best = [_best(m, c, core) for m in POINT_SQUARES]
    lanes = core.vector // 4
    for t in sorted(best, key=lambda t: t.cycles(c, core)):
        most = -(-t.tile_count(c) // t.rows) * t.rows
        for block in dict.fromkeys(
            min(b * t.rows, most) for b in (t.block // t.rows, 6, 4, 3, 2, 1)
        ):
            for together in dict.fromkeys((t.panels, -(-c.oc // (2 * lanes)), 1)):
                yield replace(t, block=block, panels=together)
        yield from (
            replace(t, rows=rows, block=rows, panels=1)
            for rows in _FEW
            if rows < t.rows
        )


def _best(m: int, c: GemmF32Shape, core: Core) -> WinogradTiling:
    """Tiles of m results in each direction."""
    lanes = core.vector // 4
    count = WinogradTiling(m).tile_count(c)
    rows = min(
        (r for r in ROWS[core.vector] if r <= count),
        key=lambda r: -(-count // r) * tile_cycles(c.ic, r),
    )
    t = WinogradTiling(m, rows, rows, min(-(-c.oc // (2 * lanes)), _PANELS))
    t = replace(t, block=_block(t, c, core))
    many = exceeds_l2(core, c.n * (c.ih * c.iw * c.ic + c.oh * c.ow * c.oc))
    return replace(
        t,
        by_panel=int(-(-count // t.block) < core.threads),
        touch=many * (1 + 2 * is_scattered(c.oc)),
    )


def _block(t: WinogradTiling, c: GemmF32Shape, core: Core) -> int:
    """Tiles that are transformed together: as many as there is room for, but a block
    for each thread.
    """
    each = -(-t.tile_count(c) // core.threads)
    blocks = (
        replace(t, block=n)
        for n in range(t.rows, min(_TOGETHER, each + t.rows - 1) + 1, t.rows)
    )
    return max(
        (b.block for b in blocks if 4 * b.floats(c, core.vector // 4) <= _ROOM),
        default=t.rows,
    )


def is_worthwhile(c: GemmF32Shape, t: WinogradTiling, core: Core) -> bool:
    """Whether this is so much faster than a plain convolution, by analysis, that it is
    worth its weights.
    """
    plain = (
        c.n
        * c.oh
        * panels(c, core.vector // 4)
        * row_cycles(c, tile_heights(c, core)[0])
    )
    return plain + _read(4 * c.taps * c.oc, core) > _GAIN * t.cycles(c, core)


def transforms(m: int) -> Array:
    """[m + 2, 3] of the weights; those of the image and of the sums are in C."""
    points = [0.0, *(sign * sqrt(q) for q in POINT_SQUARES[m] for sign in (1, -1))]
    rows = []
    for p in points:
        apart = prod(p - other for other in points if other != p)
        rows.append([p**k / apart for k in range(3)])
    return np.array([*rows, [0.0, 0.0, 1.0]])


def pack(w: Array, m: int, lanes: int) -> Array:
    """Panels of the weights [3, 3, ic, oc], transformed: [panels][numbers of a
    tile][ic][channels], flat.
    """
    g = transforms(m)
    numbers = np.einsum("ia,jb,abco->ijco", g, g, w.astype(np.float64)).reshape(
        -1, *w.shape[2:]
    )
    parts = []
    for o in range(0, w.shape[3], 2 * lanes):
        panel = numbers[..., o : o + 2 * lanes]
        parts.append(
            np.pad(panel, ((0, 0), (0, 0), (0, -panel.shape[2] % lanes))).ravel()
        )
    return np.concatenate(parts).astype(np.float32)
