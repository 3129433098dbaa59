"""What is wrong with a layer, by what it does to the reference's own values; and what
would help.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgec.comparing.channels import ChannelSums, Rounding, Weights, rounding
from edgec.comparing.measure import ValueRecord
from edgec.comparing.twins import limits
from edgec.ir import Array, Op

EXCESS_DB = 15.0
"""Noise of a channel beyond what rounding explains, above which something else is at
work. The rounding of a weight is the same in every pixel, so that the worst of a
thousand channels has ten times what is expected.
"""
_GAIN = 0.05
_EXPLAINED = 0.1
"""Of the noise may be left when a cause is taken out."""
_OFFSET_STEPS = 0.5
_ENOUGH = 64
"""Elements that a median is taken of."""
_ENOUGH_CHANNELS = 6
_SURE = 6.0
_GRID = 1e-3
GRID = ("the scale of its result is", "the zero point of its result is")
"""What findings about another scale or zero point than A's begin with."""
_NEAR = 0.35
_LEFT = 0.5
"""Of the channels' mean errors, what a wrong zero point of the input may leave
unexplained.
"""
_CLIPPED = 1e-3
_MOSTLY = 0.5
_LOOSE = 0.5
_UNLIKE = 16.0
_SUSPECTS = 16


@dataclass(frozen=True)
class LayerFinding:
    """One thing about a layer. fault: it computes something else, which no rounding
    explains; else it loses accuracy. kind: "kernel", "gain", "offset", "swap", "noise";
    "clip", "weights", "channels", "loose", "rounding". fix: what would help.
    """

    kind: str
    fault: bool
    text: str
    fix: str


@dataclass(frozen=True)
class Noise:
    """The noise of a layer's own. excess_db: of the worst channel, beyond what rounding
    explains; None where it is not known. steps: its root mean square, and offset: its
    median, in steps of the result; None in float. by: what of it rounding explains.
    """

    excess_db: float | None
    worst: int
    steps: float | None
    offset: float | None
    by: Rounding | None = None


def noise_of(
    seen: ValueRecord, read: list[ChannelSums | None], complete: bool
) -> Noise:
    """read: what is known of each input of its op. complete: its constants are known."""
    op = seen.op
    t = seen.value.type
    channels = seen.channels
    step = t.quant.scale[0] if t.quant is not None and t.dtype != "float32" else None
    excess = None
    worst = 0
    by = None
    if op is not None and step and channels.count and seen.own.samples:
        weights = Weights.of(op) if complete else None
        by = rounding(op, weights, read) if complete else None
        if by is not None and by.whole.shape == (channels.number,):
            ratio = channels.noise() / np.maximum(by.whole, 1e-30)
            worst = int(ratio.argmax())
            excess = float(10 * np.log10(max(ratio[worst], 1e-30)))
    if not step or not channels.count:
        return Noise(excess, worst, None, None, by)
    errors = _inner_errors(seen)
    if np.isfinite(errors).sum() >= _ENOUGH:
        offset = float(np.nanmedian(errors))
    else:
        offset = None
    return Noise(excess, worst, seen.own.rms_error() / step, offset, by)


def _inner_errors(seen: ValueRecord) -> Array:
    """Of the kept pixels [pixel, channel], errors in steps; NaN where either is at an
    end of the range, which hides shifts.
    """
    held = limits(seen.value.type)
    step = seen.value.type.scale
    x, y = (a.astype(np.float64) for a in seen.channels.rows())
    errors = (y - x) / step
    if held is None:
        return np.asarray(errors)
    low = held[0] + 0.75 * step
    high = held[1] - 0.75 * step
    return np.where((x > low) & (y > low) & (x < high) & (y < high), errors, np.nan)


