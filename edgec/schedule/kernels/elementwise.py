"""Functions of one element: of floats, of bytes by tables, and conversions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import numpy as np

from edgec.ir import Array, Elementwise, Kernel, KernelCall, Table
from edgec.ir.c_structs import (
    AffineParams,
    AffineS8Params,
    CoefficientsParams,
    OffsetS8Params,
)
from edgec.ir.kernel import Operand
from edgec.ops.elementwise_kernels import LUT
from edgec.ops.quantize import DEQUANTIZE, QUANTIZE
from edgec.schedule.bytewise import offset_of_table, rescale_table
from edgec.schedule.simd import WHOLE, Rewrite, on_vectors, simd, vectorized
from edgec.schedule.variant import Variant

_HEADER = "simd/ek_unary_simd.h"
OFFSET_SIMD = Kernel("offset", _HEADER, "s8", isa="simd")
"""A function of bytes that is an addition and a clamp."""
LUT_SIMD = Kernel("lut", _HEADER, "s8", isa="simd")
"""Any function of bytes, by a table of 256."""
_QUANTIZE_SIMD = Kernel("quantize", _HEADER, isa="simd")
_DEQUANTIZE_SIMD = Kernel("dequantize", _HEADER, isa="simd")

BYTE_TYPES = ("s8", "u8")


def _floats(call: KernelCall) -> KernelCall:
    """Return the call on vectors of floats.

    Only functions that compilers do not vectorize have such a kernel; the plain loops
    of the others are as fast.
    """
    x, y, n, *coefficients = call.operands
    if not coefficients:
        # All these kernels have one signature, also for functions without parameters.
        coefficients = [CoefficientsParams(a=0.0, b=0.0)]

    kernel = on_vectors(call.kernel)
    return KernelCall.of(kernel, x, y, n, *coefficients, *WHOLE)


def by_offset(table: Array, x: Operand, y: Operand, n: Operand) -> KernelCall | None:
    """Return the call that adds and clamps; None where a table does something else.

    table: [256] outputs for the inputs -128 … 127. x, y, n: operand, result, elements.
    """
    offset = offset_of_table(table.astype(np.int64))
    if offset is None:
        return None

    p = OffsetS8Params(**asdict(offset))
    return KernelCall.of(OFFSET_SIMD, x, y, n, p, *WHOLE)


def by_table(table: Array, x: Operand, y: Operand, n: Operand) -> KernelCall:
    """Return the call that looks bytes up in a table; the operands of `by_offset`."""
    lut = Table(table.astype(np.int8), "lut")
    return KernelCall.of(LUT_SIMD, x, y, n, lut, *WHOLE)


def _table_of(call: KernelCall) -> Array:
    """Return the outputs for all bytes of a look-up, or of a change of scale."""
    last = call.operands[3]
    return last.array if isinstance(last, Table) else rescale_table(call)


def _offset(call: KernelCall) -> KernelCall | None:
    x, y, n, _ = call.operands
    return by_offset(_table_of(call), x, y, n)


def _table(call: KernelCall) -> KernelCall:
    x, y, n, _ = call.operands
    return by_table(_table_of(call), x, y, n)


def _affine(kernel: Kernel) -> Rewrite:
    """Return the rewrite for conversions between floats and bytes."""

    def rewrite(call: KernelCall) -> KernelCall:
        x, y, n, _ = call.operands
        p = call.struct(AffineParams)

        # An unsigned byte is a signed one with the highest bit flipped.
        flip = -128 if call.kernel.dtype == "u8" else 0
        flipped = AffineS8Params(scale=p.scale, zero=p.zero, flip=flip)
        return KernelCall.of(kernel, x, y, n, flipped, *WHOLE)

    return rewrite


def _variants(of: Iterable[Kernel], kernel: Kernel, rewrite: Rewrite) -> list[Variant]:
    """Return the variants of several plain kernels by one kernel."""
    variants: list[Variant] = []
    for plain in of:
        variants += simd(plain, kernel, rewrite)

    return variants


_FLOAT_FUNCTIONS = [
    variant
    for of in vectorized(Elementwise.UNARY)
    for variant in simd(of, on_vectors(of), _floats)
]
_OF_BYTES = (
    LUT,
    *(QUANTIZE.of(y, source=x) for x in BYTE_TYPES for y in BYTE_TYPES),
)
_TO_FLOATS = [DEQUANTIZE.of(dtype) for dtype in BYTE_TYPES]
_TO_BYTES = [QUANTIZE.of(dtype, source="f32") for dtype in BYTE_TYPES]

VARIANTS: list[Variant] = [
    *_FLOAT_FUNCTIONS,
    # An addition is faster than a look-up, where it is one.
    *_variants(_OF_BYTES, OFFSET_SIMD, _offset),
    *_variants(_OF_BYTES, LUT_SIMD, _table),
    *_variants(_TO_FLOATS, _DEQUANTIZE_SIMD, _affine(_DEQUANTIZE_SIMD)),
    *_variants(_TO_BYTES, _QUANTIZE_SIMD, _affine(_QUANTIZE_SIMD)),
]
