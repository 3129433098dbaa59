"""Finds faults and losses of a layer from its effect on the reference's own values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgec.comparing.channels import ChannelSums, RoundingNoise, Weights, rounding
from edgec.comparing.measure import ValueRecord
from edgec.comparing.value_pairs import limits
from edgec.ir import Array, Op
from edgec.measure.decibels import decibels

EXCESS_DB = 15.0
"""A channel with this much more noise than rounding explains has another cause.

The rounding of a weight is the same in every pixel, so that the worst of a thousand
channels has ten times the expected noise.
"""
MIN_GAIN_EXCESS_DB = 6.0
"""A multiple of the expected result needs this much more noise than rounding makes."""
MIN_GAIN_ERROR = 0.05
"""Gains nearer to 1 are no fault."""
MAX_UNEXPLAINED = 0.1
"""A cause explains the noise if at most this share is left without the cause."""
MIN_OFFSET_STEPS = 0.5
MIN_ELEMENTS = 64
"""Elements that a median needs."""
MIN_CHANNELS = 6
"""Channels that a fit of their shifts needs."""
MIN_PIXELS = 4
"""Pixels of a channel that its median needs, if there are so many."""
SURE_DEVIATIONS = 6.0
"""Standard errors from which a shift is not the rounding of the channels."""
MIN_SCALE_ERROR = 1e-3
"""Scales nearer to each other are equal."""
GRID = ("the scale of its result is", "the zero point of its result is")
"""Beginnings of findings about a scale or zero point that is not A's."""
MAX_STEP_ERROR = 0.35
"""A shift of the input further than this from whole steps is no zero point."""
MAX_SHIFT_LEFT = 0.5
"""A wrong zero point of the input may leave this share of the channels' mean errors
unexplained.
"""
MIN_CLIPPED = 1e-3
"""Share of clipped elements from which the range is a loss."""
MOST_NOISE = 0.5
"""Share of the noise from which clipping is a loss, however few elements it is."""
MIN_USED_RANGE = 0.5
"""Part of the range below which it is loose."""
UNLIKE_RATIO = 16.0
"""Channels are unlike if the largest is this many times the median."""
SWAP_NOISE = 0.25
"""Share of a channel's power from which its error may be a swap."""
MAX_SUSPECTS = 16
"""Channels that are searched for swaps."""
MAX_NAMED_PAIRS = 4
TINY = 1e-30
"""Avoids a division by zero."""


@dataclass(frozen=True)
class LayerFinding:
    """A fault or a loss of a layer.

    Attributes:
        kind: "kernel", "gain", "offset", "swap" or "noise" (faults); "clip", "weights",
            "channels", "loose" or "rounding" (losses)
        fault: whether the layer computes something else, which no rounding explains;
            otherwise it only loses accuracy
        text: the finding in words
        fix: a remedy
    """

    kind: str
    fault: bool
    text: str
    fix: str


@dataclass(frozen=True)
class Noise:
    """The own noise of a layer.

    Attributes:
        excess_db: noise of the worst channel beyond rounding, dB; None if unknown
        worst: the worst channel
        steps: root mean square, in steps of the result; None in float
        offset: median, in steps of the result; None in float or for few elements
        by: the noise that rounding explains
    """

    excess_db: float | None
    worst: int
    steps: float | None
    offset: float | None
    by: RoundingNoise | None = None


def noise_of(
    record: ValueRecord, read: list[ChannelSums | None], complete: bool
) -> Noise:
    """Return the own noise of a layer.

    Args:
        record: the record of its result
        read: sums of each input of its op, as far as they are known
        complete: whether the constants of its op are known
    """
    t = record.value.type
    channels = record.channels
    step = None
    if t.quant is not None and t.dtype != "float32":
        step = t.quant.scale[0]
    if not step or not channels.count:
        return Noise(None, 0, None, None, None)

    # The prediction of rounding needs the weights.
    excess = None
    worst = 0
    explained = None
    if record.op is not None and record.own.samples and complete:
        explained = rounding(record.op, Weights.of(record.op), read)
        if explained is not None and explained.whole.shape == (channels.number,):
            ratios = channels.noise() / np.maximum(explained.whole, TINY)
            # One channel may be wrong among many that are right.
            worst = int(ratios.argmax())

            excess = decibels(max(float(ratios[worst]), TINY), 1.0)

    offset = None
    errors = _inner_errors(record)
    if np.isfinite(errors).sum() >= MIN_ELEMENTS:
        offset = float(np.nanmedian(errors))
    return Noise(excess, worst, record.own.rms_error() / step, offset, explained)


