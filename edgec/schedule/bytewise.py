"""The results of int8 kernels for all inputs: tables of functions and of pairs of bytes.

A variant may replace the arithmetic of a plain kernel by any other that gives the same
bytes for all inputs. There are only 256 bytes and 65,536 pairs of them, so that this is
tried here at compile time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from edgec.ir import Array, Kernel, KernelCall, KernelRounding
from edgec.ir.c_structs import (
    FixedPointProductParams,
    FixedPointSumParams,
    FloatProductParams,
    FloatSumParams,
    RescaleParams,
    ScaledSumParams,
)
from edgec.ops.arithmetic import (
    SQUARE_HEADROOM,
    Maximum,
    Minimum,
    SquaredDifference,
)
from edgec.ops.binary import HEADROOM, Add, Mul, Sub
from edgec.ops.binary_scales import Linear
from edgec.ops.fixed_point import multiply_by_quantized_multiplier as multiply
from edgec.ops.prelu import PRelu

BYTES = np.arange(-128, 128, dtype=np.int64)
"""Every byte, in the order of the entries of a table."""

FRACTION_BITS = 27
"""Bits of the factors of a scaled sum behind the point."""

MAX_FACTOR = 1 << 30
"""Larger factors do not fit into the two 16-bit parts of `ScaledSumParams`."""

MAX_CORRECTIONS = 50
"""Steps of the search for the factors of a scaled sum."""


@dataclass(frozen=True)
class Offset:
    """A function of bytes: min(max(saturate((x ^ flip) + add), low), high)."""

    flip: int
    add: int
    low: int
    high: int


@dataclass(frozen=True)
class ScaledSum:
    """A function of two bytes u and v: (a * u + b * v + bias) >> 27, then clamped."""

    a: int
    b: int
    bias: int

    def parts(self) -> ScaledSumParams:
        """Return the numbers as vectors of 16 bits multiply them.

        The low 15 bits of the factors and the low 11 of the bias are apart.
        """
        return ScaledSumParams(
            a_high=self.a >> 15,
            a_low=self.a & 0x7FFF,
            b_high=self.b >> 15,
            b_low=self.b & 0x7FFF,
            bias=self.bias >> 11,
            rest=self.bias & 0x7FF,
        )

    def pairs(self) -> Array:
        """Return the results [256, 256] as the vectors compute them, without the clamp.

        The products of the low parts are shifted before they are added, which loses
        bits that a sum of exact products has.
        """
        parts = self.parts()
        u = 16 * BYTES[:, None]
        v = 16 * BYTES[None, :]
        low = u * parts.a_low + v * parts.b_low + 16 * parts.rest
        carried: Array = low >> 15

        high = u * parts.a_high + v * parts.b_high + parts.bias
        result: Array = (high + carried) >> 16
        return result


def offset_of_table(table: Array) -> Offset | None:
    """Return the addition and clamp that do the same as a table of 256 bytes, if any."""
    # Entries at the bounds may be clamped, the others tell the addition.
    low = int(table.min())
    high = int(table.max())
    inside = np.flatnonzero((table > low) & (table < high))
    if not inside.size:
        return None

    # With the highest bit flipped, signed addition saturates as unsigned does.
    for flip in (0, -128):
        base = BYTES ^ flip
        first = inside[0]
        add = int(table[first] - base[first])
        saturated = np.clip(base + add, -128, 127)
        clamped = np.clip(saturated, low, high)
        if abs(add) < 128 and np.array_equal(clamped, table):
            return Offset(flip, add, low, high)

    return None


def rescale_table(call: KernelCall) -> Array:
    """Return the table of ek_quantize_{s8,u8}_{s8,u8}, from bytes to bytes."""
    p = call.struct(RescaleParams)
    is_signed_source = call.kernel.source == "s8"
    integers = BYTES if is_signed_source else BYTES & 255
    low = -128 if call.kernel.dtype == "s8" else 0

    scaled = multiply(integers - p.x_zero, p.mul, p.shift).astype(np.int64)
    outputs = np.clip(scaled + p.y_zero, low, low + 255)
    return outputs.astype(np.uint8).view(np.int8)


def pairs(call: KernelCall) -> Array:
    """Return the results [256, 256] of an int8 kernel of two operands, for all pairs."""
    kernel = call.kernel
    u = BYTES[:, None]
    v = BYTES[None, :]
    if kernel in Maximum.kernels:
        return np.asarray(np.maximum(u, v))
    if kernel in Minimum.kernels:
        return np.asarray(np.minimum(u, v))

    is_float = kernel.rounding is KernelRounding.EVEN
    if kernel in Mul.kernels:
        return _float_products(call) if is_float else _products(call)

    return _float_sums(call) if is_float else _fixed_point_pairs(call)


def _products(call: KernelCall) -> Array:
    """Return the products in TFLite's fixed point."""
    p = call.struct(FixedPointProductParams)
    u = BYTES[:, None] - p.a_zero
    v = BYTES[None, :] - p.b_zero
    product = multiply(u * v, p.mul, p.shift).astype(np.int64)
    return np.clip(product + p.y_zero, p.low, p.high)


