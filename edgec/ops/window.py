"""Sliding windows over NHWC images: padding, output sizes and patches, shared by
convolutions and pools.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgec.ir import Array, OnnxNode, TensorType

Pads = tuple[int, int, int, int]
"""(top, bottom, left, right), in elements."""
Pair = tuple[int, int]


FARTHEST = 1 << 20
"""Of steps and pads: what only damaged files exceed, and C's integers hold with room to
multiply.
"""


def check_steps(*steps: int) -> None:
    """Raises ValueError for a stride or a dilation that leads nowhere, or out of all
    images.
    """
    if not 1 <= min(steps) <= max(steps) <= FARTHEST:
        raise ValueError(
            f"stride or dilation {steps}, of which each is from 1 to {FARTHEST}"
        )


def out_size(
    size: int, kernel: int, stride: int, dilation: int, before: int, after: int
) -> int:
    """Output positions along one axis.

    Raises ValueError for a step that leads nowhere, and for pads that cut off.
    """
    check_steps(stride, dilation)
    if not 0 <= min(before, after) <= max(before, after) <= FARTHEST:
        raise ValueError(
            f"pads {before} and {after}; neither may be negative, or above {FARTHEST}"
        )
    return (size + before + after - ((kernel - 1) * dilation + 1)) // stride + 1


def same_pads(size: Pair, kernel: Pair, stride: Pair, dilation: Pair) -> Pads:
    """TFLite's SAME padding: ceil(size / stride) outputs, the odd element after."""
    pads: list[int] = []
    for d, k, s, r in zip(size, kernel, stride, dilation, strict=True):
        total = max(0, (-(-d // s) - 1) * s + (k - 1) * r + 1 - d)
        pads += [total // 2, total - total // 2]
    return (pads[0], pads[1], pads[2], pads[3])


def tflite_pads(
    options: Any, size: Pair, kernel: Pair, dilation: Pair = (1, 1)
) -> Pads:
    """The explicit pads of a TFLite operator (padding 0 is SAME, 1 VALID)."""
    stride = (options.strideH, options.strideW)
    if options.padding == 0:
        return same_pads(size, kernel, stride, dilation)
    return (0, 0, 0, 0)


def tflite_padding(
    pads: Pads, size: Pair, kernel: Pair, stride: Pair, dilation: Pair = (1, 1)
) -> int | None:
    """TFLite's padding enum for explicit pads; None when it has no such padding."""
    if pads == (0, 0, 0, 0):
        return 1
    return 0 if pads == same_pads(size, kernel, stride, dilation) else None


def kernel_of(node: OnnxNode, w: TensorType) -> Pair:
    """The window of ONNX weights [O,C,KH,KW]; `kernel_shape` may only repeat it."""
    kernel = (w.shape[2], w.shape[3])
    given = node.attrs.get("kernel_shape", kernel)
    if tuple(given) != kernel:
        raise ValueError(f"kernel_shape {list(given)} with weights {w}")
    return kernel


def onnx_pads(
    node: OnnxNode, size: Pair, kernel: Pair, stride: Pair, dilation: Pair = (1, 1)
) -> Pads:
    """The explicit pads of an ONNX node with `pads` or `auto_pad`."""
    auto = node.attrs.get("auto_pad", "NOTSET")
    node.attrs.ignore("pads")  # without effect beside auto_pad
    if auto == "NOTSET":
        top, left, bottom, right = node.attrs.get("pads", (0, 0, 0, 0))
        return (top, bottom, left, right)
    if auto == "VALID":
        return (0, 0, 0, 0)
    t, b, left, right = same_pads(size, kernel, stride, dilation)
    return (t, b, left, right) if auto == "SAME_UPPER" else (b, t, right, left)


def pad_image(x: Array, pads: Pads, value: float | int) -> Array:
    """NHWC image with a border of `value`."""
    t, b, left, r = pads
    if any(pads):
        return np.pad(x, ((0, 0), (t, b), (left, r), (0, 0)), constant_values=value)
    return x


def patches(x: Array, kernel: Pair, stride: Pair, dilation: Pair = (1, 1)) -> Array:
    """View [N, OH, OW, C, KH, KW] of a padded NHWC image."""
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, span, (1, 2))
    result: Array = view[
        :, :: stride[0], :: stride[1], :, :: dilation[0], :: dilation[1]
    ]
    return result


def pair(value: Sequence[int] | None, default: int = 1) -> Pair:
    """Two ints of an attribute list."""
    if value is None:
        return (default, default)
    if len(value) != 2:
        raise ValueError(f"{len(value)} spatial dimensions; edgec compiles images (2)")
    return (int(value[0]), int(value[1]))
