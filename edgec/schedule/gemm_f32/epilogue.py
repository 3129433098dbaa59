"""The epilogue of float kernels: what they do to a sum before they write it.

The kernels of convolutions, fully connected layers and instance norms apply the ops
that follow them to sums in registers, always in this order:

    v = min(max(v, low), high)          clamp of the sum
    v = v + added                       another tensor of the result's shape
    v = min(max(v, low_sum), high_sum)  clamp of that
    v = v < 0 ? slope * v : v           PReLU, with a slope for each channel
    v = v * clamp(v + 3, 0, 6) / 6      hard-swish
    v = after(v)                        any function of csrc/simd/ek_unary_f32_simd.h

A call that follows is fused where its step comes after all steps before it. Whether a
kernel is such a step is said by its facts (`Kernel.bounds`, `Kernel.vectorized`) or, for
the few kernels with a step of their own, by `_STEPS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from edgec.ir import Array, Elementwise, Kernel, KernelCall, Pointer, Value
from edgec.ir.c_structs import ActivationParams, CoefficientsParams
from edgec.ops.activation import Clamp, HardSigmoid, LeakyRelu
from edgec.ops.binary import Add, Mul
from edgec.ops.concat import CONCAT
from edgec.ops.prelu import PRelu
from edgec.ops.unary import HardSwish, Logistic
from edgec.schedule.liveness import tensors
from edgec.schedule.simd import on_vectors
from edgec.schedule.views import concat_slot

_LOW = 1
_HIGH = 2
_ADD = 4
_LOW_SUM = 8
_HIGH_SUM = 16
_PRELU = 32
_HARD_SWISH = 64
"""The steps as bits: EK_DO_* of ek_epilogue.h. A later step has a higher bit."""
CLAMPS = _LOW | _HIGH
"""The clamp of the sum itself."""

MIN_FUNCTION_FLOATS = 32
"""Adjacent floats from which on it pays to call a function for them."""

_SILU = Kernel("silu", "simd/ek_unary_f32_simd.h", "f32", isa="simd")
"""v * logistic(v), for which there is no plain kernel."""


@dataclass(frozen=True)
class Epilogue:
    """The steps that a kernel does to its sums.

    Attributes:
        y: where the result goes
        todo: the steps, as bits
        bounds: (low, high) of the sum, and of what the addition gives
        slope: [oc] of a PReLU
        added: the tensor that is added, of the result's shape
        after: the function for vectors that is applied last
        coefficients: the parameters a and b of that function
        pitch: floats from pixel to pixel of the result, where pixels do not lie side by
            side because the result is a part of a concat; else 0
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
        """Return the epilogue with a clamp to [low, high].

        None where a step that comes after clamps is there already.
        """
        if low == -inf and high == inf:
            return self

        # Two clamps in a row are one to the narrower bounds.
        first = 2 if self.todo & _ADD else 0
        low = max(low, self.bounds[first])
        high = min(high, self.bounds[first + 1])
        if self._is_complete or low > high:
            return None

        steps = 0
        if low > -inf:
            steps |= _LOW
        if high < inf:
            steps |= _HIGH

        if self.todo & _ADD:
            # The bits of the second clamp are those of the first, moved.
            todo = self.todo | steps * _LOW_SUM
            return replace(self, todo=todo, bounds=(*self.bounds[:2], low, high))

        bounds = (low, high, *self.bounds[2:])
        return replace(self, todo=self.todo | steps, bounds=bounds)

    def add(self, other: Pointer) -> Epilogue | None:
        """Return the epilogue with the addition of a tensor; None where it is late."""
        if self.todo >= _ADD or self.after is not None:
            return None

        return replace(self, todo=self.todo | _ADD, added=other)

    def prelu(self, slope: Array) -> Epilogue | None:
        """Return the epilogue with a PReLU of one slope for each channel."""
        if self._is_complete:
            return None

        return replace(self, todo=self.todo | _PRELU, slope=slope)

    def hard_swish(self) -> Epilogue | None:
        """Return the epilogue with v * clamp(v + 3, 0, 6) / 6."""
        if self._is_complete:
            return None

        return replace(self, todo=self.todo | _HARD_SWISH)

    def function(
        self, kernel: Kernel, coefficients: tuple[float, float] = (0.0, 0.0)
    ) -> Epilogue | None:
        """Return the epilogue with a function of ek_unary_f32_simd.h."""
        if self._is_complete:
            return None

        return replace(self, after=kernel, coefficients=coefficients)

    @property
    def is_clamps_and_sum(self) -> bool:
        """Whether there are only clamps and a sum, and the result lies by itself."""
        return not self._is_complete and not self.pitch

    @property
    def tile_suffix(self) -> str:
        """The part of a tile's name for an epilogue that the tile has built in.

        "" stands for the tiles that look at `todo`.
        """
        # The built-in clamps compare floats as integers, whose order is the same for
        # numbers from 0 on.
        has_other_steps = self.todo & ~CLAMPS
        is_below_zero = self.bounds[0] < 0 < self.todo
        if has_other_steps or is_below_zero:
            return ""

        suffixes = {0: "_sum", _LOW: "_low", _LOW | _HIGH: "_both"}
        return suffixes.get(self.todo, "")

    @property
    def _is_complete(self) -> bool:
        """Whether no other step can come after those that are there."""
        return self.todo >= _PRELU or self.after is not None

    def fields(self) -> dict[str, Any]:
        """Return the fields that the C structs of all float kernels have."""
        # -0 becomes 0: as an integer it would be less than all numbers.
        low, high, low_sum, high_sum = (bound + 0.0 for bound in self.bounds)
        a, b = self.coefficients
        return {
            "todo": self.todo,
            "low": low,
            "high": high,
            "low_sum": low_sum,
            "high_sum": high_sum,
            "after": self.after or 0,
            "coef": CoefficientsParams(a=a, b=b),
        }


