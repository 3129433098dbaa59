"""Random layers for the tiles of csrc/ek_gemm_s8.h: edges, odd sizes, extremes of zero points, shifts and sums."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from edgec.ir import Array
from edgec.schedule.cores import Core
from edgec.schedule.gemm_s8.panels import Requant, Tiles, pack
from edgec.schedule.gemm_s8.walk import parameters, walks
from edgec.schedule.gemm_s8.windows import Windows
from tests.schedule.gemm_law import law
from tests.schedule.gemm_runner import Case

DEPTHS = (1, 2, 3, 4, 5, 8, 12, 16, 17, 20, 24, 31, 32, 40, 52, 64, 100)
CHANNELS = (1, 2, 3, 7, 8, 9, 16, 17, 24, 30, 65)


class Layers:
    """A stream of layers from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, *options: int) -> int:
        """One of them."""
        return int(self.rng.choice(options))

    def windows(self, depth: int) -> Windows:
        """A matrix product or 1x1, a convolution, or a transposed one; what a tile for a depth (not 0) may take."""
        one, kind = self.one, self.rng.random()
        oc = one(8, 16, 32, 48) if depth else one(*CHANNELS)
        if depth == 28 and kind < 0.5:  # the first layer of an image: its windows are gathered
            h, w, s = one(3, 4, 8), one(8, 9, 17), one(1, 2)
            return Windows(
                one(1, 2), h, w, 3, (h - 1) // s + 1, (w - 1) // s + 1, oc, 3, 3, s, s, 1, 1, one(0, 1), one(0, 1)
            )
        if depth:
            kind, depth = 0, depth - one(0, 0, 1, 3)
        else:
            depth = one(*DEPTHS)
        if kind < 0.35:
            h, w = one(1, 1, 2, 7, 9), one(1, 2, 3, 7, 8, 13, 16)
            return Windows(one(1, 1, 2), h, w, depth, h, w, oc)
        if kind < 0.5:
            kh, kw, sh, sw, ih, iw = (
                one(1, 2, 3, 4),
                one(1, 2, 3, 5),
                one(1, 2, 3),
                one(1, 2, 2),
                one(1, 3, 5),
                one(1, 4, 9),
            )
            pt, pl = one(0, 0, 1, 2), one(0, 0, 1, 2)
            oh = max(1, (ih - 1) * sh + kh - pt - one(-2, 0, 0, 1))
            ow = max(1, (iw - 1) * sw + kw - pl - one(-2, 0, 0, 1))
            return Windows(one(1, 2), ih, iw, depth, oh, ow, oc, kh, kw, pt=pt, pl=pl, phases=(sh, sw))
        groups, (kh, kw) = one(1, 1, 1, 2, 3), (one(1, 2, 3, 3, 5), one(1, 2, 3, 3))
        (sh, sw), (dh, dw) = (one(1, 1, 2, 3), one(1, 1, 2)), (one(1, 1, 2, 4), one(1, 1, 3))
        pt, pb, pl, pr = (one(0, 0, 1, 2, 3) for _ in range(4))
        ih, iw = (kh - 1) * dh + one(1, 2, 5, 9), (kw - 1) * dw + one(1, 2, 7, 12)
        oh, ow = (ih + pt + pb - (kh - 1) * dh - 1) // sh + 1, (iw + pl + pr - (kw - 1) * dw - 1) // sw + 1
        size = (one(1, 1, 2), ih, iw, depth * groups, oh, ow, oc * groups)
        return Windows(*size, kh, kw, sh, sw, dh, dw, pt, pl, depth)

    def requant(self, c: Windows) -> Requant:
        """Right shifts, dead channels, any shifts, or a float64 scale (which matrix products alone have)."""
        rng, one = self.rng, self.one
        kind = str(
            rng.choice(["right", "right", "dead", "any", "scale"] if c.flat else ["right", "right", "dead", "any"])
        )
        low, high = (int(v) for v in sorted(rng.choice([-128, -128, -100, -1, 0, 6, 100, 127, 127], 2)))
        if rng.random() < 0.4:
            low, high = -128, 127
        zeros = (one(-128, -3, 0, 5, 127), one(0, 0, 0, -128, 3, 127), one(-128, -128, -128, -3, 0, 5, 127))
        base = Requant(*zeros, low, high)
        if kind == "scale":
            return replace(base, scale=rng.choice([2.0**-9, 1e-3, 0.0, 0.01, 1.5 * 2**-8], c.oc))
        shift, multiplier = rng.integers(-12, -5, c.oc), rng.integers(1 << 30, 1 << 31, c.oc)
        multiplier[rng.random(c.oc) < 0.2] = 1 << 30
        if kind == "dead":
            for m, s in (
                (0, 0),
                (1 << 30, -30),
                (1300000000, -24),
                (1900000000, -25),
                (2147483647, -23),
                (1 << 30, -31),
            ):
                chosen = rng.random(c.oc) < 0.15
                multiplier[chosen], shift[chosen] = m, s
        if kind == "any":
            shift = rng.choice([-31, -8, -1, 0, 0, 1, 5, 30], c.oc)
        return replace(base, multiplier=multiplier.astype(np.int32), shift=shift.astype(np.int32))

    def data(self, c: Windows) -> tuple[Array, Array, Array]:
        """Image, weights, bias: three in ten as large as they can be."""
        rng, image = self.rng, (c.n, c.ih, c.iw, c.ic)
        wide = bool(rng.random() < 0.3)
        x = rng.choice([-128, 127], image) if wide else rng.integers(-128, 128, image)
        w = rng.integers(-128, 128, (c.oc, c.kh, c.kw, c.depth))
        bias = rng.integers(-(1 << 31), 1 << 31, c.oc) if wide else rng.integers(-9000, 9000, c.oc)
        return x.astype(np.int8), w.astype(np.int8), bias.astype(np.int32)


def cases(tiles: Tiles, count: int, seed: int, folder: Path) -> tuple[list[Case], list[Array]]:
    """Random layers, each by a random legal schedule of a core with random caches, and what each must give."""
    layers, todo, want = Layers(seed), list[Case](), list[Array]()
    every = [*tiles.tiles, *tiles.zero]
    while len(todo) < count:
        tile = every[layers.rng.integers(len(every))]
        c = layers.windows(tile.depth)
        core = Core("cortex_a53", tiles.isa, l1=layers.one(256, 4096, 32768), l2=layers.one(1024, 1 << 18))
        q = layers.requant(c)
        few = tiles.of(q)
        found = [w for w in walks(c, few, core) if w.tile(few) is tile and tiles.takes(c, q, core)]
        if not found:
            continue
        walk = found[layers.rng.integers(len(found))]
        if layers.rng.random() < 0.3:
            walk = replace(walk, by_panels=1 - walk.by_panels)
        x, w, bias = layers.data(c)
        panels = pack(c, w, bias, q, tiles, tile)
        params = parameters(c, q, tile, walk, panels)
        shape, parts = (c.n, c.oh, c.ow, c.oc), layers.one(1, 1, 2, 3)
        todo.append(Case(tiles.function(tile, q.w_zero), params.fields, x, panels.array, shape, parts))
        want.append(law(folder, c, x, w, bias, q))
    return todo, want
