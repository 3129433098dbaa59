"""Sliding windows of any rank, computed element by element of the window.

The kernels take two-dimensional windows of images with constant weights. Every other
convolution or pool (dilated pools, pools with indices, p-norms, computed weights) is
read as a sum, maximum or product over the window's elements: element k of all windows
at once is one strided slice of the padded tensor. `ranks` reads windows of one and
three dimensions as two-dimensional ones.

Semantics: ONNX Conv, MaxPool, AveragePool, LpPool and Col2Im.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from edgec.ir import Array, Builder, OnnxNode, TensorType, Value
from edgec.ops.arithmetic import Maximum
from edgec.ops.binary import Add
from edgec.ops.compare import Greater, Where
from edgec.ops.concat import Concat
from edgec.ops.division import Div
from edgec.ops.matmul import BatchMatMul
from edgec.ops.pad import Pad
from edgec.ops.shape import Reshape
from edgec.ops.slice import Slice

Pads = list[tuple[int, int]]
"""(before, after) elements for each spatial dimension."""

MAX_WINDOW_ELEMENTS = 4096
"""The largest window read element by element: each element is an operation or two."""


@dataclass(frozen=True)
class SlidingWindow:
    """The sliding window of a node along its spatial dimensions, one entry for each.

    Attributes:
        size: elements of the image
        kernel: elements of the window
        stride: image elements between neighbouring windows
        dilation: image elements between neighbouring elements of a window
        pads: (before, after) elements around the image
        out: number of windows
    """

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    out: tuple[int, ...]

    @classmethod
    def of(
        cls,
        node: OnnxNode,
        size: Sequence[int],
        kernel: Sequence[int],
    ) -> SlidingWindow:
        """Return the window that the attributes of a convolution or pool describe.

        Partial windows added by ceil_mode are made whole by padding at the end.
        """
        rank = len(size)
        stride = tuple(node.attrs.get("strides") or (1,) * rank)
        dilation = tuple(node.attrs.get("dilations") or (1,) * rank)
        explicit = node.attrs.get("pads") or (0,) * (2 * rank)
        auto_pad = node.attrs.get("auto_pad", "NOTSET")
        ceil_mode = bool(node.attrs.get("ceil_mode", 0))

        # Each axis has its own pads and number of windows.
        pads = Pads()
        out = list[int]()
        axes = zip(size, kernel, stride, dilation, strict=True)
        for i, (length, elements, step, spacing) in enumerate(axes):
            axis = _WindowAxis(length, (elements - 1) * spacing + 1, step)
            if auto_pad.startswith("SAME"):
                before, after = axis.same_pads(auto_pad == "SAME_UPPER")
                count = axis.count(before, after)
            else:
                before = after = 0
                if auto_pad == "NOTSET":
                    before, after = explicit[i], explicit[rank + i]
                count = axis.count(before, after)
                if ceil_mode:
                    count, after = axis.ceil_count(before, after)
            pads.append((before, after))
            out.append(count)

        return cls(
            size=tuple(size),
            kernel=tuple(kernel),
            stride=stride,
            dilation=dilation,
            pads=tuple(pads),
            out=tuple(out),
        )

    def taps(self) -> Iterator[tuple[int, ...]]:
        """Return an iterator over the coordinates of the window's elements, row-major.

        Raises ValueError when the window has too many elements for an op each.
        """
        elements = prod(self.kernel)
        if elements > MAX_WINDOW_ELEMENTS:
            raise ValueError(
                f"a window of {elements:,} elements is more than the "
                f"{MAX_WINDOW_ELEMENTS:,} that edgec reads"
            )

        return product(*map(range, self.kernel))

    def cut(self, at: Sequence[int]) -> tuple[slice, ...]:
        """Return the slices of a padded image that hold element `at` of all windows.

        Along each axis: start at * dilation, step stride, as many as there are windows.
        """
        slices: list[slice] = []
        axes = zip(at, self.dilation, self.out, self.stride, strict=True)
        for place, spacing, count, step in axes:
            first = place * spacing
            last = first + (count - 1) * step
            slices.append(slice(first, last + 1, step))

        return tuple(slices)

    def padded(self, b: Builder, x: Value, value: float, name: str) -> Value:
        """Return `x` [N, C, …] padded with `value`; `x` itself when there are no pads.

        value: of the border, in the unit of the elements.
        """
        if not any(map(any, self.pads)):
            return x

        # Batch and channels have no border.
        spec = Pad(((0, 0), (0, 0), *self.pads), value=value)
        return b.add(spec, [x], name)

    def tap(self, b: Builder, padded: Value, at: Sequence[int], name: str) -> Value:
        """Return element `at` of all windows as a tensor [N, C, *out].

        padded: the image with its border. at: coordinates in the window.
        """
        places = [i * d for i, d in zip(at, self.dilation, strict=True)]
        spec = Slice(
            begin=(0, 0, *places),
            shape=(*padded.type.shape[:2], *self.out),
            step=(1, 1, *self.stride),
        )

        return b.add(spec, [padded], name)


@dataclass(frozen=True)
class _WindowAxis:
    """Window arithmetic along one axis: image length, dilated window span, stride."""

    size: int
    span: int
    stride: int

    def count(self, before: int, after: int) -> int:
        """Return the number of whole windows of the padded image."""
        return (self.size + before + after - self.span) // self.stride + 1

    def same_pads(self, upper: bool) -> tuple[int, int]:
        """Return the pads that give ceil(size / stride) windows.

        upper: put the odd element after the image (SAME_UPPER), not before it.
        """
        count = -(-self.size // self.stride)
        total = max(0, (count - 1) * self.stride + self.span - self.size)
        smaller = total // 2
        larger = total - smaller

        return (smaller, larger) if upper else (larger, smaller)

    def ceil_count(self, before: int, after: int) -> tuple[int, int]:
        """Return (windows, pad after) of ceil_mode, whose last window may be partial.

        A window that would start in the padding after the image is left out.
        """
        length = self.size + before
        count = -(-(length + after - self.span) // self.stride) + 1
        if (count - 1) * self.stride >= length:
            count -= 1

        needed = (count - 1) * self.stride + self.span - length

        return count, max(after, needed)


def conv_by_taps(node: OnnxNode) -> Value:
    """Read a convolution whose weights are computed, as a matrix product.

    im2col: the windows are the columns of a matrix [C/groups * window, positions],
    which the weights [O/groups, C/groups * window] of each group multiply.
    """
    b = node.build
    x = node.input(0)
    weights = node.input(1)
    bias = node.optional(2)
    name = node.name
    groups = int(node.attrs.get("group", 1))
    node.attrs.ignore("kernel_shape")

    _, channels, *size = x.type.shape
    out_channels, depth, *kernel = weights.type.shape

    # Each group convolves its own channels.
    if channels != groups * depth or out_channels % groups:
        raise ValueError(
            f"weights {weights.type} with group={groups} do not fit {channels} "
            "input channels"
        )

    # One slice for each element of the window.
    windows = SlidingWindow.of(node, size, kernel)
    padded = windows.padded(b, x, 0, name)
    taps = [windows.tap(b, padded, at, name) for at in windows.taps()]

    y = product_with_taps(node, taps, weights, windows.out)

    return add_bias(b, y, bias, name)


def product_with_taps(
    node: OnnxNode,
    taps: Sequence[Value],
    weights: Value,
    out: Sequence[int],
) -> Value:
    """Return the convolution [N, O, *out] as a matrix product of weights and columns.

    taps: for each element of the window a tensor [N, C, *out]. weights: [O, C / groups,
    *window]. The columns of a group are a matrix [C / groups * window, positions].
    """
    b = node.build
    name = node.name
    groups = int(node.attrs.get("group", 1))
    n = taps[0].type.shape[0]
    out_channels, depth = weights.type.shape[:2]
    positions = prod(out)
    inner = depth * len(taps)

    # The taps, stacked, are the columns.
    tap_shape = (n, groups, depth, 1, positions)
    rows = [b.add(Reshape(tap_shape), [tap], name) for tap in taps]
    stacked = b.add(Concat(3), rows, name) if len(rows) > 1 else rows[0]
    columns = b.add(Reshape((n, groups, inner, positions)), [stacked], name)

    matrix_shape = (1, groups, out_channels // groups, inner)
    matrix = b.add(Reshape(matrix_shape), [weights], name)
    products = b.add(BatchMatMul(), [matrix, columns], name)

    return b.add(Reshape((n, out_channels, *out)), [products], name)


def add_bias(b: Builder, y: Value, bias: Value | None, name: str) -> Value:
    """Return `y` [N, O, …] plus `bias` [O]; `y` itself without a bias.

    The bias is broadcast over the spatial axes.
    """
    if bias is None:
        return y

    spatial = (1,) * (y.type.rank - 2)
    column = b.add(Reshape((1, bias.type.size, *spatial)), [bias], name)

    return b.add(Add(), [y, column], name)


def max_by_taps(node: OnnxNode, windows: SlidingWindow, indices: bool) -> list[Value]:
    """Read a maximum pool as a chain of maxima over the window's elements.

    Returns the maxima and, with `indices`, their places in the flattened input.
    """
    b = node.build
    x = node.input(0)
    name = node.name
    if x.type.dtype == "float32":
        lowest: float = -np.inf
    else:
        lowest = int(np.iinfo(x.type.np_dtype).min)

    padded = windows.padded(b, x, lowest, name)

    if not indices:
        taps = (windows.tap(b, padded, at, name) for at in windows.taps())
        best = next(taps)
        for tap in taps:
            best = b.add(Maximum(), [best, tap], name)
        return [best]

    # The order in which ONNX counts the elements of a plane.
    column_major = bool(node.attrs.get("storage_order", 0))
    places = _flat_places(x.type, windows, column_major)
    best_tap: Value | None = None
    best_place: Value | None = None
    for at in windows.taps():
        tap = windows.tap(b, padded, at, name)
        at_tap = (slice(None), slice(None), *windows.cut(at))
        place = b.const(np.ascontiguousarray(places[at_tap]), f"{name}_places")
        if best_tap is None or best_place is None:
            best_tap = tap
            best_place = place
            continue

        # A strict comparison, so that the first of equal elements counts.
        is_larger = b.add(Greater(), [tap, best_tap], name)
        best_place = b.add(Where(), [is_larger, place, best_place], name)
        best_tap = b.add(Maximum(), [best_tap, tap], name)

    assert best_tap is not None
    assert best_place is not None

    return [best_tap, best_place]


def _flat_places(x: TensorType, windows: SlidingWindow, column_major: bool) -> Array:
    """Return the index of each element of `x` in the flattened tensor, padded by 0.

    column_major: count the elements of a plane with the first dimension innermost
    (MaxPool's storage_order 1).
    """
    n, channels, *size = x.shape
    plane_size = prod(size)
    numbers = np.arange(plane_size, dtype=np.int64)
    if column_major:
        plane = numbers.reshape(size[::-1]).T
    else:
        plane = numbers.reshape(size)

    # The planes follow one another in the flattened tensor.
    spatial = (1,) * len(size)
    planes = np.arange(n * channels, dtype=np.int64).reshape(n, channels, *spatial)
    places = planes * plane_size + plane

    return np.pad(places, ((0, 0), (0, 0), *windows.pads))


def sum_by_taps(b: Builder, x: Value, windows: SlidingWindow, name: str) -> Value:
    """Return the sum of each window of `x`, where padding counts as 0.

    x: [N, C, *size]. Returns [N, C, *out].
    """
    # A sum does not change by zeros.
    padded = windows.padded(b, x, 0, name)
    taps = (windows.tap(b, padded, at, name) for at in windows.taps())
    total = next(taps)
    for tap in taps:
        total = b.add(Add(), [total, tap], name)

    return total


def average_by_taps(node: OnnxNode, windows: SlidingWindow) -> Value:
    """Read an average pool as the sum of each window divided by its element count.

    The count is of the elements inside the image or, with count_include_pad, inside the
    image with the node's own pads. Padding that ceil_mode adds never counts.
    """
    b = node.build
    name = node.name
    rank = len(windows.size)
    count_pads = bool(node.attrs.get("count_include_pad", 0))
    explicit = node.attrs.get("pads") or (0,) * (2 * rank)

    # The window is a box, so that its count is a product of counts along the axes.
    counts = np.ones((1, 1, *(1,) * rank))
    for axis in range(rank):
        node_pads = (explicit[axis], explicit[rank + axis]) if count_pads else (0, 0)
        shape = [1] * (rank + 2)
        shape[axis + 2] = windows.out[axis]
        counts = counts * _counts_along(windows, axis, node_pads).reshape(shape)

    # The counts are known now, the sums are not.
    total = sum_by_taps(b, node.input(0), windows, name)
    divisor = b.const(counts.astype(np.float32), f"{name}_counts")

    return b.add(Div(), [total, divisor], name)


def _counts_along(
    windows: SlidingWindow,
    axis: int,
    counted_pads: tuple[int, int],
) -> Array:
    """Return how many elements of each window count along one axis.

    counted_pads: (before, after) padding elements that count as the image does.
    """
    before, after = windows.pads[axis]
    padded_size = windows.size[axis] + before + after
    counted_size = windows.size[axis] + sum(counted_pads)
    lead = before - counted_pads[0]
    trail = max(0, padded_size - lead - counted_size)
    is_counted = np.pad(np.ones(counted_size), (lead, trail))

    taps: list[Array] = []
    for place in range(windows.kernel[axis]):
        first = place * windows.dilation[axis]
        tap = is_counted[first :: windows.stride[axis]]
        taps.append(tap[: windows.out[axis]])

    return np.asarray(np.sum(taps, 0))
