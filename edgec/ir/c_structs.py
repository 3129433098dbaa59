"""The structs of the plain kernels that compute; csrc/ek_*.h says what fields mean.

Sizes of images are n, ih, iw, ic (input) and oh, ow, oc (output) in elements; windows
have kh, kw rows and columns, strides sh, sw, dilations dh, dw and padding pt, pl at the
top and left.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgec.ir.c_struct import (
    CStruct,
    DoubleTable,
    Float,
    FloatTable,
    Int,
    Int32,
    Int32Table,
    Int64Bound,
    Ints3,
    Ints4,
    Ints6,
    UInt64Bound,
)


# ---- csrc/ek_base.h
@dataclass(frozen=True, kw_only=True)
class BroadcastParams(CStruct):
    """The loops over a broadcast result, and element strides of both operands."""

    ctype = "ek_nd_t"

    dim: Ints6
    a: Ints6
    b: Ints6


@dataclass(frozen=True, kw_only=True)
class ActivationParams(CStruct):
    """The bounds of the results of a float kernel."""

    ctype = "ek_act_t"

    low: Float
    high: Float


# ---- csrc/ek_unary.h
@dataclass(frozen=True, kw_only=True)
class CoefficientParams(CStruct):
    """The parameters of a function of one float."""

    ctype = "ek_coef_t"

    a: Float
    b: Float | None = None


@dataclass(frozen=True, kw_only=True)
class BoundsParams(CStruct):
    """The bounds of a clamp of signed integers."""

    ctype = "ek_bounds_t"

    low: Int64Bound
    high: Int64Bound


@dataclass(frozen=True, kw_only=True)
class UnsignedBoundsParams(CStruct):
    """The bounds of a clamp of unsigned integers."""

    ctype = "ek_unsigned_bounds_t"

    low: UInt64Bound
    high: UInt64Bound


# ---- csrc/ek_binary.h
@dataclass(frozen=True, kw_only=True)
class FixedPointSumParams(CStruct):
    """An int8 sum or difference with a fixed-point multiplier for each tensor."""

    ctype = "ek_add_t"

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


@dataclass(frozen=True, kw_only=True)
class FloatSumParams(CStruct):
    """An int8 sum or difference a * u + b * v + rest in float32."""

    ctype = "ek_linear_t"

    a: Float
    b: Float
    rest: Float
    shift: Int32
    low: Int32
    high: Int32


@dataclass(frozen=True, kw_only=True)
class FixedPointProductParams(CStruct):
    """An int8 product with a fixed-point multiplier."""

    ctype = "ek_mul_t"

    a_zero: Int32
    b_zero: Int32
    y_zero: Int32
    low: Int32
    high: Int32
    mul: Int32
    shift: Int32


@dataclass(frozen=True, kw_only=True)
class FloatProductParams(CStruct):
    """An int8 product with a float32 scale."""

    ctype = "ek_real_mul_t"

    a_zero: Int32
    b_zero: Int32
    y_zero: Int32
    low: Int32
    high: Int32
    scale: Float
    shift: Int32


# ---- csrc/ek_fixed_point.h
@dataclass(frozen=True, kw_only=True)
class RequantParams(CStruct):
    """Zero points, bounds and a fixed-point multiplier for each channel."""

    ctype = "ek_requant_t"

    x_zero: Int32
    w_zero: Int32
    y_zero: Int32
    low: Int32
    high: Int32
    multiplier: Int32Table
    shift: Int32Table


@dataclass(frozen=True, kw_only=True)
class FloatRequantParams(CStruct):
    """Zero points, bounds and a float32 scale for each channel."""

    ctype = "ek_even_t"

    x_zero: Int32
    w_zero: Int32
    y_zero: Int32
    low: Int32
    high: Int32
    scale: FloatTable


# ---- csrc/ek_matmul.h
@dataclass(frozen=True, kw_only=True)
class DoubleRequantParams(CStruct):
    """Zero points, bounds and a double scale for each channel."""

    ctype = "ek_scale_f64_t"

    x_zero: Int32
    w_zero: Int32
    y_zero: Int32
    low: Int32
    high: Int32
    scale: DoubleTable


# ---- csrc/ek_quantize.h
@dataclass(frozen=True, kw_only=True)
class AffineParams(CStruct):
    """A scale and a zero point."""

    ctype = "ek_affine_t"

    scale: Float
    zero: Int32


@dataclass(frozen=True, kw_only=True)
class RescaleParams(CStruct):
    """A conversion of integers from one scale to another."""

    ctype = "ek_rescale_t"

    x_zero: Int32
    y_zero: Int32
    mul: Int32
    shift: Int32


# ---- csrc/ek_conv2d.h
@dataclass(frozen=True, kw_only=True)
class Conv2DParams(CStruct):
    """Sizes of a convolution."""

    ctype = "ek_conv2d_t"

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


# ---- csrc/ek_transpose_conv.h
@dataclass(frozen=True, kw_only=True)
class TransposeConv2DParams(CStruct):
    """Sizes of a transposed convolution."""

    ctype = "ek_transpose_conv2d_t"

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
    pt: Int
    pl: Int


# ---- csrc/ek_pool.h
@dataclass(frozen=True, kw_only=True)
class PoolParams(CStruct):
    """Sizes, padding, rounding and bounds of a pool."""

    ctype = "ek_pool_t"

    n: Int
    ih: Int
    iw: Int
    c: Int
    oh: Int
    ow: Int
    kh: Int
    kw: Int
    sh: Int
    sw: Int
    pt: Int
    pl: Int
    count_pads: Int | None = None
    round_up: Int | None = None
    pad: Int | None = None
    scale: Float | None = None
    shift: Int32 | None = None
    low: Float
    high: Float


# ---- csrc/ek_matmul.h
@dataclass(frozen=True, kw_only=True)
class BatchMatMulParams(CStruct):
    """Sizes and strides of products of two computed matrices."""

    ctype = "ek_batch_matmul_t"

    dim: Ints4
    a: Ints4
    b: Ints4
    m: Int
    n: Int
    k: Int
    ar: Int
    ac: Int
    br: Int
    bc: Int


# ---- csrc/ek_reduce.h
@dataclass(frozen=True, kw_only=True)
class ReduceParams(CStruct):
    """Loops over kept and reduced axes, and the requantization of a reduction."""

    ctype = "ek_reduce_t"

    keep: Ints3
    keep_stride: Ints3
    red: Ints3
    red_stride: Ints3
    x_zero: Int32 | None = None
    y_zero: Int32 | None = None
    mul: Int32 | None = None
    shift: Int32 | None = None
    scale: Float | None = None
    offset: Float | None = None


# ---- csrc/ek_arg.h
@dataclass(frozen=True, kw_only=True)
class ArgParams(CStruct):
    """Sizes of runs, and which of their elements is looked for."""

    ctype = "ek_arg_t"

    outer: Int
    n: Int
    inner: Int
    sign: Int
    last: Int


# ---- csrc/ek_scan.h
@dataclass(frozen=True, kw_only=True)
class ScanParams(CStruct):
    """Sizes of runs, and the direction of a cumulative sum or product."""

    ctype = "ek_scan_t"

    outer: Int
    n: Int
    inner: Int
    exclusive: Int
    reverse: Int


@dataclass(frozen=True, kw_only=True)
class TopKParams(CStruct):
    """Sizes of runs, and how many elements of each are returned."""

    ctype = "ek_topk_t"

    outer: Int
    n: Int
    inner: Int
    k: Int
    largest: Int


# ---- csrc/ek_softmax.h
@dataclass(frozen=True, kw_only=True)
class SoftmaxParams(CStruct):
    """The factor of the exponents."""

    ctype = "ek_softmax_t"

    beta: Float


# ---- csrc/ek_norm.h
@dataclass(frozen=True, kw_only=True)
class InstanceNormParams(CStruct):
    """Sizes of an instance norm or group norm."""

    ctype = "ek_norm_t"

    n: Int
    pixels: Int
    c: Int
    group: Int
    eps: Float


@dataclass(frozen=True, kw_only=True)
class LayerNormParams(CStruct):
    """Sizes of a layer norm."""

    ctype = "ek_layer_norm_t"

    rows: Int
    n: Int
    eps: Float


# ---- csrc/ek_channel_norm.h
@dataclass(frozen=True, kw_only=True)
class L2NormParams(CStruct):
    """Sizes and zero point of an L2 norm."""

    ctype = "ek_l2_norm_t"

    rows: Int
    n: Int
    eps: Float
    zero: Int32
    bits: Int


@dataclass(frozen=True, kw_only=True)
class LrnParams(CStruct):
    """Window and constants of a local response norm."""

    ctype = "ek_lrn_t"

    rows: Int
    c: Int
    before: Int
    after: Int
    alpha: Float
    beta: Float
    bias: Float


# ---- csrc/ek_lstm.h
@dataclass(frozen=True, kw_only=True)
class LstmParams(CStruct):
    """Sizes and fixed-point multipliers of an int8 LSTM."""

    ctype = "ek_lstm_t"

    steps: Int
    batch: Int
    inputs: Int
    hidden: Int
    x_mul: Int32Table
    h_mul: Int32Table
    x_shift: Int32Table
    h_shift: Int32Table
    out_mul: Int32
    out_shift: Int32
    out_zero: Int32
    cell_bits: Int32
    clip: Int32
