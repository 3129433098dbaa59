"""Dense float convolutions to few channels (csrc/simd/ek_narrow_conv2d_f32_simd.h).

With fewer output channels than a vector has floats, most of a vector of results would
be empty. Here the products with all columns of the kernel are the channels of one
convolution by a single column, kw * oc channels in place of oc:

    z[y, x, k, o] = sum over r, i of image[y + r, x, i] * w[r, k, i, o]
    result[y, x, o] = sum over k of z[y, x + k, k, o]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np

from edgec.ir import Kernel, KernelCall, Scratch, Table
from edgec.ir.c_structs import (
    CoefficientsParams,
    Conv2dParams,
    GemmF32Params,
    NarrowConv2dF32Params,
)
from edgec.ops.conv import CONV2D
from edgec.schedule.cores import Core
from edgec.schedule.gemm_f32.epilogue import CLAMPS, Epilogue
from edgec.schedule.gemm_f32.layer import FloatLayer, float_layer
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

MIN_GAIN = 1.3
"""Multiplications of a direct convolution for each one here, from which on it pays that
products are stored and added.
"""

MIN_DEPTH = 16
"""Multiplications of a product, at least."""


def _shape(call: KernelCall) -> GemmF32Shape:
    """Return the sizes of the convolution."""
    return GemmF32Shape.of(call.struct(Conv2dParams))


def _column(c: GemmF32Shape, block: int) -> GemmF32Shape:
    """Return the convolution by a single column, of the products for `block` pixels."""
    columns = min(block + (c.kw - 1) * c.dw, c.iw)
    return replace(c, n=1, oh=1, ow=columns, oc=c.kw * c.oc, kw=1, dw=1, pl=0)


def _narrow_layer(call: KernelCall) -> FloatLayer | None:
    """Return the layer; None if a fused op is neither a clamp nor an activation."""
    layer = float_layer(call)
    if layer is None or layer.epilogue.todo & ~CLAMPS:
        return None

    return layer


def _is_worthwhile(c: GemmF32Shape, core: Core) -> bool:
    """Return whether vectors of products are so much fuller than those of results."""
    lanes = core.vector // 4

    # Vectors of one row and one input channel, rounded up to whole ones.
    product_vectors = -(-c.kw * c.oc // lanes) * c.iw
    direct_vectors = c.kw * -(-c.oc // lanes) * c.ow
    # An image without columns has no products.
    pays = 0 < MIN_GAIN * product_vectors <= direct_vectors
    return c.kh * c.ic >= MIN_DEPTH and pays


def _block_pixels(c: GemmF32Shape) -> int:
    """Return the pixels of a block, whose products take half of the stack."""
    floats = STACK_BYTES // 2 // 4
    room = floats // (c.kw * c.oc) - (c.kw - 1) * c.dw

    # Blocks overlap in kw - 1 columns: shorter ones would compute too many twice.
    blocks = -(-c.ow // max(room, 4 * c.kw))
    return -(-c.ow // blocks)


def _schedules(call: KernelCall, core: Core) -> Sequence[Schedule]:
    """Return the ways to go through the products, the best by analysis first."""
    c = _shape(call)
    if c.sw != 1 or c.groups > 1 or _narrow_layer(call) is None:
        return []
    if not _is_worthwhile(c, core):
        return []

    # A block is too small to be shared or fetched ahead.
    cols = _block_pixels(c)
    blockings_of_block: dict[Blocking, None] = {}
    for blocking in blockings(_column(c, cols), core):
        blockings_of_block[replace(blocking, by_panel=0, touch=0)] = None

    return [{**asdict(blocking), "cols": cols} for blocking in blockings_of_block]


def _apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
    """Return the call with the columns of the weights side by side, as channels."""
    c = _shape(call)
    layer = _narrow_layer(call)
    assert layer is not None

    lanes = core.vector // 4
    cols = schedule["cols"]
    column = _column(c, cols)
    fields = dict(schedule)
    del fields["cols"]
    blocking = Blocking(**fields)

    # The last vector of the products reaches behind them; what follows is aligned.
    products = column.ow * column.oc + lanes
    product_floats = -(-products // 16) * 16
    patch_floats = c.kh * max(blocking.tile, blocking.block) * c.ic

    # [kh, kw, ic, oc] becomes [kh, 1, ic, kw * oc].
    weights = layer.weights.reshape(c.kh, c.kw, c.ic, c.oc).transpose(0, 2, 1, 3)
    side_by_side = weights.reshape(c.kh, 1, c.ic, column.oc)
    zeros = np.zeros(column.oc, np.float32)
    tail = last_vectors(column.oc, lanes)
    operands = (
        layer.x,
        Table(pack(side_by_side, 1, lanes), "w"),
        Table(pad_channels(zeros, 1, lanes), "z"),
        layer.padded_bias(1, lanes),
        layer.epilogue.y,
        Scratch(4 * (product_floats + patch_floats)),
        _params(c, column, blocking, cols, product_floats, layer.epilogue),
        f"ek_tile_f32_{blocking.tile}x2",
        f"ek_tile_f32_{blocking.tile}x{tail}",
    )
    return KernelCall(_KERNEL, (*operands, 0, 1))


def _params(
    c: GemmF32Shape,
    column: GemmF32Shape,
    blocking: Blocking,
    cols: int,
    product_floats: int,
    e: Epilogue,
) -> NarrowConv2dF32Params:
    """Return the parameters of the kernel, with those of the single column in them."""
    # The products have no epilogue; the kernel sets their place and their rows.
    products = GemmF32Params(
        **asdict(replace(column, n=c.n)),
        yx=column.oc,
        **asdict(blocking),
        **Epilogue(e.y).fields(),
    )
    low, high, *_ = e.bounds
    a, b = e.coefficients
    return NarrowConv2dF32Params(
        p=products,
        oh=c.oh,
        ow=c.ow,
        oc=c.oc,
        kw=c.kw,
        dw=c.dw,
        pl=c.pl,
        yx=e.pitch or c.oc,
        cols=cols,
        products=product_floats,
        clamps=int(e.todo > 0),
        low=low,
        high=high,
        after=e.after or 0,
        coef=CoefficientsParams(a=a, b=b),
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