def findings(
    seen: ValueRecord, noise: Noise, complete: bool, by: str = ""
) -> list[LayerFinding]:
    """All that is to be said of a layer, what weighs most first. by: whose kernels run
    it, if not edgec's.
    """
    op = seen.op
    if op is None:
        return []
    faults = [*_kernel(seen, op, by)]
    if seen.own.samples and seen.own.rms_error() > 0:
        faults += [
            *((_reordered(seen) if complete else []) or _swapped(seen)),
            *_gained(seen, noise),
            *_shifted(seen, noise, complete),
        ]
        if not faults:
            faults += [*_loud(seen, noise)]
    if not seen.own.samples or seen.own.rms_error() == 0:
        return faults
    losses = [
        *_clipped(seen),
        *_unlike(seen, noise, op),
        *_loose(seen),
        *_rounded(seen, noise, op),
    ]
    return [*faults, *losses]


def other_grid(seen: ValueRecord) -> LayerFinding | None:
    """Where both are int8: a scale or a zero point of its result that is not A's."""
    mine = seen.value.type.quant
    theirs = seen.type.quant if seen.type is not None else None
    if (
        seen.op is None
        or mine is None
        or theirs is None
        or seen.type is None
        or seen.type.dtype != seen.value.type.dtype
    ):
        return None
    times = mine.scale[0] / theirs.scale[0] if theirs.scale[0] else 0.0
    if abs(times - 1) > _GRID:
        text = f"{GRID[0]} {times:.3g} times A's"
        return LayerFinding("gain", True, text, f"A's scale is {theirs.scale[0]:.6g}")
    if mine.zero_point[0] != theirs.zero_point[0]:
        text = f"{GRID[1]} {mine.zero_point[0]}, A's {theirs.zero_point[0]}"
        return LayerFinding(
            "offset", True, text, f"A's zero point is {theirs.zero_point[0]}"
        )
    return None


def _kernel(seen: ValueRecord, op: Op, who: str) -> Iterator[LayerFinding]:
    law = seen.law
    if not law.broken:
        return
    if seen.value.type.dtype != "float32":
        by = f"by up to {law.error:.0f} steps"
    else:
        by = f"by {law.error:.1e} of its range"
    if op.spec.has_kernel():
        called = ", ".join(dict.fromkeys(call.kernel for call in op.calls()))
    else:
        called = op.kind
    text = (
        f"on the same inputs it differs from interp {by}, "
        f"in {law.share:.1%} of the elements"
    )
    fix = f"a bug of the kernel ({called}, or what computes it here), not of the model"
    if who:
        fix = (
            f"{who} computes {op.kind} otherwise than the reference; "
            "it is not the model's fault"
        )
    yield LayerFinding("kernel", True, text, fix)


def _reordered(seen: ValueRecord) -> list[LayerFinding]:
    """Weights of a channel that are those of another: seen in the weights, also where
    no input shows it.
    """
    mine = Weights.of(seen.op) if seen.op is not None else None
    theirs = Weights.of(seen.other) if seen.other is not None else None
    if mine is None or theirs is None or mine.real.shape != theirs.real.shape:
        return []
    power = np.square(theirs.real).sum(1)
    error = np.square(mine.real - theirs.real).sum(1)
    pairs: set[tuple[int, int]] = set()
    for i in np.flatnonzero(
        error > _EXPLAINED * np.maximum(power, np.square(mine.real).sum(1))
    )[:_SUSPECTS]:
        j = int(np.square(theirs.real - mine.real[i]).sum(1).argmin())
        across = (
            np.square(theirs.real[j] - mine.real[i]).sum()
            + np.square(theirs.real[i] - mine.real[j]).sum()
        )
        if j != i and across < _EXPLAINED * (error[i] + error[j]):
            pairs.add((min(int(i), j), max(int(i), j)))
    said = ", ".join(f"{i} and {j}" for i, j in sorted(pairs)[:4])
    text = f"channels {said} have each other's weights"
    if pairs:
        return [
            LayerFinding(
                "swap", True, text, "put its weights in the order that A has them in"
            )
        ]
    return []