def _fixed_point_pairs(call: KernelCall) -> Array:
    """Return the results of a kernel with a multiplier for each tensor.

    These are sums, differences, squared differences and PReLUs.
    """
    kernel = call.kernel
    p = call.struct(FixedPointSumParams)
    u = BYTES[:, None] - p.a_zero
    v = BYTES[None, :] - p.b_zero

    # A PReLU has one multiplier for each sign, the others one for each tensor.
    if kernel in PRelu.kernels:
        positive = multiply(u, p.a_mul, p.a_shift)
        negative = multiply(u * v, p.y_mul, p.y_shift)
        result = np.where(u >= 0, positive, negative)
    else:
        is_squared = kernel in SquaredDifference.kernels
        headroom = SQUARE_HEADROOM if is_squared else HEADROOM
        a = multiply(u << headroom, p.a_mul, p.a_shift)
        b = multiply(v << headroom, p.b_mul, p.b_shift)
        total = a + b if kernel in Add.kernels else a - b
        if is_squared:
            total = total * total
        result = multiply(total, p.y_mul, p.y_shift)

    return np.clip(result.astype(np.int64) + p.y_zero, p.low, p.high)


def _float_products(call: KernelCall) -> Array:
    """Return the products as they are computed in float32."""
    p = call.struct(FloatProductParams)
    product = (BYTES[:, None] - p.a_zero) * (BYTES[None, :] - p.b_zero)

    # onnxruntime adds the zero point of the file, which may be unsigned, before it
    # rounds, the Edge TPU none: ties fall as they do there.
    zero_point = np.float32(p.y_zero + p.shift)
    real = product.astype(np.float32) * np.float32(p.scale) + zero_point
    rounded = np.rint(real).astype(np.int64) - p.shift
    return np.asarray(np.clip(rounded, p.low, p.high))


def _float_sums(call: KernelCall) -> Array:
    """Return the sums or differences as they are computed in float32."""
    p = call.struct(FloatSumParams)
    form = _linear(p)
    sums = np.rint(form.of(BYTES[:, None], BYTES[None, :]))
    return np.asarray(np.clip(sums.astype(np.int64) - p.shift, p.low, p.high))


def _linear(p: FloatSumParams) -> Linear:
    """Return the function of a float sum with its numbers as the C has them, float32."""
    a, b, rest, scale = np.array([p.a, p.b, p.rest, p.scale], np.float32).tolist()
    return Linear(a, b, rest, p.shift, scale)


def scaled_sum(call: KernelCall) -> ScaledSum | None:
    """Return the scaled sum that equals an int8 sum or difference for all pairs.

    None where the search finds none.
    """
    p: FixedPointSumParams | FloatSumParams
    if call.kernel.rounding is KernelRounding.EVEN:
        p = call.struct(FloatSumParams)
    else:
        p = call.struct(FixedPointSumParams)

    return _scaled_sum(call.kernel, p)


@lru_cache(1024)
def _scaled_sum(
    kernel: Kernel, p: FixedPointSumParams | FloatSumParams
) -> ScaledSum | None:
    """Return the same by the parameters alone.

    The schedule asks for it again whenever it compares variants of the call.
    """
    # A constant result would leave the factors open.
    expected = pairs(KernelCall.of(kernel, p))
    if int(np.ptp(expected)) == 0:
        return None

    if isinstance(p, FloatSumParams):
        start = _start_of_float_sum(p)
    else:
        start = _start_of_fixed_point_sum(p, -1 if kernel in Sub.kernels else 1)
    if start is None:
        return None

    # The corrections may end without a solution: only equal results count.
    solution = _corrected(start, expected, p.low, p.high)
    results = np.clip(solution.pairs(), p.low, p.high)
    return solution if np.array_equal(results, expected) else None


