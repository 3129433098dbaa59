"""Depthwise float convolutions (csrc/simd/ek_dwconv2d_f32_simd.h).

A tile computes some adjacent results of a row, for a vector of channels, and keeps their
sums in registers while it reads each pixel of the image once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgec.ir import Array, Kernel, KernelCall, Scratch, Table
from edgec.ir.c_structs import Conv2dParams, Dwconv2dF32Params
from edgec.ops.conv import DEPTHWISE_CONV2D
from edgec.schedule.cores import Core
from edgec.schedule.gemm_f32.layer import float_layer
from edgec.schedule.gemm_f32.windows import LINE, exceeds_l2, is_scattered
from edgec.schedule.shares import shares_channels
from edgec.schedule.variant import Schedule, Variant

_HEADER = "simd/ek_dwconv2d_f32_simd.h"
_KERNEL = Kernel("dwconv2d", _HEADER, "f32", isa="simd")
_ANY_TILE = Kernel("dwtile", _HEADER, symbol="ek_dwtile_f32_any")
"""The tile for kernels of any shape, one result at a time."""

TILE_COLS = (8, 7, 6, 5, 4)
"""Results of the tiles for square kernels."""

MAX_TAPS = 64
"""Taps of the largest kernel that the tile of any shape takes."""

FETCH_BOTH = 3
"""The value of `touch` with which image (1) and result (2) are fetched ahead."""


def _is_square(p: Conv2dParams) -> bool:
    """Return whether there are tiles for the kernel.

    They need the middle tap of every result within the image.
    """
    if (p.kh, p.sh, p.dh) != (p.kw, p.sw, p.dw) or p.kh not in (3, 5, 7):
        return False
    if p.sh not in (1, 2) or 1 not in (p.sh, p.dh):
        return False

    middle = p.kh // 2 * p.dh
    last_row = (p.oh - 1) * p.sh - p.pt + middle
    last_column = (p.ow - 1) * p.sw - p.pl + middle
    is_inside = last_row < p.ih and last_column < p.iw
    return is_inside and max(p.pt, p.pl) <= middle


def _tile_cols(p: Conv2dParams) -> list[int]:
    """Return the results of the tiles that fit a row, the best by analysis first.

    0 stands for the tile of any shape, which is taken where there is no other.
    """
    # The results of a tile lie a dilation apart, so that they share their taps.
    row = p.ow // p.dw
    fitting = [n for n in TILE_COLS if n <= row] if _is_square(p) else []

    def cost(cols: int) -> int:
        """Return the multiplications of a row, and the time around each tile."""
        tiles = -(-row // cols)
        return tiles * (cols * (p.kh * p.kw + 1) + 8)

    return sorted(fitting, key=cost) or [0]


def _is_doubled(p: Conv2dParams, core: Core) -> bool:
    """Return whether each channel has two results, for which there are square tiles.

    Their vectors are loaded whole, in float16 too.
    """
    lanes = core.vector // 2
    return p.oc == 2 * p.ic and p.oc >= lanes and _tile_cols(p) != [0]


def _chunk(p: Conv2dParams, core: Core) -> int:
    """Return the channels that a row of results is computed for at a time.

    The first cache keeps the rows of the image that they read, and the row itself: so
    many lines of channels that these take three quarters of it.
    """
    line_bytes = 4 * LINE
    row_bytes = line_bytes * (p.kh * p.iw + p.ow)
    lines = core.l1 * 3 // 4 // row_bytes
    return min(p.oc, max(2, lines) * LINE)


def _schedules(call: KernelCall, core: Core) -> Sequence[Schedule]:
    """Return the tiles that fit, each with and without fetching ahead."""
    p = call.struct(Conv2dParams)
    if p.kh * p.kw > MAX_TAPS or p.ic < 4 or float_layer(call) is None:
        return []
    if p.oc != p.ic and not _is_doubled(p, core):
        return []

    # A core follows few streams by itself, and a tile reads from many rows in turn.
    floats = p.n * (p.ic * p.ih * p.iw + p.oc * p.oh * p.ow)
    touches = [0, FETCH_BOTH]
    if is_scattered(p.ic) and exceeds_l2(core, floats):
        touches.reverse()

    return [{"cols": cols, "touch": t} for cols in _tile_cols(p) for t in touches]


def pack(weights: Array, lanes: int) -> Array:
    """Return weights [kh, kw, c] as [vectors][kh][kw][lanes].

    The last vector ends with the last channel, and so overlaps the one before; fewer
    channels than a vector has are filled up with zeros.
    """
    channels = weights.shape[2]
    last_start = max(channels - lanes, 0)
    vectors: list[Array] = []
    for channel in range(0, channels, lanes):
        start = min(channel, last_start)
        vector = weights[:, :, start : start + lanes]
        vectors.append(pad(vector, lanes))

    return np.stack(vectors).astype(np.float32)


def pad(array: Array, lanes: int) -> Array:
    """Return an array whose last dimension has at least `lanes` elements."""
    missing = max(0, lanes - array.shape[-1])
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)])


def _apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
    """Return the call with packed weights."""
    p = call.struct(Conv2dParams)
    layer = float_layer(call)
    assert layer is not None

    lanes = core.vector // 4
    steps = layer.epilogue
    cols = schedule["cols"]

    # Threads write whole lines of the cache, or they would wait for each other.
    by_channels = 0
    if p.oc % LINE == 0:
        pixels = p.n * p.ih * p.iw
        # Fewer rows than threads are too few, as one row of a sequence is.
        few_rows = p.n * p.oh < core.threads
        by_channels = int(few_rows or shares_channels(pixels, p.oc))

    params = Dwconv2dF32Params(
        n=p.n,
        ih=p.ih,
        iw=p.iw,
        oh=p.oh,
        ow=p.ow,
        kh=p.kh,
        kw=p.kw,
        sh=p.sh,
        sw=p.sw,
        dh=p.dh,
        dw=p.dw,
        pt=p.pt,
        pl=p.pl,
        ic=p.ic,
        c=p.oc,
        yx=steps.pitch or p.oc,
        apart=p.dw if cols else 1,
        cols=cols,
        chunk=_chunk(p, core) if cols else p.oc,
        ring=0,
        by_channels=by_channels,
        touch=schedule["touch"],
        **steps.fields(),
    )
    tile: str | Kernel = _ANY_TILE
    if cols:
        twice = "" if p.oc == p.ic else "_twice"
        tile = f"ek_dwtile_f32_k{p.kh}s{p.sh}x{cols}{twice}{steps.tile_suffix}"

    slope = steps.slope
    weights = layer.weights.reshape(p.kh, p.kw, p.oc)
    operands = (
        layer.x,
        Table(pack(weights, lanes), "w"),
        Table(pad(layer.bias, lanes), "b"),
        0 if slope is None else Table(pad(slope, lanes), "s"),
        layer.added,
        steps.y,
        Scratch(4 * p.ic),
        params,
        tile,
    )
    return KernelCall(_KERNEL, (*operands, 0, 1))


VARIANTS = [
    Variant(
        DEPTHWISE_CONV2D.of("f32"),
        _KERNEL.name,
        frozenset({feature}),
        _schedules,
        _apply,
        fuses=True,
    )
    for feature in ("neon", "avx2")
]