def _kept_pixels(record: ValueRecord) -> tuple[Array, Array]:
    """Return the kept pixels of A and B in float64, [pixel, channel]."""
    expected, actual = record.channels.rows()
    return expected.astype(np.float64), actual.astype(np.float64)


def _inner_errors(record: ValueRecord) -> Array:
    """Return the errors of the kept pixels, in steps, [pixel, channel].

    An error is NaN if either side is at an end of the range, which hides shifts.
    """
    step = record.value.type.scale
    expected, actual = _kept_pixels(record)
    errors = (actual - expected) / step
    bounds = limits(record.value.type)
    if bounds is None:
        return np.asarray(errors)

    # An element within three quarters of a step of an end may have been clipped to it.
    low = bounds[0] + 0.75 * step
    high = bounds[1] - 0.75 * step

    inner = (expected > low) & (expected < high)
    inner &= (actual > low) & (actual < high)
    return np.where(inner, errors, np.nan)


def findings(
    record: ValueRecord, noise: Noise, complete: bool, by: str = ""
) -> list[LayerFinding]:
    """Return all findings about a layer, the most important first.

    Args:
        record: the record of its result
        noise: its own noise
        complete: whether the constants of its op are known
        by: the program whose kernels run it; "" for edgec's
    """
    op = record.op
    if op is None:
        return []
    faults = [*_kernel(record, op, by)]
    if not record.own.samples or record.own.rms_error() == 0:
        return faults

    # Weights show a swap more surely than values do.
    swaps = _swapped_weights(record) if complete else []
    faults += swaps or _swapped_values(record)
    faults += _gain(record, noise)
    faults += _shift(record, noise, complete)
    # Noise without any of these causes is a fault of its own.
    if not faults:
        faults += _excess_noise(record, noise)
    return [
        *faults,
        *_clipped(record),
        *_unlike_weights(op),
        *_unlike_channels(record),
        *_loose_range(record),
        *_coarse_rounding(noise, op),
    ]


def other_grid(record: ValueRecord) -> LayerFinding | None:
    """Return a finding if a result has another scale or zero point than A's."""
    if record.op is None or record.type is None:
        return None
    quant_b = record.value.type.quant
    quant_a = record.type.quant
    if quant_b is None or quant_a is None:
        return None
    if record.type.dtype != record.value.type.dtype:
        return None

    scale_a = quant_a.scale[0]
    ratio = quant_b.scale[0] / scale_a if scale_a else 0.0
    if abs(ratio - 1) > MIN_SCALE_ERROR:
        text = f"{GRID[0]} {ratio:.3g} times A's"
        return LayerFinding("gain", True, text, f"A's scale is {scale_a:.6g}")

    zero_a = quant_a.zero_point[0]
    zero_b = quant_b.zero_point[0]
    if zero_b != zero_a:
        text = f"{GRID[1]} {zero_b}, A's {zero_a}"
        return LayerFinding("offset", True, text, f"A's zero point is {zero_a}")
    return None


def _kernel(record: ValueRecord, op: Op, runner: str) -> Iterator[LayerFinding]:
    """Find a kernel that differs from the reference on the same inputs."""
    check = record.law
    if not check.broken:
        return
    if record.value.type.dtype != "float32":
        difference = f"by up to {check.error:.0f} steps"
    else:
        difference = f"by {check.error:.1e} of its range"
    text = (
        f"on the same inputs it differs from interp {difference}, "
        f"in {check.share:.1%} of the elements"
    )

    if runner:
        fix = (
            f"{runner} computes {op.kind} otherwise than the reference; "
            "it is not the model's fault"
        )
    else:
        kernels = op.kind
        if op.spec.has_kernel():
            kernels = ", ".join(dict.fromkeys(call.kernel.name for call in op.calls()))
        fix = (
            f"a bug of the kernel ({kernels}, or what computes it here), "
            "not of the model"
        )
    yield LayerFinding("kernel", True, text, fix)


