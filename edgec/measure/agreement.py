"""Measures of how near one set of outputs is to another.

For a reference x and an output y of one tensor, over all its elements and samples:

    cosine = <x, y> / (|x| |y|)
    SQNR   = 10 log10(|x|² / |x - y|²)   dB, the signal-to-quantization-noise ratio
    top-1  = the share of the samples with argmax x = argmax y

An output that is nearly constant is easily near its reference. Such an output is judged
about its mean: x and y are replaced by their differences from their means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from edgec.ir import Array
from edgec.measure.decibels import decibels

LOW_SQNR_DB = 15.0
"""Below it a compile warns: the noise has more than a sixth of the output's amplitude.

Networks that quantize well have 20 to 45 dB; at 8 dB one classification in five differs
(docs/accuracy.md).
"""
LOW_COSINE = 0.97
"""Below it a compile warns."""
NEARLY_CONSTANT_SHARE = 0.1
"""An output is judged about its mean where its variance has at most this share of its
power: the mean is easily kept.
"""
CONSTANT_SHARE = 1e-9
"""A variance below this share of the power is a rounding error of the sums."""


@dataclass(frozen=True)
class Agreement:
    """The agreement of one output with its reference over all samples.

    Attributes:
        cosine: the cosine of the angle between both, taken as vectors.
        sqnr_db: the signal-to-noise ratio; inf when both are equal.
        top1: the share of samples with the same first class; None where the output is
            no row of classes.
        samples: the number of samples.
        centred_cosine: the cosine about the means, for a nearly constant output; else
            None.
        centred_sqnr_db: the ratio with the variance as signal, likewise.
    """

    cosine: float
    sqnr_db: float
    top1: float | None
    samples: int
    centred_cosine: float | None = None
    centred_sqnr_db: float | None = None

    @property
    def judged_db(self) -> float:
        """The signal-to-noise ratio, about the mean of a nearly constant output."""
        return self.sqnr_db if self.centred_sqnr_db is None else self.centred_sqnr_db

    def misses(self) -> list[str]:
        """Return the figures below `LOW_SQNR_DB` and `LOW_COSINE`, as text for people.

        The figures about the mean count where they are known.
        """
        cos = self.cosine if self.centred_cosine is None else self.centred_cosine
        ratio = self.judged_db
        texts = []
        if not ratio >= LOW_SQNR_DB:
            texts.append(f"SQNR {ratio:.1f} dB, below {LOW_SQNR_DB:g}")

        if not cos >= LOW_COSINE:
            texts.append(f"cosine {cos:.5f}, below {LOW_COSINE:g}")

        return texts

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON, with None for an infinite ratio."""
        return {
            k: None if isinstance(v, float) and not math.isfinite(v) else v
            for k, v in asdict(self).items()
        }

    def __str__(self) -> str:
        top1 = "" if self.top1 is None else f", top-1 {100 * self.top1:.0f} %"
        if self.centred_sqnr_db is None:
            centred = ""
        else:
            centred = f" ({self.centred_sqnr_db:.1f} dB about its mean)"

        return f"SQNR {self.sqnr_db:.1f} dB{centred}, cosine {self.cosine:.5f}{top1}"


