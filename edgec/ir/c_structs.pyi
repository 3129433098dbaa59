"""What edgec.ir.c_headers makes of csrc; pytest --update-golden tests/emit writes it."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgec.ir.c_struct import CStruct, Table
from edgec.ir.kernel import Kernel

@dataclass(frozen=True, kw_only=True)
class ArgParams(CStruct):
    outer: int
    n: int
    inner: int
    sign: int
    last: int

@dataclass(frozen=True, kw_only=True)
class ActivationParams(CStruct):
    low: float
    high: float

@dataclass(frozen=True, kw_only=True)
class BroadcastParams(CStruct):
    dim: Sequence[int]
    a: Sequence[int]
    b: Sequence[int]

@dataclass(frozen=True, kw_only=True)
class FixedPointSumParams(CStruct):
    a_zero: int
    b_zero: int
    y_zero: int
    low: int
    high: int
    a_mul: int
    a_shift: int
    b_mul: int
    b_shift: int
    y_mul: int
    y_shift: int

@dataclass(frozen=True, kw_only=True)
class FloatSumParams(CStruct):
    a: float
    b: float
    rest: float
    shift: int
    scale: float
    low: int
    high: int

@dataclass(frozen=True, kw_only=True)
class FixedPointProductParams(CStruct):
    a_zero: int
    b_zero: int
    y_zero: int
    low: int
    high: int
    mul: int
    shift: int

@dataclass(frozen=True, kw_only=True)
class FloatProductParams(CStruct):
    a_zero: int
    b_zero: int
    y_zero: int
    low: int
    high: int
    scale: float
    shift: int

@dataclass(frozen=True, kw_only=True)
class BoxesParams(CStruct):
    rows: int
    box_row: int
    box_next: int
    score_row: int
    score_next: int
    order: int
    anchored: int
    exponential: int
    box_column: int
    score_column: int
    classes: int
    first: int
    objectness: int
    activation: int
    class_column: int
    several: int
    points: int
    point_column: int
    point_numbers: int
    angle_column: int
    scales: Sequence[float]
    width: float
    height: float
    ends: Sequence[float]
    threshold: float
    iou: float
    suppression: int
    candidates: int
    limit: int

@dataclass(frozen=True, kw_only=True)
class CandidateParams(CStruct):
    score: float
    row: int
    class_: int

@dataclass(frozen=True, kw_only=True)
class ExponentialsParams(CStruct):
    most: float
    sum: float

@dataclass(frozen=True, kw_only=True)
class NormalParams(CStruct):
    x: float
    y: float
    xx: float
    yy: float
    xy: float

@dataclass(frozen=True, kw_only=True)
class L2NormParams(CStruct):
    rows: int
    n: int
    eps: float
    zero: int
    bits: int

@dataclass(frozen=True, kw_only=True)
class LrnParams(CStruct):
    rows: int
    c: int
    before: int
    after: int
    alpha: float
    beta: float
    bias: float

@dataclass(frozen=True, kw_only=True)
class CompareParams(CStruct):
    a_zero: int
    b_zero: int
    a_mul: int
    a_shift: int
    b_mul: int
    b_shift: int

@dataclass(frozen=True, kw_only=True)
class WhereParams(CStruct):
    dim: Sequence[int]
    c: Sequence[int]
    a: Sequence[int]
    b: Sequence[int]

@dataclass(frozen=True, kw_only=True)
class ConcatRescaleParams(CStruct):
    scale: float
    bias: float
    zero: int

@dataclass(frozen=True, kw_only=True)
class Conv2dParams(CStruct):
    n: int
    ih: int
    iw: int
    ic: int
    oh: int
    ow: int
    oc: int
    kh: int
    kw: int
    sh: int
    sw: int
    dh: int
    dw: int
    pt: int
    pl: int
    group_ic: int

@dataclass(frozen=True, kw_only=True)
class CropParams(CStruct):
    level: int
    left: int
    top: int
    width: int
    height: int
    start: Sequence[int | str]
    across: Sequence[int | str]
    down: Sequence[int | str]

@dataclass(frozen=True, kw_only=True)
class DetectionParams(CStruct):
    boxes: int
    classes: int
    background: int
    most: int
    y_scale: float
    x_scale: float
    h_scale: float
    w_scale: float
    score: float
    overlap: float

@dataclass(frozen=True, kw_only=True)
class SuppressionParams(CStruct):
    boxes: int
    most: int
    overlap: float
    score: float

@dataclass(frozen=True, kw_only=True)
class Dwconv2dS8Params(CStruct):
    n: int
    ih: int
    iw: int
    ic: int
    oh: int
    ow: int
    oc: int
    kh: int
    kw: int
    sh: int
    sw: int
    dh: int
    dw: int
    pt: int
    pl: int
    columns: int
    slide: int
    plain: int
    any: int
    taps: int
    at: Table
    scale: Table
    w: Table
    lift: Table
    w_taps: Table
    tap: Table
    spread: Table
    x_zero: int
    y_zero: int
    low: int
    high: int

@dataclass(frozen=True, kw_only=True)
class Dwconv2dTapsS8Params(CStruct):
    c: int
    n: int
    ih: int
    iw: int
    oh: int
    ow: int
    kh: int
    kw: int
    sh: int
    sw: int
    dh: int
    dw: int
    pt: int
    pl: int
    low: int
    high: int
    groups: int
    sets: int
    flat: int
    step: int
    units: int
    by_units: int
    zeros: Table

@dataclass(frozen=True, kw_only=True)
class RequantParams(CStruct):
    x_zero: int
    w_zero: int
    y_zero: int
    low: int
    high: int
    multiplier: Table
    shift: Table

@dataclass(frozen=True, kw_only=True)
class FloatRequantParams(CStruct):
    x_zero: int
    w_zero: int
    y_zero: int
    low: int
    high: int
    scale: Table

@dataclass(frozen=True, kw_only=True)
class FrameParams(CStruct):
    format: int
    width: int
    height: int
    planes: Sequence[Table]
    strides: Sequence[int | str]

@dataclass(frozen=True, kw_only=True)
class GemmS8Params(CStruct):
    taps: int
    run: int
    step: int
    y_step: int
    finish: int | str
    w_zero: int
    x_zero: int
    y_zero: int
    low: int
    high: int
    n: int
    ih: int
    iw: int
    ic: int
    size: int
    oh: int
    ow: int
    windows: int
    sh: int
    dh: int
    pt: int
    pl: int
    kh: int
    tap_bytes: int
    gather: int
    gather_run: int
    x_step: int
    y_row: int
    y_image: int
    group_ic: int
    group_oc: int
    phase_h: int
    phase_w: int
    kw: int
    mr: int
    nr: int
    panel_bytes: int
    panels: int
    group_panels: int
    band: int
    cols: int
    by_panels: int
    element: int
    buffered: int
    slots: int
    slot_rows: int
    zero_rows: int
    slot_bytes: int
    gather_bytes: int
    scratch_bytes: int

@dataclass(frozen=True, kw_only=True)
class GridSampleParams(CStruct):
    n: int
    ih: int
    iw: int
    c: int
    pixels: int
    taps: int
    padding: int | str
    align: int

@dataclass(frozen=True, kw_only=True)
class LandmarksToTransformParams(CStruct):
    landmarks: int
    subset: int
    left: int
    right: int
    height: int
    width: int
    scale_x: float
    scale_y: float
    cosine: float
    sine: float

@dataclass(frozen=True, kw_only=True)
class TransformTensorParams(CStruct):
    ih: int
    iw: int
    c: int
    oh: int
    ow: int

@dataclass(frozen=True, kw_only=True)
class LstmParams(CStruct):
    steps: int
    batch: int
    inputs: int
    hidden: int
    x_mul: Table
    h_mul: Table
    x_shift: Table
    h_shift: Table
    out_mul: int
    out_shift: int
    out_zero: int
    cell_bits: int
    clip: int

@dataclass(frozen=True, kw_only=True)
class DoubleRequantParams(CStruct):
    x_zero: int
    w_zero: int
    y_zero: int
    low: int
    high: int
    scale: Table

@dataclass(frozen=True, kw_only=True)
class BatchMatmulParams(CStruct):
    dim: Sequence[int]
    a: Sequence[int]
    b: Sequence[int]
    m: int
    n: int
    k: int
    ar: int
    ac: int
    br: int
    bc: int

@dataclass(frozen=True, kw_only=True)
class StateParams(CStruct):
    input: int
    output: int
    initial: Table | CStruct

@dataclass(frozen=True, kw_only=True)
class InstanceNormParams(CStruct):
    n: int
    pixels: int
    c: int
    group: int
    eps: float

@dataclass(frozen=True, kw_only=True)
class LayerNormParams(CStruct):
    rows: int
    n: int
    eps: float

@dataclass(frozen=True, kw_only=True)
class PadParams(CStruct):
    value: float
    size: int
    dim: Sequence[int]
    stride: Sequence[int]
    offset: int

@dataclass(frozen=True, kw_only=True)
class PadFoldParams(CStruct):
    x_dim: Sequence[int]
    dim: Sequence[int]
    before: Sequence[int]
    mode: int | str

@dataclass(frozen=True, kw_only=True)
class PoolParams(CStruct):
    n: int
    ih: int
    iw: int
    c: int
    oh: int
    ow: int
    kh: int
    kw: int
    sh: int
    sw: int
    pt: int
    pl: int
    count_pads: int | None = None
    round_up: int | None = None
    pad: int | None = None
    scale: float | None = None
    shift: int | None = None
    factor: float | None = None
    low: float
    high: float

@dataclass(frozen=True, kw_only=True)
class AffineParams(CStruct):
    scale: float
    zero: int

@dataclass(frozen=True, kw_only=True)
class RescaleParams(CStruct):
    x_zero: int
    y_zero: int
    mul: int
    shift: int

@dataclass(frozen=True, kw_only=True)
class ReduceParams(CStruct):
    keep: Sequence[int]
    keep_stride: Sequence[int]
    red: Sequence[int]
    red_stride: Sequence[int]
    x_zero: int | None = None
    y_zero: int | None = None
    mul: int | None = None
    shift: int | None = None
    scale: float | None = None
    offset: float | None = None

@dataclass(frozen=True, kw_only=True)
class ResizeNearestParams(CStruct):
    n: int
    ih: int
    iw: int
    c: int
    oh: int
    ow: int
    rows: Table
    columns: Table

@dataclass(frozen=True, kw_only=True)
class ResizeBilinearRealParams(CStruct):
    n: int
    ih: int
    iw: int
    c: int
    oh: int
    ow: int
    y0: Table
    y1: Table
    fy: Table
    x0: Table
    x1: Table
    fx: Table

@dataclass(frozen=True, kw_only=True)
class ResizeBilinearFixedParams(CStruct):
    n: int
    ih: int
    iw: int
    c: int
    oh: int
    ow: int
    y0: Table
    y1: Table
    fy: Table
    x0: Table
    x1: Table
    fx: Table

@dataclass(frozen=True, kw_only=True)
class ResizeBilinearEvenParams(CStruct):
    n: int
    ih: int
    iw: int
    c: int
    oh: int
    ow: int
    y0: Table
    y1: Table
    fy: Table
    x0: Table
    x1: Table
    fx: Table
    zero: int
    scale: float

@dataclass(frozen=True, kw_only=True)
class ResizeCubicParams(CStruct):
    n: int
    ih: int
    iw: int
    c: int
    oh: int
    ow: int
    iy: Table
    wy: Table
    ix: Table
    wx: Table

@dataclass(frozen=True, kw_only=True)
class RoiAlignParams(CStruct):
    n: int
    ih: int
    iw: int
    c: int
    boxes: int
    oh: int
    ow: int
    ratio: int
    largest: int
    half: float
    scale: float

@dataclass(frozen=True, kw_only=True)
class RowBandsParams(CStruct):
    n: int
    ih: int
    iw: int
    oh: int
    ow: int
    kh: int
    sh: int
    dh: int
    pt: int
    x_row: int
    wide_row: int
    y_row: int
    rows: int
    ring: int
    kept: int
    between: int
    before: Kernel | str | None = None
    depthwise: Kernel | str | None = None
    after: Kernel | str | None = None
    before_layer: Table | CStruct | None = None
    depthwise_layer: Table | CStruct | None = None
    after_layer: Table | CStruct | None = None

@dataclass(frozen=True, kw_only=True)
class BandGemmS8Params(CStruct):
    w: Table | CStruct
    p: GemmS8Params
    kernel: Kernel | str

@dataclass(frozen=True, kw_only=True)
class BandDwconv2dS8Params(CStruct):
    p: Dwconv2dS8Params
    kernel: Kernel | str

@dataclass(frozen=True, kw_only=True)
class BandDwconv2dTapsS8Params(CStruct):
    w: Table | CStruct
    p: Dwconv2dTapsS8Params
    kernel: Kernel | str

@dataclass(frozen=True, kw_only=True)
class ScanParams(CStruct):
    outer: int
    n: int
    inner: int
    exclusive: int
    reverse: int

@dataclass(frozen=True, kw_only=True)
class TopkParams(CStruct):
    outer: int
    n: int
    inner: int
    k: int
    largest: int

@dataclass(frozen=True, kw_only=True)
class ElementsParams(CStruct):
    dim: Sequence[int]
    stride: Sequence[int]
    size: int
    step: int
    bytes: int
    total: int

@dataclass(frozen=True, kw_only=True)
class ScatterNdParams(CStruct):
    n: int
    k: int
    dim: Sequence[int]
    pitch: Sequence[int]
    row: int
    total: int

@dataclass(frozen=True, kw_only=True)
class GatherParams(CStruct):
    dim: Sequence[int]
    stride: Sequence[int]

@dataclass(frozen=True, kw_only=True)
class SoftmaxParams(CStruct):
    beta: float

@dataclass(frozen=True, kw_only=True)
class TakeParams(CStruct):
    outer: int
    dim: int
    n: int
    bytes: int

@dataclass(frozen=True, kw_only=True)
class TakeNdParams(CStruct):
    n: int
    k: int
    dim: Sequence[int]
    pitch: Sequence[int]
    bytes: int

@dataclass(frozen=True, kw_only=True)
class TransposeConv2dParams(CStruct):
    n: int
    ih: int
    iw: int
    ic: int
    oh: int
    ow: int
    oc: int
    kh: int
    kw: int
    sh: int
    sw: int
    pt: int
    pl: int

@dataclass(frozen=True, kw_only=True)
class CoefficientsParams(CStruct):
    a: float
    b: float | None = None

@dataclass(frozen=True, kw_only=True)
class BoundsParams(CStruct):
    low: int | str
    high: int | str

@dataclass(frozen=True, kw_only=True)
class UnsignedBoundsParams(CStruct):
    low: int | str
    high: int | str

@dataclass(frozen=True, kw_only=True)
class WarpMapParams(CStruct):
    start: Sequence[int | str]
    right: Sequence[int | str]
    down: Sequence[int | str]

@dataclass(frozen=True, kw_only=True)
class GemmS8PieceParams(CStruct):
    tap: int
    element: int

@dataclass(frozen=True, kw_only=True)
class AttentionStridesF32Params(CStruct):
    lead: Sequence[int]
    row: int

@dataclass(frozen=True, kw_only=True)
class AttentionF32Params(CStruct):
    dim: Sequence[int]
    m: int
    n: int
    depth: int
    width: int
    pitch: int
    block: int
    scale: float
    beta: float
    q: AttentionStridesF32Params
    k: AttentionStridesF32Params
    v: AttentionStridesF32Params
    y: AttentionStridesF32Params
    bias: AttentionStridesF32Params

@dataclass(frozen=True, kw_only=True)
class BinaryF32Params(CStruct):
    nd: BroadcastParams
    repeat: int
    low: float
    high: float

@dataclass(frozen=True, kw_only=True)
class ScaledSumParams(CStruct):
    a_high: int
    a_low: int
    b_high: int
    b_low: int
    bias: int
    rest: int

@dataclass(frozen=True, kw_only=True)
class SumS8Params(CStruct):
    nd: BroadcastParams
    repeat: int
    low: int
    high: int
    sum: ScaledSumParams

@dataclass(frozen=True, kw_only=True)
class FixedPointSumS8Params(CStruct):
    nd: BroadcastParams
    repeat: int
    a_zero: int
    b_zero: int
    y_zero: int
    low: int
    high: int
    a_mul: int
    a_shift: int
    b_mul: int
    b_shift: int
    y_mul: int
    y_shift: int
    sign: int

@dataclass(frozen=True, kw_only=True)
class ExtremumS8Params(CStruct):
    nd: BroadcastParams
    repeat: int
    low: int
    high: int

@dataclass(frozen=True, kw_only=True)
class ProductS8Params(CStruct):
    nd: BroadcastParams
    repeat: int
    a_zero: int
    b_zero: int
    y_zero: int
    low: int
    high: int
    mul: int
    shift: int

@dataclass(frozen=True, kw_only=True)
class ChainStepF32Params(CStruct):
    op: int | str
    a: int
    b: int
    y: int
    low: float
    high: float
    k: Table | None = None
    bias: Table | None = None
    function: Kernel | str | int | None = None
    coef: CoefficientsParams | None = None

@dataclass(frozen=True, kw_only=True)
class ChainF32Params(CStruct):
    n: int
    block: int
    steps: int
    step: Sequence[ChainStepF32Params]

@dataclass(frozen=True, kw_only=True)
class Dwconv2dF32Params(CStruct):
    n: int
    ih: int
    iw: int
    oh: int
    ow: int
    kh: int
    kw: int
    sh: int
    sw: int
    dh: int
    dw: int
    pt: int
    pl: int
    ic: int
    c: int
    yx: int
    apart: int
    cols: int
    chunk: int
    ring: int
    by_channels: int
    touch: int
    todo: int
    low: float
    high: float
    low_sum: float
    high_sum: float
    after: Kernel | str | int
    coef: CoefficientsParams

@dataclass(frozen=True, kw_only=True)
class GemmF32Params(CStruct):
    n: int
    ih: int
    iw: int
    ic: int
    oh: int
    ow: int
    oc: int
    kh: int
    kw: int
    sh: int
    sw: int
    dh: int
    dw: int
    pt: int
    pl: int
    group_ic: int
    yx: int
    yy: int | None = None
    yn: int | None = None
    tile: int
    block: int
    panels: int
    by_panel: int
    touch: int
    blocks: int
    last: int | None = None
    todo: int
    low: float
    high: float
    low_sum: float
    high_sum: float
    after: Kernel | str | int
    coef: CoefficientsParams

@dataclass(frozen=True, kw_only=True)
class NarrowConv2dF32Params(CStruct):
    p: GemmF32Params
    oh: int
    ow: int
    oc: int
    kw: int
    dw: int
    pl: int
    yx: int
    cols: int
    products: int
    clamps: int
    low: float
    high: float
    after: Kernel | str | int
    coef: CoefficientsParams

@dataclass(frozen=True, kw_only=True)
class NormEpilogueF32Params(CStruct):
    low: float
    high: float
    low_sum: float
    high_sum: float

@dataclass(frozen=True, kw_only=True)
class ResizeDyadicParams(CStruct):
    n: int
    ih: int
    iw: int
    c: int
    oh: int
    ow: int
    y0: Table
    y1: Table
    fy: Table
    x0: Table
    x1: Table
    fx: Table
    bits: int

@dataclass(frozen=True, kw_only=True)
class BandGemmF32Params(CStruct):
    w: Table
    bias: Table
    slope: Table | int
    p: GemmF32Params
    tile: Kernel | str
    tail: Kernel | str

@dataclass(frozen=True, kw_only=True)
class BandDwconv2dF32Params(CStruct):
    w: Table
    bias: Table
    slope: Table | int
    p: Dwconv2dF32Params
    tile: Kernel | str

@dataclass(frozen=True, kw_only=True)
class SparseF32Params(CStruct):
    pixels: int
    ic: int
    oc: int
    yx: int
    todo: int
    low: float
    high: float
    low_sum: float
    high_sum: float
    after: Kernel | str | int
    coef: CoefficientsParams

@dataclass(frozen=True, kw_only=True)
class OffsetS8Params(CStruct):
    flip: int
    add: int
    low: int
    high: int

@dataclass(frozen=True, kw_only=True)
class AffineS8Params(CStruct):
    scale: float
    zero: int
    flip: int

@dataclass(frozen=True, kw_only=True)
class WinogradF32Params(CStruct):
    n: int
    ih: int
    iw: int
    ic: int
    oh: int
    ow: int
    oc: int
    dh: int
    dw: int
    pt: int
    pl: int
    yx: int
    yy: int
    yn: int
    down: int
    across: int
    apart_v: int
    apart_s: int
    q: Sequence[float]
    m: int
    rows: int
    block: int
    panels: int
    by_panel: int
    touch: int
    todo: int
    low: float
    high: float
    low_sum: float
    high_sum: float
    after: Kernel | str | int
    coef: CoefficientsParams

@dataclass(frozen=True, kw_only=True)
class WinogradF32AtParams(CStruct):
    image: int
    iy: int
    ix: int
    oy: int
    ox: int
    rows: int
    cols: int
