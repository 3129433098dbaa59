"""The index of the largest or smallest of the channels (csrc/simd/ek_arg_simd.h)."""

from __future__ import annotations

from dataclasses import replace

from edgec.ir import Kernel, KernelCall
from edgec.ir.c_structs import ArgParams
from edgec.ops.argmax import ARG
from edgec.schedule.simd import WHOLE, simd
from edgec.schedule.variant import Variant

ROW_BYTES = range(16, 33)
"""Channels of a row that two overlapping vectors of 16 bytes cover."""


def _on_vectors(kernel: Kernel) -> Kernel:
    """Return the kernel for vectors of a plain kernel."""
    return replace(kernel, header="simd/ek_arg_simd.h", isa="simd")


def _arg_of_rows(call: KernelCall) -> KernelCall | None:
    """Return the call that finds the maximum of adjacent channels."""
    p = call.struct(ArgParams)

    # The kernel knows maxima of adjacent bytes alone.
    is_maximum = p.sign >= 0
    if p.inner != 1 or not is_maximum or p.n not in ROW_BYTES:
        return None

    return KernelCall.of(_on_vectors(call.kernel), *call.operands, *WHOLE)


VARIANTS: list[Variant] = [
    variant
    for of in (ARG.of("s32", source="s8"), ARG.of("s64", source="s8"))
    for variant in simd(of, _on_vectors(of), _arg_of_rows)
]
