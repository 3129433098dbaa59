"""The structs of kernel variants; the headers of csrc say what their fields mean.

Sizes and windows are named as in edgec/ir/c_structs.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from edgec.ir import Kernel
from edgec.ir.c_struct import (
    CStruct,
    Enumerator,
    Float,
    Floats4,
    Int,
    Int8Table,
    Int16,
    Int32,
    Int32Table,
    UInt8Table,
)
from edgec.ir.c_structs import BroadcastParams, CoefficientParams

AfterFunction = Annotated[Kernel | int, "ek_after_f32_fn *"]
"""The function that an epilogue ends with; 0: none."""


# ---- csrc/simd/ek_simd.h
@dataclass(frozen=True, kw_only=True)
class ScaledSumParams(CStruct):
    """(a * u + b * v + bias) >> 27 in 16-bit parts."""

    ctype = "ek_scaled_sum_t"

    a_high: Int16
    a_low: Int16
    b_high: Int16
    b_low: Int16
    bias: Int32
    rest: Int32


# ---- csrc/simd/ek_binary_simd.h
@dataclass(frozen=True, kw_only=True)
class SumRowsParams(CStruct):
    """Rows of int8 sums as a scaled sum."""

    ctype = "ek_sum_s8_t"

    nd: Annotated[BroadcastParams, "ek_nd_t"]
    repeat: Int
    low: Int
    high: Int
    sum: Annotated[ScaledSumParams, "ek_scaled_sum_t"]


@dataclass(frozen=True, kw_only=True)
class FixedPointSumRowsParams(CStruct):
    """Rows of int8 sums in TFLite's fixed point."""

    ctype = "ek_law_s8_t"

    nd: Annotated[BroadcastParams, "ek_nd_t"]
    repeat: Int
    a_zero: Int32
    b_zero: Int32
    y_zero: Int32
    low: Int32
    high: Int32
    a_mul: Int32
    a_shift: Int32
    b_mul: Int32
    b_shift: Int32
    y_mul: Int32
    y_shift: Int32
    sign: Int


@dataclass(frozen=True, kw_only=True)
class ProductRowsParams(CStruct):
    """Rows of int8 products."""

    ctype = "ek_product_s8_t"

    nd: Annotated[BroadcastParams, "ek_nd_t"]
    repeat: Int
    a_zero: Int32
    b_zero: Int32
    y_zero: Int32
    low: Int32
    high: Int32
    mul: Int32
    shift: Int32


@dataclass(frozen=True, kw_only=True)
class ExtremumRowsParams(CStruct):
    """Rows of int8 maxima or minima."""

    ctype = "ek_extremum_s8_t"

    nd: Annotated[BroadcastParams, "ek_nd_t"]
    repeat: Int
    low: Int
    high: Int


@dataclass(frozen=True, kw_only=True)
class FloatRowsParams(CStruct):
    """Rows of a float op of two operands."""

    ctype = "ek_binary_f32_t"

    nd: Annotated[BroadcastParams, "ek_nd_t"]
    repeat: Int
    low: Float
    high: Float


# ---- csrc/simd/ek_unary_simd.h
@dataclass(frozen=True, kw_only=True)
class OffsetParams(CStruct):
    """A function of bytes that is an addition and a clamp."""

    ctype = "ek_offset_s8_t"

    flip: Int
    add: Int
    low: Int
    high: Int


@dataclass(frozen=True, kw_only=True)
class FlippedAffineParams(CStruct):
    """A scale and a zero point of bytes that may be unsigned."""

    ctype = "ek_affine_s8_t"

    scale: Float
    zero: Int
    flip: Int


# ---- csrc/simd/ek_norm_f32_simd.h
@dataclass(frozen=True, kw_only=True)
class NormEpilogueParams(CStruct):
    """The bounds in the epilogue of an instance norm."""

    ctype = "ek_norm_end_f32_t"

    low: Float
    high: Float
    low_sum: Float
    high_sum: Float


# ---- csrc/simd/ek_resize_simd.h
@dataclass(frozen=True, kw_only=True)
class ResizeDyadicParams(CStruct):
    """A bilinear resize by weights of few bits."""

    ctype = "ek_resize_dyadic_t"

    n: Int
    ih: Int
    iw: Int
    c: Int
    oh: Int
    ow: Int
    y0: Int32Table
    y1: Int32Table
    fy: Int32Table
    x0: Int32Table
    x1: Int32Table
    fx: Int32Table
    bits: Int


# ---- csrc/simd/ek_gemm_f32_simd.h
@dataclass(frozen=True, kw_only=True)
class GemmF32Params(CStruct):
    """A float convolution or matrix product by tiles."""

    ctype = "ek_gemm_f32_t"

    n: Int
    ih: Int
    iw: Int
    ic: Int
    oh: Int
    ow: Int
    oc: Int
    kh: Int
    kw: Int
    sh: Int
    sw: Int
    dh: Int
    dw: Int
    pt: Int
    pl: Int
    group_ic: Int
    yx: Int
    yy: Int | None = None
    yn: Int | None = None
    tile: Int
    block: Int
    panels: Int
    by_panel: Int
    touch: Int
    blocks: Int
    todo: Int
    low: Float
    high: Float
    low_sum: Float
    high_sum: Float
    after: AfterFunction
    coef: Annotated[CoefficientParams, "ek_coef_t"]