def epilogue(call: KernelCall) -> Epilogue | None:
    """Return the epilogue of a float convolution or fully connected layer.

    It consists of the layer's own activation and the calls that follow; None where the
    kernels cannot do one of these.
    """
    y = call.operands[3]
    assert isinstance(y, Pointer)
    act = call.struct(ActivationParams)
    chain = Epilogue(y).clamp(act.low, act.high)
    if chain is None:
        return None

    return following(chain, call.then)


def following(e: Epilogue, calls: Sequence[KernelCall]) -> Epilogue | None:
    """Return the epilogue with more calls; None where one of them is no step of it."""
    current: Epilogue | None = e
    left = list(calls)
    while left and current is not None:
        # v * f(v) is two calls, and one step.
        gated = _gated(current, left[:2])
        if gated is not None:
            current = gated
            del left[:2]
        else:
            current = _with_call(current, left.pop(0))

    return current


_MUL = Mul.kernels.of("f32")
_LOGISTIC = Logistic.kernels.of("f32")
_HARD_SIGMOID = HardSigmoid.kernels.of("f32")


def _gated(e: Epilogue, calls: Sequence[KernelCall]) -> Epilogue | None:
    """Return the epilogue with v * f(v), for the calls of f and of the product.

    None where the calls are others. f: logistic, or the hard sigmoid of hard-swish.
    """
    kernels = [call.kernel for call in calls]
    if kernels not in ([_LOGISTIC, _MUL], [_HARD_SIGMOID, _MUL]) or e.pitch:
        return None

    # A product with a constant has one tensor less, and is not v * f(v).
    function, product = calls
    v, gate = tensors([function])
    *factors, y = tensors([product])
    is_product = v is e.y.value and set(factors) == {v, gate}
    if not is_product or y.type.shape != v.type.shape:
        return None

    # A clamp of the product would come after all steps.
    act = product.struct(ActivationParams)
    if (act.low, act.high) != (-inf, inf):
        return None

    if function.kernel == _LOGISTIC:
        after = e.function(_SILU)
    else:
        # The step divides by 6 where the op multiplies by a rounded 1 / 6.
        line = _coefficients(function)
        if not np.allclose(line, [1 / 6, 0.5], 1e-6, 0):
            return None
        after = e.hard_swish()

    if after is None:
        return None

    return replace(after, y=Pointer(y))


def _with_call(e: Epilogue, call: KernelCall) -> Epilogue | None:
    """Return the epilogue with one more call; None where the call is no step of it."""
    # Nothing can follow the copy to a concat.
    if e.pitch:
        return None
    if call.kernel == CONCAT:
        return _in_concat(e, call)
    if call.kernel.dtype != "f32":
        return None

    pointers = [x for x in call.operands if isinstance(x, Pointer)]
    y = pointers[-1]
    if y.value.type.shape != e.y.value.type.shape or y.offset:
        return None

    step = _step_of(call.kernel)
    after = None if step is None else step(e, call)
    if after is None:
        return None

    return replace(after, y=y)


