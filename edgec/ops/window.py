"""Sliding windows over NHWC images, shared by convolutions and pools: padding, output
sizes and patches.

Semantics: ONNX's `pads` and `auto_pad`, TFLite's Padding (kernels/padding.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgec.ir import Array, OnnxNode, TensorType

Pads = tuple[int, int, int, int]
"""(top, bottom, left, right), in elements."""
Pair = tuple[int, int]
"""(vertical, horizontal)."""


MAX_STEP = 1 << 20
"""Largest stride, dilation or pad, in pixels.

Only damaged files exceed it, and C's 32-bit integers hold it with room to multiply.
"""


def check_steps(*steps: int) -> None:
    """Raise ValueError for a stride or a dilation below 1 or above `MAX_STEP`."""
    if not 1 <= min(steps) <= max(steps) <= MAX_STEP:
        raise ValueError(
            f"stride or dilation {steps}, of which each is from 1 to {MAX_STEP}"
        )


def out_size(
    size: int,
    kernel: int,
    stride: int,
    dilation: int,
    before: int,
    after: int,
) -> int:
    """Return the number of windows along one axis.

    floor((size + before + after - span) / stride) + 1, where a window spans
    (kernel - 1) * dilation + 1 pixels. Raises ValueError for negative or huge pads and
    for steps that `check_steps` refuses.
    """
    check_steps(stride, dilation)
    if not 0 <= min(before, after) <= max(before, after) <= MAX_STEP:
        raise ValueError(
            f"pads {before} and {after}; neither may be negative, or above {MAX_STEP}"
        )

    span = (kernel - 1) * dilation + 1

    return (size + before + after - span) // stride + 1


def same_pads(size: Pair, kernel: Pair, stride: Pair, dilation: Pair) -> Pads:
    """Return the pads of TFLite's SAME padding.

    They give ceil(size / stride) windows along each axis; of an odd total, the odd
    pixel is after the image.
    """
    pads: list[int] = []
    for axis in (0, 1):
        # ceil of the quotient, in integers.
        count = -(-size[axis] // stride[axis])
        span = (kernel[axis] - 1) * dilation[axis] + 1
        total = max(0, (count - 1) * stride[axis] + span - size[axis])
        pads += [total // 2, total - total // 2]

    return (pads[0], pads[1], pads[2], pads[3])


def tflite_pads(
    options: Any,
    size: Pair,
    kernel: Pair,
    dilation: Pair = (1, 1),
) -> Pads:
    """Return the pads of a TFLite operator with `padding` 0 (SAME) or 1 (VALID)."""
    if options.padding != 0:
        return (0, 0, 0, 0)

    stride = (options.strideH, options.strideW)

    return same_pads(size, kernel, stride, dilation)


def tflite_padding(
    pads: Pads,
    size: Pair,
    kernel: Pair,
    stride: Pair,
    dilation: Pair = (1, 1),
) -> int | None:
    """Return TFLite's Padding (0 SAME, 1 VALID) for explicit pads; None: neither."""
    if pads == (0, 0, 0, 0):
        return 1

    # VALID comes first: SAME may need no pads either.
    if pads == same_pads(size, kernel, stride, dilation):
        return 0

    return None


def kernel_of(node: OnnxNode, w: TensorType) -> Pair:
    """Return the window (KH, KW) of ONNX weights [O, C, KH, KW].

    Raises ValueError when the attribute `kernel_shape` says another one.
    """
    # ONNX weights are [O, C / groups, KH, KW].
    kernel = (w.shape[2], w.shape[3])
    declared = node.attrs.get("kernel_shape", kernel)
    if tuple(declared) != kernel:
        raise ValueError(f"kernel_shape {list(declared)} with weights {w}")

    return kernel


def onnx_pads(
    node: OnnxNode,
    size: Pair,
    kernel: Pair,
    stride: Pair,
    dilation: Pair = (1, 1),
) -> Pads:
    """Return the pads that an ONNX node's `pads` or `auto_pad` describes.

    `pads` lists all starts before all ends, and has no effect beside auto_pad.
    """
    # auto_pad takes precedence over `pads`.
    auto_pad = node.attrs.get("auto_pad", "NOTSET")
    node.attrs.ignore("pads")
    if auto_pad == "NOTSET":
        top, left, bottom, right = node.attrs.get("pads", (0, 0, 0, 0))
        return (top, bottom, left, right)

    if auto_pad == "VALID":
        return (0, 0, 0, 0)

    top, bottom, left, right = same_pads(size, kernel, stride, dilation)
    if auto_pad == "SAME_UPPER":
        return (top, bottom, left, right)

    # SAME_LOWER has the odd pixel before the image.
    return (bottom, top, right, left)


def pad_image(x: Array, pads: Pads, value: float | int) -> Array:
    """Return an NHWC image with a border of `value`.

    An image without pads is returned as it is.
    """
    top, bottom, left, right = pads
    if not any(pads):
        return x

    borders = ((0, 0), (top, bottom), (left, right), (0, 0))

    return np.pad(x, borders, constant_values=value)


def patches(x: Array, kernel: Pair, stride: Pair, dilation: Pair = (1, 1)) -> Array:
    """Return a view [N, OH, OW, C, KH, KW] of all windows of a padded NHWC image."""
    # A dilated window is a dense one of which only some elements are read.
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    dense = np.lib.stride_tricks.sliding_window_view(x, span, (1, 2))
    strided = dense[:, :: stride[0], :: stride[1]]
    windows: Array = strided[..., :: dilation[0], :: dilation[1]]

    return windows


def pair(value: Sequence[int] | None, default: int = 1) -> Pair:
    """Return an attribute list of two as a pair; twice `default` when it is absent.

    Raises ValueError for a list of another length.
    """
    if value is None:
        return (default, default)

    if len(value) != 2:
        raise ValueError(f"{len(value)} spatial dimensions; edgec compiles images (2)")

    return (int(value[0]), int(value[1]))
