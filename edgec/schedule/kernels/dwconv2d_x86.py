"""Depthwise int8 convolutions on x86, with VNNI or AVX2.

csrc/vnni/ek_dwconv2d_s8_vnni.h and csrc/avx2/ek_dwconv2d_s8_avx2.h compute a unit of
channels at a time, as many as fill the registers; an instruction sums the products of a
group of taps: four with VNNI, two with AVX2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgec.ir import Array, Kernel, KernelCall, Table
from edgec.ir.c_structs import Conv2dParams, Dwconv2dTapsS8Params
from edgec.schedule.cores import Core
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

MAX_TAPS = 128
"""Taps of the largest kernel, rounded up to whole groups."""


@dataclass(frozen=True)
class Isa:
    """How an instruction set packs a unit of channels.

    Attributes:
        suffix: the end of the functions' names
        feature: the feature that a core needs
        header: the header of csrc
        unit: channels of a unit
        group: taps whose products an instruction sums
        order: the channels of a unit in the order of the registers
        offset: the number that is added to elements before they are multiplied, as
            VNNI multiplies unsigned bytes
        pack: packs weights [units, taps, unit], less their zero point, and tables
            [units, unit], both in the order of the registers, to bytes [units, bytes];
            also returns the number of sets of weights
        slides: whether there are functions for 3x3 windows side by side
    """

    suffix: str
    feature: str
    header: str
    unit: int
    group: int
    order: Array
    offset: int
    pack: Callable[[Array, Sequence[Array]], tuple[Array, int]]
    slides: bool


def _pack_vnni(weights: Array, tables: Sequence[Array]) -> tuple[Array, int]:
    """Return the bytes of units, and how many sets of int8 the weights are split into.

    Weights less their zero point may need nine bits: they are then the sum of sets.
    """
    bias, multiplier, addend, shift = tables
    units = len(weights)

    # Products of 32 x 32 bits take the even lanes of a register, then the odd ones.
    wide = (addend.astype(np.int64) << 32) + (1 << 31)
    lanes = wide.reshape(units, 4, 8, 2)
    even = lanes[..., 0]
    odd = lanes[..., 1]

    # A float scale has no shift to the left.
    right = shift
    left = shift
    if multiplier.dtype != np.float32:
        right = np.maximum(shift, 0)
        left = 1 - np.minimum(shift, 0)

    sets: list[Array] = []
    missing = weights
    while not sets or missing.any():
        part = np.clip(missing, -128, 127)
        sets.append(part.reshape(units, -1, 4, 64).transpose(0, 1, 3, 2))
        missing = missing - part

    groups = np.stack(sets, 2).astype(np.int8)
    return _bytes(bias, multiplier, even, odd, right, left, groups), len(sets)


def _pack_avx2(weights: Array, tables: Sequence[Array]) -> tuple[Array, int]:
    """Return the bytes of units; weights are int16, which hold them in one set."""
    groups = weights.reshape(len(weights), -1, 2, 16).transpose(0, 1, 3, 2)
    return _bytes(*tables, groups.astype(np.int16)), 1


def _bytes(*arrays: Array) -> Array:
    """Return the bytes [units, bytes] of arrays [units, ...], one after the other."""
    rows: list[Array] = []
    for array in arrays:
        rows.append(np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8))

    return np.concatenate(rows, 1)


def _register_order(unit: int, lanes: int) -> Array:
    """Return the channels of a unit in the order of the registers.

    Register j has channels 4j to 4j + 3 of the part of the unit that belongs to each
    128-bit lane: unpacking instructions work within lanes.
    """
    return np.arange(unit).reshape(lanes, -1, 4).transpose(1, 0, 2).reshape(-1)


VNNI = Isa(
    suffix="vnni",
    feature="vnni",
    header="vnni/ek_dwconv2d_s8_vnni.h",
    unit=64,
    group=4,
    order=_register_order(64, 4),
    offset=128,
    pack=_pack_vnni,
    slides=True,
)
AVX2 = Isa(
    suffix="avx2",
    feature="avx2",
    header="avx2/ek_dwconv2d_s8_avx2.h",
    unit=16,
    group=2,
    order=_register_order(16, 2),
    offset=0,
    pack=_pack_avx2,
    slides=False,
)


@dataclass(frozen=True, eq=False)
class _DepthwiseConstants:
    """The constants of a layer.

    Attributes:
        weights: int64 [taps, c], less their zero point
        tables: [c] each, the requantization as the kernels compute it
    """

    weights: Array
    tables: list[Array]


def _layer(call: KernelCall, isa: Isa) -> _DepthwiseConstants | None:
    """Return the constants of a call.

    None where they are computed, or where the requantization is not exact in the
    kernels' arithmetic.
    """
    w = call.operands[1]
    bias = call.operands[2]
    if not isinstance(w, Table) or not isinstance(bias, Table):
        return None

    rows = w.array.reshape(-1, w.array.shape[-1]).T
    rows, biases, q = fold_constant_channels(rows, bias.array, requant(call))
    weights = rows.T.astype(np.int64) - q.w_zero

    # The zero point and the offset of the elements are folded into the bias.
    offset = q.x_zero + isa.offset
    folded = wrap_int32(biases.astype(np.int64) - offset * weights.sum(0))
    if q.scale is not None:
        return _DepthwiseConstants(weights, _float_tables(folded, q.scale, q.y_zero))

    tables = fast_tables(folded, q, accumulator_bounds(rows, biases, q))
    return None if tables is None else _DepthwiseConstants(weights, tables)


def _float_tables(bias: Array, scale: Array, y_zero: int) -> list[Array]:
    """Return the tables of functions that round half to even, in float32.

    They take the places of bias, multiplier, addend and shift.
    """
    return [bias, scale, np.zeros_like(bias), np.full_like(bias, y_zero)]


def _schedules(call: KernelCall, isa: Isa) -> list[Schedule]:
    """Return the only schedule, for layers with one result for each channel."""
    p = call.struct(Conv2dParams)
    if p.ic != p.oc or p.kh * p.kw + isa.group > MAX_TAPS:
        return []

    return [] if _layer(call, isa) is None else [{}]


def _apply(call: KernelCall, isa: Isa) -> KernelCall:
    """Return the call with packed weights."""
    p = call.struct(Conv2dParams)
    q = requant(call)
    layer = _layer(call, isa)
    assert layer is not None

    slides = _slides(p, isa)
    taps = _window_columns(layer.weights) if slides else layer.weights

    # With few channels, several pixels of a row fill a unit.
    is_flat = p.sw == 1 and p.oc < isa.unit and isa.unit % p.oc == 0
    copies = isa.unit // p.oc if is_flat else 1

    groups = -(-len(taps) // isa.group)
    whole_groups = np.zeros((groups * isa.group, p.oc), np.int64)
    whole_groups[: len(taps)] = taps
    packed, sets = isa.pack(
        _in_units(whole_groups, copies, isa),
        [_in_units(table, copies, isa) for table in layer.tables],
    )

    # Padding reads from this row, whose elements are real zeros.
    zeros = np.full(p.oc * (p.ow if is_flat else 1), q.x_zero, np.int8)
    params = Dwconv2dTapsS8Params(
        c=p.oc,
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
        low=q.low,
        high=q.high,
        groups=groups,
        sets=sets,
        flat=int(is_flat),
        step=0 if is_flat else packed.shape[1],
        units=len(packed),
        by_units=shares_channels(p.n * p.ih * p.iw, p.oc),
        zeros=Table(zeros, "z"),
    )
    kernel = _kernel(params, q, isa)
    x, _, _, y, *_ = call.operands
    return KernelCall.of(kernel, x, Table(packed, "w"), y, params, 0, 1)


def _kernel(p: Dwconv2dTapsS8Params, q: Requant, isa: Isa) -> Kernel:
    """Return the function that is made for the windows and the requantization.

    z: several sets of weights. e: half to even. p: saturation is the clamp, which only
    the sliding functions know.
    """
    rounding = "e" if q.scale is not None else ""
    if _slides(p, isa):
        loop = "k3flat" if p.flat else f"k3s{p.sh}"
        several_sets = "z" if p.sets > 1 else ""
        saturation = "p" if q.plain and not rounding else ""
        function = f"{loop}{several_sets}{rounding}{saturation}"
    else:
        is_nine = p.kh * p.kw == 9 and p.sets == 1
        function = f"{'nine' if is_nine else 'any'}{rounding}"

    symbol = f"ek_dwconv2d_{function}_s8_{isa.suffix}"
    return Kernel("dwconv2d", isa.header, symbol=symbol)


def _in_units(array: Array, copies: int, isa: Isa) -> Array:
    """Return [..., c] as [units, ..., unit], in the order of the registers.

    copies: how often the channels are repeated. The last unit is filled with zeros.
    """
    *outer, channels = array.shape
    units = -(-channels * copies // isa.unit)
    wide = np.zeros((*outer, units * isa.unit), array.dtype)
    wide[..., : channels * copies] = np.tile(array, copies)

    by_unit = np.moveaxis(wide.reshape(*outer, units, isa.unit), -2, 0)
    return by_unit[..., isa.order]


def _slides(p: Conv2dParams | Dwconv2dTapsS8Params, isa: Isa) -> bool:
    """Return whether windows are 3x3 as ek_dwconv2d_slide_s8 takes them."""
    is_dense_3x3 = (p.kh, p.kw, p.dh, p.dw) == (3, 3, 1, 1)
    return isa.slides and is_dense_3x3 and p.sh == p.sw and p.sh in (1, 2)


def _window_columns(weights: Array) -> Array:
    """Return the weights [9, c] of a 3x3 kernel as six columns of four rows [24, c].

    Two rows of windows see four rows of the image: the columns of the first have a zero
    in the last row, those of the second in the first row.
    """
    rows = weights.reshape(3, 3, -1)
    zeros = np.zeros_like(rows[:1])
    first = np.concatenate([rows, zeros])
    second = np.concatenate([zeros, rows])

    # [row of windows, column, row of the image, channel]
    columns = np.stack([first, second]).transpose(0, 2, 1, 3)
    return columns.reshape(24, -1)


def _variant(isa: Isa, of: Kernel) -> Variant:
    """Return the variant of a plain kernel for an instruction set."""

    def schedules(call: KernelCall, core: Core) -> list[Schedule]:
        return _schedules(call, isa)

    def apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
        return _apply(call, isa)

    name = f"ek_dwconv2d_s8_{isa.suffix}"
    return Variant(of, name, frozenset({isa.feature}), schedules, apply)


VARIANTS = [_variant(isa, of) for isa in (VNNI, AVX2) for of in DEPTHWISE_S8]
