"""Products of two computed float matrices by csrc/simd/ek_batch_matmul_f32_simd.h."""

from __future__ import annotations

from collections.abc import Sequence

from edgec.ir import KernelCall, Scratch
from edgec.schedule.cores import Core
from edgec.schedule.gemm_f32.windows import Windows, tiles
from edgec.schedule.variant import Schedule, Variant


def _schedules(call: KernelCall, core: Core) -> Sequence[Schedule]:
    p = call.struct("ek_batch_matmul_t")
    m, n, k = (p.number(name) for name in ("m", "n", "k"))
    if n < core.vector // 4:
        return []
    return [{"tile": tile} for tile in tiles(Windows(1, 1, m, k, 1, m, n, group_ic=k), core)]


def _apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
    a, b, y, p = call.operands
    tile, panel = schedule["tile"], 2 * (core.vector // 4)
    scratch = Scratch(4 * call.struct("ek_batch_matmul_t").number("k") * (tile + panel))
    name = "ek_batch_matmul_f32_simd"
    return KernelCall(name, (a, b, y, scratch, p, f"ek_tile_f32_{tile}x2", tile, 0, 1))


VARIANTS = [
    Variant("ek_batch_matmul_f32", "ek_batch_matmul_f32_simd", frozenset({feature}), _schedules, _apply)
    for feature in ("neon", "avx2")
]
