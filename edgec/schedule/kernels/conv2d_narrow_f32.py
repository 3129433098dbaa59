"""Dense float convolutions to few channels by csrc/simd/ek_narrow_conv2d_f32_simd.h."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np

from edgec.ir import Kernel, KernelCall, Scratch, Struct, Table, constant
from edgec.ops.conv import CONV2D
from edgec.schedule.cores import Core
from edgec.schedule.gemm_f32.epilogue import CLAMPS, Epilogue, epilogue
from edgec.schedule.gemm_f32.windows import (
    Blocking,
    GemmF32Shape,
    blockings,
    last_vectors,
    pack,
    pad_channels,
)
from edgec.schedule.liveness import STACK_BYTES
from edgec.schedule.variant import Schedule, Variant

_KERNEL = Kernel("narrow_conv2d", "simd/ek_narrow_conv2d_f32_simd.h", "f32", isa="simd")

_GAIN = 1.3
"""Times as many multiplications as the products take, for it to pay that they are
stored and added.
"""
_DEPTH = 16
"""Multiplications of a product, at least."""


def _windows(call: KernelCall) -> GemmF32Shape:
    return GemmF32Shape.of(call.struct("ek_conv2d_t"))


def _column(c: GemmF32Shape, cols: int) -> GemmF32Shape:
    """The convolution by a single column, of what a block of so many pixels needs."""
    wide = min(cols + (c.kw - 1) * c.dw, c.iw)
    return replace(c, n=1, oh=1, ow=wide, oc=c.kw * c.oc, kw=1, dw=1, pl=0)


def _result(call: KernelCall) -> Epilogue | None:
    done = epilogue(call)
    return done if done is not None and not done.todo & ~CLAMPS else None


def _pays(c: GemmF32Shape, core: Core) -> bool:
    """Whether vectors of products are so much fuller, and there is something to
    multiply.
    """
    lanes = core.vector // 4
    products = -(-c.kw * c.oc // lanes) * c.iw
    direct = c.kw * -(-c.oc // lanes) * c.ow
    return c.kh * c.ic >= _DEPTH and _GAIN * products <= direct


def _cols(c: GemmF32Shape, core: Core) -> int:
    """Pixels of a block whose products the stack holds."""
    room = STACK_BYTES // 2 // 4 // (c.kw * c.oc) - (c.kw - 1) * c.dw
    blocks = -(-c.ow // max(room, 4 * c.kw))
    return -(-c.ow // blocks)


def _schedules(call: KernelCall, core: Core) -> Sequence[Schedule]:
    c = _windows(call)
    if (
        constant(call.operands[1]) is None
        or constant(call.operands[2]) is None
        or _result(call) is None
    ):
        return []
    if c.sw != 1 or c.groups > 1 or not _pays(c, core):
        return []
    cols = _cols(c, core)
    found = dict.fromkeys(
        replace(w, by_panel=0, touch=0) for w in blockings(_column(c, cols), core)
    )
    return [{**asdict(w), "cols": cols} for w in found]


def _apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
    c = _windows(call)
    done = _result(call)
    cols = schedule["cols"]
    w = constant(call.operands[1])
    bias = constant(call.operands[2])
    assert done is not None
    assert w is not None
    assert bias is not None
    lanes = core.vector // 4
    one = _column(c, cols)
    walk = Blocking(
        **{name: value for name, value in schedule.items() if name != "cols"}
    )
    products = -(-(one.ow * one.oc + lanes) // 16) * 16
    patch = c.kh * max(walk.tile, walk.block) * c.ic
    fields = {
        **asdict(replace(one, n=c.n)),
        "yx": one.oc,
        **asdict(walk),
        **Epilogue(done.y).fields(),
    }
    own = {f"p.{name}": value for name, value in fields.items()}
    low, high, *_ = done.bounds
    struct = Struct(
        "ek_narrow_conv2d_f32_t",
        **own,
        oh=c.oh,
        ow=c.ow,
        oc=c.oc,
        kw=c.kw,
        dw=c.dw,
        pl=c.pl,
        yx=done.pitch or c.oc,
        cols=cols,
        products=products,
        clamps=int(done.todo > 0),
        low=low,
        high=high,
        after=done.after or 0,
        coef=done.coefficients,
    )
    # [kh, 1, ic, kw * oc]: the columns beside each other, as channels
    side = (
        w.reshape(c.kh, c.kw, c.ic, c.oc)
        .transpose(0, 2, 1, 3)
        .reshape(c.kh, 1, c.ic, one.oc)
    )
    zeros = np.zeros(one.oc, np.float32)
    tail = last_vectors(one.oc, lanes)
    return KernelCall(
        _KERNEL,
        (
            call.operands[0],
            Table(pack(side, 1, lanes), "w"),
            Table(pad_channels(zeros, 1, lanes), "z"),
            Table(pad_channels(bias, 1, lanes), "b"),
            done.y,
            Scratch(4 * (products + patch)),
            struct,
            f"ek_tile_f32_{walk.tile}x2",
            f"ek_tile_f32_{walk.tile}x{tail}",
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
        fuses=True,
    )
    for feature in ("neon", "avx2")
]