def _both_weights(record: ValueRecord) -> tuple[Weights, Weights] | None:
    """Return the weights of the layer in B and in A, or None if they do not compare."""
    weights_b = Weights.of(record.op) if record.op is not None else None
    weights_a = Weights.of(record.other) if record.other is not None else None
    if weights_b is None or weights_a is None:
        return None
    if weights_b.real.shape != weights_a.real.shape:
        return None
    return weights_b, weights_a


def _pair_names(pairs: set[tuple[int, int]]) -> str:
    """Return the first pairs of channels in words."""
    names = [f"{i} and {j}" for i, j in sorted(pairs)[:MAX_NAMED_PAIRS]]
    return ", ".join(names)


def _swapped_weights(record: ValueRecord) -> list[LayerFinding]:
    """Find channels with the weights of each other.

    This is visible also if no input shows it.
    """
    weights = _both_weights(record)
    if weights is None:
        return []
    b = weights[0].real
    a = weights[1].real
    errors = np.square(b - a).sum(1)
    power = np.maximum(np.square(a).sum(1), np.square(b).sum(1))
    suspects = np.flatnonzero(errors > MAX_UNEXPLAINED * power)

    pairs: set[tuple[int, int]] = set()
    for i in map(int, suspects[:MAX_SUSPECTS]):
        j = int(np.square(a - b[i]).sum(1).argmin())
        if j == i:
            continue
        swapped = np.square(a[j] - b[i]).sum() + np.square(a[i] - b[j]).sum()
        if swapped < MAX_UNEXPLAINED * (errors[i] + errors[j]):
            pairs.add((min(i, j), max(i, j)))
    if not pairs:
        return []
    text = f"channels {_pair_names(pairs)} have each other's weights"
    fix = "put its weights in the order that A has them in"
    return [LayerFinding("swap", True, text, fix)]


def _swapped_values(record: ValueRecord) -> list[LayerFinding]:
    """Find channels with the values of each other."""
    a, b = _kept_pixels(record)
    if record.channels.number < 2 or not len(a):
        return []
    errors = np.square(b - a).mean(0)
    power = np.maximum(np.square(a).mean(0), record.channels.power())
    suspects = np.flatnonzero((errors > SWAP_NOISE * power) & (errors > 0))

    # The worst channels first, as only some are searched.
    worst = suspects[np.argsort(-errors[suspects])]
    pairs: set[tuple[int, int]] = set()
    for i in map(int, worst[:MAX_SUSPECTS]):
        distances = np.square(a - b[:, i : i + 1]).mean(0)
        j = int(distances.argmin())
        if j == i:
            continue
        back = np.square(b[:, j] - a[:, i]).mean()
        explains_i = distances[j] < MAX_UNEXPLAINED * errors[i]
        explains_j = back < MAX_UNEXPLAINED * errors[j]
        if explains_i and explains_j:
            pairs.add((min(i, j), max(i, j)))
    if not pairs:
        return []
    text = f"channels {_pair_names(pairs)} have each other's values"
    return [LayerFinding("swap", True, text, "look at the order of its weights")]


def _gain(record: ValueRecord, noise: Noise) -> Iterator[LayerFinding]:
    """Find a result that is a multiple of A's, by least squares.

    Elements at an end of the range are left out.
    """
    a, b = _kept_pixels(record)
    if noise.steps is not None:
        inner = np.isfinite(_inner_errors(record))
        a = a[inner]
        b = b[inner]
    power = np.square(a).sum()
    if not power:
        return

    gain = float((a * b).sum() / power)
    before = np.square(b - a).sum()
    left = np.square(b - gain * a).sum()
    if abs(gain - 1) <= MIN_GAIN_ERROR or left >= MAX_UNEXPLAINED * before:
        return
    # Noise that rounding explains may look like a gain by chance.
    if noise.excess_db is not None and noise.excess_db <= MIN_GAIN_EXCESS_DB:
        return
    text = f"its result is {gain:.3g} times what it should be"
    fix = (
        "the scale of its weights, or of its result, "
        "is not the one that its "
        "integers were made with"
    )
    yield LayerFinding("gain", True, text, fix)


