"""What ops on bytes do, as numbers: the output for every input of a function, and for
every pair of inputs.

A variant may replace arithmetic by any other that gives the same bytes for all of them;
here that is tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from edgec.ir import Array, Kernel, KernelCall, KernelRounding, Struct
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

_FRACTION = 27
_TRIES = 50


@dataclass(frozen=True)
class Offset:
    """min(max(saturated((x ^ flip) + add), low), high)."""

    flip: int
    add: int
    low: int
    high: int


@dataclass(frozen=True)
class ScaledSum:
    """(a * u + b * v + bias) / 2^27 downwards, then clamped."""

    a: int
    b: int
    bias: int

    def parts(self) -> tuple[int, ...]:
        """ek_scaled_sum_t: the low 15 bits of the factors apart, and the low 11 of the
        bias.
        """
        halves = (self.a >> 15, self.a & 0x7FFF, self.b >> 15, self.b & 0x7FFF)
        return (*halves, self.bias >> 11, self.bias & 0x7FF)

    def pairs(self) -> Array:
        """The results for all pairs, as the vectors compute them, before the clamp."""
        a, a_low, b, b_low, bias, rest = self.parts()
        u = 16 * BYTES[:, None]
        v = 16 * BYTES[None, :]
        carried: Array = (u * a_low + v * b_low + 16 * rest) >> 15
        result: Array = (u * a + v * b + bias + carried) >> 16
        return result


def offset(table: Array) -> Offset | None:
    """The same as a table of 256 bytes, if there is one."""
    low = int(table.min())
    high = int(table.max())
    inside = np.flatnonzero((table > low) & (table < high))
    if not inside.size:
        return None
    for flip in (0, -128):
        base = BYTES ^ flip
        add = int(table[inside[0]] - base[inside[0]])
        moved = np.clip(np.clip(base + add, -128, 127), low, high)
        if abs(add) < 128 and np.array_equal(moved, table):
            return Offset(flip, add, low, high)
    return None


def rescaled(call: KernelCall) -> Array:
    """The table of ek_quantize_{s8,u8}_{s8,u8}, from bytes to bytes."""
    q = call.struct("ek_rescale_t")
    integers = BYTES if call.kernel.source == "s8" else BYTES & 255
    low = -128 if call.kernel.dtype == "s8" else 0
    v = multiply(
        integers - q.number("x_zero"), q.number("mul"), q.number("shift")
    ).astype(np.int64)
    return (
        np.clip(v + q.number("y_zero"), low, low + 255).astype(np.uint8).view(np.int8)
    )


def pairs(call: KernelCall) -> Array:
    """The result of a binary kernel for all pairs of bytes, [256, 256]:
    ek_{add,sub,mul,squared_difference,…}_s8.
    """
    kernel = call.kernel
    if kernel in Maximum.kernels:
        return np.maximum(BYTES[:, None], BYTES[None, :])
    if kernel in Minimum.kernels:
        return np.minimum(BYTES[:, None], BYTES[None, :])
    if kernel.rounding is KernelRounding.EVEN:
        return _even_pairs(call)
    q = call.struct("ek_mul_t" if kernel in Mul.kernels else "ek_add_t")
    u = BYTES[:, None] - q.number("a_zero")
    v = BYTES[None, :] - q.number("b_zero")
    if kernel in Mul.kernels:
        r = multiply(u * v, q.number("mul"), q.number("shift"))
    elif kernel in PRelu.kernels:
        r = np.where(
            u >= 0, multiply(u, *_scale(q, "a")), multiply(u * v, *_scale(q, "y"))
        )
    else:
        squares = kernel in SquaredDifference.kernels
        bits = SQUARE_HEADROOM if squares else HEADROOM
        a = multiply(u << bits, *_scale(q, "a"))
        b = multiply(v << bits, *_scale(q, "b"))
        total = a + b if kernel in Add.kernels else a - b
        r = multiply(total * total if squares else total, *_scale(q, "y"))
    return np.clip(
        r.astype(np.int64) + q.number("y_zero"), q.number("low"), q.number("high")
    )


def _even_pairs(call: KernelCall) -> Array:
    """Of ek_{add,sub,mul}_even_s8."""
    u = BYTES[:, None]
    v = BYTES[None, :]
    is_product = call.kernel in Mul.kernels
    q = call.struct("ek_real_mul_t" if is_product else "ek_linear_t")
    if is_product:
        shift = q.number("shift")
        product = (u - q.number("a_zero")) * (v - q.number("b_zero"))
        real = product.astype(np.float32) * _real(q, "scale") + np.float32(
            q.number("y_zero") + shift
        )
        r = np.rint(real).astype(np.int64) - shift
    else:
        form = Linear(
            float(_real(q, "a")),
            float(_real(q, "b")),
            float(_real(q, "rest")),
            q.number("shift"),
        )
        r = np.rint(form.of(u, v)).astype(np.int64) - form.shift
    return np.asarray(np.clip(r, q.number("low"), q.number("high")))


def _real(q: Struct, name: str) -> np.float32:
    value = q.fields[name]
    assert isinstance(value, float)
    return np.float32(value)


def scaled_sum(call: KernelCall) -> ScaledSum | None:
    """The same as ek_add_s8 or ek_sub_s8 for all pairs of bytes, if one is found."""
    is_even = call.kernel.rounding is KernelRounding.EVEN
    q = call.struct("ek_linear_t" if is_even else "ek_add_t")
    return _scaled_sum(call.kernel, q.ctype, tuple(q.fields.items()))


@lru_cache(1024)
def _scaled_sum(
    kernel: Kernel, ctype: str, fields: tuple[tuple[str, object], ...]
) -> ScaledSum | None:
    q = Struct(ctype, **dict(fields))
    want = pairs(KernelCall.of(kernel, q))
    if int(np.ptp(want)) == 0:
        return None
    if ctype == "ek_linear_t":
        start = _even_sum(q)
    else:
        start = _real_sum(q, -1 if kernel in Sub.kernels else 1)
    found = start and _solved(start, want, q.number("low"), q.number("high"))
    if found and np.array_equal(
        np.clip(found.pairs(), q.number("low"), q.number("high")), want
    ):
        return found
    return None


def no_overflow(call: KernelCall) -> bool:
    """Whether ek_law_s8_simd computes ek_add_s8 or ek_sub_s8: nothing is shifted to the
    left, so that nothing leaves the 32 bits.
    """
    q = call.struct("ek_add_t")
    return all(-31 <= _scale(q, k)[1] <= 0 for k in "aby")


def _real_sum(q: Struct, sign: int) -> ScaledSum | None:
    """The factors of the reals, rounded."""
    a, b, y = (m * 2.0 ** (s - 31) for m, s in (_scale(q, k) for k in "aby"))
    a, b = (round(f * y * 2.0 ** (HEADROOM + _FRACTION)) for f in (a, sign * b))
    if max(abs(a), abs(b)) >= 1 << 30:
        return None
    zero = (
        (2 * q.number("y_zero") + 1 << _FRACTION - 1)
        - q.number("a_zero") * a
        - q.number("b_zero") * b
    )
    return ScaledSum(a, b, zero)


def _even_sum(q: Struct) -> ScaledSum | None:
    """The same of a Linear."""
    a, b, rest = (float(_real(q, k)) for k in ("a", "b", "rest"))
    shift = q.number("shift")
    if max(abs(a), abs(b)) >= 1 << 30 - _FRACTION:
        return None
    zero = rest + (a + b - 1) * shift + 0.5
    return ScaledSum(*(round(f * 2.0**_FRACTION) for f in (a, b, zero)))


def _solved(start: ScaledSum, want: Array, low: int, high: int) -> ScaledSum:
    """The law rounds three times, ties away from zero.

    Each pair bounds a * u + b * v + bias from both sides, where its result is not a
    clamped one; while a bound is broken, the sum moves to the other side of the one
    broken most.
    """
    u, v = (x.ravel() for x in np.meshgrid(BYTES, BYTES, indexing="ij"))
    never = 1 << 60
    least = np.where(want > low, want << _FRACTION, -never).ravel()
    most = np.where(want < high, (want + 1 << _FRACTION) - 1, never).ravel()
    total = start.a * u + start.b * v + start.bias
    near = np.minimum(total - least, most - total) < 1 << _FRACTION - 9
    u = u[near]
    v = v[near]
    least = least[near]
    most = most[near]
    found = start
    for _ in range(_TRIES if near.any() else 0):
        total = found.a * u + found.b * v + found.bias
        off = np.where(total < least, least - total, np.minimum(most - total, 0))
        worst = int(np.abs(off).argmax())
        if off[worst] == 0:
            break
        move = (off[worst] + np.sign(off[worst])) / (
            u[worst] ** 2 + v[worst] ** 2 + 64**2
        )
        a, b, bias = (
            int(np.copysign(np.ceil(abs(move * by)), move * by))
            for by in (u[worst], v[worst], 64**2)
        )
        found = ScaledSum(found.a + a, found.b + b, found.bias + bias)
    return found


def _scale(q: Struct, name: str) -> tuple[int, int]:
    return q.number(f"{name}_mul"), q.number(f"{name}_shift")