def _swapped(seen: ValueRecord) -> Iterator[LayerFinding]:
    """Channels that carry what another should."""
    x, y = (a.astype(np.float64) for a in seen.channels.rows())
    power = seen.channels.power()
    n = seen.channels.number
    if n < 2 or not len(x):
        return
    error = np.square(y - x).mean(0)
    suspects = np.flatnonzero(
        (error > 0.25 * np.maximum(np.square(x).mean(0), power)) & (error > 0)
    )
    pairs: list[tuple[int, int]] = []
    for i in suspects[np.argsort(-error[suspects])][:_SUSPECTS]:
        others = np.square(x - y[:, i : i + 1]).mean(0)
        j = int(others.argmin())
        back = np.square(y[:, j] - x[:, i]).mean()
        if (
            j != i
            and others[j] < _EXPLAINED * error[i]
            and back < _EXPLAINED * error[j]
        ):
            pairs.append((min(int(i), j), max(int(i), j)))
    found = sorted({*pairs})
    if found:
        said = ", ".join(f"{i} and {j}" for i, j in found[:4])
        yield LayerFinding(
            "swap",
            True,
            f"channels {said} have each other's values",
            "look at the order of its weights",
        )


def _gained(seen: ValueRecord, noise: Noise) -> Iterator[LayerFinding]:
    """A result that is a multiple of what it should be, as far as it is not at an end
    of its range.
    """
    x, y = (a.astype(np.float64) for a in seen.channels.rows())
    if noise.steps is not None:
        errors = _inner_errors(seen)
        x = x[np.isfinite(errors)]
        y = y[np.isfinite(errors)]
    power = np.square(x).sum()
    if not power:
        return
    gain = float((x * y).sum() / power)
    left = np.square(y - gain * x).sum()
    before = np.square(y - x).sum()
    if (
        abs(gain - 1) > _GAIN
        and left < _EXPLAINED * before
        and (noise.excess_db is None or noise.excess_db > 6)
    ):
        fix = (
            "the scale of its weights, or of its result, "
            "is not the one that its "
            "integers were made with"
        )
        yield LayerFinding(
            "gain", True, f"its result is {gain:.3g} times what it should be", fix
        )


def _shifted(seen: ValueRecord, noise: Noise, complete: bool) -> Iterator[LayerFinding]:
    """A result that is shifted: as a whole, or each channel by what a step of the input
    makes there.
    """
    if noise.offset is None:
        return
    errors = _inner_errors(seen)
    known = np.isfinite(errors).sum(0) >= min(4, len(errors))
    if not known.any():
        return
    each = np.nanmedian(errors[:, known], axis=0)
    off = round(noise.offset)
    middle = float(np.median(each))
    # rounding shifts each channel by something else
    doubt = float(each.std()) / math.sqrt(len(each))
    if off and middle * off > 0 and abs(middle) > max(_OFFSET_STEPS, _SURE * doubt):
        text = (
            f"its result is {abs(noise.offset):.2g} steps too "
            f"{'high' if off > 0 else 'low'} everywhere"
        )
        yield LayerFinding(
            "offset", True, text, f"the zero point of its result is off by {abs(off)}"
        )
        return
    weights = Weights.of(seen.op) if complete and seen.op is not None else None
    step = _input_step(seen.op) if seen.op is not None else 0.0
    if (
        weights is None
        or not step
        or len(weights.real) != len(known)
        or known.sum() < _ENOUGH_CHANNELS
    ):
        return
    sums = weights.real.sum(1)[known] * step / seen.value.type.scale
    means = np.nanmean(errors[:, known], axis=0)
    times = float((means * sums).sum() / max(1e-30, np.square(sums).sum()))
    left = np.square(means - times * sums).sum() / max(1e-30, np.square(means).sum())
    if round(times) and abs(times - round(times)) < _NEAR and left < _LEFT:
        text = (
            f"its channels are shifted by {abs(times):.2g} times what a step of "
            "its "
            "input makes there"
        )
        yield LayerFinding(
            "offset",
            True,
            text,
            f"the zero point of its input is off by {abs(round(times))}",
        )


def _input_step(op: Op) -> float:
    """The scale of what a weight is multiplied by; 0 in float."""
    t = next((v.type for v in op.inputs if v.const is None), None)
    if t is not None and t.quant is not None and t.dtype != "float32":
        return t.quant.scale[0]
    return 0.0