def _in_concat(e: Epilogue, call: KernelCall) -> Epilogue | None:
    """Return the epilogue that writes into a part of a concat's rows.

    None where the call copies something else, or a step needs adjacent pixels.
    """
    channels = e.y.value.type.shape[-1]
    has_short_rows = e.after is not None and channels < MIN_FUNCTION_FLOATS

    # The kernels read the tensor that is added with the pitch of the result.
    if e.added is not None or has_short_rows:
        return None

    slot = concat_slot(call, e.y.value)
    if slot is None:
        return None

    place, pitch = slot
    return replace(e, y=place, pitch=pitch)


Step = Callable[[Epilogue, KernelCall], Epilogue | None]
"""Returns the epilogue with a call of a certain kernel."""


def _add(e: Epilogue, call: KernelCall) -> Epilogue | None:
    """Add another tensor, and clamp the sum as the op's activation does."""
    a, b = (x for x in call.operands[:2] if isinstance(x, Pointer))
    other = b if a.value is e.y.value else a

    # A tensor that is broadcast, or the sum itself, cannot be read beside it.
    y = e.y.value
    if other.value.type.shape != y.type.shape or other.value is y:
        return None

    after = e.add(other)
    if after is None:
        return None

    act = call.struct(ActivationParams)
    return after.clamp(act.low, act.high)


def _prelu(e: Epilogue, call: KernelCall) -> Epilogue | None:
    """Apply a PReLU whose slopes are constant."""
    x, alpha = (x for x in call.operands[:2] if isinstance(x, Pointer))
    if x.value is not e.y.value:
        return None

    slope = _per_channel(alpha.value, e.y.value.type.shape[-1])
    return None if slope is None else e.prelu(slope)


def _leaky_relu(e: Epilogue, call: KernelCall) -> Epilogue | None:
    """Apply a leaky ReLU as a PReLU with one slope for all channels."""
    alpha, _ = _coefficients(call)
    channels = e.y.value.type.shape[-1]
    return e.prelu(np.full(channels, alpha, np.float32))


def _clamp(e: Epilogue, call: KernelCall) -> Epilogue | None:
    """Clamp to the bounds of an op."""
    return e.clamp(*_coefficients(call))


def _clamp_to_constants(e: Epilogue, call: KernelCall) -> Epilogue | None:
    """Clamp to the bounds of a kernel, e.g. of ReLU6."""
    assert call.kernel.bounds is not None
    return e.clamp(*call.kernel.bounds)


def _hard_swish(e: Epilogue, call: KernelCall) -> Epilogue | None:
    """Apply hard-swish, which tiles compute themselves."""
    return e.hard_swish()


def _function(e: Epilogue, call: KernelCall) -> Epilogue | None:
    """Apply a function that csrc/simd has for vectors."""
    return e.function(on_vectors(call.kernel), _coefficients(call))


_STEPS: dict[Kernel, Step] = {
    Add.kernels.of("f32"): _add,
    PRelu.kernels.of("f32"): _prelu,
    LeakyRelu.kernels.of("f32"): _leaky_relu,
    Clamp.kernels.of("f32"): _clamp,
    HardSwish.kernels.of("f32"): _hard_swish,
}
"""The kernels that have a step of their own."""


def _step_of(kernel: Kernel) -> Step | None:
    """Return the step for a kernel; None where it is none."""
    if kernel in _STEPS:
        return _STEPS[kernel]
    if kernel.bounds is not None:
        return _clamp_to_constants
    if kernel.elementwise is Elementwise.UNARY and kernel.vectorized:
        return _function

    return None


def _coefficients(call: KernelCall) -> tuple[float, float]:
    """Return the parameters a and b of a unary call; 0 for those that it lacks."""
    p = call.optional_struct(CoefficientsParams)
    return (0.0, 0.0) if p is None else (p.a, p.b or 0.0)


def _per_channel(value: Value, channels: int) -> Array | None:
    """Return a constant as one number for each channel; None where it is no such."""
    if value.const is None:
        return None

    # All elements must lie along the last axis, or be one.
    size = value.type.size
    if size not in (1, value.type.shape[-1]) or size not in (1, channels):
        return None

    slope = np.broadcast_to(value.const.reshape(-1), channels)
    return slope.astype(np.float32)
