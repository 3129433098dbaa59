"""int8 depthwise convolutions by csrc/ek_dwconv2d_s8.h, for Arm cores without and with
the dot product.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgec.ir import Array, Kernel, KernelCall, Scratch, Struct, Table, constant
from edgec.schedule.conv import Conv
from edgec.schedule.cores import Core
from edgec.schedule.gemm_s8.dot import fast_tables
from edgec.schedule.gemm_s8.panels import (
    Requant,
    accumulator_bounds,
    fold_constant_channels,
    wrap_int32,
)
from edgec.schedule.kernels.gemm_s8 import DEPTHWISE_S8, requant
from edgec.schedule.variant import Schedule, Variant

BLOCK = 8
"""Channels of a block: EK_DW."""

MOST = 255
"""The sum of magnitudes of two weights whose products with any int8 values sum up
within int16.
"""


@dataclass(frozen=True)
class DepthwiseShape(Conv):
    """A depthwise convolution."""

    @property
    def slide(self) -> str:
        """The name of the loop over 3x3 windows that takes this shape; empty where none
        does.
        """
        if (self.kh, self.kw) != (3, 3) or self.oc != self.ic or self.ic < BLOCK:
            return ""
        if (self.sh, self.sw) == (1, 1) and self.pl <= 2 * self.dw:
            return "k3s1"
        if (self.sh, self.sw, self.dh, self.dw) == (2, 2, 1, 1) and self.pl <= 1:
            return "k3s2"
        return ""

    @property
    def dense(self) -> bool:
        """Whether there is a result for each input channel, and a block of them."""
        return self.oc == self.ic >= BLOCK

    def starts(self) -> list[int]:
        """The first output channel of each block; the last block may overlap the one
        before.
        """
        last = max(self.oc - BLOCK, 0)
        return [*range(0, last, BLOCK), last]


@dataclass(frozen=True)
class Loops:
    """The loops of an ISA.

    dot: sdot takes four taps of a channel at once; else the products of two taps are
    summed in 16 bits. rows: of the image that the slide loop reads for stride 1.
    """

    suffix: str
    isa: frozenset[str]
    header: str
    dot: bool
    rows: int

    @property
    def together(self) -> int:
        """Taps that the loop plain takes at once."""
        return 4 if self.dot else 2

    def lift(self, v: Array) -> Array | None:
        """What the slide loop is to add to the weights [taps, BLOCK] of each channel:
        int64 [BLOCK], zeros where it need not; None where it cannot compute the block
        exactly.
        """
        if self._holds(v):
            return np.zeros(BLOCK, np.int64)
        lift = np.clip((v.min(0) + v.max(0) + 1) // 2, -128, 127)
        return lift if self._holds(v - lift) else None

    def _holds(self, v: Array) -> bool:
        if v.min() < -128 or v.max() > 127:
            return False
        return self.dot or all(
            np.abs(v[i : i + 2]).sum(0).max() <= MOST for i in range(0, len(v), 2)
        )

    def pack_slide(self, v: Array) -> Array:
        """Weights [9, BLOCK] as the slide loop reads them."""
        if not self.dot:
            return v.astype(np.int8).reshape(-1)
        columns = np.zeros((3, BLOCK, 4), np.int8)
        columns[:, :, :3] = v.reshape(3, 3, BLOCK).transpose(1, 2, 0)
        return columns.reshape(-1)

    def pack_plain(self, v: Array) -> Array:
        """Weights [taps, BLOCK] as the loop plain reads them."""
        if self.dot:
            return v.reshape(-1, 4, BLOCK).transpose(0, 2, 1).reshape(-1)
        return v.reshape(-1)


NEON = Loops(
    "neon", frozenset({"neon"}), "neon/ek_dwconv2d_s8_neon.h", dot=False, rows=3
)
DOT = Loops(
    "dot", frozenset({"neon", "dotprod"}), "dot/ek_dwconv2d_s8_dot.h", dot=True, rows=4
)


def blocks(
    s: DepthwiseShape, w: Array, bias: Array, q: Requant, loops: Loops
) -> tuple[Kernel, dict[str, object]]:
    """The function, and the fields of ek_dw_s8_t that describe blocks: weights [kh, kw,
    oc], bias [oc].
    """
    rows, bias, q = fold_constant_channels(w.reshape(-1, s.oc).T, bias, q)
    v = rows.T.astype(np.int64) - q.w_zero
    bound = accumulator_bounds(rows, bias, q)
    folded = wrap_int32(bias.astype(np.int64) - q.x_zero * v.sum(0))
    slide: dict[int, Array] = {}
    plain: dict[int, Array] = {}
    other: dict[int, Array] = {}
    packed = []
    lifts = []
    for at in s.starts():
        part = slice(at, at + BLOCK)
        if s.dense or q.scale is not None:
            fast = _tables(folded[part], q, part, bound[part])
        else:
            fast = None
        if fast is None:
            assert q.multiplier is not None
            assert q.shift is not None
            other[at] = _lanes([folded[part], q.multiplier[part], q.shift[part]])
        elif not s.dense:
            other[at] = _lanes(fast)
        elif s.slide and (lift := loops.lift(v[:, part])) is not None:
            slide[at] = _lanes(fast)
            packed.append(loops.pack_slide(v[:, part] - lift))
            lifts.append(lift)
        else:
            plain[at] = _lanes(fast)
    taps, pieces = _taps(
        s, [_lanes(v[:, at : at + BLOCK]) for at in (*plain, *other)], loops.together
    )
    few = [
        loops.pack_plain(p) if i < len(plain) else p.reshape(-1)
        for i, p in enumerate(pieces)
    ]
    kept = (*slide, *plain, *other)
    saturate = (q.y_zero, q.low, q.high) == (-128, -128, 127)
    lifted = any(lift.any() for lift in lifts) or plain or other
    if slide:
        kind = [
            s.slide,
            *(["saturate"] if saturate else []),
            *(["lifted"] if lifted else []),
        ]
    else:
        kind = []
    if q.scale is not None:
        kind = [*kind[:1], "even"]
    name = "_".join(("ek_dwconv2d_s8", *kind))
    described: dict[str, object] = {
        "slide": len(slide),
        "plain": len(plain),
        "any": len(other),
        "taps": len(taps),
        "at": Table(np.array(kept, np.int32), "at"),
        "scale": Table(
            np.stack([{**slide, **plain, **other}[at] for at in kept]), "scale"
        ),
        "w": Table(_joined(packed, np.int8), "w"),
        "lift": Table(_joined(lifts, np.int8), "lift"),
        "w_taps": Table(_joined(few, np.int8), "w"),
        "tap": Table(_joined([taps], np.int32), "tap"),
        "spread": Table(_joined(_spread(s, other), np.uint8), "spread"),
    }
    return Kernel("dwconv2d", loops.header, symbol=f"{name}_{loops.suffix}"), described


def _tables(bias: Array, q: Requant, part: slice, bound: Array) -> list[Array] | None:
    """Those of ek_half_neon for some channels, the bias first; None where it does not
    compute them.
    """
    if q.scale is not None:
        scale = np.ascontiguousarray(q.scale[part]).view(np.int32)
        return [bias, scale, np.full_like(scale, q.y_zero), np.full_like(scale, 24)]
    assert q.multiplier is not None
    assert q.shift is not None
    return fast_tables(
        bias, replace(q, multiplier=q.multiplier[part], shift=q.shift[part]), bound
    )


def _lanes(rows: Array | list[Array]) -> Array:
    """Rows of at most BLOCK values as int32 [4, BLOCK], or those of weights as [rows,
    BLOCK].
    """
    wide = np.stack([np.pad(r, (0, BLOCK - len(r))) for r in rows]).astype(np.int32)
    if isinstance(rows, list):
        return np.pad(wide, ((0, max(0, 4 - len(wide))), (0, 0)))
    return wide


def _joined(parts: Sequence[Array], dtype: type) -> Array:
    """One array, of one element at least: C has no others."""
    if parts:
        joined = np.concatenate([np.asarray(p, dtype).reshape(-1) for p in parts])
    else:
        joined = np.zeros(0, dtype)
    return joined if joined.size else np.zeros(1, dtype)


def _taps(
    s: DepthwiseShape, weights: list[Array], together: int
) -> tuple[Array, list[Array]]:
    """The taps (row << 16 | column) of the loops plain and any, and the weights [taps,
    BLOCK] of each block: a tap comes again for what int8 does not hold of its weights,
    and with weights of 0 up to a multiple of `together`.
    """
    if not weights:
        return np.zeros(0, np.int32), []
    left = np.stack(weights)
    again = np.maximum(1, -(-np.abs(left).max((0, 2)) // 127))
    taps = np.repeat(np.arange(s.kh * s.kw), again)
    taps = np.concatenate([taps, np.zeros(-len(taps) % together, np.int64)])
    pieces = np.zeros((len(weights), len(taps), BLOCK), np.int8)
    for i, tap in enumerate(taps):
        pieces[:, i] = np.clip(left[:, tap], -127, 127)
        left[:, tap] -= pieces[:, i]
    return (taps // s.kw << 16 | taps % s.kw).astype(np.int32), list(pieces)


def _spread(s: DepthwiseShape, starts: Iterable[int]) -> list[Array]:
    """For each block of the loop any: the input channel of each of its channels, from
    the first that is loaded.
    """
    multiplier = s.oc // s.ic
    load = min(s.ic, BLOCK)
    channels = [
        np.minimum(np.arange(at, at + BLOCK), s.oc - 1) // multiplier for at in starts
    ]
    return [
        c - min(at // multiplier, s.ic - load)
        for at, c in zip(starts, channels, strict=True)
    ]


def _shape(call: KernelCall) -> DepthwiseShape:
    return DepthwiseShape.of(call.struct("ek_conv2d_t"))


def _schedules(loops: Loops, call: KernelCall, core: Core) -> Sequence[Schedule]:
    """Columns that all channels pass before the next ones: such that the rows stay in
    half of the first cache.
    """
    s = _shape(call)
    if constant(call.operands[1]) is None or constant(call.operands[2]) is None:
        return []
    fit = max(core.l1 // 2 // (loops.rows * s.ic * s.sw), 8)
    # shares alike, and even: without sdot, windows come in pairs
    columns = -(-s.ow // -(-s.ow // fit))
    columns += columns % 2
    return [
        {"columns": n}
        for n in dict.fromkeys((columns, max(columns // 2, 1), 2 * columns, s.ow))
    ]


def _apply(loops: Loops, call: KernelCall, schedule: Schedule) -> KernelCall:
    s = _shape(call)
    q = requant(call)
    w = constant(call.operands[1])
    bias = constant(call.operands[2])
    assert w is not None
    assert bias is not None
    kernel, described = blocks(s, w.reshape(s.kh, s.kw, s.oc), bias, q, loops)
    taps = described["taps"]
    assert isinstance(taps, int)
    limits = {n: getattr(q, n) for n in ("x_zero", "y_zero", "low", "high")}
    told = {name: value for name, value in vars(s).items() if name != "group_ic"}
    fields = {**told, "columns": schedule["columns"], **described, **limits}
    scratch = Scratch(8 * taps + max(s.ic, BLOCK))
    return KernelCall(
        kernel,
        (
            call.operands[0],
            call.operands[3],
            Struct("ek_dw_s8_t", **fields),
            scratch,
            0,
            1,
        ),
    )


def _variant(loops: Loops, of: Kernel) -> Variant:
    return Variant(
        of,
        f"ek_dwconv2d_s8_{loops.suffix}",
        loops.isa,
        lambda call, core: _schedules(loops, call, core),
        lambda call, core, schedule: _apply(loops, call, schedule),
    )


VARIANTS = [_variant(loops, of) for loops in (DOT, NEON) for of in DEPTHWISE_S8]
