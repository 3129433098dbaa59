"""Scales and integers of the TFLite 8-bit quantization specification.

Activations: int8 per tensor, asymmetric, zero exact. Weights: int8 in [-127, 127],
symmetric. Biases: int32 with the scale input x weight. Scales are rounded to float32,
as files store them, before anything is computed from them.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Array, Quant, TensorType
from edgec.ops.fixed_point import round_half_away
from edgec.quantize.observe.ranges import Range

MIN_SCALE = 1e-9
"""Ranges below this are noise around zero; smaller scales would leave the range of the
multipliers.
"""
BLOCK_ELEMENTS = 1 << 14
"""Elements that stay in the first cache while they are rounded."""
MAX_BIAS = 1 << 30
"""A bias of at most this leaves the int32 accumulator as much room for the products."""


def activation_quant(r: Range, floor: float = MIN_SCALE) -> Quant:
    """Return the int8 quantization of a range.

    The range is widened so that it holds zero: scale = (high - low) / 255, at least
    `floor`. The zero point is nudged to an integer from the end of the range where that
    moves the other end less, as TensorFlow's `Nudge` does.
    """
    low = min(r[0], 0.0)
    high = max(r[1], 0.0)
    scale = float(np.float32(max((high - low) / 255, floor, MIN_SCALE)))

    # The real zero must be an integer exactly: padding and relu would be off otherwise.
    from_low = -128 - low / scale
    from_high = 127 - high / scale
    low_error = 128 + abs(low / scale)
    high_error = 127 + abs(high / scale)
    zero = from_low if low_error < high_error else from_high
    nudged = int(np.clip(round_half_away(np.array(zero)), -128, 127))

    return Quant.per_tensor(scale, nudged)


def holds(q: Quant, r: Range) -> bool:
    """Return whether an int8 quantization represents a whole range, within half a step."""
    scale = q.scale[0]
    zero = q.zero_point[0]
    low = (-128.5 - zero) * scale
    high = (127.5 - zero) * scale
    return low <= r[0] and r[1] <= high


def weight_quant(
    w: Array, axis: int | None, x_scale: float, bias: Array | None
) -> Quant:
    """Return the symmetric scales of a weight, max |w| / 127.

    There is one for each slice of `axis`, or one for the tensor (None). A slice of zeros
    takes the tensor's scale; elements that are infinite saturate. Where the bias would
    not fit int32 at the scale x_scale * w_scale, the weight's scale is raised until it
    does.

    w: the weight.
    axis: its axis of output channels; None: one scale for all.
    x_scale: the scale of the input.
    bias: the bias, [output channels].
    """
    magnitude = _finite_sizes(w)
    whole = float(magnitude.max(initial=0.0)) / 127 or 1.0
    if axis is None:
        scale = np.array([whole])
    else:
        others = tuple(i for i in range(w.ndim) if i != axis)
        scale = magnitude.max(axis=others) / 127
        scale[scale == 0] = whole

    if bias is not None and bias.size:
        least = _finite_sizes(bias) / (x_scale * MAX_BIAS)
        scale = np.maximum(scale, least.max() if axis is None else least)

    # A scale of 0, as of a tensor of denormals, could not be divided by.
    scale = np.maximum(scale, np.finfo(np.float32).tiny)
    stored = tuple(float(s) for s in scale.astype(np.float32))

    return Quant(stored, (0,) * len(stored), axis if len(stored) > 1 else None)


def _finite_sizes(a: Array) -> Array:
    """Return absolute values, with 0 for elements that are not finite."""
    return np.where(np.isfinite(a), np.abs(a.astype(np.float64)), 0.0)


def quantize_weight(w: Array, q: Quant) -> Array:
    """Return the nearest integers of a weight, int8 in [-127, 127].

    -128 is left out, as the specification demands.
    """
    scale, _ = q.broadcast(w.ndim)
    steps = round_half_away(np.nan_to_num(w.astype(np.float64) / scale))
    return np.clip(steps, -127, 127).astype(np.int8)


def quantize_activation(x: Array, q: Quant) -> Array:
    """Return the nearest integers of an activation, int8 in [-128, 127].

    It is a constant that stands where activations do, or what calibration saw there.
    """
    flat = np.ascontiguousarray(x).reshape(-1)
    scale = q.scale[0]
    zero = q.zero_point[0]
    result = np.empty(flat.size, np.int8)
    # In blocks, since float64 of a whole image would not stay in the cache.
    for start in range(0, flat.size, BLOCK_ELEMENTS):
        scaled = flat[start : start + BLOCK_ELEMENTS].astype(np.float64)
        scaled /= scale
        steps = np.rint(scaled)
        with np.errstate(invalid="ignore"):
            if np.abs(scaled - steps).max() < 0.5:
                steps += zero
            else:
                # There are ties, which rint takes to even numbers, or elements that
                # are not finite.
                steps = np.nan_to_num(round_half_away(scaled) + zero)
        result[start : start + BLOCK_ELEMENTS] = np.clip(steps, -128, 127, out=steps)

    return result.reshape(x.shape)


def int8_type(t: TensorType, q: Quant) -> TensorType:
    """Return the int8 form of a float type."""
    return t.with_quant(q, "int8")
