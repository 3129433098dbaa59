"""Dense float convolutions, transposed ones and fully connected layers as one GEMM.

The kernels of csrc/simd/ek_gemm_f32_simd.h multiply the windows of an image (M rows of K
elements, read through im2col indices) by packed panels of weights (K x N), a tile of
windows and two vectors of channels at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from edgec.ir import Array, Kernel, KernelCall, Scratch, Table
from edgec.ir.c_structs import Conv2dParams, GemmF32Params, TransposeConv2dParams
from edgec.ops.conv import CONV2D, DEPTHWISE_CONV2D
from edgec.ops.matmul import FULLY_CONNECTED
from edgec.ops.transpose_conv import TRANSPOSE_CONV2D
from edgec.schedule.cores import Core
from edgec.schedule.gemm_f32.epilogue import MIN_FUNCTION_FLOATS, Epilogue, epilogue
from edgec.schedule.gemm_f32.layer import FloatLayer, float_layer
from edgec.schedule.gemm_f32.windows import (
    Blocking,
    GemmF32Shape,
    blockings,
    last_vectors,
    overlapping,
    pack,
    transposed_phases,
)
from edgec.schedule.variant import Schedule, Variant

_HEADER = "simd/ek_gemm_f32_simd.h"
_KERNEL = Kernel("gemm", _HEADER, "f32", isa="simd")
_TRANSPOSED = Kernel("transpose_conv2d", _HEADER, "f32", isa="simd")

MIN_GROUP_CHANNELS = 3
"""Output channels of a group from which on a tile pays, however many it has room for."""


def _merged(c: GemmF32Shape, lanes: int) -> GemmF32Shape:
    """Return the convolution with groups merged until their results fill a vector.

    Each result then takes more products, those of the other groups with zeros, but one
    tile computes what several did.
    """
    group_results = c.oc // c.groups
    limit = max(1, lanes // group_results)

    # Each merged group has the same number of groups, hence a divisor.
    divisors = [m for m in range(1, limit + 1) if c.groups % m == 0]
    merged = max(divisors)
    return replace(c, group_ic=c.group_ic * merged)


def _transposed(call: KernelCall) -> GemmF32Shape:
    """Return the sizes of a transposed convolution.

    Where the kernel is as wide as its stride, each pixel makes a run of results alone:
    the results of a run are then more channels of a convolution without a stride
    across.
    """
    c = GemmF32Shape.of(call.struct(TransposeConv2dParams))
    is_run = c.kw == c.sw and not c.pl and c.ow == c.iw * c.sw

    # In a concat the pixels of a run would not lie side by side.
    steps = epilogue(call)
    if not is_run or (steps is not None and steps.pitch):
        return c

    return replace(c, kw=1, sw=1, ow=c.iw, oc=c.oc * c.sw)


def _leaves_image(call: KernelCall) -> bool:
    """Return whether windows of a transposed convolution lie partly beside the image."""
    if call.kernel not in TRANSPOSE_CONV2D:
        return False

    c = _transposed(call)
    tiles_kernel = (c.kh, c.kw) == (c.sh, c.sw)
    tiles_image = (c.oh, c.ow) == (c.ih * c.sh, c.iw * c.sw)
    return not (tiles_kernel and tiles_image) or bool(c.pt or c.pl)


def _shape(call: KernelCall, lanes: int) -> GemmF32Shape:
    """Return the windows that a call goes through, as those of a convolution.

    A transposed convolution of stride s is s * s plain ones, one for each phase of the
    result's pixels; the shape is that of the phase with most taps.
    """
    if call.kernel in FULLY_CONNECTED:
        rows, depth, out_channels = (n for n in call.operands if isinstance(n, int))
        return GemmF32Shape(1, 1, rows, depth, 1, rows, out_channels, group_ic=depth)

    if call.kernel in TRANSPOSE_CONV2D:
        c = _transposed(call)
        kh = -(-c.kh // c.sh)
        kw = -(-c.kw // c.sw)
        return replace(
            c,
            kh=kh,
            kw=kw,
            oh=-(-c.oh // c.sh),
            ow=-(-c.ow // c.sw),
            sh=1,
            sw=1,
            pt=kh - 1,
            pl=kw - 1,
            group_ic=c.ic,
        )

    c = GemmF32Shape.of(call.struct(Conv2dParams))
    return _merged(c.flattened(), lanes)


def _layer(call: KernelCall, lanes: int) -> FloatLayer | None:
    """Return the layer; None where its weights or epilogue are not for this kernel.

    A function at the end is called for the adjacent results of one tile, which must be
    enough to pay for the call.
    """
    layer = float_layer(call)
    if layer is None or layer.epilogue.after is None:
        return layer

    c = _shape(call, lanes)
    is_transposed = call.kernel in TRANSPOSE_CONV2D and _transposed(call).sw != 1
    has_whole_rows = c.groups == 1 and not is_transposed
    is_long = c.oc // c.groups >= MIN_FUNCTION_FLOATS
    return layer if has_whole_rows or is_long else None


def _schedules(call: KernelCall, core: Core) -> Sequence[Schedule]:
    """Return the ways to go through windows and panels, the best by analysis first."""
    lanes = core.vector // 4
    c = _shape(call, lanes)
    if _layer(call, lanes) is None:
        return []

    # Depthwise convolutions have kernels of their own, but for images of one channel.
    if call.kernel in DEPTHWISE_CONV2D and c.ic > 1:
        return []
    if c.groups > 1 and c.oc // c.groups < MIN_GROUP_CHANNELS:
        return []

    return [asdict(blocking) for blocking in blockings(c, core)]


@dataclass(frozen=True)
class _Gemm:
    """The kernel for a call, and its packed weights.

    Attributes:
        kernel: the kernel
        shape: the sizes that it is passed
        packed: panels of weights
        known_windows: the part of the tiles' names for windows that they are made for
    """

    kernel: Kernel
    shape: GemmF32Shape
    packed: Array
    known_windows: str


def _last(call: KernelCall, core: Core, steps: Epilogue, blocking: Blocking) -> int:
    """Return where the last panel begins, if it overlaps the one before; else 0.

    It then stores whole vectors. Neither what is added nor a function of the result may
    meet a channel twice, and no two threads may write one.
    """
    lanes = core.vector // 4
    c = _shape(call, lanes)
    has_masks = "neon" not in core.isa
    is_shared = core.threads > 1 and blocking.by_panel
    is_plain = c.groups == 1 and call.kernel not in TRANSPOSE_CONV2D
    meets_twice = steps.added is not None or steps.after is not None
    if has_masks or is_shared or meets_twice or not is_plain:
        return 0
    return overlapping(c.oc, lanes)


def _gemm(call: KernelCall, weights: Array, lanes: int, last: int) -> _Gemm:
    """Return the kernel for a call, with its weights packed for vectors of floats.

    last: the first channel of the last panel, if it overlaps the one before.
    """
    c = _shape(call, lanes)
    if call.kernel in TRANSPOSE_CONV2D:
        return _transposed_gemm(call, weights, lanes)

    if call.kernel in FULLY_CONNECTED:
        by_channel = weights.reshape(c.oc, c.ic).T.reshape(1, 1, c.ic, c.oc)
    else:
        by_channel = weights.reshape(c.kh, c.kw, -1, c.oc)
        merged = c.group_ic // by_channel.shape[2]
        by_channel = _with_zeros(by_channel, merged, c.oc // c.groups)

    return _Gemm(_KERNEL, c, pack(by_channel, c.groups, lanes, last), c.known)


def _transposed_gemm(call: KernelCall, weights: Array, lanes: int) -> _Gemm:
    """Return the kernel of a transposed convolution, the panels of all phases."""
    t = _transposed(call)
    c = _shape(call, lanes)
    if weights.shape[3] < c.oc:
        # The columns of the kernel are channels: [KH, KW, C, O] as [KH, 1, C, KW * O].
        weights = weights.transpose(0, 2, 1, 3).reshape(len(weights), 1, c.ic, c.oc)

    phases = transposed_phases(weights, (t.sh, t.sw), (t.pt, t.pl))
    packed = np.concatenate([pack(phase, 1, lanes) for phase in phases])
    is_one_tap = (t.kh, t.kw) == (t.sh, t.sw)
    known_windows = c.known if is_one_tap else ""
    return _Gemm(_TRANSPOSED, replace(t, group_ic=c.ic), packed, known_windows)


def _with_zeros(weights: Array, merged: int, results: int) -> Array:
    """Return the weights [kh, kw, ic, oc] of merged groups.

    merged: the number of groups in one. results: output channels of a merged group. The
    weights of a result for the inputs of the other groups are zeros.
    """
    # The results of a merged group are those of its groups, one after the other.
    within_merged = np.arange(weights.shape[3]) % results
    group_results = results // merged
    group = within_merged // group_results
    parts = [np.where(group == i, weights, 0) for i in range(merged)]
    return np.concatenate(parts, axis=2)


def _apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
    """Return the call with packed weights."""
    lanes = core.vector // 4
    c = _shape(call, lanes)
    blocking = Blocking(**schedule)
    layer = _layer(call, lanes)
    assert layer is not None

    steps = layer.epilogue
    last = _last(call, core, steps, blocking)
    gemm = _gemm(call, layer.weights, lanes, last)
    if call.kernel in TRANSPOSE_CONV2D:
        # Channels repeat where the columns of the kernel are channels.
        slope = None if steps.slope is None else np.resize(steps.slope, c.oc)
        bias = np.resize(layer.bias, c.oc)
        layer = replace(layer, bias=bias, epilogue=replace(steps, slope=slope))

    pitch = steps.pitch or c.oc
    p = GemmF32Params(
        **asdict(gemm.shape),
        yx=pitch,
        yy=gemm.shape.ow * pitch,
        yn=gemm.shape.oh * gemm.shape.ow * pitch,
        **asdict(blocking),
        last=last,
        **steps.fields(),
    )
    if _leaves_image(call):
        patch_floats = c.padded(blocking.block)
    else:
        patch_floats = c.patch(blocking.tile, blocking.block)

    suffix = steps.tile_suffix + gemm.known_windows
    tail = last_vectors(c.oc // c.groups, lanes)
    operands = (
        layer.x,
        Table(gemm.packed, "w"),
        layer.padded_bias(c.groups, lanes),
        layer.padded_slope(c.groups, lanes),
        layer.added,
        steps.y,
        Scratch(4 * patch_floats) if patch_floats else 0,
        p,
        f"ek_tile_f32_{blocking.tile}x2{suffix}",
        f"ek_tile_f32_{blocking.tile}x{tail}{suffix}",
    )
    return KernelCall(gemm.kernel, (*operands, 0, 1))


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
