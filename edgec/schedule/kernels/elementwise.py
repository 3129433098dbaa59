"""Functions of one element: of floats, of bytes by tables, between floats and bytes."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from edgec.ir import Array, KernelCall, Struct, Table
from edgec.ir.kernel import Operand
from edgec.schedule.bytewise import offset, rescaled
from edgec.schedule.simd import WHOLE, Rewrite, defined, simd
from edgec.schedule.variant import Variant

_PLAIN = defined("ek_unary.h", r"EK_UNARY(?:_K)?\(ek_(\w+)_f32,")
FLOATS = tuple(
    kind
    for kind in defined("simd/ek_unary_simd.h", r"EK_UNARY_SIMD\(ek_(\w+)_f32_simd,")
    if kind in _PLAIN
)
"""Functions of one float with a kernel of vectors, as clang makes none of them; the
others are fast as they are.
"""


def _floats(kind: str) -> Rewrite:
    def rewrite(call: KernelCall) -> KernelCall:
        x, y, n, *k = call.operands
        return KernelCall.of(
            f"ek_{kind}_f32_simd",
            x,
            y,
            n,
            *(k or [Struct("ek_coef_t", a=0.0, b=0.0)]),
            *WHOLE,
        )

    return rewrite


def by_offset(table: Array, x: Operand, y: Operand, n: Operand) -> KernelCall | None:
    """What a table of 256 bytes does, where it is no more than an offset and a clamp."""
    found = offset(table.astype(np.int64))
    if found is None:
        return None
    return KernelCall.of(
        "ek_offset_s8_simd", x, y, n, Struct("ek_offset_s8_t", **asdict(found)), *WHOLE
    )


def by_table(table: Array, x: Operand, y: Operand, n: Operand) -> KernelCall:
    """What a table of 256 bytes does."""
    return KernelCall.of(
        "ek_lut_s8_simd", x, y, n, Table(table.astype(np.int8), "lut"), *WHOLE
    )


def _of_call(call: KernelCall) -> Array:
    """The table of a call of ek_lut_s8 or ek_quantize_*8_*8."""
    last = call.operands[3]
    return last.array if isinstance(last, Table) else rescaled(call)


def _offset(call: KernelCall) -> KernelCall | None:
    x, y, n, _ = call.operands
    return by_offset(_of_call(call), x, y, n)


def _table(call: KernelCall) -> KernelCall:
    x, y, n, _ = call.operands
    return by_table(_of_call(call), x, y, n)


def _affine(name: str) -> Rewrite:
    """Between floats and bytes; unsigned ones are signed ones with the highest bit
    flipped.
    """

    def rewrite(call: KernelCall) -> KernelCall:
        x, y, n, _ = call.operands
        q = call.struct("ek_affine_t")
        flip = -128 if call.kernel.endswith("_u8") else 0
        return KernelCall.of(
            name, x, y, n, Struct("ek_affine_s8_t", **q.fields, flip=flip), *WHOLE
        )

    return rewrite


_TABLES = (
    "ek_lut_s8",
    *(f"ek_quantize_{x}_{y}" for x in ("s8", "u8") for y in ("s8", "u8")),
)

VARIANTS: list[Variant] = [
    *(
        v
        for kind in FLOATS
        for v in simd(f"ek_{kind}_f32", f"ek_{kind}_f32_simd", _floats(kind))
    ),
    *(v for of in _TABLES for v in simd(of, "ek_offset_s8_simd", _offset)),
    *(v for of in _TABLES for v in simd(of, "ek_lut_s8_simd", _table)),
    *(
        v
        for t in ("s8", "u8")
        for v in simd(
            f"ek_dequantize_{t}", "ek_dequantize_simd", _affine("ek_dequantize_simd")
        )
    ),
    *(
        v
        for t in ("s8", "u8")
        for v in simd(
            f"ek_quantize_f32_{t}", "ek_quantize_simd", _affine("ek_quantize_simd")
        )
    ),
]
