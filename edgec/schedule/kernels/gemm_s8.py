"""Dense int8 convolutions, transposed ones and fully connected layers by
csrc/ek_gemm_s8.h, for each ISA with tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgec.ir import (
    Array,
    Kernel,
    KernelCall,
    KernelRounding,
    Pointer,
    Scratch,
    Struct,
    Table,
    constant,
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

ISAS = (DOT, LANES, NEON, TWOS, VNNI, AVX2)
"""GemmTileSet, the preferred first."""

_ROUNDINGS = (KernelRounding.TFLITE, KernelRounding.EVEN)
DEPTHWISE_S8 = tuple(DEPTHWISE_CONV2D.of("s8", rounding) for rounding in _ROUNDINGS)
"""The plain int8 kernels of depthwise convolutions."""


def geometry(call: KernelCall) -> GemmS8Shape:
    """What a call of ek_conv2d_s8, ek_transpose_conv2d_s8 or ek_fully_connected_s8 goes
    through; ek_dwconv2d_s8, which has a group for each input channel, too; and of those
    that round otherwise (ek_conv2d_even_s8).
    """
    if call.kernel in FULLY_CONNECTED:
        rows, k, o = (x for x in call.operands if isinstance(x, int))
        return GemmS8Shape(n=1, ih=1, iw=rows, ic=k, oh=1, ow=rows, oc=o)
    if call.kernel in CONV2D or call.kernel in DEPTHWISE_CONV2D:
        return GemmS8Shape.of(call.struct("ek_conv2d_t"))
    c = GemmS8Shape.of(call.struct("ek_transpose_conv2d_t"))
    return replace(c, phases=(c.sh, c.sw), sh=1, sw=1)


def _weights(call: KernelCall, c: GemmS8Shape) -> Array | None:
    """[o, kh, kw, depth]; None when they are computed."""
    array = constant(call.operands[1])
    if array is None or call.kernel in FULLY_CONNECTED:
        return None if array is None else array.reshape(c.oc, 1, 1, c.ic)
    return array.reshape(c.kh, c.kw, c.depth, c.oc).transpose(3, 0, 1, 2)


def requant(call: KernelCall) -> Requant:
    """The last operand."""
    last = call.operands[-1]
    assert isinstance(last, Struct)
    numbers = (last.number(n) for n in ("x_zero", "w_zero", "y_zero", "low", "high"))
    multiplier, shift, scale = (
        last.table(n) if n in last.fields else None
        for n in ("multiplier", "shift", "scale")
    )
    x_zero, w_zero, y_zero, low, high = numbers
    return Requant(x_zero, w_zero, y_zero, low, high, multiplier, shift, scale)


def _result(call: KernelCall) -> tuple[Pointer, int] | None:
    """Where the result goes, and bytes from pixel to pixel there; None if something
    else is to follow.
    """
    y = call.operands[3]
    assert isinstance(y, Pointer)
    if not call.then:
        return y, y.value.type.shape[-1]
    return concat_slot(call.then[0], y.value) if len(call.then) == 1 else None


def _schedules(tiles: GemmTileSet, call: KernelCall, core: Core) -> Sequence[Schedule]:
    if constant(call.operands[1]) is None or constant(call.operands[2]) is None:
        return []
    if _result(call) is None:
        return []
    c = geometry(call)
    if call.kernel in DEPTHWISE_CONV2D and c.oc == c.ic > 1:
        return []
    q = requant(call)
    if tiles.accepts(c, q, core):
        return [w.schedule for w in gemm_schedules(c, tiles.usable(q), core)]
    return []


def _apply(tiles: GemmTileSet, call: KernelCall, schedule: Schedule) -> KernelCall:
    c = geometry(call)
    q = requant(call)
    walk = GemmSchedule(**schedule)
    weights = _weights(call, c)
    bias = constant(call.operands[2])
    assert weights is not None
    assert bias is not None
    tile = walk.tile(tiles.usable(q))
    panels = pack(c, weights, bias.astype(np.int32), q, tiles, tile)
    result = _result(call)
    assert result is not None
    params = kernel_parameters(c, q, tile, walk, panels, result[1])
    x = call.operands[0]
    y = result[0]
    symbol = tiles.function(tile, q.w_zero, panels.finish)
    kernel = Kernel("gemm", tiles.header, symbol=symbol)
    scratch = Scratch(params.number("scratch_bytes"))
    return KernelCall(kernel, (x, Table(panels.array, "w"), y, params, scratch, 0, 1))


def _variant(of: Kernel, tiles: GemmTileSet) -> Variant:
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
    for tiles in ISAS
    for family in (CONV2D, DEPTHWISE_CONV2D, TRANSPOSE_CONV2D, FULLY_CONNECTED)
    for rounding in _ROUNDINGS
]
