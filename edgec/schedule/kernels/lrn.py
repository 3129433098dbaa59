"""Local response normalization of floats (csrc/simd/ek_lrn_simd.h)."""

from __future__ import annotations

from edgec.ir import Kernel, KernelCall
from edgec.ir.c_structs import LrnParams
from edgec.ops.channel_norm import LRN
from edgec.schedule.simd import WHOLE, simd
from edgec.schedule.variant import Variant

_KERNEL = Kernel("lrn", "simd/ek_lrn_simd.h", "f32", isa="simd")

MAX_NEIGHBOURS = 16
"""Channels on either side that the kernel sums: EK_LRN_SIDE."""

MIN_NORMAL = 2.0**-126
"""The smallest positive float32 that is not denormal."""

ROOTS = (0.5, 0.75, 1.0)
"""Exponents that the kernel computes by square roots; it is passed four times them."""


def _lrn(call: KernelCall) -> KernelCall | None:
    """Return the call on vectors: x / (bias + alpha * sum of squares)^beta."""
    x, y, p = call.operands
    params = call.struct(LrnParams)
    power = int(4 * params.beta) if params.beta in ROOTS else 0

    # Other powers are exponentials of logarithms, which need a positive base.
    is_positive = params.alpha >= 0 and params.bias >= MIN_NORMAL
    if not power and not is_positive:
        return None
    if max(params.before, params.after) > MAX_NEIGHBOURS or params.after < 0:
        return None

    return KernelCall.of(_KERNEL, x, y, p, power, *WHOLE)


VARIANTS: list[Variant] = simd(LRN, _KERNEL, _lrn)
