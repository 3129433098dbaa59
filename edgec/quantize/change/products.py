"""Layers with constant weights as products of weight matrices and windows.

A layer has G groups of output channels. For each group it multiplies weights
[O/G, D] by windows [D] of the input. A dense convolution has one group, and windows of
D = KH * KW * C elements; a depthwise one has a group for each input channel, and windows
of D = KH * KW elements; a fully connected layer is a convolution with one tap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgec.ir import Array, ChannelFlow, Op, Value
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.window import pad_image

SHARE_BY_SIZE = 0.5
"""The share of the weighted windows that is drawn by size; the others are drawn evenly."""
LAYER_FLOWS = (ChannelFlow.SUMS, ChannelFlow.DEPTHWISE)


def linear_layers(ops: Iterable[Op]) -> dict[Op, LinearLayer]:
    """Return the layers with constant weights among some operations."""
    layers = {}
    for op in ops:
        is_layer = op.spec.channel_flow in LAYER_FLOWS
        # Weights that are computed at run time are activations to quantization.
        if is_layer and op.inputs[1].const is not None:
            layers[op] = LinearLayer(op)

    return layers


def consumers(ops: Iterable[Op]) -> Mapping[Value, Sequence[Op]]:
    """Return the operations by their first input.

    An observer asks this for each value that it is shown.
    """
    by_value: dict[Value, list[Op]] = {}
    for op in ops:
        by_value.setdefault(op.inputs[0], []).append(op)

    return by_value


@dataclass(frozen=True)
class LinearLayer:
    """One layer, of the float graph or its int8 twin."""

    op: Op

    @property
    def _conv(self) -> Conv2D | DepthwiseConv2D | None:
        """The convolution; None for a fully connected layer.

        A fully connected layer has no taps, and no padding.
        """
        if isinstance(self.op.spec, (Conv2D, DepthwiseConv2D)):
            return self.op.spec
        return None

    @property
    def is_depthwise(self) -> bool:
        """Whether it is a depthwise convolution, whose weights are [1, KH, KW, O]."""
        return self.op.spec.channel_flow is ChannelFlow.DEPTHWISE

    @property
    def groups(self) -> int:
        """The number of groups of channels, each with a weight matrix of its own."""
        x = self.op.inputs[0].type
        w = self.op.inputs[1].type
        if self.is_depthwise:
            return x.shape[3]
        # A fully connected layer may read several pixels as one row.
        return x.shape[3] // w.shape[3] if w.rank == 4 else 1

    @property
    def depth(self) -> int:
        """The number of terms of each product: the length of a window."""
        w = self.op.inputs[1].type.shape
        if self.is_depthwise:
            return w[1] * w[2]
        return int(np.prod(w[1:]))

    @property
    def padded(self) -> bool:
        """Whether windows reach beyond the image."""
        return self._conv is not None and any(self._conv.pads)

    def matrix(self, w: Array) -> Array:
        """Return weights as matrices, [G, O/G, D].

        w: the weights as the op has them, or any array of their shape.
        """
        if self.is_depthwise:
            return w.reshape(self.depth, self.groups, -1).transpose(1, 2, 0)
        return w.reshape(self.groups, -1, self.depth)

    def weights(self, matrix: Array) -> Array:
        """Return matrices as weights: the inverse of `matrix`."""
        shape = self.op.inputs[1].type.shape
        if self.is_depthwise:
            matrix = matrix.transpose(2, 0, 1)
        return np.ascontiguousarray(matrix).reshape(shape)

    def mean(self, x: Array, zero: float = 0.0) -> Array:
        """Return the mean of all windows of an input, less `zero`, [G, D].

        zero: the zero point, which also pads the image.
        """
        conv = self._conv
        if conv is None:
            windows = x.reshape(-1, self.depth)
            return np.asarray(windows.mean(0, dtype=np.float64) - zero)[None]

        image = pad_image(x, conv.pads, zero)
        kernel_rows, kernel_columns = self._taps()
        # The elements that a tap meets over all windows are some rows of the image, and
        # of these some columns: no window has to be made.
        taps = []
        for rows in kernel_rows:
            row_sum = image[:, rows].sum((0, 1), dtype=np.float64)
            for columns in kernel_columns:
                taps.append(row_sum[columns].sum(0))
        means = np.array(taps)
        means /= self._window_count(x)

        return np.squeeze(self._grouped((means - zero)[None]), 0)

    def _taps(self) -> tuple[list[slice], list[slice]]:
        """Return the rows and the columns of the padded image that each tap meets."""
        conv = self._conv
        assert conv is not None
        kernel = self.op.inputs[1].type.shape[1:3]
        output = self.op.output.type.shape[1:3]
        slices: list[list[slice]] = []
        for axis in range(2):
            stride = conv.stride[axis]
            reach = (output[axis] - 1) * stride + 1
            starts = [i * conv.dilation[axis] for i in range(kernel[axis])]
            slices.append([slice(start, start + reach, stride) for start in starts])
        rows, columns = slices

        return rows, columns

    def uniform_window(self, pixel: Array) -> Array:
        """Return the window of an image that is `pixel`, [C], everywhere: [G, D]."""
        if self._conv is None:
            return pixel[None]

        kh, kw = self.op.inputs[1].type.shape[1:3]
        taps = np.tile(pixel, (1, kh * kw, 1))

        return np.squeeze(self._grouped(taps), 0)

    def windows(
        self, x: Array, count: int, rng: np.random.Generator, zero: float = 0.0
    ) -> Array:
        """Return at most `count` windows of an input, drawn evenly, [n, G, D].

        zero: pads the image.
        """
        total = self._window_count(x)
        numbers = np.arange(total)
        if total > count:
            numbers = np.sort(rng.choice(total, count, replace=False))

        return self._windows_at(x, numbers, zero)

    def weighted_windows(
        self, x: Array, count: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Return at most `count` windows of an input, and how many each stands for.

        Windows with large elements are drawn more often: an unlikely window may hold all
        that a range clips. A window that is drawn with the chance p stands for
        1 / (count * p), so that weighted sums are unbiased (importance sampling).
        """
        total = self._window_count(x)
        if total <= count:
            return self._windows_at(x, np.arange(total)), np.ones(total, np.float32)

        sizes = self._squared_maxima(x)
        if sizes.any():
            by_size = sizes / sizes.sum()
            chance = (1 - SHARE_BY_SIZE) / total + SHARE_BY_SIZE * by_size
        else:
            chance = np.full(total, 1 / total)

        # Sorted, so that the image is read from its start to its end.
        numbers = np.sort(rng.choice(total, count, p=chance / chance.sum()))
        weights = (1 / (count * chance[numbers])).astype(np.float32)

        return self._windows_at(x, numbers), weights

    def _window_count(self, x: Array) -> int:
        """Return the number of windows of an input."""
        if self._conv is None:
            return x.size // self.depth
        return int(np.prod([len(x), *self.op.output.type.shape[1:3]]))

    def _squared_maxima(self, x: Array) -> Array:
        """Return the square of the largest magnitude of each window, [windows]."""
        conv = self._conv
        if conv is None:
            rows = np.abs(x.reshape(-1, self.depth))
            return np.asarray(np.square(rows.max(1).astype(np.float64)))

        # The maximum over channels first, then over the taps of each axis.
        image = pad_image(np.abs(x).max(3, keepdims=True), conv.pads, 0.0)
        kernel_rows, kernel_columns = self._taps()
        row_maxima = np.max([image[:, rows] for rows in kernel_rows], 0)
        maxima = np.max([row_maxima[:, :, columns] for columns in kernel_columns], 0)

        return np.asarray(np.square(maxima.reshape(-1).astype(np.float64)))

    def _windows_at(self, x: Array, numbers: Array, zero: float = 0.0) -> Array:
        """Return the windows of these numbers, [n, G, D]. zero: pads the image."""
        conv = self._conv
        if conv is None:
            return np.expand_dims(x.reshape(-1, self.depth)[numbers], 1)

        _, ih, iw, _ = x.shape
        kh, kw = self.op.inputs[1].type.shape[1:3]
        oh, ow = self.op.output.type.shape[1:3]
        image = numbers // (oh * ow)
        y = numbers // ow % oh * conv.stride[0] - conv.pads[0]
        x_start = numbers % ow * conv.stride[1] - conv.pads[2]
        rows = y[:, None] + np.arange(kh) * conv.dilation[0]
        columns = x_start[:, None] + np.arange(kw) * conv.dilation[1]

        # Taps beyond the image read its border first, and are padding then: a padded
        # copy of the image would cost more than a few windows.
        windows = x[
            image[:, None, None],
            rows.clip(0, ih - 1)[:, :, None],
            columns.clip(0, iw - 1)[:, None, :],
        ]
        row_inside = (rows >= 0) & (rows < ih)
        column_inside = (columns >= 0) & (columns < iw)
        inside = row_inside[:, :, None] & column_inside[:, None, :]
        if not inside.all():
            windows[~inside] = zero

        return self._grouped(windows.reshape(len(numbers), kh * kw, -1))

    def _grouped(self, taps: Array) -> Array:
        """Return windows [n, KH * KW, C] as [n, G, D]."""
        n, k, c = taps.shape
        split = taps.reshape(n, k, self.groups, c // self.groups)
        return split.transpose(0, 2, 1, 3).reshape(n, self.groups, -1)


def apply(matrix: Array, windows: Array) -> Array:
    """Return the products of weights [G, O/G, D] and windows [n, G, D], [n, O]."""
    # One matrix product for each group: [G, n, D] by [G, D, O/G].
    y = np.matmul(windows.transpose(1, 0, 2), matrix.transpose(0, 2, 1))
    return np.ascontiguousarray(y.transpose(1, 0, 2)).reshape(len(windows), -1)


def product(matrix: Array, window: Array) -> Array:
    """Return the product of weights [G, O/G, D] and one window [G, D], [O].

    In float64 it is the same on every machine.
    """
    # BLAS would sum in an order that depends on the number of cores.
    return np.asarray((matrix * window[:, None]).sum(2).reshape(-1))
