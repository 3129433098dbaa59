"""Bilinear resizing (csrc/simd/ek_resize_simd.h): rows first, then columns.

Each result is a blend of two rows and two columns. Where all weights are multiples of
1 / 2^bits, for few bits, the products fit into 16 bits, and a vector holds twice as many.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from edgec.ir import Array, Kernel, KernelCall, Pointer, Table
from edgec.ir.c_structs import (
    ResizeBilinearFixedParams,
    ResizeBilinearRealParams,
    ResizeDyadicParams,
)
from edgec.ops.resize import RESIZE_BILINEAR
from edgec.ops.shape import COPY
from edgec.schedule.simd import WHOLE, simd
from edgec.schedule.variant import Variant

Params = ResizeBilinearRealParams | ResizeBilinearFixedParams
"""The parameters of a bilinear resize in float32, or with weights in fixed point."""

_F32 = RESIZE_BILINEAR.of("f32")
_S8 = RESIZE_BILINEAR.of("s8")
_U8 = RESIZE_BILINEAR.of("u8")
_HEADER = "simd/ek_resize_simd.h"
_FLOAT_HEADER = "simd/ek_resize_f32_simd.h"

STRIP_ELEMENTS = 2048
"""Elements of a strip of a row, which two pixels must fit into: EK_STRIP."""

FIXED_BITS = 10
"""Bits of the weights of the plain kernel in fixed point."""

MAX_DYADIC_BITS = {_U8: 4, _S8: 3}
"""The most bits of weights whose products stay within 16 bits.

There is one less where ties go away from zero, which takes a bit for the sign.
"""

EXACT_PARTS = 256
"""Weights that are multiples of 1 / 256 have exact products with a byte, and with each
other, in float32.
"""

SLOWER_ON = {_S8: ("cortex_a53",)}
"""Cores on which the plain kernel is faster.

The Cortex-A53 takes 7.7 cycles an element against 5.7: products of four int32 at once
cost it twice what they cost other cores.
"""

_DYADIC = {
    _U8: Kernel("resize_dyadic_up", _HEADER, isa="simd"),
    _S8: Kernel("resize_dyadic_away", _HEADER, isa="simd"),
}
"""Kernels for weights of few bits: ties go up, or away from zero."""


def _params(call: KernelCall) -> Params:
    """Return the parameters of a resize."""
    fixed = call.optional_struct(ResizeBilinearFixedParams)
    return fixed or call.struct(ResizeBilinearRealParams)


def _offsets(columns: Table, p: Params) -> Table:
    """Return columns as offsets in elements, which the kernels on vectors take."""
    return Table(columns.array * np.int32(p.c), columns.hint)


def _fits(p: Params) -> bool:
    """Return whether two pixels fit into a strip."""
    return 2 * p.c <= STRIP_ELEMENTS


def _weights(p: Params) -> tuple[Array, Array]:
    """Return the weights of rows and of columns, as parts of 1."""
    one = 1.0 if isinstance(p, ResizeBilinearRealParams) else float(1 << FIXED_BITS)
    rows = p.fy.array.astype(np.float64) / one
    columns = p.fx.array.astype(np.float64) / one
    return rows, columns


def _copy(call: KernelCall) -> KernelCall | None:
    """Return a copy, for a result of the same size whose pixels stay where they are."""
    p = _params(call)
    has_same_size = (p.ih, p.iw) == (p.oh, p.ow)
    keeps_rows = np.array_equal(p.y0.array, np.arange(p.oh))
    keeps_columns = np.array_equal(p.x0.array, np.arange(p.ow))
    if not (has_same_size and keeps_rows and keeps_columns):
        return None

    # A weight other than 0 would blend in a neighbour.
    row_weights, column_weights = _weights(p)
    if row_weights.any() or column_weights.any():
        return None

    x, y = call.operands[:2]
    assert isinstance(y, Pointer)
    itemsize = y.value.type.np_dtype.itemsize
    nbytes = prod((p.n, p.oh, p.ow, p.c)) * itemsize
    return KernelCall.of(COPY, x, y, nbytes)


def _dyadic(call: KernelCall) -> KernelCall | None:
    """Return the call with weights of few bits; None where weights have more.

    At a border a pixel is blended with itself. Any weight will do for integers. In
    float32 such a blend is inexact, which decides ties: uint8 kernels compute in float.
    """
    p = _params(call)
    bits = MAX_DYADIC_BITS[call.kernel]
    row_weights, column_weights = _weights(p)

    # A pixel that is blended with itself may have any weight, for example none.
    has_two_rows = p.y0.array != p.y1.array
    has_two_columns = p.x0.array != p.x1.array
    rows = np.where(has_two_rows, row_weights * (1 << bits), 0)
    columns = np.where(has_two_columns, column_weights * (1 << bits), 0)
    if not _fits(p) or not _are_parts(rows, bits) or not _are_parts(columns, bits):
        return None

    # Inexact blends are rounded once more when they are blended in the other direction,
    # which may turn a tie.
    has_inexact_rows = ((row_weights * EXACT_PARTS) % 1).any()
    has_inexact_columns = ((column_weights * EXACT_PARTS) % 1).any()
    turns_rows = has_inexact_rows and columns.any()
    turns_columns = has_inexact_columns and rows.any()
    if call.kernel == _U8 and (turns_rows or turns_columns):
        return None

    params = ResizeDyadicParams(
        n=p.n,
        ih=p.ih,
        iw=p.iw,
        c=p.c,
        oh=p.oh,
        ow=p.ow,
        y0=p.y0,
        y1=p.y1,
        fy=Table(rows.astype(np.int32), "fy"),
        x0=_offsets(p.x0, p),
        x1=_offsets(p.x1, p),
        fx=Table(columns.astype(np.int32), "fx"),
        bits=bits,
    )
    kernel = _DYADIC[call.kernel]
    return KernelCall.of(kernel, *call.operands[:2], params, *WHOLE)


def _are_parts(weights: Array, bits: int) -> bool:
    """Return whether weights are whole numbers between 0 and 2^bits."""
    is_whole = not (weights % 1).any()
    return is_whole and weights.min() >= 0 and bool(weights.max() <= 1 << bits)


def _any_weights(call: KernelCall) -> KernelCall | None:
    """Return the call for weights of any number of bits."""
    p = _params(call)
    if not _fits(p):
        return None

    params = replace(p, x0=_offsets(p.x0, p), x1=_offsets(p.x1, p))
    kernel = _on_vectors(call.kernel)
    return KernelCall.of(kernel, *call.operands[:2], params, *WHOLE)


def _on_vectors(kernel: Kernel) -> Kernel:
    """Return the kernel for vectors of a plain kernel."""
    header = _FLOAT_HEADER if kernel == _F32 else _HEADER
    return replace(kernel, header=header, isa="simd")


def _variants() -> list[Variant]:
    """Return all variants, those that do least first."""
    kernels = (_F32, _S8, _U8)
    variants: list[Variant] = []

    # The first that takes a call is chosen: a copy, then few bits, then any weights.
    for of in kernels:
        variants += simd(of, COPY, _copy)
    for of, kernel in _DYADIC.items():
        variants += simd(of, kernel, _dyadic)
    for of in kernels:
        slower_on = SLOWER_ON.get(of, ())
        variants += simd(of, _on_vectors(of), _any_weights, slower_on)

    return variants


VARIANTS: list[Variant] = _variants()
