"""Float 1x1 convolutions whose weights are mostly zeros (pruned networks) by
csrc/simd/ek_sparse_f32_simd.h.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgec.ir import Array, Kernel, KernelCall, Scratch, Struct, Table, constant
from edgec.ops.conv import CONV2D
from edgec.schedule.cores import Core
from edgec.schedule.gemm_f32.epilogue import epilogue
from edgec.schedule.gemm_f32.windows import GemmF32Shape, pad_channels
from edgec.schedule.variant import Schedule, Variant

_KERNEL = Kernel("sparse", "simd/ek_sparse_f32_simd.h", "f32", isa="simd")

_VECTORS = 8
"""EK_SPARSE_VECTORS."""

_MOST = 0.4
"""Part of the weights that are not zero with which it pays: a product takes more than a
dense one does.
"""

_FEWEST = 24
"""Products of a sum that pay for what is done before and after them."""

_LARGEST = 1 << 20
"""Bytes of an image or a result: larger ones are better computed a few rows at a time,
by bands.
"""


def _windows(call: KernelCall) -> GemmF32Shape:
    return GemmF32Shape.of(call.struct("ek_conv2d_t"))


def _matrix(call: KernelCall) -> Array | None:
    """The weights [oc, ic]; None where they are not known, or there are few zeros."""
    w = constant(call.operands[1])
    c = _windows(call)
    if w is None or not 0 < np.count_nonzero(w) <= _MOST * w.size:
        return None
    return w.reshape(c.ic, c.oc).T


def _schedules(call: KernelCall, core: Core) -> Sequence[Schedule]:
    c = _windows(call)
    if (
        not c.flat
        or c.pt
        or c.pl
        or c.groups > 1
        or constant(call.operands[2]) is None
        or epilogue(call) is None
    ):
        return []
    return [] if _matrix(call) is None else [{}]


def _leads(call: KernelCall, core: Core) -> bool:
    c = _windows(call)
    w = _matrix(call)
    if w is None or core.near < core.vector or np.count_nonzero(w) < _FEWEST * c.oc:
        return False
    return 4 * c.n * c.oh * c.ow * max(c.ic, c.oc) <= _LARGEST


def _apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
    c = _windows(call)
    done = epilogue(call)
    w = _matrix(call)
    bias = constant(call.operands[2])
    assert done is not None
    assert w is not None
    assert bias is not None
    lanes = core.vector // 4
    pixels = _VECTORS * lanes
    channels, inputs = np.nonzero(w)
    ends = np.searchsorted(channels, np.arange(c.oc), "right")
    p = Struct(
        "ek_sparse_f32_t",
        pixels=c.n * c.oh * c.ow,
        ic=c.ic,
        oc=c.oc,
        yx=done.pitch or c.oc,
        **done.fields(),
    )
    return KernelCall(
        _KERNEL,
        (
            call.operands[0],
            Table(w[channels, inputs], "w"),
            Table((inputs * pixels).astype(np.int32), "at"),
            Table(ends.astype(np.int32), "ends"),
            Table(pad_channels(bias, 1, lanes), "b"),
            0 if done.slope is None else Table(pad_channels(done.slope, 1, lanes), "s"),
            done.added or 0,
            done.y,
            Scratch(4 * pixels * c.ic),
            p,
            0,
            1,
        ),
    )


VARIANTS = [
    Variant(
        CONV2D.of("f32"),
        _KERNEL.name,
        frozenset({"neon"}),
        _schedules,
        _apply,
        True,
        _leads,
    )
]
