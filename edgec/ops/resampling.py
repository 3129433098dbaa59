"""Coordinates of resizes: the place in the input of each output position along one
axis, its neighbours and their weights.

TFLite has four modes (`TFLITE_FLAGS`), which multiply by a float32 ratio of sizes;
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
ALIGNED_HALF_PIXEL = "align_corners_half_pixel"
"""The mode that only TFLite's nearest neighbours have: both of its flags."""
FIXED_ONE = 1 << 10
"""1.0 in the fixed point of TFLite's int8 bilinear kernel."""


@dataclass(frozen=True)
class Axis:
    """One axis of a resize.

    Attributes:
        size: elements of the input
        out: elements of the output
        mode: a key of `_COORDINATES`
        scale: out / size as an ONNX model gives it; 0: the ratio of sizes
    """

    size: int
    out: int
    mode: str
    scale: float = 0.0

    def centres(self) -> tuple[Array, Any, Any]:
        """Return output positions, input size and scale, all in float32.

        A scale of 0 stands for the ratio of the sizes.
        """
        positions = np.arange(self.out, dtype=_F)
        size = _F(self.size)
        scale = _F(self.scale) if self.scale else _F(self.out) / size
        return positions, size, scale


def _ratio(a: Axis) -> Any:
    """Return TFLite's float32 ratio of the sizes.

    With aligned corners it is the ratio of the distances between corner pixels.
    """
    aligns_corners, _ = TFLITE_FLAGS[a.mode]
    if aligns_corners and a.out > 1:
        return _F(a.size - 1) / _F(a.out - 1)

    # The ratio is a quotient of float32 numbers.
    return _F(a.size) / _F(a.out)


def _half_pixel(a: Axis) -> Array:
    """Return (i + 0.5) * ratio - 0.5, TFLite's half_pixel_centers."""
    positions = np.arange(a.out, dtype=_F)
    return np.asarray((positions + _F(0.5)) * _ratio(a) - _F(0.5))


def _half_pixel_unmoved(a: Axis) -> Array:
    """Return (i + 0.5) * ratio, TFLite's half_pixel_centers with align_corners."""
    positions = np.arange(a.out, dtype=_F)
    return np.asarray((positions + _F(0.5)) * _ratio(a))


def _unshifted(a: Axis) -> Array:
    """Return i * ratio, TFLite's other modes."""
    return np.asarray(np.arange(a.out, dtype=_F) * _ratio(a))


def _onnx_asymmetric(a: Axis) -> Array:
    """Return i / scale."""
    positions, _, scale = a.centres()
    return np.asarray(positions / scale)


def _onnx_align_corners(a: Axis) -> Array:
    """Return i * (size - 1) / (out - 1)."""
    positions = np.arange(a.out, dtype=_F)
    return np.asarray(positions * _F(a.size - 1) / _F(max(1, a.out - 1)))


def _onnx_symmetric(a: Axis) -> Array:
    """Return ONNX's half_pixel_symmetric.

    It is half_pixel, moved so that the middle of the output is the middle of the input.
    """
    positions, size, scale = a.centres()
    adjustment = _F(1) - _F(a.out) / (scale * size)
    offset = size / _F(2) * adjustment
    half_pixel = (positions + _F(0.5)) / scale - _F(0.5)

    return np.asarray(offset + half_pixel, _F)


def _onnx_half_pixel(a: Axis) -> Array:
    """Return (i + 0.5) / scale - 0.5."""
    positions, _, scale = a.centres()
    return np.asarray((positions + _F(0.5)) / scale - _F(0.5), _F)


def _onnx_pytorch_half_pixel(a: Axis) -> Array:
    """Return half_pixel, and 0 for an output of one element."""
    return _onnx_half_pixel(a) if a.out > 1 else np.zeros(1, _F)


def _onnx_tf_half_pixel_for_nn(a: Axis) -> Array:
    """Return (i + 0.5) / scale."""
    positions, _, scale = a.centres()
    return np.asarray((positions + _F(0.5)) / scale)


_COORDINATES: dict[str, Callable[[Axis], Array]] = {
    "asymmetric": _unshifted,
    "align_corners": _unshifted,
    "half_pixel": _half_pixel,
    ALIGNED_HALF_PIXEL: _half_pixel_unmoved,
    "onnx_asymmetric": _onnx_asymmetric,
    "onnx_align_corners": _onnx_align_corners,
    "onnx_half_pixel": _onnx_half_pixel,
    "onnx_pytorch_half_pixel": _onnx_pytorch_half_pixel,
    "onnx_half_pixel_symmetric": _onnx_symmetric,
    "onnx_tf_half_pixel_for_nn": _onnx_tf_half_pixel_for_nn,
}
"""The coordinates of each mode: TFLite's, and ONNX's coordinate_transformation_mode."""
TFLITE_FLAGS = {
    "asymmetric": (False, False),
    "align_corners": (True, False),
    "half_pixel": (False, True),
    ALIGNED_HALF_PIXEL: (True, True),
}
"""TFLite's (align_corners, half_pixel_centers) of each mode that it has."""
TFLITE_MODES = tuple(mode for mode in TFLITE_FLAGS if mode != ALIGNED_HALF_PIXEL)
"""The modes that all of TFLite's resizes have; nearest neighbours have them all."""
MODES = tuple(_COORDINATES)
"""All modes."""

