"""Softmax, means and instance normalisation of floats."""

from __future__ import annotations

from edgec.ir import KernelCall, Pointer, Struct
from edgec.schedule.gemm_f32.epilogue import Epilogue, following
from edgec.schedule.simd import WHOLE, simd
from edgec.schedule.variant import Variant

_WIDEST = 16
"""Floats of the widest vector, which a mean needs; they are one line of the cache."""


def _softmax(call: KernelCall) -> KernelCall:
    return KernelCall.of("ek_softmax_f32_simd", *call.operands, *WHOLE)


def _mean(call: KernelCall) -> KernelCall | None:
    keep, strides = (
        call.struct("ek_reduce_t").fields[k] for k in ("keep", "keep_stride")
    )
    assert isinstance(keep, list)
    assert isinstance(strides, list)
    if keep[2] < _WIDEST or strides[2] != 1:
        return None
    return KernelCall.of("ek_mean_f32_simd", *call.operands, *WHOLE)


def _instance_norm(call: KernelCall) -> KernelCall | None:
    x, scale, bias, y, memory, p = call.operands
    assert isinstance(y, Pointer)
    done = following(Epilogue(y), call.then)
    if (
        call.struct("ek_norm_t").number("c") < _WIDEST
        or done is None
        or not done.clamps
    ):
        return None
    low, high, low_sum, high_sum = done.bounds
    end = Struct(
        "ek_norm_end_t", low=low, high=high, low_sum=low_sum, high_sum=high_sum
    )
    return KernelCall.of(
        "ek_instance_norm_f32_simd",
        x,
        scale,
        bias,
        done.added or 0,
        done.y,
        memory,
        p,
        end,
        *WHOLE,
    )


VARIANTS: list[Variant] = [
    *simd("ek_softmax_f32", "ek_softmax_f32_simd", _softmax),
    *simd(
        "ek_instance_norm_f32", "ek_instance_norm_f32_simd", _instance_norm, fuses=True
    ),
    *simd("ek_mean_f32", "ek_mean_f32_simd", _mean),
]
