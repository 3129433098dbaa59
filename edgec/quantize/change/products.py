"""Ops with constant weights as what they are to quantization: products of a weight
matrix and windows of the input.

For each of G groups of output channels: weights [O/G, D] times windows [D]. A dense
convolution has one group and D = KH * KW * C, a depthwise one a group for each channel
and D = KH * KW.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgec.ir import Array, ChannelFlow, Op, Value
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.window import pad_image

_BY_SIZE = 0.5
"""Of the windows that are drawn, so many by their size, the others evenly."""
_FLOWS = (ChannelFlow.SUMS, ChannelFlow.DEPTHWISE)


def linear_layers(ops: Iterable[Op]) -> dict[Op, LinearLayer]:
    """Of those of these float ops that are such products."""
    return {
        op: LinearLayer(op)
        for op in ops
        if op.spec.channel_flow in _FLOWS and op.inputs[1].const is not None
    }


def consumers(ops: Iterable[Op]) -> Mapping[Value, Sequence[Op]]:
    """The ops by the value whose windows they read: what an observer asks for each
    value that it is shown.
    """
    found: dict[Value, list[Op]] = {}
    for op in ops:
        found.setdefault(op.inputs[0], []).append(op)
    return found


@dataclass(frozen=True)
class LinearLayer:
    """One op, of the float graph or its int8 twin."""

    op: Op

    @property
    def _conv(self) -> Conv2D | DepthwiseConv2D | None:
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
        """[G, O/G, D] of the weights as the op has them, or of anything of their shape."""
        if self.is_depthwise:
            return w.reshape(self.depth, self.groups, -1).transpose(1, 2, 0)
        return w.reshape(self.groups, -1, self.depth)

    def weights(self, matrix: Array) -> Array:
        """The opposite of `matrix`."""
        shape = self.op.inputs[1].type.shape
        if self.is_depthwise:
            matrix = matrix.transpose(2, 0, 1)
        return np.ascontiguousarray(matrix).reshape(shape)

    def mean(self, x: Array, zero: float = 0.0) -> Array:
        """[G, D]: the mean of all windows, less `zero`, which is also what lies around
        the image.
        """
        conv = self._conv
        if conv is None:
            rows = x.reshape(-1, self.depth)
            return np.asarray(rows.mean(0, dtype=np.float64) - zero)[None]
        image = pad_image(x, conv.pads, zero)
        kh, kw = self.op.inputs[1].type.shape[1:3]
        oh, ow = self.op.output.type.shape[1:3]
        (sh, sw), (dh, dw) = conv.stride, conv.dilation
        # what a tap meets over all windows: some rows, and of those some columns
        bands = [
            image[:, i * dh : i * dh + (oh - 1) * sh + 1 : sh].sum(
                (0, 1), dtype=np.float64
            )
            for i in range(kh)
        ]
        taps = np.array(
            [
                r[j * dw : j * dw + (ow - 1) * sw + 1 : sw].sum(0)
                for r in bands
                for j in range(kw)
            ]
        )
        taps /= len(x) * oh * ow
        return np.squeeze(self._grouped((taps - zero)[None]), 0)

    def everywhere(self, pixel: Array) -> Array:
        """[G, D]: the window of an image that is `pixel`, [C], everywhere."""
        if self._conv is None:
            return pixel[None]
        kh, kw = self.op.inputs[1].type.shape[1:3]
        return np.squeeze(self._grouped(np.tile(pixel, (1, kh * kw, 1))), 0)

    def windows(
        self, x: Array, count: int, rng: np.random.Generator, zero: float = 0.0
    ) -> Array:
        """[n, G, D]: at most `count` windows, drawn; zero: what lies around the image."""
        return self._at(x, _some(self._total(x), count, rng), zero)

    def weighed(
        self, x: Array, count: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """At most `count` windows, drawn with those more often that have large
        elements, and how many each stands for, [n]: an unlikely window may be all that
        a range clips.
        """
        total = self._total(x)
        if total <= count:
            return self._at(x, np.arange(total)), np.ones(total, np.float32)
        size = self._sizes(x)
        if size.any():
            chance = (1 - _BY_SIZE) / total + _BY_SIZE * size / size.sum()
        else:
            chance = np.full(total, 1 / total)
        at = np.sort(rng.choice(total, count, p=chance / chance.sum()))
        return self._at(x, at), (1 / (count * chance[at])).astype(np.float32)

    def _total(self, x: Array) -> int:
        """Windows of a value."""
        if self._conv is None:
            return x.size // self.depth
        return int(np.prod([len(x), *self.op.output.type.shape[1:3]]))

    def _sizes(self, x: Array) -> Array:
        """[windows]: the square of the largest element of each."""
        conv = self._conv
        if conv is None:
            return np.asarray(
                np.square(np.abs(x.reshape(-1, self.depth)).max(1).astype(np.float64))
            )
        image = pad_image(np.abs(x).max(3, keepdims=True), conv.pads, 0.0)
        kh, kw = self.op.inputs[1].type.shape[1:3]
        oh, ow = self.op.output.type.shape[1:3]
        (sh, sw), (dh, dw) = conv.stride, conv.dilation
        rows = np.max(
            [image[:, i * dh : i * dh + (oh - 1) * sh + 1 : sh] for i in range(kh)], 0
        )
        largest = np.max(
            [rows[:, :, j * dw : j * dw + (ow - 1) * sw + 1 : sw] for j in range(kw)], 0
        )
        return np.asarray(np.square(largest.reshape(-1).astype(np.float64)))

    def _at(self, x: Array, at: Array, zero: float = 0.0) -> Array:
        """[n, G, D]: the windows of these numbers."""
        conv = self._conv
        if conv is None:
            return np.expand_dims(x.reshape(-1, self.depth)[at], 1)
        _, ih, iw, _ = x.shape
        kh, kw = self.op.inputs[1].type.shape[1:3]
        oh, ow = self.op.output.type.shape[1:3]
        b = at // (oh * ow)
        y = at // ow % oh * conv.stride[0] - conv.pads[0]
        rows = y[:, None] + np.arange(kh) * conv.dilation[0]
        cols = (at % ow * conv.stride[1] - conv.pads[2])[:, None] + np.arange(
            kw
        ) * conv.dilation[1]
        found = x[
            b[:, None, None],
            rows.clip(0, ih - 1)[:, :, None],
            cols.clip(0, iw - 1)[:, None, :],
        ]
        inside = ((rows >= 0) & (rows < ih))[:, :, None] & ((cols >= 0) & (cols < iw))[
            :, None, :
        ]
        if not inside.all():
            found[~inside] = zero
        return self._grouped(found.reshape(len(at), kh * kw, -1))

    def _grouped(self, taps: Array) -> Array:
        """[n, KH * KW, C] to [n, G, D]."""
        n, k, c = taps.shape
        return (
            taps.reshape(n, k, self.groups, c // self.groups)
            .transpose(0, 2, 1, 3)
            .reshape(n, self.groups, -1)
        )


def apply(matrix: Array, windows: Array) -> Array:
    """[n, O]: the products of weights [G, O/G, D] and windows [n, G, D]."""
    y = np.matmul(windows.transpose(1, 0, 2), matrix.transpose(0, 2, 1))  # [G, n, O/G]
    return np.ascontiguousarray(y.transpose(1, 0, 2)).reshape(len(windows), -1)


def product(matrix: Array, window: Array) -> Array:
    """[O]: of weights [G, O/G, D] and one window [G, D]; in float64 alike on every
    machine.
    """
    # not by BLAS, whose order of summing hangs on the number of cores
    return np.asarray((matrix * window[:, None]).sum(2).reshape(-1))


def _some(total: int, count: int, rng: np.random.Generator) -> Array:
    if total <= count:
        return np.arange(total)
    return np.sort(rng.choice(total, count, replace=False))
