"""What float convolutions and matrix products go through: windows of an image, and the
order in which.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from edgec.ir import Array
from edgec.schedule.conv import Conv
from edgec.schedule.cores import Core
from edgec.schedule.shares import equal_blocks

ROWS = {
    16: (8, 7, 6, 5, 4, 3, 2, 1),
    32: (6, 5, 4, 3, 2, 1),
    64: (14, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1),
}
"""Windows of the tiles of ek_tile_f32_simd.h, by the bytes of a vector."""

_PARTIAL = {1: 4, 2: 2, 3: 2}
"""Sums apart in tiles of few windows, whose additions would wait for each other."""

LINE = 16
"""Floats of a line of the cache."""

_LATENCY = 8
"""Additions in flight that keep the multipliers of a core busy."""


@dataclass(frozen=True)
class GemmF32Shape(Conv):
    """A convolution, a transposed one or a matrix product as ek_gemm_f32_t has it."""

    @property
    def groups(self) -> int:
        """Channel groups."""
        return self.ic // self.group_ic

    @property
    def taps(self) -> int:
        """Products of a sum."""
        return self.kh * self.kw * self.group_ic

    @property
    def flat(self) -> bool:
        """Whether each pixel is a window, so that all are one row."""
        return self.kh * self.kw * self.sh * self.sw == 1 and (self.oh, self.ow) == (
            self.ih,
            self.iw,
        )

    @property
    def known(self) -> str:
        """What tiles that are written for these windows have in their names; "" where
        there are none.
        """
        if self.group_ic != self.ic:
            return ""
        if (self.kw, self.ic, self.sw, self.dw) == (3, 3, 2, 1):
            return "_rgb2"
        return f"_flat{self.ic}" if self.flat and self.ic in (8, 16) else ""

    def flattened(self) -> GemmF32Shape:
        """The same windows in one row, where they lie so."""
        if not self.flat or self.pt or self.pl:
            return self
        pixels = self.n * self.oh * self.ow
        return replace(self, n=1, ih=1, oh=1, iw=pixels, ow=pixels)

    def patch(self, tile: int, block: int) -> int:
        """Floats of the padded windows that may be needed."""
        if self.flat and self.oh * self.n == 1:
            return tile * self.group_ic if self.ow % tile else 0
        return self.padded(block)

    def padded(self, block: int) -> int:
        """Floats of the windows of a block, with what lies around the image."""
        return (
            self.kh
            * ((block - 1) * self.sw + (self.kw - 1) * self.dw + 1)
            * self.group_ic
        )


@dataclass(frozen=True)
class Blocking:
    """tile: windows of a tile. block: of those that meet one panel of weights after the
    other. panels: that all windows meet before the next ones are read. by_panel:
    whether threads share panels rather than blocks: where panels are more than image
    and result, so that each reads its own alone. touch: what is fetched before a block
    is computed: 1 the image, 2 the result. blocks: that all groups meet before the next
    ones are read; 0 where that is all of them.
    """

    tile: int
    block: int
    panels: int
    by_panel: int
    touch: int
    blocks: int


def is_scattered(channels: int) -> bool:
    """Whether a core does not take the lines of pixels of so many floats for one
    stream, as a tile reads them: they are far apart, or now one and now two.
    """
    return channels >= 3 * LINE or (channels > LINE and channels % LINE > 0)


def exceeds_l2(core: Core, floats: int) -> bool:
    """Whether so much is more than the second cache keeps."""
    return 4 * floats > core.l2 // 2


def tile_heights(c: GemmF32Shape, core: Core) -> list[int]:
    """The windows of the tiles that fit a row, what analysis says is best first."""
    return sorted(
        (r for r in ROWS[core.vector] if r <= c.ow or r == 1),
        key=lambda r: (row_cycles(c, r), -r),
    )


def blockings(c: GemmF32Shape, core: Core) -> Iterator[Blocking]:
    """The ways to go through windows, what analysis says is best first."""
    lanes = core.vector // 4
    panels = -(-(c.oc // c.groups) // (2 * lanes))
    floats = c.n * (c.ih * c.iw * c.ic + c.oh * c.ow * c.oc)
    many = exceeds_l2(core, floats)
    by_panel = int(c.taps * c.oc > floats)
    apart = int(many and c.groups > 1)
    touch = many * (is_scattered(c.ic) + 2 * is_scattered(c.oc))
    for tile in tile_heights(c, core):
        best = _block(c, core, tile)
        if core.threads > 1 and c.n * c.oh == 1:
            best = equal_blocks(
                c.ow, range(best, max(tile, best // 4) - 1, -tile), panels, core.threads
            )
        for block in sorted(
            {tile, 2 * tile, 4 * tile, best}, key=lambda b: abs(b - best)
        ):
            if block > -(-c.ow // tile) * tile:
                continue
            together = _panels(c, core, panels, -(-c.ow // block) * c.oh * c.n)
            yield Blocking(
                tile, block, together, by_panel, touch, apart * _blocks(c, core, block)
            )


def row_cycles(c: GemmF32Shape, tile: int) -> float:
    """Of the tiles that one panel takes in a row, about."""
    return -(-c.ow // tile) * tile_cycles(c.taps, tile)


def tile_cycles(taps: int, rows: int) -> float:
    """Of one tile and one panel, about."""
    sums = 2 * rows * _PARTIAL.get(rows, 1)
    return taps * 2 * rows * max(1, _LATENCY / sums) + 2 * taps + 5 * rows + 20


def _block(c: GemmF32Shape, core: Core, tile: int) -> int:
    """Windows whose inputs share the first cache with the weights, or with a panel of
    them.
    """
    per = 4 * c.taps + 64  # a line of the result
    weights = 4 * c.taps * (c.oc // c.groups)
    room = core.l1 * 3 // 4 - weights if weights < core.l1 // 2 else core.l1 // 2
    limit = -(-c.ow // tile) * tile
    return min(limit, max(tile, min(room // per, 64) // tile * tile))


def _panels(c: GemmF32Shape, core: Core, panels: int, blocks: int) -> int:
    """Panels of one pass: all, unless the second cache does not keep them and reading
    the image again is less.
    """
    weights = 4 * c.taps * c.oc // c.groups
    image = 4 * c.n * c.ih * c.iw * c.ic
    passes = -(-weights // (core.l2 // 2))
    if passes == 1 or passes * image > (blocks - 1) * weights:
        return panels
    return max(1, panels // passes)


def _blocks(c: GemmF32Shape, core: Core, block: int) -> int:
    """Those whose image and result the second cache keeps until all groups have met
    them.
    """
    floats = block * (c.sh * c.sw * c.ic + c.oc)
    return max(1, core.l2 // 4 // (4 * floats))


def pack(w: Array, groups: int, lanes: int) -> Array:
    """Panels of the weights [kh, kw, group_ic, oc]: [groups][panels][taps][channels],
    flat.
    """
    oc = w.shape[3] // groups
    parts = []
    for g in range(groups):
        own = w[..., g * oc : (g + 1) * oc].reshape(-1, oc)
        for o in range(0, oc, 2 * lanes):
            panel = own[:, o : o + 2 * lanes]
            parts.append(np.pad(panel, ((0, 0), (0, -panel.shape[1] % lanes))).ravel())
    return np.concatenate(parts).astype(np.float32)


def last_vectors(channels: int, lanes: int) -> int:
    """Vectors of the last panel, of two at most."""
    return 1 if 0 < channels % (2 * lanes) <= lanes else 2


def pad_channels(v: Array, groups: int, lanes: int) -> Array:
    """One value for each channel, [oc], with those that panels add to each group:
    zeros.
    """
    own = v.reshape(groups, -1)
    return np.pad(own, ((0, 0), (0, -own.shape[1] % lanes))).ravel().astype(np.float32)


def transposed_phases(
    w: Array, stride: tuple[int, int], pads: tuple[int, int]
) -> list[Array]:
    """The weights [kh, kw, ic, oc] of a transposed convolution as those of stride[0] *
    stride[1] plain ones.
    """
    parts = []
    for py in range(stride[0]):
        for px in range(stride[1]):
            ky = (py + pads[0]) % stride[0]
            kx = (px + pads[1]) % stride[1]
            parts.append(w[ky :: stride[0], kx :: stride[1]][::-1, ::-1])
    return parts