def fits_fixed_point(call: KernelCall) -> bool:
    """Return whether ek_law_s8_simd can compute a sum or difference.

    It can where no multiplier shifts to the left, so that nothing leaves 32 bits.
    """
    p = call.struct(FixedPointSumParams)
    return all(-31 <= shift <= 0 for shift in (p.a_shift, p.b_shift, p.y_shift))


def _start_of_fixed_point_sum(p: FixedPointSumParams, sign: int) -> ScaledSum | None:
    """Return the rounded factors of the reals behind three fixed-point multipliers.

    sign: -1 for a difference.
    """
    # A multiplier stands for mul * 2^(shift - 31).
    a_scale = p.a_mul * 2.0 ** (p.a_shift - 31)
    b_scale = p.b_mul * 2.0 ** (p.b_shift - 31)
    y_scale = p.y_mul * 2.0 ** (p.y_shift - 31)
    unit = 2.0 ** (HEADROOM + FRACTION_BITS)
    a = round(a_scale * y_scale * unit)
    b = round(sign * b_scale * y_scale * unit)
    if max(abs(a), abs(b)) >= MAX_FACTOR:
        return None

    # Half a step makes rounding down round to the nearest.
    half = (2 * p.y_zero + 1) << (FRACTION_BITS - 1)
    return ScaledSum(a, b, half - p.a_zero * a - p.b_zero * b)


def _start_of_float_sum(p: FloatSumParams) -> ScaledSum | None:
    """Return the rounded factors of a float sum."""
    form = _linear(p)
    a, b, rest = (factor * form.scale for factor in (form.a, form.b, form.rest))
    if max(abs(a), abs(b)) >= MAX_FACTOR >> FRACTION_BITS:
        return None

    # The elements of the C are those of the file less `shift`.
    bias = rest + (a + b - 1) * p.shift + 0.5
    factors = [round(factor * 2.0**FRACTION_BITS) for factor in (a, b, bias)]
    return ScaledSum(*factors)


def _corrected(start: ScaledSum, wanted: Array, low: int, high: int) -> ScaledSum:
    """Return factors near `start` that give the wanted results, as far as possible.

    The plain kernel rounds three times, ties away from zero, which one rounding of
    exact factors does not reproduce. Each pair with a result that is not clamped bounds
    a * u + b * v + bias from both sides. While a bound is broken, the factors move along
    (u, v, 64²) so that the sum comes to the other side of the bound that is broken
    most: the perceptron's rule for linear inequalities.
    """
    u, v = (x.ravel() for x in np.meshgrid(BYTES, BYTES, indexing="ij"))
    unbounded = 1 << 60
    lowest = np.where(wanted > low, wanted << FRACTION_BITS, -unbounded).ravel()
    next_step = (wanted + 1) << FRACTION_BITS
    highest = np.where(wanted < high, next_step - 1, unbounded).ravel()

    # Only pairs near a bound can break it after small corrections.
    total = start.a * u + start.b * v + start.bias
    distance = np.minimum(total - lowest, highest - total)
    near = distance < 1 << (FRACTION_BITS - 9)
    if not near.any():
        return start

    u = u[near]
    v = v[near]
    lowest = lowest[near]
    highest = highest[near]
    current = start
    for _ in range(MAX_CORRECTIONS):
        total = current.a * u + current.b * v + current.bias
        missing = np.where(
            total < lowest, lowest - total, np.minimum(highest - total, 0)
        )
        worst = int(np.abs(missing).argmax())
        if missing[worst] == 0:
            break

        current = _moved(current, int(missing[worst]), int(u[worst]), int(v[worst]))

    return current


def _moved(current: ScaledSum, missing: int, u: int, v: int) -> ScaledSum:
    """Return factors whose sum for a pair is larger by what it misses, and a bit more.

    bias / 64 counts as the factor of an input of 64, about the size of a byte.
    """
    length = u**2 + v**2 + 64**2
    step = (missing + np.sign(missing)) / length
    return ScaledSum(
        current.a + _away_from_zero(step * u),
        current.b + _away_from_zero(step * v),
        current.bias + _away_from_zero(step * 64**2),
    )


def _away_from_zero(x: float) -> int:
    """Return the next integer that is not nearer to zero."""
    return int(np.copysign(np.ceil(abs(x)), x))
