"""Depthwise float convolutions by csrc/simd/ek_dwconv2d_f32_simd.h."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgec.ir import Array, Kernel, KernelCall, Scratch, Struct, Table, constant
from edgec.ops.conv import DEPTHWISE_CONV2D
from edgec.schedule.cores import Core
from edgec.schedule.gemm_f32.epilogue import epilogue
from edgec.schedule.gemm_f32.windows import LINE, exceeds_l2, is_scattered
from edgec.schedule.shares import shares_channels
from edgec.schedule.variant import Schedule, Variant

_HEADER = "simd/ek_dwconv2d_f32_simd.h"
_KERNEL = Kernel("dwconv2d", _HEADER, "f32", isa="simd")
_ANY_TILE = Kernel("dwtile", _HEADER, symbol="ek_dwtile_f32_any")

_COLS = (8, 7, 6, 5, 4)
_TAPS = 64
"""Results of the tiles, and the most taps of the one of any shape."""


def _square(s: dict[str, int]) -> bool:
    """Whether there are tiles for these taps, and the middle one of every result is
    within the image.
    """
    k = s["kh"]
    stride = s["sh"]
    dilation = s["dh"]
    if (k, stride, dilation) != (s["kw"], s["sw"], s["dw"]) or k not in (3, 5, 7):
        return False
    middle = k // 2 * dilation
    ends = (
        (s["oh"] - 1) * stride - s["pt"] + middle < s["ih"],
        (s["ow"] - 1) * stride - s["pl"] + middle < s["iw"],
    )
    return (
        stride in (1, 2)
        and 1 in (stride, dilation)
        and max(s["pt"], s["pl"]) <= middle
        and all(ends)
    )


def _cols(s: dict[str, int]) -> list[int]:
    """Results of the tiles that fit a row, what analysis says is best first; 0: those
    of any taps.
    """
    row = s["ow"] // s["dw"]
    taps = s["kh"] * s["kw"]
    fitting = [n for n in _COLS if n <= row] if _square(s) else []
    return sorted(fitting, key=lambda n: -(-row // n) * (n * (taps + 1) + 8)) or [0]


def _chunk(s: dict[str, int], core: Core) -> int:
    """Channels of which the first cache keeps the rows that a row of results reads, and
    that row; all if it can.
    """
    lines = core.l1 * 3 // 16 // (LINE * (s["kh"] * s["iw"] + s["ow"]))
    return min(s["ic"], max(2, lines) * LINE)


def _schedules(call: KernelCall, core: Core) -> Sequence[Schedule]:
    s = call.struct("ek_conv2d_t").numbers()
    if (
        constant(call.operands[1]) is None
        or constant(call.operands[2]) is None
        or epilogue(call) is None
    ):
        return []
    if s["oc"] != s["ic"] or s["kh"] * s["kw"] > _TAPS or s["ic"] < 4:
        return []
    touch = (3, 0) if is_scattered(s["ic"]) and exceeds_l2(core, _floats(s)) else (0, 3)
    return [{"cols": cols, "touch": t} for cols in _cols(s) for t in touch]


def _floats(s: dict[str, int]) -> int:
    """Of image and result."""
    return s["n"] * s["ic"] * (s["ih"] * s["iw"] + s["oh"] * s["ow"])


def pack(w: Array, lanes: int) -> Array:
    """[kh, kw, c] as [vectors][kh][kw][lanes], the last vector ending with the last
    channel; zeros if c is less.
    """
    c = w.shape[2]
    starts = [max(min(at, c - lanes), 0) for at in range(0, c, lanes)]
    return np.stack([pad(w[:, :, at : at + lanes], lanes) for at in starts]).astype(
        np.float32
    )


def pad(v: Array, lanes: int) -> Array:
    """Zeros for what a vector has more than the last dimension."""
    return np.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, max(0, lanes - v.shape[-1]))])


def _apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
    s = call.struct("ek_conv2d_t").numbers()
    done = epilogue(call)
    w = constant(call.operands[1])
    bias = constant(call.operands[2])
    assert done is not None
    assert w is not None
    assert bias is not None
    lanes = core.vector // 4
    c = s["ic"]
    cols = schedule["cols"]
    names = (
        "n",
        "ih",
        "iw",
        "oh",
        "ow",
        "kh",
        "kw",
        "sh",
        "sw",
        "dh",
        "dw",
        "pt",
        "pl",
    )
    p = Struct(
        "ek_dwconv2d_f32_t",
        **{name: s[name] for name in names},
        c=c,
        yx=done.pitch or c,
        apart=s["dw"] if cols else 1,
        cols=cols,
        chunk=_chunk(s, core) if cols else c,
        ring=0,
        by_channels=shares_channels(s["n"] * s["ih"] * s["iw"], c)
        if c % LINE == 0
        else 0,
        touch=schedule["touch"],
        **done.fields(),
    )
    slope = 0 if done.slope is None else Table(pad(done.slope, lanes), "s")
    tile: str | Kernel = _ANY_TILE
    if cols:
        tile = f"ek_dwtile_f32_k{s['kh']}s{s['sh']}x{cols}{done.tile_suffix}"
    packed = pack(w.reshape(s["kh"], s["kw"], c), lanes)
    return KernelCall(
        _KERNEL,
        (
            call.operands[0],
            Table(packed, "w"),
            Table(pad(bias, lanes), "b"),
            slope,
            done.added or 0,
            done.y,
            Scratch(4 * c),
            p,
            tile,
            0,
            1,
        ),
    )


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
