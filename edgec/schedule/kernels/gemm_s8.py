"""Dense int8 convolutions, transposed ones and fully connected layers as one GEMM.

The kernels of csrc/ek_gemm_s8.h multiply the windows of an image (M rows of K elements)
by packed panels of weights (K x N); each instruction set has its own tiles of MR windows
and NR channels (edgec/schedule/gemm_s8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgec.ir import (
    Array,
    Kernel,
    KernelCall,
    KernelRounding,
    Pointer,
    Scratch,
    Table,
    constant,
)
from edgec.ir.c_structs import (
    Conv2dParams,
    DoubleRequantParams,
    FloatRequantParams,
    RequantParams,
    TransposeConv2dParams,
)
from edgec.ops.conv import CONV2D, DEPTHWISE_CONV2D
from edgec.ops.matmul import FULLY_CONNECTED
from edgec.ops.transpose_conv import TRANSPOSE_CONV2D
from edgec.schedule.cores import Core
from edgec.schedule.gemm_s8.avx2 import AVX2
from edgec.schedule.gemm_s8.dot import DOT
from edgec.schedule.gemm_s8.neon import LANES, NEON, TWOS
from edgec.schedule.gemm_s8.panels import GemmTileSet, Requant, pack
from edgec.schedule.gemm_s8.vnni import VNNI
from edgec.schedule.gemm_s8.walk import GemmSchedule, gemm_schedules, kernel_parameters
from edgec.schedule.gemm_s8.windows import GemmS8Shape
from edgec.schedule.variant import Schedule, Variant
from edgec.schedule.views import concat_slot

TILE_SETS = (DOT, LANES, NEON, TWOS, VNNI, AVX2)
"""The tiles of each instruction set, the preferred first."""

_ROUNDINGS = (KernelRounding.TFLITE, KernelRounding.EVEN)
DEPTHWISE_S8 = tuple(DEPTHWISE_CONV2D.of("s8", rounding) for rounding in _ROUNDINGS)
"""The plain int8 kernels of depthwise convolutions."""


@dataclass(frozen=True, eq=False)
class _Int8Layer:
    """An int8 layer with constant weights.

    Attributes:
        x: the image
        weights: [o, kh, kw, depth]
        bias: [o]
        y: where the result goes
        pitch: bytes from pixel to pixel of the result
    """

    x: Pointer
    weights: Array
    bias: Array
    y: Pointer
    pitch: int


def _layer(call: KernelCall) -> _Int8Layer | None:
    """Return the layer; None where its weights are computed, or another call follows.

    A copy into a part of a concat may follow: the layer then writes there.
    """
    weights = constant(call.operands[1])
    bias = constant(call.operands[2])
    x = call.operands[0]
    y = call.operands[3]
    assert isinstance(x, Pointer)
    assert isinstance(y, Pointer)
    if weights is None or bias is None or len(call.then) > 1:
        return None

    slot: tuple[Pointer, int] | None = (y, y.value.type.shape[-1])
    if call.then:
        slot = concat_slot(call.then[0], y.value)
    if slot is None:
        return None

    c = _shape(call)
    if call.kernel in FULLY_CONNECTED:
        by_channel = weights.reshape(c.oc, 1, 1, c.ic)
    else:
        by_channel = weights.reshape(c.kh, c.kw, c.depth, c.oc).transpose(3, 0, 1, 2)

    place, pitch = slot
    return _Int8Layer(x, by_channel, bias, place, pitch)


def _shape(call: KernelCall) -> GemmS8Shape:
    """Return the windows that a call goes through, as those of a convolution.

    A depthwise convolution has a group for each input channel.
    """
    # Each row of the matrix is a window of one pixel.
    if call.kernel in FULLY_CONNECTED:
        rows, depth, out_channels = (n for n in call.operands if isinstance(n, int))
        return GemmS8Shape(n=1, ih=1, iw=rows, ic=depth, oh=1, ow=rows, oc=out_channels)

    if call.kernel in TRANSPOSE_CONV2D:
        # Each phase of the stride is a convolution of stride 1.
        c = GemmS8Shape.of(call.struct(TransposeConv2dParams))
        return replace(c, phases=(c.sh, c.sw), sh=1, sw=1)

    return GemmS8Shape.of(call.struct(Conv2dParams))


def requant(call: KernelCall) -> Requant:
    """Return how the int32 sums of a layer become int8."""
    fixed_point = call.optional_struct(RequantParams)
    if fixed_point is not None:
        multiplier = fixed_point.multiplier.array
        return _requant(fixed_point, multiplier, fixed_point.shift.array)

    # Fully connected layers of TFLite have scales in double, onnxruntime's in float.
    scales: DoubleRequantParams | FloatRequantParams | None
    scales = call.optional_struct(FloatRequantParams)
    if scales is None:
        scales = call.struct(DoubleRequantParams)

    return _requant(scales, scale=scales.scale.array)


def _requant(
    p: RequantParams | FloatRequantParams | DoubleRequantParams,
    multiplier: Array | None = None,
    shift: Array | None = None,
    scale: Array | None = None,
) -> Requant:
    """Return the requantization of a struct, with the factors that it has."""
    return Requant(
        p.x_zero, p.w_zero, p.y_zero, p.low, p.high, multiplier, shift, scale
    )


def _schedules(tiles: GemmTileSet, call: KernelCall, core: Core) -> Sequence[Schedule]:
    """Return the tiles and the orders of loops, the best by analysis first."""
    if _layer(call) is None:
        return []

    # Depthwise convolutions with one result for each channel have kernels of their own.
    c = _shape(call)
    if call.kernel in DEPTHWISE_CONV2D and c.oc == c.ic > 1:
        return []

    q = requant(call)
    if not tiles.accepts(c, q, core):
        return []

    return [s.schedule for s in gemm_schedules(c, tiles.usable(q), core)]


def _apply(tiles: GemmTileSet, call: KernelCall, schedule: Schedule) -> KernelCall:
    """Return the call with packed panels, and scratch for its buffers."""
    c = _shape(call)
    q = requant(call)
    layer = _layer(call)
    assert layer is not None

    gemm = GemmSchedule(**schedule)
    tile = gemm.tile(tiles.usable(q))
    panels = pack(c, layer.weights, layer.bias.astype(np.int32), q, tiles, tile)
    p = kernel_parameters(c, q, tile, gemm, panels, layer.pitch)

    symbol = tiles.function(tile, q.w_zero, panels.finish)
    kernel = Kernel("gemm", tiles.header, symbol=symbol)
    weights = Table(panels.array, "w")
    operands = (layer.x, weights, layer.y, p, Scratch(p.scratch_bytes))
    return KernelCall(kernel, (*operands, 0, 1))


def _variant(of: Kernel, tiles: GemmTileSet) -> Variant:
    """Return the variant of a plain kernel by the tiles of an instruction set."""
    return Variant(
        of,
        f"ek_gemm_s8_{tiles.suffix}",
        tiles.isa,
        lambda call, core: _schedules(tiles, call, core),
        lambda call, core, schedule: _apply(tiles, call, schedule),
        fuses=True,
    )


VARIANTS = [
    _variant(family.of("s8", rounding), tiles)
    for tiles in TILE_SETS
    for family in (CONV2D, DEPTHWISE_CONV2D, TRANSPOSE_CONV2D, FULLY_CONNECTED)
    for rounding in _ROUNDINGS
]
