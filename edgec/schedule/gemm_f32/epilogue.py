"""What the float kernels do to a sum: clamp, add, clamp, PReLU, hard-swish or another
function of it, in this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from edgec.ir import Array, Elementwise, Kernel, KernelCall, Pointer, Struct, Value
from edgec.ops.activation import Clamp, HardSigmoid, LeakyRelu
from edgec.ops.binary import Add, Mul
from edgec.ops.concat import CONCAT
from edgec.ops.prelu import PRelu
from edgec.ops.unary import HardSwish, Logistic
from edgec.schedule.liveness import tensors
from edgec.schedule.simd import on_vectors
from edgec.schedule.views import among

_LOW = 1
_HIGH = 2
_ADD = 4
_LOW_SUM = 8
_HIGH_SUM = 16
_PRELU = 32
_HARD_SWISH = 64
"""EK_DO_* of ek_tile_f32_simd.h; also the order in which they are done."""
CLAMPS = _LOW | _HIGH
"""Of the sum itself."""

_SILU = Kernel("silu", "simd/ek_unary_simd.h", "f32", isa="simd")
"""x * logistic(x)."""
_LOGISTIC = Logistic.kernels.of("f32")
_MUL = Mul.kernels.of("f32")

APART = 32
"""Floats from which on it pays to call a function for them alone."""


@dataclass(frozen=True)
class Epilogue:
    """todo: the steps, as bits. bounds: of the sum and of what the addition gives.
    slope: [oc] of a PReLU.

    added: the tensor that is added, of the result's shape. after: the C function of
    what is stored, with its coefficients. y: where the result goes. pitch: floats from
    pixel to pixel there, where these do not lie side by side; else 0.
    """

    y: Pointer
    todo: int = 0
    bounds: tuple[float, float, float, float] = (-inf, inf, -inf, inf)
    slope: Array | None = None
    added: Pointer | None = None
    after: Kernel | None = None
    coefficients: tuple[float, float] = (0.0, 0.0)
    pitch: int = 0

    def clamp(self, low: float, high: float) -> Epilogue | None:
        """After a clamp to [low, high]; None where a step before it forbids."""
        if low == -inf and high == inf:
            return self
        at = 2 if self.todo & _ADD else 0
        low = max(low, self.bounds[at])
        high = min(high, self.bounds[at + 1])
        if self._last or low > high:
            return None
        ends = _LOW * (low > -inf) + _HIGH * (high < inf)
        if at:
            return replace(
                self,
                todo=self.todo | ends * _LOW_SUM,
                bounds=(*self.bounds[:2], low, high),
            )
        return replace(
            self, todo=self.todo | ends, bounds=(low, high, *self.bounds[2:])
        )

    def add(self, other: Pointer) -> Epilogue | None:
        """After another tensor is added."""
        if self.todo >= _ADD or self.after is not None:
            return None
        return replace(self, todo=self.todo | _ADD, added=other)

    def prelu(self, slope: Array) -> Epilogue | None:
        """After a PReLU with one slope for each channel."""
        if self._last:
            return None
        return replace(self, todo=self.todo | _PRELU, slope=slope)

    def hard_swish(self) -> Epilogue | None:
        """After x * clamp(x + 3, 0, 6) / 6."""
        return None if self._last else replace(self, todo=self.todo | _HARD_SWISH)

    def function(
        self, kernel: Kernel, coefficients: Sequence[float] = ()
    ) -> Epilogue | None:
        """After a function of ek_unary_simd.h."""
        a, b = (*coefficients, 0.0, 0.0)[:2]
        if self._last:
            return None
        return replace(self, after=kernel, coefficients=(a, b))

    @property
    def clamps(self) -> bool:
        """Whether there is nothing but clamps and a sum, and the result is as it would
        be alone.
        """
        return not self._last and not self.pitch

    @property
    def end(self) -> str:
        """What tiles that do nothing else with a sum have in their names; "" where it
        takes those that do anything.
        """
        if self.todo & ~(_LOW | _HIGH) or self.bounds[0] < 0 < self.todo:
            return ""
        return {0: "_sum", _LOW: "_low", _LOW | _HIGH: "_both"}.get(self.todo, "")

    @property
    def _last(self) -> bool:
        """Whether nothing more can be done."""
        return self.todo >= _PRELU or self.after is not None

    def fields(self) -> dict[str, object]:
        """Those of the C structs."""
        # no -0, which is less than 0 to integers
        low, high, low_sum, high_sum = (bound + 0.0 for bound in self.bounds)
        bounds = {"low": low, "high": high, "low_sum": low_sum, "high_sum": high_sum}
        return {
            "todo": self.todo,
            **bounds,
            "after": self.after or 0,
            "coef": self.coefficients,
        }


def epilogue(call: KernelCall) -> Epilogue | None:
    """What a float convolution or fully connected layer does to its sums, and the calls
    that follow it; None when the kernels cannot.
    """
    y = call.operands[3]
    assert isinstance(y, Pointer)
    act = call.struct("ek_act_f32_t")
    done = Epilogue(y).clamp(act.real("low"), act.real("high"))
    return done and following(done, call.then)


def following(e: Epilogue, calls: Sequence[KernelCall]) -> Epilogue | None:
    """The epilogue with calls more; None when there is none."""
    done: Epilogue | None = e
    then = list(calls)
    while then and done is not None:
        gate = _gate(done, then[:2])
        done = gate or _after(done, then[0])
        del then[: 2 if gate else 1]
    return done


def _gate(e: Epilogue, calls: Sequence[KernelCall]) -> Epilogue | None:
    """The epilogue with a function that two calls are: v * f(v)."""
    if [c.kernel for c in calls] not in (
        [_LOGISTIC, _MUL],
        [HardSigmoid.kernels.of("f32"), _MUL],
    ):
        return None
    f, product = calls
    # a constant factor is no tensor
    (v, fv), (*factors, y) = (tensors([c]) for c in calls)
    act = product.struct("ek_act_f32_t").fields
    if (
        e.pitch
        or v is not e.y.value
        or set(factors) != {v, fv}
        or y.type.shape != v.type.shape
    ):
        return None
    if (act["low"], act["high"]) != (-inf, inf):
        return None
    if f.kernel == _LOGISTIC:
        after = e.function(_SILU)
    else:
        k = f.struct("ek_coef_t")
        if np.allclose([k.real("a"), k.real("b")], [1 / 6, 0.5], 1e-6, 0):
            after = e.hard_swish()
        else:
            after = None
    return after and replace(after, y=Pointer(y))


def _after(e: Epilogue, call: KernelCall) -> Epilogue | None:
    """The epilogue with one call more."""
    if e.pitch:
        return None
    if call.kernel == CONCAT:
        few = e.after is not None and e.y.value.type.shape[-1] < APART
        place = None if e.added or few else among(call, e.y.value)
        return place and replace(e, y=place[0], pitch=place[1])
    if call.kernel.dtype != "f32":
        return None
    shape = e.y.value.type.shape
    places = [x for x in call.operands if isinstance(x, Pointer)]
    y = places[-1]
    if y.value.type.shape != shape or y.offset:
        return None
    if call.kernel in Add.kernels:
        other = places[1] if places[0].value is e.y.value else places[0]
        act = call.struct("ek_act_f32_t")
        if other.value.type.shape != shape or other.value is e.y.value:
            return None
        after = e.add(other)
        after = after and after.clamp(act.real("low"), act.real("high"))
    elif call.kernel in PRelu.kernels:
        if places[0].value is e.y.value:
            slope = _per_channel(places[1].value, shape[-1])
        else:
            slope = None
        after = None if slope is None else e.prelu(slope)
    elif call.kernel in LeakyRelu.kernels:
        factor = call.struct("ek_coef_t").real("a")
        after = e.prelu(np.full(shape[-1], factor, np.float32))
    elif call.kernel in Clamp.kernels:
        ends = call.struct("ek_coef_t")
        after = e.clamp(ends.real("a"), ends.real("b"))
    elif call.kernel.bounds is not None:
        after = e.clamp(*call.kernel.bounds)
    elif call.kernel in HardSwish.kernels:
        after = e.hard_swish()
    else:
        after = _function(e, call)
    return after and replace(after, y=y)


def _function(e: Epilogue, call: KernelCall) -> Epilogue | None:
    """The epilogue with a function of one number more."""
    kernel = call.kernel
    if kernel.elementwise is not Elementwise.UNARY or not kernel.vectorized:
        return None
    known = [
        x for x in call.operands if isinstance(x, Struct) and x.ctype == "ek_coef_t"
    ]
    return e.function(
        on_vectors(kernel), [k.real(at) for k in known for at in "ab" if at in k.fields]
    )


def _per_channel(v: Value, channels: int) -> Array | None:
    """A constant with one value for each channel, or for all."""
    if (
        v.const is None
        or v.type.size not in (1, v.type.shape[-1])
        or v.type.size not in (1, channels)
    ):
        return None
    return np.broadcast_to(v.const.reshape(-1), channels).astype(np.float32)
