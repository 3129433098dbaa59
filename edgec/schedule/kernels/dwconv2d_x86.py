"""Depthwise int8 convolution on x86: units of csrc/vnni/ek_dwconv2d_s8_vnni.h and
csrc/avx2/ek_dwconv2d_s8_avx2.h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgec.ir import Array, Kernel, KernelCall, Struct, Table
from edgec.schedule.gemm_s8.panels import (
    Requant,
    accumulator_bounds,
    fold_constant_channels,
    wrap_int32,
)
from edgec.schedule.gemm_s8.vnni import fast_tables
from edgec.schedule.kernels.gemm_s8 import DEPTHWISE_S8, requant
from edgec.schedule.shares import shares_channels
from edgec.schedule.variant import Schedule, Variant

_MAX_TAPS = 128


@dataclass(frozen=True)
class Isa:
    """How a unit of channels is packed: channels, taps zipped together, the channels in
    the order of the registers.
    """

    suffix: str
    feature: str
    unit: int
    group: int
    order: Array
    offset: int
    """What is added to elements before they are multiplied."""
    pack: Callable[[Array, Sequence[Array]], tuple[Array, int]]
    """Weights [units, taps, unit] less their zero point, and tables [units, unit], in
    the order of the registers, to bytes [units, bytes] and sets.
    """
    header: str
    slides: bool
    """Whether it has functions for 3x3 windows side by side."""


def _pack_vnni(w: Array, tables_: Sequence[Array]) -> tuple[Array, int]:
    bias, multiplier, addend, shift = tables_
    units = w.shape[0]
    of_even = multiplier.dtype == np.float32
    wide = (addend.astype(np.int64) << 32) + (1 << 31)
    even, odd = (wide.reshape(units, 4, 8, 2)[..., i] for i in (0, 1))
    parts = [np.clip(w, -128, 127)]
    while (rest := w - sum(parts)).any():
        parts.append(np.clip(rest, -128, 127))
    groups = np.stack(
        [p.reshape(units, -1, 4, 64).transpose(0, 1, 3, 2) for p in parts], 2
    )
    right, left = (
        (shift, shift) if of_even else (np.maximum(shift, 0), 1 - np.minimum(shift, 0))
    )
    return _rows(bias, multiplier, even, odd, right, left, groups.astype(np.int8)), len(
        parts
    )


def _pack_avx2(w: Array, tables_: Sequence[Array]) -> tuple[Array, int]:
    groups = w.reshape(w.shape[0], -1, 2, 16).transpose(0, 1, 3, 2)
    return _rows(*tables_, groups.astype(np.int16)), 1


def _rows(*arrays: Array) -> Array:
    """Bytes [units, bytes] of arrays [units, ...], one behind the other."""
    return np.concatenate(
        [np.ascontiguousarray(a).reshape(len(a), -1).view(np.uint8) for a in arrays], 1
    )


def _order(unit: int, lanes: int) -> Array:
    """Register j has channels 4j to 4j + 3 of each of the 128-bit lanes' sixteenths."""
    return np.arange(unit).reshape(lanes, -1, 4).transpose(1, 0, 2).reshape(-1)


_VNNI_HEADER = "vnni/ek_dwconv2d_s8_vnni.h"
_AVX2_HEADER = "avx2/ek_dwconv2d_s8_avx2.h"
VNNI = Isa(
    "vnni",
    "vnni",
    64,
    4,
    _order(64, 4),
    128,
    _pack_vnni,
    "vnni/ek_dwconv2d_s8_vnni.h",
    True,
)
AVX2 = Isa(
    "avx2",
    "avx2",
    16,
    2,
    _order(16, 2),
    0,
    _pack_avx2,
    "avx2/ek_dwconv2d_s8_avx2.h",
    False,
)


def _tables(call: KernelCall, isa: Isa) -> tuple[Array, list[Array]] | None:
    """Weights [taps, c] less their zero point, and the tables [c] of fast
    requantization; None where there are none.
    """
    w = call.operands[1]
    bias = call.operands[2]
    if not isinstance(w, Table) or not isinstance(bias, Table):
        return None
    taps, biases, r = fold_constant_channels(
        w.array.reshape(-1, w.array.shape[-1]).T, bias.array, requant(call)
    )
    weights = taps.T.astype(np.int64) - r.w_zero
    folded = wrap_int32(
        biases.astype(np.int64) - (r.x_zero + isa.offset) * weights.sum(0)
    )
    if r.scale is not None:
        return weights, _even(folded, r)
    fast = fast_tables(folded, r, accumulator_bounds(taps, biases, r))
    return None if fast is None else (weights, fast)


