"""Functions of one element: of floats, of bytes by tables, between floats and bytes."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from edgec.ir import Array, Elementwise, Kernel, KernelCall, Struct, Table
from edgec.ir.kernel import Operand
from edgec.ops.elementwise_kernels import LUT
from edgec.ops.quantize import DEQUANTIZE, QUANTIZE
from edgec.schedule.bytewise import offset, rescaled
from edgec.schedule.simd import WHOLE, Rewrite, on_vectors, simd, vectorized
from edgec.schedule.variant import Variant

_HEADER = "simd/ek_unary_simd.h"
OFFSET_SIMD = Kernel("offset", _HEADER, "s8", isa="simd")
LUT_SIMD = Kernel("lut", _HEADER, "s8", isa="simd")
_QUANTIZE_SIMD = Kernel("quantize", _HEADER, isa="simd")
_DEQUANTIZE_SIMD = Kernel("dequantize", _HEADER, isa="simd")


def _floats(call: KernelCall) -> KernelCall:
    x, y, n, *k = call.operands
    return KernelCall.of(
        on_vectors(call.kernel),
        x,
        y,
        n,
        *(k or [Struct("ek_coef_t", a=0.0, b=0.0)]),
        *WHOLE,
    )


def by_offset(table: Array, x: Operand, y: Operand, n: Operand) -> KernelCall | None:
    """What a table of 256 bytes does, where it is no more than an offset and a clamp."""
    found = offset(table.astype(np.int64))
    if found is None:
        return None
    return KernelCall.of(
        OFFSET_SIMD, x, y, n, Struct("ek_offset_s8_t", **asdict(found)), *WHOLE
    )


def by_table(table: Array, x: Operand, y: Operand, n: Operand) -> KernelCall:
    """What a table of 256 bytes does."""
    return KernelCall.of(LUT_SIMD, x, y, n, Table(table.astype(np.int8), "lut"), *WHOLE)


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


def _affine(kernel: Kernel) -> Rewrite:
    """Between floats and bytes; unsigned ones are signed ones with the highest bit
    flipped.
    """

    def rewrite(call: KernelCall) -> KernelCall:
        x, y, n, _ = call.operands
        q = call.struct("ek_affine_t")
        flip = -128 if call.kernel.dtype == "u8" else 0
        return KernelCall.of(
            kernel, x, y, n, Struct("ek_affine_s8_t", **q.fields, flip=flip), *WHOLE
        )

    return rewrite


_TABLES = (
    LUT,
    *(QUANTIZE.of(y, source=x) for x in ("s8", "u8") for y in ("s8", "u8")),
)

VARIANTS: list[Variant] = [
    *(
        v
        for of in vectorized(Elementwise.UNARY)
        for v in simd(of, on_vectors(of), _floats)
    ),
    *(v for of in _TABLES for v in simd(of, OFFSET_SIMD, _offset)),
    *(v for of in _TABLES for v in simd(of, LUT_SIMD, _table)),
    *(
        v
        for t in ("s8", "u8")
        for v in simd(DEQUANTIZE.of(t), _DEQUANTIZE_SIMD, _affine(_DEQUANTIZE_SIMD))
    ),
    *(
        v
        for t in ("s8", "u8")
        for v in simd(
            QUANTIZE.of(t, source="f32"), _QUANTIZE_SIMD, _affine(_QUANTIZE_SIMD)
        )
    ),
]
