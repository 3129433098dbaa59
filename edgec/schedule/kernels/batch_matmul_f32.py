"""Products of two computed float matrices (csrc/simd/ek_batch_matmul_f32_simd.h).

y[m, n] = sum over k of a[m, k] * b[k, n]. The matrix b is packed at run time, a panel of
columns at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgec.ir import Kernel, KernelCall, Scratch, constant
from edgec.ir.c_structs import ActivationParams, BatchMatmulParams
from edgec.ir.kernel import Operand
from edgec.ops.matmul import BATCH_MATMUL, FULLY_CONNECTED
from edgec.schedule.cores import Core
from edgec.schedule.gemm_f32.windows import GemmF32Shape, tile_heights
from edgec.schedule.variant import Schedule, Variant

_KERNEL = Kernel("batch_matmul", "simd/ek_batch_matmul_f32_simd.h", "f32", isa="simd")

PANEL_VECTORS = 2
"""Vectors of columns of a panel."""


@dataclass(frozen=True)
class _MatrixProduct:
    """The operands of a product, and its sizes and strides."""

    a: Operand
    b: Operand
    y: Operand
    p: BatchMatmulParams


def _product(call: KernelCall) -> _MatrixProduct | None:
    """Return the product that a call computes.

    None for a fully connected layer that has constant weights, which are better packed
    at compile time, or that does more than a product.
    """
    if call.kernel == BATCH_MATMUL:
        a, b, y, _ = call.operands
        return _MatrixProduct(a, b, y, call.struct(BatchMatmulParams))

    x, w, bias, y, *_ = call.operands
    rows, depth, out_channels = (n for n in call.operands if isinstance(n, int))
    bias_values = constant(bias)
    act = call.struct(ActivationParams)
    is_clamped = (act.low, act.high) != (-np.inf, np.inf)
    has_bias = bias_values is None or bias_values.any()
    if constant(w) is not None or has_bias or is_clamped:
        return None

    # The weights are [O, K]: b is their transpose.
    p = BatchMatmulParams(
        dim=(1, 1, 1, 1),
        a=(0, 0, 0, 0),
        b=(0, 0, 0, 0),
        m=rows,
        n=out_channels,
        k=depth,
        ar=depth,
        ac=1,
        br=1,
        bc=depth,
    )
    return _MatrixProduct(x, w, y, p)


def _schedules(call: KernelCall, core: Core) -> Sequence[Schedule]:
    """Return the heights of tiles, the best by analysis first."""
    product = _product(call)
    if product is None:
        return []

    # Fewer columns than a vector has floats would leave most of it idle.
    p = product.p
    if p.n < core.vector // 4 or p.k == 0:
        return []

    # For the choice of a tile the product is a 1x1 convolution of one row of pixels.
    shape = GemmF32Shape(1, 1, p.m, p.k, 1, p.m, p.n, group_ic=p.k)
    return [{"tile": tile} for tile in tile_heights(shape, core)]


def _apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
    """Return the call with scratch for a panel of b and the rows of a tile."""
    product = _product(call)
    assert product is not None

    tile = schedule["tile"]
    panel_columns = PANEL_VECTORS * (core.vector // 4)
    scratch = Scratch(4 * product.p.k * (tile + panel_columns))
    function = f"ek_tile_f32_{tile}x{PANEL_VECTORS}"
    operands = (product.a, product.b, product.y, scratch, product.p, function, tile)
    return KernelCall(_KERNEL, (*operands, 0, 1))


VARIANTS = [
    Variant(of, _KERNEL.name, frozenset({feature}), _schedules, _apply)
    for feature in ("neon", "avx2")
    for of in (BATCH_MATMUL, FULLY_CONNECTED.of("f32"))
]
