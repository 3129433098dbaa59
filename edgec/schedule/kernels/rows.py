"""Softmax, means over pixels and instance norms of floats."""

from __future__ import annotations

from edgec.ir import Kernel, KernelCall, Pointer
from edgec.ir.c_structs import InstanceNormParams, ReduceParams
from edgec.ops.norm import INSTANCE_NORM
from edgec.ops.reduce import Mean
from edgec.ops.softmax import SOFTMAX
from edgec.schedule.c_structs import NormEpilogueParams
from edgec.schedule.gemm_f32.epilogue import Epilogue, following
from edgec.schedule.simd import WHOLE, simd
from edgec.schedule.variant import Variant

_SOFTMAX = Kernel("softmax", "simd/ek_rows_simd.h", "f32", isa="simd")
_MEAN = Kernel("mean", "simd/ek_rows_simd.h", "f32", isa="simd")
_INSTANCE_NORM = Kernel("instance_norm", "simd/ek_norm_simd.h", "f32", isa="simd")

MIN_CHANNELS = 16
"""Floats of the widest vector, which is one line of the cache too."""


def _softmax(call: KernelCall) -> KernelCall:
    """Return the call on vectors, which takes rows of any length."""
    return KernelCall.of(_SOFTMAX, *call.operands, *WHOLE)


def _mean(call: KernelCall) -> KernelCall | None:
    """Return the call that keeps the innermost axis, a vector of channels at a time."""
    p = call.struct(ReduceParams)

    # The channels that are kept must lie side by side, a vector of them at least.
    if p.keep[2] < MIN_CHANNELS or p.keep_stride[2] != 1:
        return None

    return KernelCall.of(_MEAN, *call.operands, *WHOLE)


def _instance_norm(call: KernelCall) -> KernelCall | None:
    """Return the call with the clamps and the addition that follow."""
    x, scale, bias, y, memory, p = call.operands
    assert isinstance(y, Pointer)

    # The kernel has no PReLU and no function at the end, and writes whole tensors.
    done = following(Epilogue(y), call.then)
    if done is None or not done.is_clamps_and_sum:
        return None
    if call.struct(InstanceNormParams).c < MIN_CHANNELS:
        return None

    low, high, low_sum, high_sum = done.bounds
    bounds = NormEpilogueParams(low=low, high=high, low_sum=low_sum, high_sum=high_sum)
    operands = (x, scale, bias, done.added or 0, done.y, memory, p, bounds)
    return KernelCall.of(_INSTANCE_NORM, *operands, *WHOLE)


VARIANTS: list[Variant] = [
    *simd(SOFTMAX.of("f32"), _SOFTMAX, _softmax),
    *simd(INSTANCE_NORM, _INSTANCE_NORM, _instance_norm, fuses=True),
    *simd(Mean.kernels.of("f32"), _MEAN, _mean),
]
