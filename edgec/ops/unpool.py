"""Operators over sliding windows that are read as other ops: p-norm pools, and the
inverses of pooling and of im2col.

Semantics: ONNX LpPool, GlobalLpPool, MaxUnpool and Col2Im.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from edgec.ir import Builder, OnnxNode, OpDef, Sample, Value
from edgec.ops.arithmetic import Pow
from edgec.ops.pad import Pad
from edgec.ops.scatter import ScatterElements
from edgec.ops.shape import Reshape
from edgec.ops.slice import Slice
from edgec.ops.unary import Abs
from edgec.ops.windows_nd import SlidingWindow, sum_by_taps


@dataclass(frozen=True)
class _ReadAsOthers(OpDef):
    """An operator that is read as other ops and never part of a graph."""

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield nothing: there is no kernel to try."""
        return iter(())


def norm(b: Builder, total: Value, p: float, name: str) -> Value:
    """Return total^(1 / p).

    Of p = 2 it is the Euclidean norm.
    """
    # The root is a power.
    exponent = b.const(np.array(1 / p, np.float32), "p")
    return b.add(Pow(), [total, exponent], name)


def powers(b: Builder, x: Value, p: float, name: str) -> Value:
    """Return |x|^p.

    An exponent of 1 needs no power.
    """
    magnitude = b.add(Abs(), [x], name)
    if p == 1:
        return magnitude

    # Magnitudes, so that odd powers of negative numbers count as well.
    exponent = b.const(np.array(p, np.float32), "p")

    return b.add(Pow(), [magnitude, exponent], name)


@dataclass(frozen=True)
class LpPool(_ReadAsOthers):
    """The p-norm (Σ |x|^p)^(1 / p) of each window, or of the whole image."""

    kind = "lp_pool"
    onnx = ("LpPool", "GlobalLpPool")

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read the pool as powers, a sum over the window, and a root.

        GlobalLpPool has one window, as large as the image.
        """
        b = node.build
        x = node.input(0)
        name = node.name
        p = float(node.attrs.get("p", 2))
        size = x.type.shape[2:]
        is_global = node.op_type == "GlobalLpPool"
        kernel = size if is_global else node.attrs["kernel_shape"]

        # Zeros around the image add nothing to a norm.
        windows = SlidingWindow.of(node, size, kernel)
        total = sum_by_taps(b, powers(b, x, p, name), windows, name)

        return norm(b, total, p, name)


@dataclass(frozen=True)
class MaxUnpool(_ReadAsOthers):
    """The inverse of MaxPool: elements put back at their indices, zeros elsewhere."""

    kind = "max_unpool"
    onnx = ("MaxUnpool",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read MaxUnpool as one scatter into zeros.

        Indices count within the shape that follows from the kernel and the strides; an
        output_shape only adds zeros after that.
        """
        b = node.build
        x = node.input(0)
        index = node.input(1)
        name = node.name
        n, channels, *size = x.type.shape
        shape = (n, channels, *_unpooled_size(node, size))

        zeros = b.const(np.zeros(prod(shape), x.type.np_dtype), f"{name}_zeros")

        # The indices count in the flattened output.
        flatten = Reshape((x.type.size,))
        flat_index = b.add(flatten, [index], name)
        flat_x = b.add(flatten, [x], name)
        scatter = ScatterElements("none", 0)
        scattered = b.add(scatter, [zeros, flat_index, flat_x], name)
        y = b.add(Reshape(shape), [scattered], name)

        # The declared shape may be larger.
        output_shape = node.const(2)
        if output_shape is None or tuple(map(int, output_shape)) == shape:
            return y

        pads = [(0, 0), (0, 0)]
        for target, extent in zip(output_shape[2:], shape[2:], strict=True):
            pads.append((0, int(target) - extent))

        return b.add(Pad(tuple(pads)), [y], name)


def _unpooled_size(node: OnnxNode, size: list[int]) -> list[int]:
    """Return the spatial size of MaxUnpool's output: (d - 1) stride - pads + kernel.

    size: of the pooled image.
    """
    rank = len(size)
    kernel = node.attrs["kernel_shape"]
    stride = node.attrs.get("strides") or [1] * rank
    pads = node.attrs.get("pads") or [0] * (2 * rank)

    # The size whose pooling gives this one.
    unpooled: list[int] = []
    for axis in range(rank):
        full = (size[axis] - 1) * stride[axis] + kernel[axis]
        before = pads[axis]
        after = pads[rank + axis]
        unpooled.append(full - before - after)

    return unpooled


@dataclass(frozen=True)
class Col2Im(_ReadAsOthers):
    """The inverse of im2col: columns of windows, summed into the image they cover."""

    kind = "col2im"
    onnx = ("Col2Im",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Col2Im as one scatter that adds.

        Input [N, C * window, positions], output [N, C, *image].
        """
        b = node.build
        x = node.input(0)
        name = node.name
        image = [int(size) for size in np.asarray(node.const(1))]
        kernel = [int(size) for size in np.asarray(node.const(2))]
        windows = SlidingWindow.of(node, image, kernel)
        padded = [size + sum(p) for size, p in zip(image, windows.pads, strict=True)]

        # The same places for every channel of every image, each a row here.
        plane = np.arange(prod(padded)).reshape(padded)
        places = [plane[windows.cut(at)].reshape(-1) for at in windows.taps()]
        flat_places = np.concatenate(places)
        n = x.type.shape[0]
        channels = n * x.type.shape[1] // prod(kernel)
        index = np.broadcast_to(flat_places, (channels, len(flat_places))).copy()

        # Where windows overlap, their elements add up.
        zeros = np.zeros((channels, prod(padded)), x.type.np_dtype)
        target = b.const(zeros, f"{name}_zeros")
        rows = b.add(Reshape((channels, len(flat_places))), [x], name)
        indices = b.const(index, f"{name}_index")
        sums = b.add(ScatterElements("add", 1), [target, indices, rows], name)
        shape = (n, channels // n, *padded)
        y = b.add(Reshape(shape), [sums], name)

        # Windows over the padding added there too: cut the image out.
        if padded == image:
            return y

        begin = (0, 0, *(before for before, _ in windows.pads))
        crop = Slice(begin, (*shape[:2], *image), (1,) * len(shape))

        return b.add(crop, [y], name)
