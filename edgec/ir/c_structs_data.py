"""The structs of the plain kernels that move, pick or resample elements.

csrc/ek_*.h says what their fields mean; sizes are named as in c_structs.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgec.ir.c_struct import (
    CStruct,
    Double,
    Enumerator,
    Float,
    FloatTable,
    Int,
    Int32,
    Int32Table,
    Ints6,
)


# ---- csrc/ek_shape.h
@dataclass(frozen=True, kw_only=True)
class GatherParams(CStruct):
    """Loops over a dense result, and the element strides of the operand."""

    ctype = "ek_gather_t"

    dim: Ints6
    stride: Ints6


# ---- csrc/ek_compare.h
@dataclass(frozen=True, kw_only=True)
class CompareParams(CStruct):
    """Zero points of both operands, and the fixed-point multipliers of their scales."""

    ctype = "ek_compare_t"

    a_zero: Int32
    b_zero: Int32
    a_mul: Int32
    a_shift: Int32
    b_mul: Int32
    b_shift: Int32


@dataclass(frozen=True, kw_only=True)
class WhereParams(CStruct):
    """Loops over a result, and strides of the condition and both choices."""

    ctype = "ek_where_t"

    dim: Ints6
    c: Ints6
    a: Ints6
    b: Ints6


# ---- csrc/ek_scatter.h
@dataclass(frozen=True, kw_only=True)
class ElementsParams(CStruct):
    """The loops over the indices of single elements."""

    ctype = "ek_elements_t"

    dim: Ints6
    stride: Ints6
    size: Int
    step: Int
    bytes: Int
    total: Int


@dataclass(frozen=True, kw_only=True)
class ScatterNdParams(CStruct):
    """Rows that are written by index."""

    ctype = "ek_scatter_nd_t"

    n: Int
    k: Int
    dim: Ints6
    pitch: Ints6
    row: Int
    total: Int


# ---- csrc/ek_take.h
@dataclass(frozen=True, kw_only=True)
class TakeParams(CStruct):
    """Rows that are read by index, in bytes."""

    ctype = "ek_take_t"

    outer: Int
    dim: Int
    n: Int
    bytes: Int


@dataclass(frozen=True, kw_only=True)
class TakeNdParams(CStruct):
    """Rows that are read by several indices each, in bytes."""

    ctype = "ek_take_nd_t"

    n: Int
    k: Int
    dim: Ints6
    pitch: Ints6
    bytes: Int


# ---- csrc/ek_concat.h
@dataclass(frozen=True, kw_only=True)
class ConcatRescaleParams(CStruct):
    """A rescaling of uint8 elements in float32."""

    ctype = "ek_concat_t"

    scale: Float
    bias: Float
    zero: Int32


# ---- csrc/ek_pad.h
@dataclass(frozen=True, kw_only=True)
class PadParams(CStruct):
    """A constant border, and the place of the image in the result."""

    ctype = "ek_pad_t"

    value: Double
    size: Int
    dim: Ints6
    stride: Ints6
    offset: Int


@dataclass(frozen=True, kw_only=True)
class PadFoldParams(CStruct):
    """A border of folded indices: reflections and repetitions."""

    ctype = "ek_pad_fold_t"

    in_: Ints6
    out: Ints6
    before: Ints6
    mode: Enumerator


# ---- csrc/ek_resize.h
@dataclass(frozen=True, kw_only=True)
class ResizeNearestParams(CStruct):
    """Sizes, and the source of each row and column."""

    ctype = "ek_resize_nearest_t"

    n: Int
    ih: Int
    iw: Int
    c: Int
    oh: Int
    ow: Int
    rows: Int32Table
    columns: Int32Table


@dataclass(frozen=True, kw_only=True)
class ResizeBilinearFloatParams(CStruct):
    """Two rows and columns with float weights for each result."""

    ctype = "ek_resize_bilinear_real_t"

    n: Int
    ih: Int
    iw: Int
    c: Int
    oh: Int
    ow: Int
    y0: Int32Table
    y1: Int32Table
    fy: FloatTable
    x0: Int32Table
    x1: Int32Table
    fx: FloatTable


@dataclass(frozen=True, kw_only=True)
class ResizeBilinearFixedParams(CStruct):
    """Two rows and columns with fixed-point weights for each result."""

    ctype = "ek_resize_bilinear_fixed_t"

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


@dataclass(frozen=True, kw_only=True)
class ResizeBilinearEvenParams(CStruct):
    """Two rows and columns with float weights, on int8 with a scale."""

    ctype = "ek_resize_bilinear_even_t"

    n: Int
    ih: Int
    iw: Int
    c: Int
    oh: Int
    ow: Int
    y0: Int32Table
    y1: Int32Table
    fy: FloatTable
    x0: Int32Table
    x1: Int32Table
    fx: FloatTable
    zero: Int32
    scale: Float


@dataclass(frozen=True, kw_only=True)
class ResizeCubicParams(CStruct):
    """Four rows and columns with weights for each result."""

    ctype = "ek_resize_cubic_t"

    n: Int
    ih: Int
    iw: Int
    c: Int
    oh: Int
    ow: Int
    iy: Int32Table
    wy: FloatTable
    ix: Int32Table
    wx: FloatTable


# ---- csrc/ek_grid_sample.h
@dataclass(frozen=True, kw_only=True)
class GridSampleParams(CStruct):
    """Sizes and interpolation of a sampling by a grid."""

    ctype = "ek_grid_sample_t"

    n: Int
    ih: Int
    iw: Int
    c: Int
    pixels: Int
    taps: Int
    padding: Enumerator
    align: Int


# ---- csrc/ek_roi_align.h
@dataclass(frozen=True, kw_only=True)
class RoiAlignParams(CStruct):
    """Sizes and sampling of regions of interest."""

    ctype = "ek_roi_align_t"

    n: Int
    ih: Int
    iw: Int
    c: Int
    boxes: Int
    oh: Int
    ow: Int
    ratio: Int
    largest: Int
    half: Float
    scale: Float


# ---- csrc/ek_detection.h
@dataclass(frozen=True, kw_only=True)
class DetectionParams(CStruct):
    """TFLite's detection postprocessing."""

    ctype = "ek_detection_t"

    boxes: Int
    classes: Int
    background: Int
    most: Int
    y_scale: Float
    x_scale: Float
    h_scale: Float
    w_scale: Float
    score: Float
    overlap: Float


@dataclass(frozen=True, kw_only=True)
class SuppressionParams(CStruct):
    """Limits of a non-maximum suppression."""

    ctype = "ek_suppression_t"

    boxes: Int
    most: Int
    overlap: Float
    score: Float


# ---- csrc/ek_landmarks.h
@dataclass(frozen=True, kw_only=True)
class LandmarksToTransformParams(CStruct):
    """The rectangle around landmarks."""

    ctype = "ek_landmarks_to_transform_t"

    landmarks: Int
    subset: Int
    left: Int
    right: Int
    height: Int
    width: Int
    scale_x: Float
    scale_y: Float
    cosine: Float
    sine: Float


@dataclass(frozen=True, kw_only=True)
class TransformTensorParams(CStruct):
    """Sizes of an image that is cut out by a transform."""

    ctype = "ek_transform_tensor_t"

    ih: Int
    iw: Int
    c: Int
    oh: Int
    ow: Int
