"""Float 1x1 convolutions with sparse weights (csrc/simd/ek_sparse_f32_simd.h).

Pruned networks have weights that are mostly zeros: only the others are multiplied. The
pixels of a block are transposed, so that a weight takes eight vectors of adjacent
pixels at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgec.ir import Array, Kernel, KernelCall, Scratch, Table, constant
from edgec.ir.c_structs import Conv2dParams, SparseF32Params
from edgec.ops.conv import CONV2D
from edgec.schedule.cores import Core
from edgec.schedule.gemm_f32.layer import float_layer
from edgec.schedule.gemm_f32.windows import GemmF32Shape
from edgec.schedule.variant import Schedule, Variant

_KERNEL = Kernel("sparse", "simd/ek_sparse_f32_simd.h", "f32", isa="simd")

BLOCK_VECTORS = 8
"""Vectors of pixels of a block: EK_SPARSE_VECTORS_F32."""

MAX_DENSITY = 0.4
"""The share of weights that are not zero up to which sparse products pay.

A product takes more time than one of a dense kernel.
"""

MIN_PRODUCTS = 24
"""Products of a sum that pay for the work before and after them."""

MAX_IMAGE_BYTES = 1 << 20
"""Bytes of an image or a result; cascades compute larger ones a few rows at a time."""


def _shape(call: KernelCall) -> GemmF32Shape:
    """Return the sizes of the convolution."""
    return GemmF32Shape.of(call.struct(Conv2dParams))


def _sparse_weights(call: KernelCall) -> Array | None:
    """Return the weights [oc, ic] of a 1x1 convolution.

    None for another one, and where the weights are computed, or too dense.
    """
    c = _shape(call)
    is_pointwise = c.flat and not c.pt and not c.pl and c.groups == 1
    weights = constant(call.operands[1])
    if weights is None or not is_pointwise:
        return None

    nonzeros = np.count_nonzero(weights)
    if not 0 < nonzeros <= MAX_DENSITY * weights.size:
        return None

    return weights.reshape(c.ic, c.oc).T


def _schedules(call: KernelCall, core: Core) -> Sequence[Schedule]:
    """Return the only schedule, for 1x1 convolutions with sparse weights."""
    if float_layer(call) is None or _sparse_weights(call) is None:
        return []

    return [{}]


def _leads(call: KernelCall, core: Core) -> bool:
    """Return whether the sparse kernel is faster than the dense ones."""
    c = _shape(call)
    weights = _sparse_weights(call)

    # Each product loads a vector: on a core that loads half of one a cycle, like the
    # Cortex-A53, the dense tiles are faster.
    if weights is None or core.near < core.vector:
        return False
    if np.count_nonzero(weights) < MIN_PRODUCTS * c.oc:
        return False

    image_bytes = 4 * c.n * c.oh * c.ow * max(c.ic, c.oc)
    return image_bytes <= MAX_IMAGE_BYTES


def _apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
    """Return the call with the weights that are not zero, channel by channel.

    Its tables: the weights, the offset in a block of the pixels that each multiplies,
    and the end of each channel's weights.
    """
    c = _shape(call)
    layer = float_layer(call)
    weights = _sparse_weights(call)
    assert layer is not None
    assert weights is not None

    lanes = core.vector // 4
    block_pixels = BLOCK_VECTORS * lanes
    channels, inputs = np.nonzero(weights)
    offsets = (inputs * block_pixels).astype(np.int32)
    ends = np.searchsorted(channels, np.arange(c.oc), "right").astype(np.int32)

    p = SparseF32Params(
        pixels=c.n * c.oh * c.ow,
        ic=c.ic,
        oc=c.oc,
        yx=layer.epilogue.pitch or c.oc,
        **layer.epilogue.fields(),
    )
    operands = (
        layer.x,
        Table(weights[channels, inputs], "w"),
        Table(offsets, "at"),
        Table(ends, "ends"),
        layer.padded_bias(1, lanes),
        layer.padded_slope(1, lanes),
        layer.added,
        layer.epilogue.y,
        Scratch(4 * block_pixels * c.ic),
        p,
    )
    return KernelCall(_KERNEL, (*operands, 0, 1))


VARIANTS = [
    Variant(
        CONV2D.of("f32"),
        _KERNEL.name,
        frozenset({"neon"}),
        _schedules,
        _apply,
        fuses=True,
        leads=_leads,
    )
]
