"""Softmax, sums and means over pixels and norms of images and rows of floats."""

from __future__ import annotations

from functools import partial

from edgec.ir import Kernel, KernelCall, Pointer, Scratch
from edgec.ir.c_structs import (
    InstanceNormParams,
    LayerNormParams,
    NormEpilogueF32Params,
    ReduceParams,
    SoftmaxParams,
)
from edgec.ops.norm import INSTANCE_NORM, LAYER_NORM
from edgec.ops.reduce import Mean, Sum
from edgec.ops.softmax import SOFTMAX
from edgec.schedule.gemm_f32.epilogue import Epilogue, following
from edgec.schedule.simd import WHOLE, simd
from edgec.schedule.variant import Variant

_SOFTMAX = Kernel("softmax", "simd/ek_softmax_f32_simd.h", "f32", isa="simd")
_MEAN = Kernel("mean", "simd/ek_rows_f32_simd.h", "f32", isa="simd")
_SUM = Kernel("sum", "simd/ek_rows_f32_simd.h", "f32", isa="simd")
_INSTANCE_NORM = Kernel("instance_norm", "simd/ek_norm_f32_simd.h", "f32", isa="simd")
_LAYER_NORM = Kernel("layer_norm", "simd/ek_norm_f32_simd.h", "f32", isa="simd")

MIN_CHANNELS = 16
"""Floats of the widest vector, which is one line of the cache too."""


def _softmax(call: KernelCall) -> KernelCall | None:
    """Return the call on vectors, which takes rows of any length and a positive beta."""
    if call.struct(SoftmaxParams).beta <= 0:
        return None

    return KernelCall.of(_SOFTMAX, *call.operands, *WHOLE)


def _over_pixels(kernel: Kernel, call: KernelCall) -> KernelCall | None:
    """Return the call of a sum or mean that keeps the innermost axis.

    It takes some vectors of channels at a time.
    """
    p = call.struct(ReduceParams)

    # The channels that are kept must lie side by side, a vector of them at least.
    if p.keep[2] < MIN_CHANNELS or p.keep_stride[2] != 1:
        return None

    return KernelCall.of(kernel, *call.operands, *WHOLE)


def _instance_norm(call: KernelCall) -> KernelCall | None:
    """Return the call with the clamps and the addition that follow."""
    x, scale, bias, y, memory, p = call.operands
    assert isinstance(y, Pointer)

    # The kernel has no PReLU and no function at the end, and writes whole tensors.
    chain = following(Epilogue(y), call.then)
    if chain is None or not chain.is_clamps_and_sum:
        return None
    if call.struct(InstanceNormParams).c < MIN_CHANNELS:
        return None

    low, high, low_sum, high_sum = chain.bounds
    bounds = NormEpilogueF32Params(
        low=low, high=high, low_sum=low_sum, high_sum=high_sum
    )
    operands = (x, scale, bias, chain.added or 0, chain.y, memory, p, bounds)
    return KernelCall.of(_INSTANCE_NORM, *operands, *WHOLE)


def _layer_norm(call: KernelCall) -> KernelCall | None:
    """Return the call on vectors; float16 needs memory for four rows of floats."""
    x, scale, bias, y, p = call.operands
    n = call.struct(LayerNormParams).n
    if n < MIN_CHANNELS:
        return None

    # Scratch is counted as for float32, twice as much as float16 gets.
    memory = Scratch(2 * 4 * 4 * n) if call.is_float16 else 0
    return KernelCall.of(_LAYER_NORM, x, scale, bias, y, memory, p, *WHOLE)


VARIANTS: list[Variant] = [
    *simd(SOFTMAX.of("f32"), _SOFTMAX, _softmax),
    *simd(INSTANCE_NORM, _INSTANCE_NORM, _instance_norm, fuses=True),
    *simd(LAYER_NORM, _LAYER_NORM, _layer_norm),
    *simd(Mean.kernels.of("f32"), _MEAN, partial(_over_pixels, _MEAN)),
    *simd(Sum.kernels.of("f32"), _SUM, partial(_over_pixels, _SUM)),
]
