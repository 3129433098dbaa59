"""Softmax, means and instance normalisation of floats."""

from __future__ import annotations

from edgec.ir import Kernel, KernelCall, Pointer, Struct
from edgec.ops.norm import INSTANCE_NORM
from edgec.ops.reduce import Mean
from edgec.ops.softmax import SOFTMAX
from edgec.schedule.gemm_f32.epilogue import Epilogue, following
from edgec.schedule.simd import WHOLE, simd
from edgec.schedule.variant import Variant

_SOFTMAX = Kernel("softmax", "simd/ek_rows_simd.h", "f32", isa="simd")
_MEAN = Kernel("mean", "simd/ek_rows_simd.h", "f32", isa="simd")
_INSTANCE_NORM = Kernel("instance_norm", "simd/ek_norm_simd.h", "f32", isa="simd")

_WIDEST = 16
"""Floats of the widest vector, which a mean needs; they are one line of the cache."""


def _softmax(call: KernelCall) -> KernelCall:
    return KernelCall.of(_SOFTMAX, *call.operands, *WHOLE)


def _mean(call: KernelCall) -> KernelCall | None:
    keep, strides = (
        call.struct("ek_reduce_t").fields[k] for k in ("keep", "keep_stride")
    )
    assert isinstance(keep, list)
    assert isinstance(strides, list)
    if keep[2] < _WIDEST or strides[2] != 1:
        return None
    return KernelCall.of(_MEAN, *call.operands, *WHOLE)


def _instance_norm(call: KernelCall) -> KernelCall | None:
    x, scale, bias, y, memory, p = call.operands
    assert isinstance(y, Pointer)
    done = following(Epilogue(y), call.then)
    if (
        call.struct("ek_norm_t").number("c") < _WIDEST
        or done is None
        or not done.is_clamps_and_sum
    ):
        return None
    low, high, low_sum, high_sum = done.bounds
    end = Struct(
        "ek_norm_end_t", low=low, high=high, low_sum=low_sum, high_sum=high_sum
    )
    return KernelCall.of(
        _INSTANCE_NORM,
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
    *simd(SOFTMAX.of("f32"), _SOFTMAX, _softmax),
    *simd(INSTANCE_NORM, _INSTANCE_NORM, _instance_norm, fuses=True),
    *simd(Mean.kernels.of("f32"), _MEAN, _mean),
]