class Tally:
    """Sums over pairs (reference, output), from which every figure follows.

    Pairs are added one at a time, and no array is kept.

    Attributes:
        samples: the number of pairs.
        elements: the number of elements of all pairs.
        max_error: the largest difference of two elements.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.elements = 0
        self.max_error = 0.0
        # Whether every sample is one row of classes, and how often the first is the same.
        self._ranked = True
        self._agreeing = 0
        # Σ x, Σ y, Σ x², Σ y², Σ xy and Σ (x - y)² of references x and outputs y.
        self._x = 0.0
        self._y = 0.0
        self._xx = 0.0
        self._yy = 0.0
        self._xy = 0.0
        self._ee = 0.0
        # Σ x for each channel; empty once two samples have unlike numbers of channels.
        self._channel_sums: Array | None = None

    def add(self, want: Array, actual: Array) -> None:
        """Add one sample.

        Infinities and NaNs at the same place of both count as 0; any other element that
        is not finite makes the figures NaN.
        """
        x = want.reshape(-1).astype(np.float64)
        y = actual.reshape(-1).astype(np.float64)
        # An output may hold infinities by design (a mask before a softmax).
        finite = np.isfinite(x)
        if not finite.all():
            same = ~finite & ((x == y) | (np.isnan(x) & np.isnan(y)))
            x = np.where(same, 0.0, x)
            y = np.where(same, 0.0, y)

        error = x - y

        self.samples += 1
        self.elements += x.size
        self._x += float(x.sum())
        self._y += float(y.sum())
        self._xx += _dot(x, x)
        self._yy += _dot(y, y)
        self._xy += _dot(x, y)
        self._ee += _dot(error, error)

        self._add_channels(x, want.shape)
        largest = float(np.abs(error).max(initial=0.0))
        self.max_error = max(self.max_error, largest)

        # Top-1 has a meaning only if every sample is one row of classes.
        is_row = x.size >= 2 and want.ndim > 0 and want.shape[-1] == x.size
        self._ranked = self._ranked and is_row
        if self._ranked:
            self._agreeing += int(x.argmax() == y.argmax())

    def powers(self) -> tuple[float, float]:
        """Return the powers of signal and noise, as sums of squares.

        The signal is the reference, about its mean where it is nearly constant.
        """
        variance = self._variance()
        signal = variance if self._is_nearly_constant(variance) else self._xx
        return signal, self._ee

    def state(self) -> dict[str, Any]:
        """Return the sums for JSON; `of` reads them back.

        Child processes report their samples so.
        """
        return {
            k: v.tolist() if isinstance(v, np.ndarray) else v
            for k, v in vars(self).items()
        }

    @classmethod
    def of(cls, states: Iterable[Mapping[str, Any]]) -> Tally:
        """Return the tally of all pairs behind several `state`s."""
        merged = cls()
        for state in states:
            for name, part in state.items():
                old = getattr(merged, name)
                setattr(merged, name, _merged(name, old, part))

        return merged

    def cosine(self) -> float:
        """Return the cosine of the angle between references and outputs.

        Two zero vectors agree (1), a zero vector and another do not (0).
        """
        return _cosine(self._xx, self._yy, self._xy)

    def sqnr_db(self) -> float:
        """Return 10 log10(power of the references / power of the differences), in dB."""
        return decibels(self._xx, self._ee)

    def centred_sqnr_db(self) -> float:
        """Return the ratio with the variance of the references as the signal.

        Their power is the signal where they are constant.
        """
        return decibels(self._variance() or self._xx, self._ee)

    def channels_sqnr_db(self) -> float:
        """Return the ratio with the variance of each channel as the signal.

        A channel is an index of the last axis. Its mean is the same from sample to
        sample and from pixel to pixel, hence easily kept. Where every channel is one
        element, or their number changes, the variance is that of the whole tensor.
        """
        sums = self._channel_sums
        if sums is None or not sums.size or self.elements <= sums.size:
            return self.centred_sqnr_db()

        per_channel = self.elements / sums.size
        variance = self._xx - float(np.square(sums).sum()) / per_channel
        varies = variance > CONSTANT_SHARE * self._xx

        return decibels(variance if varies else self._xx, self._ee)

    def _add_channels(self, x: Array, shape: tuple[int, ...]) -> None:
        """Add a reference of this shape to the sums of the channels."""
        channels = shape[-1] if shape else 1
        # The first sample gives the number of channels.
        if self._channel_sums is None and self.samples == 1:
            self._channel_sums = np.zeros(channels)

        sums = self._channel_sums
        if sums is not None and len(sums) == channels:
            self._channel_sums = sums + x.reshape(-1, channels).sum(0)
        else:
            # Channels of two numbers have no means: the figure is that of the tensor.
            self._channel_sums = np.zeros(0)

    def rms_error(self) -> float:
        """Return the root of the mean square of the differences."""
        return math.sqrt(self._ee / max(1, self.elements))

    def gain(self) -> float | None:
        """Return the slope of the regression of outputs on references.

        It is covariance(x, y) / variance(x); None where the references are constant.
        """
        variance = self._variance()
        if not variance:
            return None
        return (self._xy - self._x * self._y / self.elements) / variance

    def _variance(self) -> float:
        """Return the variance of the references times the number of elements.

        It is 0 where it is lost in the rounding of the sums.
        """
        variance = self._xx - self._x * self._x / max(1, self.elements)
        return variance if variance > CONSTANT_SHARE * self._xx else 0.0

    def _is_nearly_constant(self, variance: float) -> bool:
        return 0.0 < variance <= NEARLY_CONSTANT_SHARE * self._xx

    def result(self) -> Agreement:
        """Return the agreement over all samples."""
        top1 = self._agreeing / self.samples if self._ranked and self.samples else None
        cosine = self.cosine()
        sqnr_db = self.sqnr_db()
        variance = self._variance()
        if not self._is_nearly_constant(variance):
            return Agreement(cosine, sqnr_db, top1, self.samples)

        # Sums of squares about the means, as Σ x² - (Σ x)² / n.
        n = self.elements
        output_variance = self._yy - self._y * self._y / n
        covariance = self._xy - self._x * self._y / n
        # Rounding can make the variance of a constant output negative.
        centred_cosine = _cosine(variance, max(0.0, output_variance), covariance)
        centred_db = decibels(variance, self._ee)

        return Agreement(
            cosine, sqnr_db, top1, self.samples, centred_cosine, centred_db
        )


def _merged(name: str, old: Any, part: Any) -> object:
    """Return what a field of `Tally` is for both sets of samples.

    name: the name of the field.
    old: its value for the first set.
    part: its value for the second one.
    """
    if name == "max_error":
        return max(old, part)

    # Sets with unlike numbers of channels have no sums together.
    if name == "_channel_sums":
        unlike = part is None or (old is not None and len(old) != len(part))
        return np.zeros(0) if unlike else np.add(part, 0 if old is None else old)

    # Every other field is a sum, but for whether all samples are rows of classes.
    if isinstance(part, bool):
        return old and part

    return old + part


def _dot(a: Array, b: Array) -> float:
    """Return the inner product of two vectors."""
    # BLAS sums in an order that depends on the number of cores, and the figures are
    # part of the bundle.
    return float(np.einsum("i,i->", a, b))


def _cosine(xx: float, yy: float, xy: float) -> float:
    """Return the cosine from <x, x>, <y, y> and <x, y>."""
    # The product of the squares would underflow before that of the roots.
    norms = math.sqrt(xx) * math.sqrt(yy)
    if norms == 0.0:
        return 1.0 if xx == yy == 0.0 else 0.0

    # Rounding can lead beyond 1.
    return float(np.clip(xy / norms, -1.0, 1.0))


def tally(want: Array, actual: Array) -> Tally:
    """Return the tally of one pair."""
    result = Tally()
    result.add(want, actual)
    return result


def cosine(a: Array, b: Array) -> float:
    """Return the cosine of the angle between two arrays, taken as vectors.

    Two zero vectors agree (1), a zero vector and another do not (0).
    """
    return tally(a, b).cosine()


def sqnr_db(reference: Array, actual: Array) -> float:
    """Return the signal-to-noise ratio of an array in dB, inf where both are equal."""
    return tally(reference, actual).sqnr_db()


def compare(
    pairs: Iterable[tuple[Mapping[str, Array], Mapping[str, Array]]],
) -> dict[str, Agreement]:
    """Return the agreement of each output over pairs (reference outputs, outputs).

    The pairs are taken one at a time. Top-1 is known for outputs with one row of at
    least two elements in each sample, along their last axis.
    """
    tallies: dict[str, Tally] = {}
    for want, got in pairs:
        for name, array in want.items():
            tallies.setdefault(name, Tally()).add(array, got[name])

    return {name: t.result() for name, t in tallies.items()}
