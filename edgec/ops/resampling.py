"""Where each output position of a resize lies in the input: coordinates, neighbours and
weights along one axis.

TFLite has three modes (`TFLITE_MODES`), which multiply by a float32 ratio of sizes;
ONNX has more, which divide by a scale that a model may give. Both are kept as their
runtimes compute them, because a nearest neighbour can flip on the last bit. Sources:
TFLite's reference resize kernels; the ONNX operator Resize as onnxruntime computes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgec.ir import Array
from edgec.ops.fixed_point import round_half_away

_F = np.float32
FIXED_ONE = 1 << 10
"""1.0 in the fixed point of TFLite's int8 bilinear kernel."""


@dataclass(frozen=True)
class Axis:
    """One axis of a resize: sizes, the mode's name, and the scale that an ONNX model
    gives (0: the ratio of sizes).
    """

    size: int
    out: int
    mode: str
    scale: float = 0.0

    def centres(self) -> tuple[Array, Any, Any]:
        """Output positions, input size and scale as float32."""
        scale = _F(self.scale) if self.scale else _F(self.out) / _F(self.size)
        return np.arange(self.out, dtype=_F), _F(self.size), scale


def _ratio(a: Axis) -> Any:
    """TFLite's float32 ratio of sizes."""
    if a.mode == "align_corners" and a.out > 1:
        return _F(a.size - 1) / _F(a.out - 1)
    return _F(a.size) / _F(a.out)


def _symmetric(a: Axis) -> Array:
    i, size, scale = a.centres()
    offset = size / _F(2) * (_F(1) - _F(a.out) / (scale * size))
    return np.asarray(offset + ((i + _F(0.5)) / scale - _F(0.5)), _F)


def _onnx_half_pixel(a: Axis) -> Array:
    i, _, scale = a.centres()
    return np.asarray((i + _F(0.5)) / scale - _F(0.5), _F)


_COORDINATES: dict[str, Callable[[Axis], Array]] = {
    "asymmetric": lambda a: np.arange(a.out, dtype=_F) * _ratio(a),
    "align_corners": lambda a: np.arange(a.out, dtype=_F) * _ratio(a),
    "half_pixel": lambda a: (
        (np.arange(a.out, dtype=_F) + _F(0.5)) * _ratio(a) - _F(0.5)
    ),
    "onnx_asymmetric": lambda a: a.centres()[0] / a.centres()[2],
    "onnx_align_corners": lambda a: (
        np.arange(a.out, dtype=_F) * _F(a.size - 1) / _F(max(1, a.out - 1))
    ),
    "onnx_half_pixel": _onnx_half_pixel,
    "onnx_pytorch_half_pixel": lambda a: (
        _onnx_half_pixel(a) if a.out > 1 else np.zeros(1, _F)
    ),
    "onnx_half_pixel_symmetric": _symmetric,
    "onnx_tf_half_pixel_for_nn": lambda a: (a.centres()[0] + _F(0.5)) / a.centres()[2],
}
TFLITE_MODES = ("asymmetric", "align_corners", "half_pixel")
MODES = tuple(_COORDINATES)

_MIDDLE = 1e-6
"""onnxruntime takes a place this close to the middle of two pixels for the middle
(found by experiment).
"""


def _rounded(x: Array, at_middle: Callable[[Array], Array]) -> Array:
    return np.where(
        np.abs(x - np.floor(x) - _F(0.5)) < _MIDDLE, at_middle(x), np.rint(x)
    )


ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda x: _rounded(x, np.floor),
    "round_prefer_ceil": lambda x: _rounded(x, np.ceil),
}
"""ONNX's nearest_mode."""


def coordinates(a: Axis) -> Array:
    """The float32 place in the input of each output position; it may lie outside."""
    return np.asarray(_COORDINATES[a.mode](a), _F)


def nearest(a: Axis, rounding: str) -> Array:
    """The int32 index of each output position's nearest neighbour.

    TFLite's modes have a rounding of their own: of align_corners to the nearest, of the
    others down, where half_pixel lacks the half pixel's way back.
    """
    if a.size == a.out and a.scale in (0.0, 1.0):
        index = np.arange(a.out)
    elif a.mode not in TFLITE_MODES:
        index = ROUNDINGS[rounding](coordinates(a))
    elif a.mode == "align_corners":
        index = round_half_away(coordinates(a))
    else:
        half = _F(0.5) if a.mode == "half_pixel" else _F(0)
        index = np.floor((np.arange(a.out, dtype=_F) + half) * _ratio(a))
    return np.clip(index, 0, a.size - 1).astype(np.int32)