def _even(bias: Array, q: Requant) -> list[Array]:
    """The tables of functions that round as ek_even: bias, scale, nothing, zero point."""
    assert q.scale is not None
    return [bias, q.scale, np.zeros_like(bias), np.full_like(bias, q.y_zero)]


def _legal(call: KernelCall, isa: Isa) -> list[Schedule]:
    p = call.struct("ek_conv2d_t")
    one_each = p.number("ic") == p.number("oc")
    fits = p.number("kh") * p.number("kw") + isa.group <= _MAX_TAPS
    return [{}] if one_each and fits and _tables(call, isa) is not None else []


def _apply(call: KernelCall, isa: Isa) -> KernelCall:
    p = call.struct("ek_conv2d_t")
    q = requant(call)
    found = _tables(call, isa)
    assert found is not None
    weights, fast = found
    slide = _slides(p, isa)
    taps = _columns(weights) if slide else weights
    c = p.number("oc")
    flat = p.number("sw") == 1 and c < isa.unit and isa.unit % c == 0
    copies = isa.unit // c if flat else 1
    units = -(-c * copies // isa.unit)
    groups = -(-taps.shape[0] // isa.group)

    def ordered(array: Array) -> Array:
        """[..., c] as [units, ..., unit], in the order of the registers."""
        wide = np.zeros((*array.shape[:-1], units * isa.unit), array.dtype)
        wide[..., : c * copies] = np.tile(array, copies)
        return np.moveaxis(wide.reshape(*array.shape[:-1], units, isa.unit), -2, 0)[
            ..., isa.order
        ]

    full = np.zeros((groups * isa.group, c), np.int64)
    full[: taps.shape[0]] = taps
    packed, sets = isa.pack(ordered(full), [ordered(table) for table in fast])
    zeros = np.full(c * (p.number("ow") if flat else 1), q.x_zero, np.int8)
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
    struct = Struct(
        "ek_dw_taps_s8_t",
        c=c,
        **{n: p.number(n) for n in names},
        low=q.low,
        high=q.high,
        groups=groups,
        sets=sets,
        flat=int(flat),
        step=0 if flat else packed.shape[1],
        units=units,
        by_units=shares_channels(p.number("n") * p.number("ih") * p.number("iw"), c),
        zeros=Table(zeros, "z"),
    )
    ends = "e" if q.scale is not None else "p" if q.plain else ""
    nine = ("nine" if weights.shape[0] == 9 and sets == 1 else "any") + ends.replace(
        "p", ""
    )
    windows = "flat" if flat else f"s{p.number('sh')}"
    which = f"k3{windows}{'z' if sets > 1 else ''}{ends}" if slide else nine
    symbol = f"ek_dwconv2d_{which}_s8_{isa.suffix}"
    kernel = Kernel("dwconv2d", isa.header, symbol=symbol)
    return KernelCall.of(
        kernel, call.operands[0], Table(packed, "w"), call.operands[3], struct, 0, 1
    )


def _slides(p: Struct, isa: Isa) -> bool:
    """Whether windows are 3x3 as ek_dwconv2d_slide_s8 takes them."""
    kernel = [p.number(n) for n in ("kh", "kw", "dh", "dw")] == [3, 3, 1, 1]
    return isa.slides and kernel and p.number("sh") == p.number("sw") in (1, 2)


def _columns(w: Array) -> Array:
    """Weights [9, c] of a 3x3 kernel as six columns of four rows [24, c]: those of the
    first row of windows, which does not see the last row, and of the second, which does
    not see the first.
    """
    rows = w.reshape(3, 3, -1)
    none = np.zeros_like(rows[:1])
    both = np.stack([np.concatenate([rows, none]), np.concatenate([none, rows])])
    return both.transpose(0, 2, 1, 3).reshape(24, -1)


def _variant(isa: Isa, of: Kernel) -> Variant:
    return Variant(
        of,
        f"ek_dwconv2d_s8_{isa.suffix}",
        frozenset({isa.feature}),
        lambda call, core: _legal(call, isa),
        lambda call, core, schedule: _apply(call, isa),
    )


VARIANTS = tuple(_variant(isa, of) for isa in (VNNI, AVX2) for of in DEPTHWISE_S8)
