"""Dense float convolutions, transposed ones and fully connected layers by
csrc/simd/ek_gemm_f32_simd.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np

from edgec.ir import Array, Kernel, KernelCall, Scratch, Struct, Table, constant
from edgec.ops.conv import CONV2D, DEPTHWISE_CONV2D
from edgec.ops.matmul import FULLY_CONNECTED
from edgec.ops.transpose_conv import TRANSPOSE_CONV2D
from edgec.schedule.cores import Core
from edgec.schedule.gemm_f32.epilogue import MIN_FUNCTION_FLOATS, Epilogue, epilogue
from edgec.schedule.gemm_f32.windows import (
    Blocking,
    GemmF32Shape,
    blockings,
    last_vectors,
    pack,
    pad_channels,
    transposed_phases,
)
from edgec.schedule.variant import Schedule, Variant

_HEADER = "simd/ek_gemm_f32_simd.h"
_KERNEL = Kernel("gemm", _HEADER, "f32", isa="simd")
_TRANSPOSED = Kernel("transpose_conv2d", _HEADER, "f32", isa="simd")

_FEWEST = 3
"""Channels of a group, of several, that pay for a tile, however many it has room for."""


def _merged(c: GemmF32Shape, lanes: int) -> GemmF32Shape:
    """As many groups in one as a vector has room for the results of.

    A result takes as many products more as there are results more of one product, and
    one tile does what several did.
    """
    most = max(1, lanes // (c.oc // c.groups))
    return replace(
        c, group_ic=c.group_ic * max(m for m in range(1, most + 1) if c.groups % m == 0)
    )


def _transposed(call: KernelCall) -> GemmF32Shape:
    """Sizes of a transposed convolution.

    Those of one whose results of a row are more channels instead, where each input
    makes a run of them alone.
    """
    c = GemmF32Shape.of(call.struct("ek_transpose_conv2d_t"))
    done = epilogue(call)
    if c.kw != c.sw or c.pl or c.ow != c.iw * c.sw or (done and done.pitch):
        return c
    return replace(c, kw=1, sw=1, ow=c.iw, oc=c.oc * c.sw)


def _crosses(call: KernelCall) -> bool:
    """Whether windows of a transposed convolution lie partly, or by a whole pixel,
    beside the image.
    """
    if call.kernel not in TRANSPOSE_CONV2D:
        return False
    c = _transposed(call)
    even = (c.kh, c.kw) == (c.sh, c.sw) and (c.oh, c.ow) == (c.ih * c.sh, c.iw * c.sw)
    return not even or bool(c.pt or c.pl)


def windows(call: KernelCall, lanes: int) -> GemmF32Shape:
    """What the call goes through by vectors of so many floats; a transposed convolution
    as the plain one of its widest phase.
    """
    if call.kernel in FULLY_CONNECTED:
        rows, k, o = (x for x in call.operands if isinstance(x, int))
        return GemmF32Shape(1, 1, rows, k, 1, rows, o, group_ic=k)
    if call.kernel in TRANSPOSE_CONV2D:
        c = _transposed(call)
        kh = -(-c.kh // c.sh)
        kw = -(-c.kw // c.sw)
        oh = -(-c.oh // c.sh)
        ow = -(-c.ow // c.sw)
        return replace(
            c,
            kh=kh,
            kw=kw,
            oh=oh,
            ow=ow,
            sh=1,
            sw=1,
            pt=kh - 1,
            pl=kw - 1,
            group_ic=c.ic,
        )
    return _merged(GemmF32Shape.of(call.struct("ek_conv2d_t")).flattened(), lanes)


def _weights(call: KernelCall, lanes: int) -> Array | None:
    """[kh, kw, group_ic, oc]; None when they are computed."""
    w = constant(call.operands[1])
    c = windows(call, lanes)
    if w is None:
        return w
    if call.kernel in TRANSPOSE_CONV2D:
        if w.shape[3] < c.oc:
            return w.transpose(0, 2, 1, 3).reshape(w.shape[0], 1, c.ic, c.oc)
        return w
    if call.kernel in FULLY_CONNECTED:
        return w.reshape(c.oc, c.ic).T.reshape(1, 1, c.ic, c.oc)
    w = w.reshape(c.kh, c.kw, -1, c.oc)
    return _among(w, c.group_ic // w.shape[2], c.oc // c.groups)


def _among(w: Array, merged: int, results: int) -> Array:
    """The weights [kh, kw, ic, oc] of groups, so many of which are merged: zeros for
    the channels of the others.
    """
    own = np.arange(w.shape[3]) % results // (results // merged)
    parts = [np.where(own == m, w, 0) for m in range(merged)]
    return np.concatenate(parts, axis=2)


def _result(call: KernelCall, lanes: int) -> Epilogue | None:
    c = windows(call, lanes)
    done = epilogue(call)
    together = c.groups == 1 and (
        call.kernel not in TRANSPOSE_CONV2D or _transposed(call).sw == 1
    )
    if (
        done is None
        or not done.after
        or together
        or c.oc // c.groups >= MIN_FUNCTION_FLOATS
    ):
        return done
    return None


def _schedules(call: KernelCall, core: Core) -> Sequence[Schedule]:
    lanes = core.vector // 4
    c = windows(call, lanes)
    if (
        constant(call.operands[1]) is None
        or constant(call.operands[2]) is None
        or _result(call, lanes) is None
    ):
        return []
    if call.kernel in DEPTHWISE_CONV2D and c.ic > 1:
        return []
    if c.groups > 1 and c.oc // c.groups < _FEWEST:
        return []
    return [asdict(w) for w in blockings(c, core)]


def _apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
    lanes = core.vector // 4
    c = windows(call, lanes)
    walk = Blocking(**schedule)
    done = _result(call, lanes)
    w = _weights(call, lanes)
    bias = constant(call.operands[2])
    assert done is not None
    assert w is not None
    assert bias is not None
    slope = done.slope
    if call.kernel in TRANSPOSE_CONV2D:
        oc = _transposed(call).oc
        bias = np.resize(bias, oc)
        slope = None if slope is None else np.resize(slope, oc)
    patch = 4 * (
        c.padded(walk.block) if _crosses(call) else c.patch(walk.tile, walk.block)
    )
    if call.kernel in TRANSPOSE_CONV2D:
        t = _transposed(call)
        packed = np.concatenate(
            [
                pack(part, 1, lanes)
                for part in transposed_phases(w, (t.sh, t.sw), (t.pt, t.pl))
            ]
        )
        shape = {**asdict(t), "group_ic": c.ic}
        kernel = _TRANSPOSED
        kind = done.tile_suffix + (c.known if (t.kh, t.kw) == (t.sh, t.sw) else "")
    else:
        packed = pack(w, c.groups, lanes)
        shape = asdict(c)
        kernel = _KERNEL
        kind = done.tile_suffix + c.known
    pitch = done.pitch or c.oc
    apart = {
        "yx": pitch,
        "yy": shape["ow"] * pitch,
        "yn": shape["oh"] * shape["ow"] * pitch,
    }
    p = Struct("ek_gemm_f32_t", **shape, **apart, **asdict(walk), **done.fields())
    slopes = 0 if slope is None else Table(pad_channels(slope, c.groups, lanes), "s")
    tail = last_vectors(c.oc // c.groups, lanes)
    return KernelCall(
        kernel,
        (
            call.operands[0],
            Table(packed, "w"),
            Table(pad_channels(bias, c.groups, lanes), "b"),
            slopes,
            done.added or 0,
            done.y,
            Scratch(patch) if patch else 0,
            p,
            f"ek_tile_f32_{walk.tile}x2{kind}",
            f"ek_tile_f32_{walk.tile}x{tail}{kind}",
            0,
            1,
        ),
    )


VARIANTS = [
    Variant(of, _KERNEL.name, frozenset({feature}), _schedules, _apply, fuses=True)
    for feature in ("neon", "avx2")
    for of in (
        CONV2D.of("f32"),
        TRANSPOSE_CONV2D.of("f32"),
        FULLY_CONNECTED.of("f32"),
        DEPTHWISE_CONV2D.of("f32"),
    )
]
