"""Local response normalisation of floats by csrc/simd/ek_lrn_simd.h."""

from __future__ import annotations

from edgec.ir import Kernel, KernelCall
from edgec.ops.channel_norm import LRN
from edgec.schedule.simd import WHOLE, simd
from edgec.schedule.variant import Variant

_KERNEL = Kernel("lrn", "simd/ek_lrn_simd.h", "f32", isa="simd")

_SIDE = 16
"""EK_LRN_SIDE: neighbours on either side of a channel."""

_NORMAL = 2.0**-126
"""The least normal number."""


def _lrn(call: KernelCall) -> KernelCall | None:
    x, y, p = call.operands
    fields = call.struct("ek_lrn_t")
    before = fields.number("before")
    after = fields.number("after")
    beta = fields.real("beta")
    power = int(4 * beta) if beta in (0.5, 0.75, 1.0) else 0
    # what is raised to any other power
    positive = fields.real("alpha") >= 0 and fields.real("bias") >= _NORMAL
    if max(before, after) > _SIDE or after < 0 or not (power or positive):
        return None
    return KernelCall.of(_KERNEL, x, y, p, power, *WHOLE)


VARIANTS: list[Variant] = simd(LRN, _KERNEL, _lrn)
