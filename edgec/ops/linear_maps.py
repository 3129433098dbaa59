"""Operators that are a constant matrix along an axis: Fourier transforms, and what the
resize ops do not resample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from edgec.ir import Array, Builder, OnnxNode, Value
from edgec.ops.common import axis_of
from edgec.ops.composed import Composed
from edgec.ops.gather import Gather
from edgec.ops.matmul import FullyConnected
from edgec.ops.shape import Reshape, transpose


def _along(
    b: Builder, x: Value, axis: int, matrix: Array, name: str, bias: Array | None = None
) -> Value:
    """y[…, i, …] = Σ matrix[i, j] x[…, j, …] on one axis."""
    order = (*(i for i in range(x.type.rank) if i != axis), axis)
    moved = x if axis == x.type.rank - 1 else transpose(b, x, order)
    weights = [b.const(matrix.astype(np.float32), f"{name}_matrix")]
    weights += (
        [b.const(bias.astype(np.float32), f"{name}_bias")] if bias is not None else []
    )
    y = b.add(FullyConnected(), [moved, *weights], name)
    if axis == x.type.rank - 1:
        return y
    return transpose(b, y, tuple(order.index(i) for i in range(x.type.rank)))


def _fourier(
    n: int, parts: int, length: int, inverse: bool, onesided: bool
) -> tuple[Array, int, int]:
    """The matrix that takes n numbers of 1 or 2 parts (real, imaginary) to theirs, and
    how many of how many parts.
    """
    units = np.eye(n, dtype=complex)
    # row: number, part
    basis = np.stack([units, 1j * units][:parts], 1).reshape(n * parts, n)
    if inverse and onesided:
        found = np.fft.irfft(basis, length, axis=1)[..., None]
    else:
        spectrum = (np.fft.ifft if inverse else np.fft.fft)(basis, length, axis=1)
        spectrum = spectrum[:, : length // 2 + 1] if onesided else spectrum
        found = np.stack([spectrum.real, spectrum.imag], -1)
    return found.reshape(n * parts, -1).T, found.shape[1], found.shape[2]


def _transformed(
    b: Builder, x: Value, length: int, inverse: bool, onesided: bool, name: str
) -> Value:
    """[…, n, parts] transformed along the last axis but one."""
    *lead, n, parts = x.type.shape
    matrix, count, made = _fourier(n, parts, length, inverse, onesided)
    rows = b.add(Reshape((*lead, n * parts)), [x], name)
    y = b.add(
        FullyConnected(),
        [rows, b.const(matrix.astype(np.float32), f"{name}_matrix")],
        name,
    )
    return b.add(Reshape((*lead, count, made)), [y], name)


@dataclass(frozen=True)
class Dft(Composed):
    """The discrete Fourier transform along an axis."""

    kind = "dft"
    onnx = ("DFT",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """The axis is an attribute before opset 20, an input from there on."""
        b = node.build
        x = node.input(0)
        given = node.const(1)
        name = node.name
        rank, inverse, onesided = (
            x.type.rank,
            *(bool(node.attrs.get(n, 0)) for n in ("inverse", "onesided")),
        )
        if node.opset >= 20:
            place = node.const(2)
        else:
            place = np.array(node.attrs.get("axis", 1))
        axis = axis_of(-2 if place is None else int(place.reshape(-1)[0]), rank)
        n = x.type.shape[axis]
        if given is not None:
            length = int(given.reshape(-1)[0])
        else:
            length = 2 * (n - 1) if inverse and onesided else n
        order = (*(i for i in range(rank - 1) if i != axis), axis, rank - 1)
        moved = x if axis == rank - 2 else transpose(b, x, order)
        y = _transformed(b, moved, length, inverse, onesided, name)
        if axis == rank - 2:
            return y
        return transpose(b, y, tuple(order.index(i) for i in range(rank)))


@dataclass(frozen=True)
class Stft(Composed):
    """Fourier transforms of windows of a signal."""

    kind = "stft"
    onnx = ("STFT",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """[batch, length, parts] to [batch, frames, frequencies, 2]; step, window and
        length are constants.
        """
        b = node.build
        x = node.input(0)
        name = node.name
        step = node.const(1)
        window = node.const(2)
        length = node.const(3)
        assert step is not None
        by, (batch, whole, *parts) = int(step.reshape(-1)[0]), x.type.shape
        if length is not None:
            n = int(length.reshape(-1)[0])
        else:
            n = whole if window is None else len(window)
        if not parts:
            x = b.add(Reshape((batch, whole, 1)), [x], name)
        frames = 1 + (whole - n) // by
        places = (np.arange(frames)[:, None] * by + np.arange(n)).astype(np.int64)
        cut = b.add(Gather(1), [x, b.const(places, f"{name}_frames")], name)
        width = x.type.shape[-1]
        matrix, count, made = _fourier(
            n, width, n, False, bool(node.attrs.get("onesided", 1))
        )
        if window is not None:
            matrix = matrix * np.repeat(window.astype(np.float64), width)
        rows = b.add(Reshape((batch, frames, n * width)), [cut], name)
        y = b.add(
            FullyConnected(),
            [rows, b.const(matrix.astype(np.float32), f"{name}_matrix")],
            name,
        )
        return b.add(Reshape((batch, frames, count, made)), [y], name)


def resized(
    node: OnnxNode, sizes: list[int], scales: list[float], roi: Array | None
) -> Value:
    """Resize as a matrix for each axis, which ONNX's reference gives: with a filter, or
    a part of the image.

    sizes: of the output. scales: what coordinates divide by, 0 for the ratio of sizes.
    roi: start and end of each axis.
    """
    b = node.build
    y = node.input(0)
    name = node.name
    named = (
        "mode",
        "coordinate_transformation_mode",
        "antialias",
        "cubic_coeff_a",
        "exclude_outside",
    )
    attrs = {
        n: node.attrs[n]
        for n in (*named, "nearest_mode", "extrapolation_value")
        if n in node.attrs
    }
    rank = y.type.rank
    for axis, (d, size, scale) in enumerate(
        zip(y.type.shape, sizes, scales, strict=True)
    ):
        if roi is None:
            part = (0.0, 1.0)
        else:
            part = (float(roi[axis]), float(roi[rank + axis]))
        if (d, part) == (size, (0.0, 1.0)) and scale in (0, 1):
            continue
        line = _Line(attrs, size, scale, part)
        offset = line.of(np.zeros((1, d), np.float32))[0]
        matrix = (line.of(np.eye(d, dtype=np.float32)) - offset).T
        y = _along(b, y, axis, matrix, name, offset if offset.any() else None)
    return y


@dataclass(frozen=True)
class _Line:
    """Resize of rows."""

    attrs: Mapping[str, Any]
    size: int
    scale: float
    part: tuple[float, float]

    def of(self, rows: Array) -> Array:
        """The rows resized, by ONNX's reference."""
        from onnx.reference import ReferenceEvaluator

        names = [
            "x",
            "roi",
            "scales" if self.scale else "",
            "" if self.scale else "sizes",
        ]
        made = onnx.helper.make_node(
            "Resize", names if names[3] else names[:3], ["y"], **self.attrs
        )
        infos = (
            [onnx.ValueInfoProto(name=n) for n in given if n]
            for given in (names, ["y"])
        )
        graph = onnx.helper.make_graph([made], "rows", *infos)
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 19)]
        )
        feeds = {
            "x": rows,
            "roi": np.array([0, self.part[0], 1, self.part[1]], np.float32),
            "scales": np.array([1, self.scale], np.float32),
            "sizes": np.array([len(rows), self.size], np.int64),
        }
        found = ReferenceEvaluator(model).run(None, {n: feeds[n] for n in names if n})
        return np.asarray(found[0], np.float64)