MIDDLE_TOLERANCE = 1e-6
"""Distance in pixels from the middle of two pixels that onnxruntime takes for the
middle (found by experiment).
"""


def _rounded(x: Array, at_middle: Callable[[Array], Array]) -> Array:
    """Return places rounded to the nearest pixel, `at_middle` between two of them."""
    # float32 places miss the middle by rounding errors.
    fraction = x - np.floor(x)
    is_middle = np.abs(fraction - _F(0.5)) < MIDDLE_TOLERANCE
    return np.where(is_middle, at_middle(x), np.rint(x))


ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda x: _rounded(x, np.floor),
    "round_prefer_ceil": lambda x: _rounded(x, np.ceil),
}
"""The roundings of ONNX's nearest_mode."""


def coordinates(a: Axis) -> Array:
    """Return each output position's float32 place in the input, or outside of it."""
    return np.asarray(_COORDINATES[a.mode](a), _F)


def nearest(a: Axis, nearest_mode: str) -> Array:
    """Return the int32 index of each output position's nearest neighbour.

    nearest_mode: as in ONNX. TFLite's modes have a rounding of their own: those that
    align corners to the nearest, the others down, where half_pixel does not subtract
    the half pixel again.
    """
    aligns_corners, has_half_pixels = TFLITE_FLAGS.get(a.mode, (False, False))
    is_same_size = a.size == a.out and a.scale in (0.0, 1.0)

    # A resize to the same size is the identity in every mode but one.
    if is_same_size and a.mode != ALIGNED_HALF_PIXEL:
        index = np.arange(a.out)
    elif a.mode not in TFLITE_FLAGS:
        index = ROUNDINGS[nearest_mode](coordinates(a))
    elif aligns_corners:
        index = round_half_away(coordinates(a))
    else:
        half = _F(0.5) if has_half_pixels else _F(0)
        positions = np.arange(a.out, dtype=_F) + half
        index = np.floor(positions * _ratio(a))

    return np.clip(index, 0, a.size - 1).astype(np.int32)


@dataclass(frozen=True)
class Neighbours:
    """The two neighbours of each output position.

    Attributes:
        low, high: int32 indices
        weight: of `high`; that of `low` is 1 less it
    """

    low: Array
    high: Array
    weight: Array


def linear(a: Axis) -> Neighbours:
    """Return float32 weights.

    Outside of the input both neighbours are the same and the weight has no effect.
    """
    x = coordinates(a)
    last = a.size - 1

    # At the border both neighbours are the edge pixel.
    low = np.clip(np.floor(x), 0, last).astype(np.int32)
    high = np.clip(np.ceil(x), 0, last).astype(np.int32)
    weight = (x - low.astype(_F)).astype(_F)

    return Neighbours(low, high, weight)


def linear_fixed(a: Axis) -> Neighbours:
    """Return int32 weights in 1/1024, as TFLite's int8 kernel has them.

    Coordinates of modes that TFLite lacks are rounded to multiples of 1/1024.
    """
    x = _fixed_coordinates(a)
    last = a.size - 1

    # floor and ceil of the place.
    low = np.clip(_divide(x), 0, last)
    high = np.clip(_divide(x + FIXED_ONE - 1), 0, last)
    weight = x - low * FIXED_ONE

    return Neighbours(
        low.astype(np.int32),
        high.astype(np.int32),
        weight.astype(np.int32),
    )


def _clipped(a: Axis) -> Array:
    """Return the float32 place inside of the input, as onnxruntime has it."""
    onnx = replace(a, mode=f"onnx_{a.mode}") if a.mode in TFLITE_MODES else a
    return np.asarray(np.clip(coordinates(onnx), 0, a.size - 1), _F)


def linear_clipped(a: Axis) -> Neighbours:
    """Return float32 weights as onnxruntime has them.

    Where both neighbours are the last element, each has half of the weight.
    """
    x = _clipped(a)

    # Places are not negative, so that a cast rounds down.
    low = x.astype(np.int32)
    high = np.minimum(low + 1, a.size - 1).astype(np.int32)
    fraction = x - low.astype(_F)
    weight = np.where(low == high, _F(0.5), fraction)

    return Neighbours(low, high, weight.astype(_F))


def linear_cut(a: Axis) -> Neighbours:
    """Return int32 weights in 1/1024, as onnxruntime's integer kernels have them.

    Coordinates are cut off to that grid.
    """
    x = (_clipped(a) * _F(FIXED_ONE)).astype(np.int32)
    low = x // FIXED_ONE
    high = np.minimum(low + 1, a.size - 1).astype(np.int32)

    return Neighbours(low, high, x - low * FIXED_ONE)


