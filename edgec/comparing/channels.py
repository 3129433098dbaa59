"""What a layer does to each of its channels, and what rounding alone would do to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgec.ir import Array, Op, Quant, QuantRule, TensorType
from edgec.quantize.domains import role

_KEPT = 1 << 16
"""Elements of a layer that are kept, about, over all samples."""
_ROWS = 16, 512
"""Pixels that are kept of a layer, at least and at most, where there are so many."""
_TENSOR = Quant((1.0,), (0,))


class ChannelSums:
    """Sums over pairs of arrays for each channel, and some pixels of both: wanted x,
    got y.

    What is wanted beyond the range that a type holds is left out: that it is clipped is
    known without looking.
    """

    def __init__(
        self, axis: int, samples: int, held: tuple[float, float] | None = None
    ) -> None:
        self.axis = axis
        self._samples = max(1, samples)
        self._held = held
        self.count = 0
        self.clipped = 0.0
        self.xx, self.ee, self._inner, self._hh = (np.zeros(1) for _ in range(4))
        self._x: list[Array] = []
        self._y: list[Array] = []

    def add(self, want: Array, got: Array) -> None:
        """One sample."""
        x, y = (_by_channel(a, self.axis) for a in (want, got))
        e = np.square(y.astype(np.float64) - x)
        inner = np.ones(x.shape, bool)
        if self._held is not None:
            half = (self._held[1] - self._held[0]) / 510
            inner = (x >= self._held[0] - half) & (x <= self._held[1] + half)
        self.count += len(x)
        self.xx = self.xx + np.einsum("nc,nc->c", x.astype(np.float64), x)
        self.ee, self._inner = self.ee + (e * inner).sum(0), self._inner + inner.sum(0)
        self.clipped += float((e * ~inner).sum())
        most = int(np.clip(_KEPT // x.shape[1], *_ROWS)) // self._samples
        picked = np.linspace(0, len(x) - 1, min(len(x), max(1, most))).astype(int)
        self._x.append(x[picked].copy())
        self._y.append(y[picked].copy())

    def hold(self, want: Array, held: Array) -> None:
        """One sample, as the type of the value holds what is wanted."""
        e = _by_channel(held, self.axis).astype(np.float64) - _by_channel(
            want, self.axis
        )
        self._hh = self._hh + np.square(e).sum(0)

    def clipped_share(self) -> float:
        """Of all noise, what is in elements beyond the range."""
        return self.clipped / max(1e-300, self.clipped + float(self.ee.sum()))

    @property
    def number(self) -> int:
        """Of channels."""
        return len(self.ee)

    def rows(self) -> tuple[Array, Array]:
        """Pixels that were kept, [pixel, channel], of what was wanted and of what was
        got.
        """
        return np.concatenate(self._x), np.concatenate(self._y)

    def power(self) -> Array:
        """The mean square of what was wanted, of each."""
        return np.asarray(self.xx / max(1, self.count))

    def held(self) -> Array:
        """The mean square of what holding it costs, rounding and clipping, of each."""
        return np.asarray(self._hh / max(1, self.count))

    def noise(self) -> Array:
        """The mean square of the difference, of each, within the range."""
        return np.asarray(self.ee / np.maximum(1, self._inner))


def _by_channel(array: Array, axis: int) -> Array:
    """[rest, channel]; a tensor of one dimension is one row."""
    if array.ndim == 0:
        return array.reshape(1, 1)
    moved = np.moveaxis(array, axis, -1)
    return np.ascontiguousarray(moved).reshape(-1, moved.shape[-1])


@dataclass(frozen=True)
class Weights:
    """The weight of an op that multiplies channels by constants, as reals: [output
    channel, taps].

    own: each output channel reads only the input channel of its own. steps: of each
    output channel, by which the weight is rounded; 0 in float.
    """

    real: Array
    steps: Array
    own: bool

    @classmethod
    def of(cls, op: Op) -> Weights | None:
        """None for an op without a constant weight, or with one that is not known."""
        at = next((i for i in range(len(op.inputs)) if role(op, i) == "weight"), None)
        if at is None or op.inputs[at].const is None or not op.spec.macs(op):
            return None
        w = op.inputs[at]
        data = w.const
        axis = op.spec.weight_axis
        assert data is not None
        scale, zero = (w.type.quant or _TENSOR).broadcast(data.ndim)
        real = (data.astype(np.float64) - zero) * scale
        rows = np.moveaxis(real, axis, 0).reshape(real.shape[axis], -1)
        per = np.broadcast_to(scale.reshape(-1), rows.shape[:1]) * (
            w.type.quant is not None
        )
        return cls(rows, per, axis == data.ndim - 1 and data.ndim == 4)


@dataclass(frozen=True)
class Rounding:
    """The mean square that rounding alone leaves in each output channel of an int8 op:
    each number to the nearest step, as if they were independent. By what is rounded.
    """

    result: Array
    inputs: Array
    weights: Array

    @property
    def whole(self) -> Array:
        """All of it."""
        return np.asarray(self.result + self.inputs + self.weights)

    def shares(self) -> dict[str, float]:
        """Of what is rounded, over all channels; the largest first."""
        sums = {
            "result": self.result.sum(),
            "inputs": self.inputs.sum(),
            "weights": self.weights.sum(),
        }
        total = max(1e-300, sum(sums.values()))
        return {
            name: float(s / total)
            for name, s in sorted(sums.items(), key=lambda one: -one[1])
        }


def rounding(
    op: Op, weights: Weights | None, read: list[ChannelSums | None]
) -> Rounding | None:
    """read: what is known of each input. None for an op of which it is not known."""
    acts = [c for v, c in zip(op.inputs, read, strict=True) if v.const is None]
    known = [c for c in acts if c is not None and c.count]
    if len(known) < len(acts):
        return None
    step = _step(op.outputs[0].type) ** 2 / 12
    if weights is not None and len(known) == 1:
        power = known[0].power()
        held = known[0].held()
        count = len(weights.real)
        squares = np.square(weights.real)
        if weights.own:
            each = -(-count // len(power))
            of = squares.sum(1)
            power, held = (np.repeat(p, each)[:count] for p in (power, held))
            read_ = of * held
            sums = power * weights.real.shape[1]
        else:
            if squares.shape[1] % len(held) == 0:
                taps = squares.reshape(count, -1, len(held))
            else:
                taps = None
            if taps is not None:
                read_ = taps.sum(1) @ held
            else:
                read_ = squares.sum(1) * held.mean()
            sums = np.full(count, power.sum() * (weights.real.shape[1] / len(power)))
        return Rounding(
            np.full(count, step), read_, sums * np.square(weights.steps) / 12
        )
    if op.spec.quant is QuantRule.SAME:  # it moves or averages elements
        shape = op.outputs[0].type.shape[-1:] or (1,)
        noise = sum(float(c.held().max(initial=0.0)) for c in known)
        return Rounding(np.full(shape, step), np.full(shape, noise), np.zeros(shape))
    return None


def _step(t: TensorType) -> float:
    """Between neighbours among what a type holds; 0 for floats."""
    return t.quant.scale[0] if t.quant is not None and t.dtype != "float32" else 0.0