def _shift(record: ValueRecord, noise: Noise, complete: bool) -> list[LayerFinding]:
    """Find a wrong zero point of the result or of the input."""
    if noise.offset is None:
        return []
    errors = _inner_errors(record)
    known = np.isfinite(errors).sum(0) >= min(MIN_PIXELS, len(errors))
    if not known.any():
        return []
    shift = _result_shift(errors[:, known], noise.offset)
    if shift is None and complete and record.op is not None:
        shift = _input_shift(record, record.op, errors, known)
    return [] if shift is None else [shift]


def _result_shift(errors: Array, offset: float) -> LayerFinding | None:
    """Find a result that is shifted by the same in all channels.

    `errors` are in steps, [pixel, channel]; `offset` is their median.
    """
    medians = np.nanmedian(errors, axis=0)
    middle = float(np.median(medians))
    # Rounding shifts each channel by another amount: the standard error of the mean.
    doubt = float(medians.std()) / math.sqrt(len(medians))
    steps = round(offset)
    same_direction = middle * steps > 0
    least = max(MIN_OFFSET_STEPS, SURE_DEVIATIONS * doubt)
    if not steps or not same_direction or abs(middle) <= least:
        return None

    direction = "high" if steps > 0 else "low"
    text = f"its result is {abs(offset):.2g} steps too {direction} everywhere"
    fix = f"the zero point of its result is off by {abs(steps)}"
    return LayerFinding("offset", True, text, fix)


def _input_shift(
    record: ValueRecord, op: Op, errors: Array, known: Array
) -> LayerFinding | None:
    """Find channels that are shifted by the effect of whole steps of the input.

    One step of the input shifts a channel by the sum of its weights times the step: the
    number of steps is fitted by least squares.

    Args:
        record: the record of the result
        op: its op
        errors: errors in steps, [pixel, channel]
        known: whether a channel has enough errors
    """
    weights = Weights.of(op)
    step = _input_step(op)
    if weights is None or not step or len(weights.real) != len(known):
        return None
    if known.sum() < MIN_CHANNELS:
        return None

    step_effects = weights.real.sum(1)[known] * step / record.value.type.scale
    means = np.nanmean(errors[:, known], axis=0)
    effect_power = max(TINY, np.square(step_effects).sum())
    times = float((means * step_effects).sum() / effect_power)
    unexplained = np.square(means - times * step_effects).sum()
    left = unexplained / max(TINY, np.square(means).sum())

    steps = round(times)
    if not steps or abs(times - steps) >= MAX_STEP_ERROR or left >= MAX_SHIFT_LEFT:
        return None
    text = (
        f"its channels are shifted by {abs(times):.2g} times what a step of "
        "its "
        "input makes there"
    )
    fix = f"the zero point of its input is off by {abs(steps)}"
    return LayerFinding("offset", True, text, fix)


def _input_step(op: Op) -> float:
    """Return the scale of the first input of an op; 0 in float."""
    for value in op.inputs:
        if value.const is None:
            t = value.type
            if t.quant is None or t.dtype == "float32":
                return 0.0
            return t.quant.scale[0]
    return 0.0


def _excess_noise(record: ValueRecord, noise: Noise) -> Iterator[LayerFinding]:
    """Find a channel with much more noise than rounding explains."""
    if noise.excess_db is None or noise.excess_db < EXCESS_DB:
        return
    number = record.channels.number
    total = f" of {number}" if number > 1 else ""
    text = (
        f"channel {noise.worst}{total} has {noise.excess_db:.0f} dB more noise than "
        "rounding explains"
    )

    # The weights may show the cause; otherwise all constants are suspects.
    fix = _weights_remark(record, noise.worst)
    if not fix:
        fix = "compare its weights, bias and scales with A's"
    yield LayerFinding("noise", True, text, fix)


