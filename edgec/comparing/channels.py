"""Measures the noise of each channel of a layer, and predicts the noise of rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgec.ir import Array, Op, Quant, QuantRule, TensorType
from edgec.quantize.change.domains import role

MAX_KEPT_ELEMENTS = 1 << 16
"""Elements of a layer that are kept over all samples, about."""
MIN_KEPT_PIXELS, MAX_KEPT_PIXELS = (16, 512)
"""Pixels of a layer that are kept, if it has so many."""
UNIT_SCALE = Quant((1.0,), (0,))
MIN_TOTAL = 1e-300
"""Avoids a division of zero by zero."""
STEPS_ACROSS = 255
"""Steps across the range of an 8-bit type."""


class ChannelSums:
    """Sums over pairs of arrays for each channel, and some pixels of both.

    Of a pair, x is the expected array and y is the actual one. Expected values beyond
    the range of the value's type are not in the noise: they clip, whatever the layer.

    Attributes:
        axis: axis of the channels
        count: pixels of all samples
        clipped: sum of the squared errors of elements beyond the range
        xx: sum of the squares of x in each channel
        ee: sum of the squared errors in each channel, within the range
    """

    def __init__(
        self, axis: int, samples: int, held: tuple[float, float] | None = None
    ) -> None:
        """Prepare for a number of samples; `held` is the range of the type, if any."""
        self.axis = axis
        self._samples = max(1, samples)
        self._range = held
        self.count = 0
        self.clipped = 0.0
        self.xx = np.zeros(1)
        self.ee = np.zeros(1)
        self._within = np.zeros(1)
        self._holding = np.zeros(1)
        self._x: list[Array] = []
        self._y: list[Array] = []

    def add(self, want: Array, actual: Array) -> None:
        """Add the expected and the actual array of a sample."""
        x = _by_channel(want, self.axis)
        y = _by_channel(actual, self.axis)
        squared_error = np.square(y.astype(np.float64) - x)
        within = np.ones(x.shape, bool)
        if self._range is not None:
            low, high = self._range
            # A value rounds to an end of the range from half a step beyond it.
            half_step = (high - low) / (2 * STEPS_ACROSS)
            within = (x >= low - half_step) & (x <= high + half_step)

        self.count += len(x)
        # In float64: sums over the pixels of many samples outgrow float32's 24 bits.
        self.xx = self.xx + np.einsum("nc,nc->c", x.astype(np.float64), x)
        self.ee = self.ee + (squared_error * within).sum(0)
        self._within = self._within + within.sum(0)
        self.clipped += float((squared_error * ~within).sum())

        pixels = self._pixels_to_keep(*x.shape)
        self._x.append(x[pixels].copy())
        self._y.append(y[pixels].copy())

    def _pixels_to_keep(self, pixels: int, channels: int) -> Array:
        """Return the numbers of the pixels of a sample that are kept, evenly spread."""
        # Fewer pixels of wide layers, so that the memory of all layers is bounded.
        total = np.clip(MAX_KEPT_ELEMENTS // channels, MIN_KEPT_PIXELS, MAX_KEPT_PIXELS)
        each = max(1, int(total) // self._samples)
        return np.linspace(0, pixels - 1, min(pixels, each)).astype(int)

    def hold(self, want: Array, held: Array) -> None:
        """Add the expected array of a sample, and the reals of its quantized form."""
        x = _by_channel(want, self.axis)

        error = _by_channel(held, self.axis).astype(np.float64) - x
        self._holding = self._holding + np.square(error).sum(0)

    def clipped_share(self) -> float:
        """Return the share of the noise in elements beyond the range."""
        total = self.clipped + float(self.ee.sum())
        return self.clipped / max(MIN_TOTAL, total)

    @property
    def number(self) -> int:
        """Return the number of channels."""
        return len(self.ee)

    def rows(self) -> tuple[Array, Array]:
        """Return the kept pixels of x and y, [pixel, channel]."""
        return np.concatenate(self._x), np.concatenate(self._y)

    def power(self) -> Array:
        """Return the mean square of x in each channel."""
        return np.asarray(self.xx / max(1, self.count))

    def held(self) -> Array:
        """Return the mean squared error of quantizing x in each channel."""
        return np.asarray(self._holding / max(1, self.count))

    def noise(self) -> Array:
        """Return the mean squared error in each channel, within the range."""
        return np.asarray(self.ee / np.maximum(1, self._within))


def _by_channel(array: Array, axis: int) -> Array:
    """Return an array as [pixel, channel]; a tensor of one dimension is one pixel."""
    if array.ndim == 0:
        return array.reshape(1, 1)

    moved = np.moveaxis(array, axis, -1)
    channels = moved.shape[-1]
    return np.ascontiguousarray(moved).reshape(-1, channels)


@dataclass(frozen=True)
class Weights:
    """The constant weight of a convolution or matrix product, as real numbers.

    Attributes:
        real: [output channel, taps]
        steps: quantization step of each output channel; 0 in float
        own: whether each output channel reads only its own input channel (depthwise)
    """

    real: Array
    steps: Array
    own: bool

    @classmethod
    def of(cls, op: Op) -> Weights | None:
        """Return the weights of an op, or None if it has none or they are unknown."""
        weight = None
        for i, value in enumerate(op.inputs):
            if role(op, i) == "weight":
                weight = value
                break
        if weight is None or weight.const is None or not op.spec.macs(op):
            return None

        data = weight.const
        axis = op.spec.weight_axis
        quant = weight.type.quant
        scale, zero = (quant or UNIT_SCALE).broadcast(data.ndim)
        real = (data.astype(np.float64) - zero) * scale
        rows = np.moveaxis(real, axis, 0).reshape(real.shape[axis], -1)

        steps = np.zeros(len(rows))
        if quant is not None:
            steps = np.broadcast_to(scale.reshape(-1), steps.shape)
        # The weight of a depthwise convolution has its channels last, in 4 dimensions.
        depthwise = axis == data.ndim - 1 and data.ndim == 4
        return cls(rows, steps, depthwise)


@dataclass(frozen=True)
class RoundingNoise:
    """The noise that rounding alone leaves in each output channel of an int8 op.

    Each number is rounded to the nearest step, with errors that are uniform and
    independent: their mean square is step² / 12.

    Attributes:
        result: mean square from rounding the output
        inputs: mean square from rounding the inputs
        weights: mean square from rounding the weights
    """

    result: Array
    inputs: Array
    weights: Array

    @property
    def whole(self) -> Array:
        """Return the mean square of all rounding."""
        return np.asarray(self.result + self.inputs + self.weights)

    def shares(self) -> dict[str, float]:
        """Return the share of each cause over all channels, the largest first."""
        sums = {
            "result": self.result.sum(),
            "inputs": self.inputs.sum(),
            "weights": self.weights.sum(),
        }

        total = max(MIN_TOTAL, sum(sums.values()))
        shares = {}
        for cause in sorted(sums, key=sums.__getitem__, reverse=True):
            shares[cause] = float(sums[cause] / total)
        return shares


def rounding(
    op: Op, weights: Weights | None, read: list[ChannelSums | None]
) -> RoundingNoise | None:
    """Return the noise of rounding in the output channels of an op.

    It is None for ops whose noise is not known. `read` has the sums of each input, as
    far as they are known.
    """
    known = []
    for value, sums in zip(op.inputs, read, strict=True):
        if value.const is not None:
            continue
        # One unknown input is enough: its noise may be the larger part.
        if sums is None or not sums.count:
            return None
        known.append(sums)

    # The variance of a uniform error of one step.
    result = _step(op.outputs[0].type) ** 2 / 12
    if weights is not None and len(known) == 1:
        return _rounding_of_product(weights, known[0], result)

    if op.spec.quant is QuantRule.SAME:
        # Such ops move or average elements: the noise of the inputs stays.
        shape = op.outputs[0].type.shape[-1:] or (1,)
        noise = 0.0
        for sums in known:
            noise += float(sums.held().max(initial=0.0))
        return RoundingNoise(
            np.full(shape, result), np.full(shape, noise), np.zeros(shape)
        )
    return None


def _rounding_of_product(
    weights: Weights, read: ChannelSums, result: float
) -> RoundingNoise:
    """Return the noise of rounding of a convolution or matrix product.

    With errors dx of inputs and dw of weights, the mean square of an output is the sum
    over its taps of w² E[dx²] + E[x²] E[dw²].
    """
    input_power = read.power()
    input_noise = read.held()
    count, taps = weights.real.shape
    squares = np.square(weights.real)
    channels = len(input_power)
    if weights.own:
        # Each input channel has `multiplier` output channels.
        multiplier = -(-count // channels)
        power = np.repeat(input_power, multiplier)[:count] * taps
        noise = np.repeat(input_noise, multiplier)[:count]
        inputs = squares.sum(1) * noise
    else:
        # Every output channel reads all input channels, by `taps / channels` taps each.
        power = np.full(count, input_power.sum() * (taps / channels))
        if taps % len(input_noise) == 0:
            # The input channel is the last axis of the taps.
            by_channel = squares.reshape(count, -1, len(input_noise))
            inputs = by_channel.sum(1) @ input_noise
        else:
            # A flattened input: which channel a tap reads is not known.
            inputs = squares.sum(1) * input_noise.mean()

    # The step is 0 in float, and the noise of the weights with it.
    from_weights = power * np.square(weights.steps) / 12
    return RoundingNoise(np.full(count, result), inputs, from_weights)


def _step(t: TensorType) -> float:
    """Return the quantization step of a type; 0 for floats."""
    if t.quant is None or t.dtype == "float32":
        return 0.0
    return t.quant.scale[0]