@dataclass(frozen=True)
class Neighbours:
    """Of each output position: two int32 indices and the weight of the second one."""

    low: Array
    high: Array
    weight: Array


def linear(a: Axis) -> Neighbours:
    """float32 weights; outside of the input both neighbours are the same and the weight
    is of no effect.
    """
    x = coordinates(a)
    low = np.clip(np.floor(x), 0, a.size - 1).astype(np.int32)
    high = np.clip(np.ceil(x), 0, a.size - 1).astype(np.int32)
    return Neighbours(low, high, (x - low.astype(_F)).astype(_F))


def linear_fixed(a: Axis) -> Neighbours:
    """int32 weights in 1/1024, as TFLite's int8 kernel has them; other modes'
    coordinates are rounded to that grid.
    """
    x = _fixed_coordinates(a)
    low = np.clip(_divide(x), 0, a.size - 1)
    high = np.clip(_divide(x + FIXED_ONE - 1), 0, a.size - 1)
    return Neighbours(*(v.astype(np.int32) for v in (low, high, x - low * FIXED_ONE)))


def _clipped(a: Axis) -> Array:
    """The float32 place in the input, as onnxruntime has it in every mode."""
    onnx = replace(a, mode=f"onnx_{a.mode}") if a.mode in TFLITE_MODES else a
    return np.asarray(np.clip(coordinates(onnx), 0, a.size - 1), _F)


def linear_clipped(a: Axis) -> Neighbours:
    """float32 weights as onnxruntime has them: half of each where both neighbours are
    the last element.
    """
    x = _clipped(a)
    low = x.astype(np.int32)
    high = np.minimum(low + 1, a.size - 1).astype(np.int32)
    return Neighbours(
        low, high, np.where(low == high, _F(0.5), x - low.astype(_F)).astype(_F)
    )


def linear_cut(a: Axis) -> Neighbours:
    """int32 weights in 1/1024 as onnxruntime's kernels of integers have them:
    coordinates cut off.
    """
    x = (_clipped(a) * _F(FIXED_ONE)).astype(np.int32)
    low = x // FIXED_ONE
    return Neighbours(
        low, np.minimum(low + 1, a.size - 1).astype(np.int32), x - low * FIXED_ONE
    )


def _fixed_coordinates(a: Axis) -> Array:
    if a.mode not in TFLITE_MODES:
        return np.rint(coordinates(a).astype(np.float64) * FIXED_ONE).astype(np.int64)
    i = np.arange(a.out, dtype=np.int64)
    size, out = (
        (a.size - 1, a.out - 1)
        if a.mode == "align_corners" and a.out > 1
        else (a.size, a.out)
    )
    step = (FIXED_ONE * size + out // 2) // out
    return i * step + (step // 2 - FIXED_ONE // 2 if a.mode == "half_pixel" else 0)


def overshoots(a: Axis) -> bool:
    """Whether TFLite's int8 kernel reads beyond the input: its rounded step leads past
    the last element.

    Seen in its reference kernel where a side grows to more than about 1024 * size /
    side. We clamp.
    """
    return bool(_fixed_coordinates(a).max() >= a.size * FIXED_ONE)


def _divide(x: Array) -> Array:
    """By 1.0 of the fixed point, truncating as C does."""
    return np.where(x >= 0, x // FIXED_ONE, -(-x // FIXED_ONE))


def cubic(a: Axis, coefficient: float, exclude_outside: bool) -> tuple[Array, Array]:
    """Indices (int32) and weights (float32) [out, 4] of Keys' cubic convolution with
    the given coefficient.

    Neighbours outside repeat the edge, or count nothing and the other weights are
    scaled to sum to 1.
    """
    x = coordinates(a).astype(np.float64)
    first = np.floor(x).astype(np.int64) - 1
    place = first[:, None] + np.arange(4)
    weight = cubic_weight(np.abs(x[:, None] - place), coefficient)
    if exclude_outside:
        weight = np.where((place >= 0) & (place < a.size), weight, 0)
        weight = weight / weight.sum(1, keepdims=True)
    return np.clip(place, 0, a.size - 1).astype(np.int32), weight.astype(_F)


def cubic_weight(t: Array, a: float) -> Array:
    """Keys' kernel at a distance t >= 0."""
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0))


def same_places(a: Array, b: Array) -> bool:
    """Whether two lists of coordinates agree but for rounding."""
    return bool(np.all(np.abs(a - b) <= 1e-6 * np.maximum(1, np.abs(b)) * 4))