def _loud(seen: ValueRecord, noise: Noise) -> Iterator[LayerFinding]:
    """More noise than rounding explains."""
    if noise.excess_db is None or noise.excess_db < EXCESS_DB:
        return
    many = f" of {seen.channels.number}" if seen.channels.number > 1 else ""
    text = (
        f"channel {noise.worst}{many} has {noise.excess_db:.0f} dB more noise than "
        "rounding explains"
    )
    yield LayerFinding(
        "noise",
        True,
        text,
        _weights_of(seen, noise.worst)
        or "compare its weights, bias and scales with A's",
    )


def _weights_of(seen: ValueRecord, i: int) -> str:
    """How the weights of a channel differ from those that A has for it; "" where that
    says nothing.
    """
    mine = Weights.of(seen.op) if seen.op is not None else None
    theirs = Weights.of(seen.other) if seen.other is not None else None
    if (
        mine is None
        or theirs is None
        or mine.real.shape != theirs.real.shape
        or i >= len(mine.real)
    ):
        return ""
    row = mine.real[i]
    errors = np.square(theirs.real - row).sum(1)
    j = int(errors.argmin())
    if j != i and errors[j] < _EXPLAINED * errors[i]:
        return (
            f"its weights are those that A has for channel {j}: "
            "look at the order of its weights"
        )
    power = np.square(theirs.real[i]).sum()
    if errors[i] > _EXPLAINED * power:
        return "its weights are not those that A has: look at them, and at their scale"
    return (
        "its weights are as A has them: look at its bias, "
        "and at the scales and "
        "zero points of what it reads"
    )


def _clipped(seen: ValueRecord) -> Iterator[LayerFinding]:
    share = seen.spread.clipped(seen.value)
    noise = seen.channels.clipped_share()
    if share and (share > _CLIPPED or noise > _MOSTLY):
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


def _loose(seen: ValueRecord) -> Iterator[LayerFinding]:
    used = seen.spread.used(seen.value)
    if used is not None and 0 < used < _LOOSE:
        text = f"its scale is {1 / used:.1f} times what its range needs here"
        fix = (
            "a tighter range (percentile, mse), if calibration saw outliers; "
            "look at what it shares its scale with"
        )
        yield LayerFinding("loose", False, text, fix)


def _unlike(seen: ValueRecord, noise: Noise, op: Op) -> Iterator[LayerFinding]:
    """Channels that need scales of their own, in the weight or in the result."""
    weights = Weights.of(op)
    if weights is not None and weights.real.any() and len(weights.real) > 1:
        largest = np.abs(weights.real).max(1)
        alive = largest[largest > 0]
        i = int(largest.argmax())
        times = float(largest.max() / np.median(alive))
        if times > _UNLIKE and len({*weights.steps.tolist()}) == 1:
            text = (
                f"weights of channel {i} are {times:.0f} times those of most, "
                "and all share one scale"
            )
            yield LayerFinding(
                "weights",
                False,
                text,
                "equalize, a scale per channel, or float for this layer",
            )
    power = seen.channels.power()
    alive = power[power > 0]
    if seen.value.type.quant is not None and len(alive) > 1:
        times = float(np.sqrt(alive.max() / np.median(alive)))
        if times > _UNLIKE:
            text = (
                f"channel {int(power.argmax())} of its result is {times:.0f} times "
                "most others, in one scale"
            )
            yield LayerFinding(
                "channels",
                False,
                text,
                "equalize, or float (or 16 bits) for this layer",
            )


def _rounded(seen: ValueRecord, noise: Noise, op: Op) -> Iterator[LayerFinding]:
    """What of it is rounded too coarsely."""
    if noise.by is None or Weights.of(op) is None:
        return
    what, share = next(iter(noise.by.shares().items()))
    read = next((v.name for v in op.inputs if v.const is None), "")
    fix = {
        "weights": "another rounding of its weights (--quantize best), "
        "or float for this layer",
        "inputs": f"more bits for {read}, or equalize its channels",
        "result": "more bits for its result: 16, or float",
    }[what]
    said = {
        "weights": "its weights'",
        "inputs": "its input's",
        "result": "its result's",
    }[what]
    yield LayerFinding(
        "rounding", False, f"{share:.0%} of what rounding leaves there is {said}", fix
    )
