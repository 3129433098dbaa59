"""The structs of kernels that compute several ops: chains, and cascades with layers.

csrc/ek_row_bands.h, the headers that include it, and csrc/simd/ek_chain_f32_simd.h say
what their fields mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from edgec.ir import Kernel
from edgec.ir.c_struct import (
    CStruct,
    Enumerator,
    Float,
    FloatTable,
    Int,
    Ints4,
    Table,
)
from edgec.ir.c_structs import CoefficientParams
from edgec.schedule.c_structs import (
    AfterFunction,
    DepthwiseF32Params,
    DepthwiseS8Params,
    DepthwiseTapsParams,
    GemmF32Params,
    GemmS8Params,
)

OptionalFloats = Annotated[Table | int, "const float *"]
"""Numbers for each channel; 0: none."""
VoidTable = Annotated[Table, "const void *"]
"""Packed weights of any type."""
Layer = Annotated[CStruct, "const void *"]
"""The parameters of a layer of a cascade."""


# ---- csrc/simd/ek_row_bands_f32_simd.h
@dataclass(frozen=True, kw_only=True)
class BandGemmF32Params(CStruct):
    """A float 1x1 convolution as a layer of a cascade."""

    ctype = "ek_band_gemm_f32_t"

    w: FloatTable
    bias: FloatTable
    slope: OptionalFloats
    p: Annotated[GemmF32Params, "const ek_gemm_f32_t *"]
    tile: Annotated[str | Kernel, "ek_tile_f32_fn *"]
    tail: Annotated[str | Kernel, "ek_tile_f32_fn *"]


@dataclass(frozen=True, kw_only=True)
class BandDepthwiseF32Params(CStruct):
    """A float depthwise convolution as a layer of a cascade."""

    ctype = "ek_band_dwconv2d_f32_t"

    w: FloatTable
    bias: FloatTable
    slope: OptionalFloats
    p: Annotated[DepthwiseF32Params, "const ek_dwconv2d_f32_t *"]
    tile: Annotated[str | Kernel, "ek_dwtile_f32_fn *"]


# ---- csrc/ek_row_bands_s8.h
@dataclass(frozen=True, kw_only=True)
class BandGemmS8Params(CStruct):
    """An int8 1x1 convolution as a layer of a cascade."""

    ctype = "ek_band_gemm_s8_t"

    w: VoidTable
    p: Annotated[GemmS8Params, "const ek_gemm_s8_t *"]
    kernel: Annotated[Kernel, "ek_gemm_s8_fn *"]


@dataclass(frozen=True, kw_only=True)
class BandDepthwiseS8Params(CStruct):
    """An int8 depthwise convolution on Arm as a layer of a cascade."""

    ctype = "ek_band_dwconv2d_s8_t"

    p: Annotated[DepthwiseS8Params, "const ek_dw_s8_t *"]
    kernel: Annotated[Kernel, "ek_dwconv2d_s8_fn *"]


@dataclass(frozen=True, kw_only=True)
class BandDepthwiseTapsParams(CStruct):
    """An int8 depthwise convolution on x86 as a layer of a cascade."""

    ctype = "ek_band_dwconv2d_taps_s8_t"

    w: VoidTable
    p: Annotated[DepthwiseTapsParams, "const ek_dw_taps_s8_t *"]
    kernel: Annotated[Kernel, "ek_dwconv2d_taps_s8_fn *"]


# ---- csrc/ek_row_bands.h
@dataclass(frozen=True, kw_only=True)
class RowBandsParams(CStruct):
    """A cascade of convolutions, a band of rows at a time."""

    ctype = "ek_row_bands_t"

    n: Int
    ih: Int
    iw: Int
    oh: Int
    ow: Int
    kh: Int
    sh: Int
    dh: Int
    pt: Int
    x_row: Int
    wide_row: Int
    y_row: Int
    rows: Int
    ring: Int
    kept: Int
    between: Int
    before: Annotated[Kernel, "ek_band_pointwise_fn *"] | None = None
    depthwise: Annotated[Kernel, "ek_band_depthwise_fn *"] | None = None
    after: Annotated[Kernel, "ek_band_pointwise_fn *"] | None = None
    before_layer: Layer | None = None
    depthwise_layer: Layer | None = None
    after_layer: Layer | None = None


# ---- csrc/simd/ek_chain_f32_simd.h
@dataclass(frozen=True, kw_only=True)
class ChainStepParams(CStruct):
    """One elementwise op of a chain."""

    ctype = "ek_chain_step_f32_t"

    op: Enumerator
    a: Int
    b: Int
    y: Int
    low: Float
    high: Float
    k: FloatTable | None = None
    bias: FloatTable | None = None
    function: AfterFunction | None = None
    coef: Annotated[CoefficientParams, "ek_coef_t"] | None = None


@dataclass(frozen=True, kw_only=True)
class ChainParams(CStruct):
    """Elementwise float ops that share one loop over blocks."""

    ctype = "ek_chain_f32_t"

    n: Int
    block: Int
    steps: Int
    step: Annotated[
        Sequence[ChainStepParams], "const ek_chain_step_f32_t *[EK_CHAIN_STEPS]"
    ]


# ---- csrc/simd/ek_attention_f32_simd.h
@dataclass(frozen=True, kw_only=True)
class AttentionStridesParams(CStruct):
    """The distances between matrices and rows of an operand."""

    ctype = "ek_attention_strides_f32_t"

    lead: Ints4
    row: Int


Strides = Annotated[AttentionStridesParams, "ek_attention_strides_f32_t"]


@dataclass(frozen=True, kw_only=True)
class AttentionParams(CStruct):
    """Sizes, factors and strides of softmax(scale * Q K' + bias) V."""

    ctype = "ek_attention_f32_t"

    dim: Ints4
    m: Int
    n: Int
    depth: Int
    width: Int
    pitch: Int
    block: Int
    scale: Float
    beta: Float
    q: Strides
    k: Strides
    v: Strides
    y: Strides
    bias: Strides