def _weights_remark(record: ValueRecord, channel: int) -> str:
    """Return how the weights of a channel differ from A's, or ""."""
    weights = _both_weights(record)
    if weights is None:
        return ""
    b = weights[0].real
    a = weights[1].real
    if channel >= len(b):
        return ""

    errors = np.square(a - b[channel]).sum(1)
    nearest = int(errors.argmin())
    if nearest != channel and errors[nearest] < MAX_UNEXPLAINED * errors[channel]:
        return (
            f"its weights are those that A has for channel {nearest}: "
            "look at the order of its weights"
        )
    power = np.square(a[channel]).sum()
    if errors[channel] > MAX_UNEXPLAINED * power:
        return "its weights are not those that A has: look at them, and at their scale"
    return (
        "its weights are as A has them: look at its bias, "
        "and at the scales and "
        "zero points of what it reads"
    )


def _clipped(record: ValueRecord) -> Iterator[LayerFinding]:
    """Find a range that is too narrow."""
    share = record.spread.clipped(record.value)
    noise = record.channels.clipped_share()
    if not share or (share <= MIN_CLIPPED and noise <= MOST_NOISE):
        return
    text = (
        f"its range clips {share:.2%} of what A has there, "
        "which is "
        f"{noise:.0%} of its own noise"
    )
    fix = (
        "calibrate with pictures like these, or give it a wider range (a higher "
        "percentile, min/max)"
    )
    yield LayerFinding("clip", False, text, fix)


def _loose_range(record: ValueRecord) -> Iterator[LayerFinding]:
    """Find a range that is too wide."""
    used = record.spread.used(record.value)
    if used is None or not 0 < used < MIN_USED_RANGE:
        return
    text = f"its scale is {1 / used:.1f} times what its range needs here"
    fix = (
        "a tighter range (percentile, mse), if calibration saw outliers; "
        "look at what it shares its scale with"
    )
    yield LayerFinding("loose", False, text, fix)


def _unlike_weights(op: Op) -> Iterator[LayerFinding]:
    """Find output channels whose weights need scales of their own."""
    weights = Weights.of(op)
    if weights is None or not weights.real.any() or len(weights.real) < 2:
        return

    largest = np.abs(weights.real).max(1)
    # Channels without any weight need no scale.
    alive = largest[largest > 0]
    ratio = float(largest.max() / np.median(alive))
    one_scale = len({*weights.steps.tolist()}) == 1
    if ratio > UNLIKE_RATIO and one_scale:
        channel = int(largest.argmax())
        text = (
            f"weights of channel {channel} are {ratio:.0f} times those of most, "
            "and all share one scale"
        )
        fix = "equalize, a scale per channel, or float for this layer"
        yield LayerFinding("weights", False, text, fix)


def _unlike_channels(record: ValueRecord) -> Iterator[LayerFinding]:
    """Find channels of the result that need scales of their own."""
    power = record.channels.power()
    alive = power[power > 0]
    if record.value.type.quant is None or len(alive) < 2:
        return

    # Power is a square: its root is the ratio of magnitudes.
    ratio = float(np.sqrt(alive.max() / np.median(alive)))
    if ratio > UNLIKE_RATIO:
        channel = int(power.argmax())
        text = (
            f"channel {channel} of its result is {ratio:.0f} times "
            "most others, in one scale"
        )
        fix = "equalize, or float (or 16 bits) for this layer"
        yield LayerFinding("channels", False, text, fix)


def _coarse_rounding(noise: Noise, op: Op) -> Iterator[LayerFinding]:
    """Find the largest cause of rounding noise, for ops with weights."""
    if noise.by is None or Weights.of(op) is None:
        return
    shares = noise.by.shares()
    cause = next(iter(shares))
    if cause == "weights":
        subject = "its weights'"
        fix = (
            "another rounding of its weights (--quantize best), or float for this layer"
        )
    elif cause == "inputs":
        subject = "its input's"
        read = next((v.name for v in op.inputs if v.const is None), "")
        fix = f"more bits for {read}, or equalize its channels"
    else:
        subject = "its result's"
        fix = "more bits for its result: 16, or float"
    text = f"{shares[cause]:.0%} of what rounding leaves there is {subject}"
    yield LayerFinding("rounding", False, text, fix)
