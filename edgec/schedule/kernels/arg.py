"""The index of the extreme along the channels."""

from __future__ import annotations

from edgec.ir import KernelCall
from edgec.schedule.simd import WHOLE, simd
from edgec.schedule.variant import Variant

_ROW = range(16, 33)
"""Bytes of a row: two vectors of 16 that overlap."""


def _rows(call: KernelCall) -> KernelCall | None:
    spec = call.struct("ek_arg_t")
    if (
        spec.number("inner") != 1
        or spec.number("sign") < 0
        or spec.number("n") not in _ROW
    ):
        return None
    return KernelCall.of(f"{call.kernel}_simd", *call.operands, *WHOLE)


VARIANTS: list[Variant] = [
    v
    for of in ("ek_arg_s8_s32", "ek_arg_s8_s64")
    for v in simd(of, f"{of}_simd", _rows)
]
