"""Products of two computed float matrices by csrc/simd/ek_batch_matmul_f32_simd.h."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgec.ir import Kernel, KernelCall, Scratch, Struct, constant
from edgec.ops.matmul import BATCH_MATMUL, FULLY_CONNECTED
from edgec.schedule.cores import Core
from edgec.schedule.gemm_f32.windows import GemmF32Shape, tile_heights
from edgec.schedule.variant import Schedule, Variant

_KERNEL = Kernel("batch_matmul", "simd/ek_batch_matmul_f32_simd.h", "f32", isa="simd")


def _product(call: KernelCall) -> KernelCall | None:
    """A product as such; that of a fully connected layer whose weights are computed, if
    it is no more than that.
    """
    if call.kernel == BATCH_MATMUL:
        return call
    x, w, bias, y, rows, k, o, act = call.operands
    added = constant(bias)
    assert isinstance(act, Struct)
    clamps = (act.fields["low"], act.fields["high"]) != (-np.inf, np.inf)
    if constant(w) is not None or added is None or added.any() or clamps:
        return None
    one = (1, 1, 1, 1)
    none = (0, 0, 0, 0)
    p = Struct(
        "ek_batch_matmul_t",
        dim=one,
        a=none,
        b=none,
        m=rows,
        n=o,
        k=k,
        ar=k,
        ac=1,
        br=1,
        bc=k,
    )
    return KernelCall(BATCH_MATMUL, (x, w, y, p))


def _schedules(call: KernelCall, core: Core) -> Sequence[Schedule]:
    product = _product(call)
    if product is None:
        return []
    p = product.struct("ek_batch_matmul_t")
    m, n, k = (p.number(name) for name in ("m", "n", "k"))
    if n < core.vector // 4 or k == 0:
        return []
    return [
        {"tile": tile}
        for tile in tile_heights(GemmF32Shape(1, 1, m, k, 1, m, n, group_ic=k), core)
    ]


def _apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
    product = _product(call)
    assert product is not None
    a, b, y, p = product.operands
    tile = schedule["tile"]
    panel = 2 * (core.vector // 4)
    scratch = Scratch(
        4 * product.struct("ek_batch_matmul_t").number("k") * (tile + panel)
    )
    return KernelCall(
        _KERNEL, (a, b, y, scratch, p, f"ek_tile_f32_{tile}x2", tile, 0, 1)
    )


VARIANTS = [
    Variant(of, _KERNEL.name, frozenset({feature}), _schedules, _apply)
    for feature in ("neon", "avx2")
    for of in (BATCH_MATMUL, FULLY_CONNECTED.of("f32"))
]
