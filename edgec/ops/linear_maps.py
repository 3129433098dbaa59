"""Operators that multiply one axis by a constant matrix: Fourier transforms, and
resizes that the resize kernels do not have.

Semantics: ONNX DFT, STFT and Resize.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from edgec.ir import Array, Builder, OnnxNode, Value
from edgec.ops.common import axis_of
from edgec.ops.compositions import Composed
from edgec.ops.gather import Gather
from edgec.ops.matmul import FullyConnected
from edgec.ops.shape import Reshape, transpose


@dataclass(frozen=True)
class _Map:
    """A linear map along one axis: y[…, i, …] = Σ matrix[i, j] x[…, j, …] + bias[i]."""

    axis: int
    matrix: Array
    bias: Array | None = None

    def apply(self, b: Builder, x: Value, name: str) -> Value:
        """Return the map of `x`, as a fully connected layer over its last axis."""
        rank = x.type.rank
        is_last = self.axis == rank - 1
        order = (*(i for i in range(rank) if i != self.axis), self.axis)
        moved = x if is_last else transpose(b, x, order)

        # A fully connected layer multiplies the last axis.
        operands = [moved]
        operands.append(b.const(self.matrix.astype(np.float32), f"{name}_matrix"))
        if self.bias is not None:
            operands.append(b.const(self.bias.astype(np.float32), f"{name}_bias"))

        y = b.add(FullyConnected(), operands, name)

        if is_last:
            return y

        back = tuple(order.index(i) for i in range(rank))

        return transpose(b, y, back)


@dataclass(frozen=True)
class _Fourier:
    """A discrete Fourier transform of a signal.

    X[k] = Σ x[j] exp(∓2πi jk / length) / (1 or length): the sign and the divisor are
    those of the inverse where `inverse` is set.

    Attributes:
        length: numbers of the transform; the signal is cut or padded with zeros
        inverse: whether it is the inverse transform
        onesided: whether a spectrum has its first length // 2 + 1 numbers only, as that
            of a real signal needs no others
    """

    length: int
    inverse: bool
    onesided: bool

    def matrix(self, n: int, parts: int) -> tuple[Array, int, int]:
        """Return the matrix of n numbers of 1 or 2 parts (real, imaginary).

        Returns (matrix, numbers, parts of each) of the result. A row and a column stand
        for a part of a number.
        """
        # The transform of each unit number is a column.
        units = np.eye(n, dtype=complex)
        by_part = [units, 1j * units][:parts]
        basis = np.stack(by_part, 1).reshape(n * parts, n)

        if self.inverse and self.onesided:
            real = np.fft.irfft(basis, self.length, axis=1)
            result = real[..., None]
        else:
            # numpy has the transforms with ONNX's signs and divisors.
            transform = np.fft.ifft if self.inverse else np.fft.fft
            spectrum = transform(basis, self.length, axis=1)
            if self.onesided:
                spectrum = spectrum[:, : self.length // 2 + 1]
            result = np.stack([spectrum.real, spectrum.imag], -1)

        matrix = result.reshape(n * parts, -1).T

        return matrix, result.shape[1], result.shape[2]


def _transformed(b: Builder, x: Value, fourier: _Fourier, name: str) -> Value:
    """Return [..., n, parts] transformed along the last axis but one."""
    *lead, n, parts = x.type.shape
    matrix, count, result_parts = fourier.matrix(n, parts)

    # The parts of a number are elements of a row of their own.
    rows = b.add(Reshape((*lead, n * parts)), [x], name)

    # The matrix is constant, so that the transform is a fully connected layer.
    weights = b.const(matrix.astype(np.float32), f"{name}_matrix")
    y = b.add(FullyConnected(), [rows, weights], name)

    return b.add(Reshape((*lead, count, result_parts)), [y], name)


@dataclass(frozen=True)
class Dft(Composed):
    """The discrete Fourier transform along an axis; the last axis has 1 or 2 parts."""

    kind = "dft"
    onnx = ("DFT",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read DFT with a constant length and axis.

        The axis is an attribute before opset 20, an input from there on.
        """
        b = node.build
        x = node.input(0)
        name = node.name
        rank = x.type.rank
        length_input = node.const(1)
        inverse = bool(node.attrs.get("inverse", 0))
        onesided = bool(node.attrs.get("onesided", 0))
        if node.opset >= 20:
            axis_input = node.const(2)
        else:
            axis_input = np.array(node.attrs.get("axis", 1))

        axis = -2 if axis_input is None else int(axis_input.reshape(-1)[0])
        axis = axis_of(axis, rank)

        n = x.type.shape[axis]
        length = n
        if length_input is not None:
            length = int(length_input.reshape(-1)[0])
        elif inverse and onesided:
            # A real signal of even length has this one-sided spectrum.
            length = 2 * (n - 1)

        fourier = _Fourier(length, inverse, onesided)

        if axis == rank - 2:
            return _transformed(b, x, fourier, name)

        # The transformed axis must be the last but the parts.
        order = (*(i for i in range(rank - 1) if i != axis), axis, rank - 1)
        moved = transpose(b, x, order)
        y = _transformed(b, moved, fourier, name)

        return transpose(b, y, tuple(order.index(i) for i in range(rank)))


