"""Softmax, means and instance normalisation of floats."""

from __future__ import annotations

from edgec.ir import KernelCall
from edgec.schedule.simd import WHOLE, simd
from edgec.schedule.variant import Variant

_WIDEST = 16
"""Floats of the widest vector, which a mean needs; they are one line of the cache."""


def _softmax(call: KernelCall) -> KernelCall:
    return KernelCall.of("ek_softmax_f32_simd", *call.operands, *WHOLE)


def _mean(call: KernelCall) -> KernelCall | None:
    keep, strides = (call.struct("ek_reduce_t").fields[k] for k in ("keep", "keep_stride"))
    assert isinstance(keep, list)
    assert isinstance(strides, list)
    if keep[2] < _WIDEST or strides[2] != 1:
        return None
    return KernelCall.of("ek_mean_f32_simd", *call.operands, *WHOLE)


def _instance_norm(call: KernelCall) -> KernelCall | None:
    if call.struct("ek_norm_t").number("c") < _WIDEST:
        return None
    return KernelCall.of("ek_instance_norm_f32_simd", *call.operands, *WHOLE)


VARIANTS: list[Variant] = [
    *simd("ek_softmax_f32", "ek_softmax_f32_simd", _softmax),
    *simd("ek_instance_norm_f32", "ek_instance_norm_f32_simd", _instance_norm),
    *simd("ek_mean_f32", "ek_mean_f32_simd", _mean),
]
