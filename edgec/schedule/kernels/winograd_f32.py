"""Dense 3x3 float convolutions of stride 1 by Winograd's transforms.

Lavin & Gray 2016, arXiv:1509.09308. The tilings and their costs are in
gemm_f32/winograd.py, the kernel is csrc/simd/ek_winograd_f32_simd.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import sqrt

from edgec.ir import Kernel, KernelCall, Scratch, Table
from edgec.ir.c_structs import Conv2dParams, WinogradF32Params
from edgec.ops.conv import CONV2D
from edgec.schedule.cores import Core
from edgec.schedule.gemm_f32.layer import float_layer
from edgec.schedule.gemm_f32.windows import GemmF32Shape, last_vectors
from edgec.schedule.gemm_f32.winograd import (
    POINT_SQUARES,
    WinogradTiling,
    is_worthwhile,
    pack,
    winograd_tilings,
)
from edgec.schedule.liveness import STACK_BYTES
from edgec.schedule.variant import Schedule, Variant

_KERNEL = Kernel("winograd", "simd/ek_winograd_f32_simd.h", "f32", isa="simd")


def _shape(call: KernelCall) -> GemmF32Shape:
    """Return the sizes of the convolution."""
    return GemmF32Shape.of(call.struct(Conv2dParams))


def _schedules(call: KernelCall, core: Core) -> Sequence[Schedule]:
    """Return the tilings whose scratch memory fits, the best by analysis first."""
    c = _shape(call)
    if (c.kh, c.kw, c.sh, c.sw, c.groups) != (3, 3, 1, 1, 1):
        return []
    if float_layer(call) is None:
        return []

    # Scratch up to this size is on the stack, whatever room the arena has.
    room = None if core.room is None else max(core.room, STACK_BYTES)
    lanes = core.vector // 4
    schedules: list[Schedule] = []
    for tiling in winograd_tilings(c, core):
        # Larger tiles multiply rounding errors, which a float16 network may not afford.
        most = core.winograd_f16 if call.is_float16 else None
        if most is not None and tiling.m > most:
            continue
        if room is None or 4 * tiling.floats(c, lanes) <= room:
            schedules.append(asdict(tiling))

    return schedules


def _leads(call: KernelCall, core: Core) -> bool:
    """Return whether the best tiling saves enough against direct convolution."""
    schedules = _schedules(call, core)
    if not schedules:
        return False

    return is_worthwhile(_shape(call), WinogradTiling(**schedules[0]), core)


def _apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
    """Return the call with transformed weights."""
    c = _shape(call)
    t = WinogradTiling(**schedule)
    layer = float_layer(call)
    assert layer is not None

    lanes = core.vector // 4
    squares = POINT_SQUARES[t.m]
    pitch = layer.epilogue.pitch or c.oc
    down, across = t.counts(c)
    apart_v, apart_s = t.apart(c, lanes)
    p = WinogradF32Params(
        n=c.n,
        ih=c.ih,
        iw=c.iw,
        ic=c.ic,
        oh=c.oh,
        ow=c.ow,
        oc=c.oc,
        dh=c.dh,
        dw=c.dw,
        pt=c.pt,
        pl=c.pl,
        yx=pitch,
        yy=c.ow * pitch,
        yn=c.oh * c.ow * pitch,
        down=down,
        across=across,
        apart_v=apart_v,
        apart_s=apart_s,
        q=(*map(sqrt, squares), *squares),
        **asdict(t),
        **layer.epilogue.fields(),
    )

    # Images of fewer channels than a vector has floats need a transform of their own.
    few = "_few" if c.ic < lanes else ""
    tail = last_vectors(c.oc, lanes)
    functions = (
        f"ek_winograd_f32_in_{t.m}{few}",
        f"ek_winograd_f32_out_{t.m}",
        f"ek_tile_f32_{t.rows}x2",
        f"ek_tile_f32_{t.rows}x{tail}",
    )
    weights = layer.weights.reshape(3, 3, c.ic, c.oc)
    operands = (
        layer.x,
        Table(pack(weights, t.m, lanes), "w"),
        layer.padded_bias(1, lanes),
        layer.padded_slope(1, lanes),
        layer.added,
        layer.epilogue.y,
        Scratch(4 * t.floats(c, lanes)),
        p,
        *functions,
    )
    return KernelCall(_KERNEL, (*operands, 0, 1))


VARIANTS = [
    Variant(
        CONV2D.of("f32"),
        _KERNEL.name,
        frozenset({feature}),
        _schedules,
        _apply,
        fuses=True,
        leads=_leads,
    )
    for feature in ("neon", "avx2")
]