@dataclass(frozen=True)
class Stft(Composed):
    """The short-time Fourier transform: Fourier transforms of frames of a signal."""

    kind = "stft"
    onnx = ("STFT",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read STFT with a constant step, window and frame length.

        [batch, length(, parts)] to [batch, frames, frequencies, 2].
        """
        b = node.build
        x = node.input(0)
        name = node.name
        step_input = node.const(1)
        window = node.const(2)
        length_input = node.const(3)
        assert step_input is not None
        step = int(step_input.reshape(-1)[0])
        batch, signal_length, *parts = x.type.shape

        if length_input is not None:
            length = int(length_input.reshape(-1)[0])
        else:
            length = signal_length if window is None else len(window)

        if not parts:
            x = b.add(Reshape((batch, signal_length, 1)), [x], name)

        width = x.type.shape[-1]

        # Frames overlap, so that they are gathered.
        frames = 1 + (signal_length - length) // step
        starts = np.arange(frames)[:, None] * step
        places = (starts + np.arange(length)).astype(np.int64)
        index = b.const(places, f"{name}_frames")
        framed = b.add(Gather(1), [x, index], name)

        # The window scales the columns of the transform's matrix.
        fourier = _Fourier(length, False, bool(node.attrs.get("onesided", 1)))
        matrix, count, result_parts = fourier.matrix(length, width)
        if window is not None:
            matrix = matrix * np.repeat(window.astype(np.float64), width)

        # A frame is a row.
        rows = b.add(Reshape((batch, frames, length * width)), [framed], name)
        weights = b.const(matrix.astype(np.float32), f"{name}_matrix")
        y = b.add(FullyConnected(), [rows, weights], name)

        return b.add(Reshape((batch, frames, count, result_parts)), [y], name)


RESIZE_ATTRIBUTES = (
    "mode",
    "coordinate_transformation_mode",
    "antialias",
    "cubic_coeff_a",
    "exclude_outside",
    "nearest_mode",
    "extrapolation_value",
)
"""Attributes of Resize that ONNX's reference gets."""


def resized(
    node: OnnxNode,
    sizes: list[int],
    scales: list[float],
    roi: Array | None,
) -> Value:
    """Return a Resize as a matrix for each axis, with ONNX's reference as its source.

    It serves antialiased resizes and those of a region of the image.

    sizes: elements of the output along each axis. scales: divisors of coordinates, 0
    for the ratio of sizes. roi: the starts and then the ends of the region on each
    axis, as fractions of the image.
    """
    b = node.build
    y = node.input(0)
    name = node.name
    attrs = {n: node.attrs[n] for n in RESIZE_ATTRIBUTES if n in node.attrs}
    rank = y.type.rank
    whole = (0.0, 1.0)
    for axis in range(rank):
        size = y.type.shape[axis]
        region = whole
        if roi is not None:
            region = (float(roi[axis]), float(roi[rank + axis]))
        is_same = sizes[axis] == size and region == whole
        if is_same and scales[axis] in (0, 1):
            continue

        # The resize is affine: the zero vector gives its offset, the unit vectors its
        # matrix.
        line = _ResizedLine(attrs, sizes[axis], scales[axis], region)
        offset = line.resize(np.zeros((1, size), np.float32))[0]
        columns = line.resize(np.eye(size, dtype=np.float32)) - offset
        bias = offset if offset.any() else None
        y = _Map(axis, columns.T, bias).apply(b, y, name)

    return y


@dataclass(frozen=True)
class _ResizedLine:
    """A Resize of the rows of a matrix.

    Attributes:
        attrs: attributes of the ONNX node
        size: elements of a resized row
        scale: divisor of coordinates, 0 for the ratio of sizes
        region: start and end of the resized part of a row, as fractions of it
    """

    attrs: Mapping[str, Any]
    size: int
    scale: float
    region: tuple[float, float]

    def resize(self, rows: Array) -> Array:
        """Return the rows resized by ONNX's reference, in float64.

        rows: a matrix whose second axis is resized.
        """
        from onnx.reference import ReferenceEvaluator

        # A Resize has either scales or sizes.
        names = ["x", "roi", "scales"] if self.scale else ["x", "roi", "", "sizes"]
        start, end = self.region
        feeds = {
            "x": rows,
            "roi": np.array([0, start, 1, end], np.float32),
            "scales": np.array([1, self.scale], np.float32),
            "sizes": np.array([len(rows), self.size], np.int64),
        }
        used_feeds = {name: feeds[name] for name in names if name}
        evaluator = ReferenceEvaluator(self._model(names))
        results = evaluator.run(None, used_feeds)

        return np.asarray(results[0], np.float64)

    def _model(self, names: list[str]) -> onnx.ModelProto:
        """Return an ONNX model of one Resize with these input names ("": absent).

        Opset 19 has the attributes of all earlier ones.
        """
        node = onnx.helper.make_node("Resize", names, ["y"], **self.attrs)
        inputs = [onnx.ValueInfoProto(name=name) for name in names if name]

        # The reference infers the shapes.
        outputs = [onnx.ValueInfoProto(name="y")]
        graph = onnx.helper.make_graph([node], "rows", inputs, outputs)
        opset = onnx.helper.make_opsetid("", 19)

        return onnx.helper.make_model(graph, opset_imports=[opset])
