"""The index of the extreme along the channels."""

from __future__ import annotations

from dataclasses import replace

from edgec.ir import Kernel, KernelCall
from edgec.ops.argmax import ARG
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
    return KernelCall.of(_on_vectors(call.kernel), *call.operands, *WHOLE)


def _on_vectors(kernel: Kernel) -> Kernel:
    return replace(kernel, header="simd/ek_arg_simd.h", isa="simd")


VARIANTS: list[Variant] = [
    v
    for of in (ARG.of("s32", source="s8"), ARG.of("s64", source="s8"))
    for v in simd(of, _on_vectors(of), _rows)
]