# ---- csrc/simd/ek_narrow_conv2d_f32_simd.h
@dataclass(frozen=True, kw_only=True)
class NarrowConv2DParams(CStruct):
    """A float convolution to few channels, by the product of each column."""

    ctype = "ek_narrow_conv2d_f32_t"

    p: Annotated[GemmF32Params, "ek_gemm_f32_t"]
    oh: Int
    ow: Int
    oc: Int
    kw: Int
    dw: Int
    pl: Int
    yx: Int
    cols: Int
    products: Int
    clamps: Int
    low: Float
    high: Float
    after: AfterFunction
    coef: Annotated[CoefficientParams, "ek_coef_t"]


# ---- csrc/simd/ek_winograd_f32_simd.h
@dataclass(frozen=True, kw_only=True)
class WinogradParams(CStruct):
    """A float 3x3 convolution by Winograd's transforms."""

    ctype = "ek_winograd_f32_t"

    n: Int
    ih: Int
    iw: Int
    ic: Int
    oh: Int
    ow: Int
    oc: Int
    dh: Int
    dw: Int
    pt: Int
    pl: Int
    yx: Int
    yy: Int
    yn: Int
    down: Int
    across: Int
    apart_v: Int
    apart_s: Int
    q: Floats4
    m: Int
    rows: Int
    block: Int
    panels: Int
    by_panel: Int
    touch: Int
    todo: Int
    low: Float
    high: Float
    low_sum: Float
    high_sum: Float
    after: AfterFunction
    coef: Annotated[CoefficientParams, "ek_coef_t"]


# ---- csrc/simd/ek_sparse_f32_simd.h
@dataclass(frozen=True, kw_only=True)
class SparseParams(CStruct):
    """A float 1x1 convolution by sparse weights."""

    ctype = "ek_sparse_f32_t"

    pixels: Int
    ic: Int
    oc: Int
    yx: Int
    todo: Int
    low: Float
    high: Float
    low_sum: Float
    high_sum: Float
    after: AfterFunction
    coef: Annotated[CoefficientParams, "ek_coef_t"]


# ---- csrc/simd/ek_dwconv2d_f32_simd.h
@dataclass(frozen=True, kw_only=True)
class DepthwiseF32Params(CStruct):
    """A float depthwise convolution by tiles."""

    ctype = "ek_dwconv2d_f32_t"

    n: Int
    ih: Int
    iw: Int
    oh: Int
    ow: Int
    kh: Int
    kw: Int
    sh: Int
    sw: Int
    dh: Int
    dw: Int
    pt: Int
    pl: Int
    ic: Int
    c: Int
    yx: Int
    apart: Int
    cols: Int
    chunk: Int
    ring: Int
    by_channels: Int
    touch: Int
    todo: Int
    low: Float
    high: Float
    low_sum: Float
    high_sum: Float
    after: AfterFunction
    coef: Annotated[CoefficientParams, "ek_coef_t"]


# ---- csrc/ek_gemm_s8.h
@dataclass(frozen=True, kw_only=True)
class GemmS8Params(CStruct):
    """An int8 convolution or matrix product by tiles."""

    ctype = "ek_gemm_s8_t"

    taps: Int
    run: Int
    step: Int
    y_step: Int
    finish: Enumerator
    w_zero: Int
    x_zero: Int
    y_zero: Int
    low: Int
    high: Int
    n: Int
    ih: Int
    iw: Int
    ic: Int
    size: Int
    oh: Int
    ow: Int
    windows: Int
    sh: Int
    dh: Int
    pt: Int
    pl: Int
    kh: Int
    tap_bytes: Int
    gather: Int
    gather_run: Int
    x_step: Int
    y_row: Int
    y_image: Int
    group_ic: Int
    group_oc: Int
    phase_h: Int
    phase_w: Int
    kw: Int
    mr: Int
    nr: Int
    panel_bytes: Int
    panels: Int
    group_panels: Int
    band: Int
    cols: Int
    by_panels: Int
    element: Int
    buffered: Int
    slots: Int
    slot_rows: Int
    zero_rows: Int
    slot_bytes: Int
    gather_bytes: Int
    scratch_bytes: Int


# ---- csrc/ek_dwconv2d_s8.h
@dataclass(frozen=True, kw_only=True)
class DepthwiseS8Params(CStruct):
    """An int8 depthwise convolution on Arm, by blocks of channels."""

    ctype = "ek_dw_s8_t"

    n: Int
    ih: Int
    iw: Int
    ic: Int
    oh: Int
    ow: Int
    oc: Int
    kh: Int
    kw: Int
    sh: Int
    sw: Int
    dh: Int
    dw: Int
    pt: Int
    pl: Int
    columns: Int
    slide: Int
    plain: Int
    any: Int
    taps: Int
    at: Int32Table
    scale: Int32Table
    w: Int8Table
    lift: Int8Table
    w_taps: Int8Table
    tap: Int32Table
    spread: UInt8Table
    x_zero: Int32
    y_zero: Int32
    low: Int32
    high: Int32


# ---- csrc/ek_dwconv2d_taps_s8.h
@dataclass(frozen=True, kw_only=True)
class DepthwiseTapsParams(CStruct):
    """An int8 depthwise convolution on x86, by units of channels."""

    ctype = "ek_dw_taps_s8_t"

    c: Int
    n: Int
    ih: Int
    iw: Int
    oh: Int
    ow: Int
    kh: Int
    kw: Int
    sh: Int
    sw: Int
    dh: Int
    dw: Int
    pt: Int
    pl: Int
    low: Int
    high: Int
    groups: Int
    sets: Int
    flat: Int
    step: Int
    units: Int
    by_units: Int
    zeros: Int8Table
