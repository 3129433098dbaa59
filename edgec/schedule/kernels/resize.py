"""Bilinear resizing: rows first, then columns; in 16 bits where the weights are few
bits long.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from edgec.ir import Array, Kernel, KernelCall, Struct, Table
from edgec.ops.resize import RESIZE_BILINEAR
from edgec.ops.shape import COPY
from edgec.schedule.simd import WHOLE, simd
from edgec.schedule.variant import Variant

_HEADER = "simd/ek_resize_simd.h"

_STRIP = 2048
"""EK_STRIP: elements of a strip, which two pixels must fit into."""
_FIXED_BITS = 10
_F32 = RESIZE_BILINEAR.of("f32")
_S8 = RESIZE_BILINEAR.of("s8")
_U8 = RESIZE_BILINEAR.of("u8")

_BITS = {_U8: 4, _S8: 3}
"""The longest weights whose products stay within 16 bits; one less where ties go away
from zero.
"""
_EXACT = 256
"""Parts of 1 in which weights are whole whose products with a byte and with each other
float32 has exactly.
"""
_SLOWER_ON = {_S8: ("cortex_a53",)}
"""7.7 against 5.7 cycles an element: products of four int32 at once cost that core
twice what they cost others.
"""

_DYADIC = {
    _U8: Kernel("resize_dyadic_up", _HEADER, isa="simd"),
    _S8: Kernel("resize_dyadic_away", _HEADER, isa="simd"),
}


def _spec(call: KernelCall) -> Struct:
    """The parameters of a resize."""
    spec = call.operands[2]
    assert isinstance(spec, Struct)
    return spec


def _offsets(spec: Struct) -> dict[str, object]:
    """The fields with columns as offsets in elements."""
    return {
        **spec.fields,
        **{
            k: Table(spec.table(k) * np.int32(spec.number("c")), k)
            for k in ("x0", "x1")
        },
    }


def _fits(spec: Struct) -> bool:
    return 2 * spec.number("c") <= _STRIP


def _weights(spec: Struct) -> list[Array]:
    """Of rows and columns, as parts of 1."""
    one = 1.0 if spec.ctype == "ek_resize_bilinear_f32_t" else float(1 << _FIXED_BITS)
    return [spec.table(k).astype(np.float64) / one for k in ("fy", "fx")]


def _copy(call: KernelCall) -> KernelCall | None:
    """An image of the same size whose pixels stay where they are."""
    spec = _spec(call)
    sizes = [(spec.number(f"i{k}"), spec.number(f"o{k}")) for k in "hw"]
    places = [spec.table(k) for k in ("y0", "x0")]
    stays = all(
        i == o and np.array_equal(t, np.arange(o))
        for (i, o), t in zip(sizes, places, strict=True)
    )
    if not stays or any(w.any() for w in _weights(spec)):
        return None
    size = prod(spec.number(k) for k in ("n", "oh", "ow", "c")) * (
        4 if call.kernel.dtype == "f32" else 1
    )
    return KernelCall.of(COPY, *call.operands[:2], size)


def _dyadic(call: KernelCall) -> KernelCall | None:
    """Weights that are whole in 1 / 2^bits.

    At a border, where a pixel is blended with itself, any will do: in integers; in
    float it is only near, which turns what is half way between two.
    """
    spec = _spec(call)
    bits = _BITS[call.kernel]
    one = 1 << bits
    inside = [spec.table(f"{k}0") != spec.table(f"{k}1") for k in "yx"]
    rows, columns = (
        np.where(i, w * one, 0) for i, w in zip(inside, _weights(spec), strict=True)
    )
    if not _fits(spec) or any(
        (w % 1).any() or w.min() < 0 or w.max() > one for w in (rows, columns)
    ):
        return None
    inexact = [((w * _EXACT) % 1).any() for w in _weights(spec)]
    halves = (inexact[0] and columns.any()) or (inexact[1] and rows.any())
    if call.kernel == _U8 and halves:
        return None
    fields = {
        **_offsets(spec),
        "fy": Table(rows.astype(np.int32), "fy"),
        "fx": Table(columns.astype(np.int32), "fx"),
    }
    spec = Struct("ek_resize_dyadic_t", **fields, bits=bits)
    return KernelCall.of(_DYADIC[call.kernel], *call.operands[:2], spec, *WHOLE)


def _any_weights(call: KernelCall) -> KernelCall | None:
    spec = _spec(call)
    if not _fits(spec):
        return None
    return KernelCall.of(
        _on_vectors(call.kernel),
        *call.operands[:2],
        Struct(spec.ctype, **_offsets(spec)),
        *WHOLE,
    )


def _on_vectors(kernel: Kernel) -> Kernel:
    return replace(kernel, header=_HEADER, isa="simd")


_KERNELS = (_F32, _S8, _U8)

VARIANTS: list[Variant] = [
    *(v for of in _KERNELS for v in simd(of, COPY, _copy)),
    *(v for of, kernel in _DYADIC.items() for v in simd(of, kernel, _dyadic)),
    *(
        v
        for of in _KERNELS
        for v in simd(of, _on_vectors(of), _any_weights, _SLOWER_ON.get(of, ()))
    ),
]
