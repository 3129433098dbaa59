"""Depthwise float convolutions by csrc/simd/ek_dwconv2d_f32_simd.h."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgec.ir import Array, KernelCall, Pointer, Scratch, Struct, Table
from edgec.schedule.cores import Core
from edgec.schedule.gemm_f32.epilogue import Epilogue, constant, epilogue, numbers
from edgec.schedule.gemm_f32.windows import WIDE, beyond
from edgec.schedule.variant import Schedule, Variant

_ROWS, _COLS, _TAPS = 2, 4, 32
"""Results of a tile, and the most taps of one of any shape."""


def _tile(s: dict[str, int]) -> int:
    """The taps of each direction for which there is a tile; 0: that for any."""
    k, stride, dilation = s["kh"], s["sh"], s["dh"]
    square = (k, stride, dilation) == (s["kw"], s["sw"], s["dw"])
    return k if square and k in (3, 5) and stride in (1, 2) and 1 in (stride, dilation) else 0


def _result(call: KernelCall) -> Epilogue | None:
    y = call.operands[3]
    assert isinstance(y, Pointer)
    return epilogue(call, y)


def _schedules(call: KernelCall, core: Core) -> Sequence[Schedule]:
    s = numbers(call.struct("ek_conv2d_t"))
    if constant(call.operands[1]) is None or constant(call.operands[2]) is None or _result(call) is None:
        return []
    if s["oc"] != s["ic"] or (not _tile(s) and s["kh"] * s["kw"] > _TAPS):
        return []
    if s["ic"] < 4 or (s["ic"] < core.vector // 4 and not _tile(s)):
        return []
    touch = (1, 0) if s["ic"] >= WIDE and beyond(core, _floats(s)) else (0, 1)
    runs = dict.fromkeys((_run(s, core), 1, 4)) if _tile(s) else (1,)
    return [{"run": run, "touch": t} for run in runs for t in touch]


def _run(s: dict[str, int], core: Core) -> int:
    """Tiles whose inputs and results share half of the first cache, where they are worth a loop of their own."""
    rows = (_ROWS - 1) * s["sh"] + s["kh"]
    tile = 4 * s["ic"] * _COLS * (rows * s["sw"] + _ROWS)
    return max(1, min(core.l1 // 2 // tile, 64))


def _floats(s: dict[str, int]) -> int:
    """Of image and result."""
    return s["n"] * s["ic"] * (s["ih"] * s["iw"] + s["oh"] * s["ow"])


def pack(w: Array, lanes: int) -> Array:
    """[kh, kw, c] as [vectors][kh][kw][lanes], the last vector ending with the last channel; zeros if c is less."""
    c = w.shape[2]
    starts = [max(min(at, c - lanes), 0) for at in range(0, c, lanes)]
    return np.stack([pad(w[:, :, at : at + lanes], lanes) for at in starts]).astype(np.float32)


def pad(v: Array, lanes: int) -> Array:
    """Zeros for what a vector has more than the last dimension."""
    return np.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, max(0, lanes - v.shape[-1]))])


def _apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
    s, done = numbers(call.struct("ek_conv2d_t")), _result(call)
    w, bias = constant(call.operands[1]), constant(call.operands[2])
    assert done is not None
    assert w is not None
    assert bias is not None
    lanes = core.vector // 4
    c, k, stride = s["ic"], _tile(s), s["sh"]
    names = ("n", "ih", "iw", "oh", "ow", "kh", "kw", "sh", "sw", "dh", "dw", "pt", "pl")
    p = Struct(
        "ek_dwconv2d_f32_t", **{name: s[name] for name in names}, c=c, yx=done.pitch or c,
        apart_y=s["dh"] if k else 1, apart_x=s["dw"] if k else 1,
        rows=(_ROWS - 1) * stride + k if k else 0, cols=(_COLS - 1) * stride + k if k else 0,
        run=schedule["run"], touch=schedule["touch"], **done.fields(),
    )  # fmt: skip
    slope = 0 if done.slope is None else Table(pad(done.slope, lanes), "s")
    tile = f"ek_dwtile_f32_k{k}s{stride}" if k else "ek_dwtile_f32_any"
    packed = pack(w.reshape(s["kh"], s["kw"], c), lanes)
    return KernelCall(
        "ek_dwconv2d_f32_simd",
        (
            call.operands[0], Table(packed, "w"), Table(pad(bias, lanes), "b"), slope, done.added or 0, done.y,
            Scratch(4 * c), p, tile, 0, 1,
        ),
    )  # fmt: skip


VARIANTS = [
    Variant("ek_dwconv2d_f32", "ek_dwconv2d_f32_simd", frozenset({feature}), _schedules, _apply, fuses=True)
    for feature in ("neon", "avx2")
]