def _fixed_coordinates(a: Axis) -> Array:
    """Return the places in the input in 1/1024 of a pixel.

    TFLite's modes multiply the position by a rounded integer step, as its int8 kernel
    does.
    """
    if a.mode not in TFLITE_MODES:
        places = coordinates(a).astype(np.float64)
        return np.rint(places * FIXED_ONE).astype(np.int64)

    size = a.size
    out = a.out
    if a.mode == "align_corners" and a.out > 1:
        size = size - 1
        out = out - 1

    # The quotient is rounded to the nearest integer.
    step = (FIXED_ONE * size + out // 2) // out

    # half_pixel moves places by half a step less half a pixel.
    offset = 0
    if a.mode == "half_pixel":
        offset = step // 2 - FIXED_ONE // 2

    return np.arange(a.out, dtype=np.int64) * step + offset


def overshoots(a: Axis) -> bool:
    """Return whether TFLite's int8 kernel reads beyond the input.

    Its rounded step then leads past the last element, seen in its reference kernel
    where a side grows to more than about 1024 * size / side. edgec clamps.
    """
    return bool(_fixed_coordinates(a).max() >= a.size * FIXED_ONE)


def _divide(x: Array) -> Array:
    """Return x / 1024, truncated towards zero as C does."""
    return np.where(x >= 0, x // FIXED_ONE, -(-x // FIXED_ONE))


def cubic(a: Axis, coefficient: float, exclude_outside: bool) -> tuple[Array, Array]:
    """Return int32 indices and float32 weights [out, 4] of Keys' cubic convolution.

    Keys 1981, "Cubic convolution interpolation for digital image processing".
    Neighbours outside repeat the edge, or with `exclude_outside` count nothing, where
    the other weights are scaled to sum to 1.
    """
    x = coordinates(a).astype(np.float64)

    # The four neighbours begin one pixel before the place.
    first = np.floor(x).astype(np.int64) - 1
    places = first[:, None] + np.arange(4)
    distance = np.abs(x[:, None] - places)
    weight = cubic_weight(distance, coefficient)
    if exclude_outside:
        is_inside = (places >= 0) & (places < a.size)
        weight = np.where(is_inside, weight, 0)
        weight = weight / weight.sum(1, keepdims=True)

    # Pixels outside repeat the edge.
    index = np.clip(places, 0, a.size - 1)

    return index.astype(np.int32), weight.astype(_F)


def cubic_weight(t: Array, a: float) -> Array:
    """Return Keys' kernel at a distance t >= 0.

    (a + 2) t³ - (a + 3) t² + 1 up to 1, a t³ - 5a t² + 8a t - 4a up to 2, then 0.
    """
    # Horner's form of both polynomials.
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    return np.where(t <= 1, near, np.where(t < 2, far, 0))


def same_places(a: Array, b: Array) -> bool:
    """Return whether two lists of coordinates agree but for rounding errors.

    Different formulas of one place differ in the last bits.
    """
    # A few units in the last place of float32.
    tolerance = 1e-6 * np.maximum(1, np.abs(b)) * 4
    return bool(np.all(np.abs(a - b) <= tolerance))


def blend(x: Array, v: Neighbours, h: Neighbours, one: Any) -> Array:
    """Return the sum of four weighted pixels, in the order of TFLite's kernel.

    v, h: neighbours of rows and columns. one: 1 in the unit of the weights.
    """
    weight_y = v.weight[:, None, None]
    weight_x = h.weight[:, None]
    top = x[:, v.low]

    # Rows above and below the place are gathered first, then columns.
    bottom = x[:, v.high]

    # The order decides the last bit of float32 sums.
    total = top[:, :, h.low] * (one - weight_y) * (one - weight_x)
    total = total + bottom[:, :, h.low] * weight_y * (one - weight_x)
    total = total + top[:, :, h.high] * (one - weight_y) * weight_x
    result: Array = total + bottom[:, :, h.high] * weight_y * weight_x

    return result


def blend_reals(x: Array, v: Neighbours, h: Neighbours) -> Array:
    """Return the sum of four weighted pixels, in the order of onnxruntime's kernel.

    The products of the weights come first, and a row's two pixels are side by side.
    """
    weight_y = v.weight[:, None, None]
    weight_x = h.weight[:, None]
    one = np.float32(1)

    # Rows above and below the place.
    top = x[:, v.low]
    bottom = x[:, v.high]
    total = ((one - weight_x) * (one - weight_y)) * top[:, :, h.low]
    total = total + (weight_x * (one - weight_y)) * top[:, :, h.high]
    total = total + ((one - weight_x) * weight_y) * bottom[:, :, h.low]
    result: Array = total + (weight_x * weight_y) * bottom[:, :, h.high]

    return result
