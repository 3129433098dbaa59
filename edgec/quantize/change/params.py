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

# ranges below this are noise around zero; smaller scales would leave the range of the
# multipliers
_MIN_SCALE = 1e-9
_BLOCK = 1 << 14  # elements that stay in the first cache while they are rounded
_BIAS_MAX = 1 << 30  # leaves the accumulator as much room for the products


def activation_quant(r: Range, floor: float = _MIN_SCALE) -> Quant:
    """The int8 quantization of a range, widened so that it holds zero; the scale is at
    least `floor`.

    The zero point is nudged to an integer on the side where that moves the range less.
    """
    low = min(r[0], 0.0)
    high = max(r[1], 0.0)
    scale = float(np.float32(max((high - low) / 255, floor, _MIN_SCALE)))
    from_low = -128 - low / scale
    from_high = 127 - high / scale
    low_error = 128 + abs(low / scale)
    high_error = 127 + abs(high / scale)
    zero = from_low if low_error < high_error else from_high
    return Quant.per_tensor(
        scale, int(np.clip(round_half_away(np.array(zero)), -128, 127))
    )


def holds(q: Quant, r: Range) -> bool:
    """Whether an int8 quantization represents the whole range, within half a step."""
    scale = q.scale[0]
    zero = q.zero_point[0]
    return (-128.5 - zero) * scale <= r[0] and r[1] <= (127.5 - zero) * scale


def weight_quant(
    w: Array, axis: int | None, x_scale: float, bias: Array | None
) -> Quant:
    """Symmetric scales of a weight, per slice of `axis` or (None) per tensor.

    A slice of zeros takes the tensor's scale; what is infinite saturates. Where the
    bias would not fit int32 at the scale x_scale * w_scale, the weight's scale is
    raised until it does.
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
        least = _finite_sizes(bias) / (x_scale * _BIAS_MAX)
        scale = np.maximum(scale, least.max() if axis is None else least)
    scale = np.maximum(scale, np.finfo(np.float32).tiny)
    stored = tuple(float(s) for s in scale.astype(np.float32))
    return Quant(stored, (0,) * len(stored), axis if len(stored) > 1 else None)


def _finite_sizes(a: Array) -> Array:
    """Absolute values, 0 of what is no finite number."""
    return np.where(np.isfinite(a), np.abs(a.astype(np.float64)), 0.0)


def quantize_weight(w: Array, q: Quant) -> Array:
    """int8 in [-127, 127]."""
    scale, _ = q.broadcast(w.ndim)
    steps = round_half_away(np.nan_to_num(w.astype(np.float64) / scale))
    return np.clip(steps, -127, 127).astype(np.int8)


def quantize_activation(x: Array, q: Quant) -> Array:
    """int8 in [-128, 127] of a constant that stands where activations do, or of what
    calibration saw there.
    """
    flat = np.ascontiguousarray(x).reshape(-1)
    scale = q.scale[0]
    zero = q.zero_point[0]
    result = np.empty(flat.size, np.int8)
    for start in range(0, flat.size, _BLOCK):
        scaled = flat[start : start + _BLOCK].astype(np.float64)
        scaled /= scale
        steps = np.rint(scaled)
        with np.errstate(invalid="ignore"):
            if np.abs(scaled - steps).max() < 0.5:
                steps += zero
            else:  # ties, which rint takes to even numbers, or what is not finite
                steps = np.nan_to_num(round_half_away(scaled) + zero)
        result[start : start + _BLOCK] = np.clip(steps, -128, 127, out=steps)
    return result.reshape(x.shape)


def int8_type(t: TensorType, q: Quant) -> TensorType:
    """The int8 form of a float type."""
    return t.with_quant(q, "int8")
