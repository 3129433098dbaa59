"""Dense 3x3 float convolutions of stride 1 by csrc/simd/ek_winograd_f32_simd.h."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import sqrt

from edgec.ir import Kernel, KernelCall, Scratch, Struct, Table, constant
from edgec.ops.conv import CONV2D
from edgec.schedule.cores import Core
from edgec.schedule.gemm_f32.epilogue import epilogue
from edgec.schedule.gemm_f32.windows import GemmF32Shape, last_vectors, pad_channels
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


def _windows(call: KernelCall) -> GemmF32Shape:
    return GemmF32Shape.of(call.struct("ek_conv2d_t"))


def _schedules(call: KernelCall, core: Core) -> Sequence[Schedule]:
    c = _windows(call)
    if (
        constant(call.operands[1]) is None
        or constant(call.operands[2]) is None
        or epilogue(call) is None
    ):
        return []
    if (c.kh, c.kw, c.sh, c.sw, c.groups) != (3, 3, 1, 1, 1):
        return []
    room = None if core.room is None else max(core.room, STACK_BYTES)
    lanes = core.vector // 4
    return [
        asdict(t)
        for t in winograd_tilings(c, core)
        if room is None or 4 * t.floats(c, lanes) <= room
    ]


def _leads(call: KernelCall, core: Core) -> bool:
    first = next(iter(_schedules(call, core)), None)
    return first is not None and is_worthwhile(
        _windows(call), WinogradTiling(**first), core
    )


def _apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
    c = _windows(call)
    t = WinogradTiling(**schedule)
    done = epilogue(call)
    w = constant(call.operands[1])
    bias = constant(call.operands[2])
    assert done is not None
    assert w is not None
    assert bias is not None
    lanes = core.vector // 4
    names = ("n", "ih", "iw", "ic", "oh", "ow", "oc", "dh", "dw", "pt", "pl")
    squares, pitch, (down, across) = POINT_SQUARES[t.m], done.pitch or c.oc, t.counts(c)
    apart_v, apart_s = t.apart(c, lanes)
    p = Struct(
        "ek_winograd_f32_t",
        **{name: getattr(c, name) for name in names},
        yx=pitch,
        yy=c.ow * pitch,
        yn=c.oh * c.ow * pitch,
        down=down,
        across=across,
        apart_v=apart_v,
        apart_s=apart_s,
        q=(*map(sqrt, squares), *squares),
        **asdict(t),
        **done.fields(),
    )
    slope = 0 if done.slope is None else Table(pad_channels(done.slope, 1, lanes), "s")
    packed = pack(w.reshape(3, 3, c.ic, c.oc), t.m, lanes)
    few = "_few" * (c.ic < lanes)
    tail = last_vectors(c.oc, lanes)
    return KernelCall(
        _KERNEL,
        (
            call.operands[0],
            Table(packed, "w"),
            Table(pad_channels(bias, 1, lanes), "b"),
            slope,
            done.added or 0,
            done.y,
            Scratch(4 * t.floats(c, lanes)),
            p,
            f"ek_winograd_in_{t.m}{few}",
            f"ek_winograd_out_{t.m}",
            f"ek_tile_f32_{t.rows}x2",
            f"ek_tile_f32_{t.rows}x{tail}",
            0,
            1,
        ),
    )


VARIANTS = [
    Variant(
        CONV2D.of("f32"),
        _KERNEL.name,
        frozenset({feature}),
        _schedules,
        _apply,
        True,
        _leads,
    )
    for feature in ("neon", "avx2")
]
