"""How near one set of outputs is to another: cosine, signal to quantization noise, and
top-1 agreement.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from edgec.ir import Array

LOW_SQNR_DB = 15.0
"""Below it a compile warns: the noise has more than a sixth of the output's amplitude.

Networks that quantize well have 20 to 45 dB; at 8 dB one classification in five differs
(docs/accuracy.md).
"""
LOW_COSINE = 0.97
"""Below it a compile warns."""
_NEARLY_CONSTANT = 0.1
"""An output whose variance has at most this part of its power is judged about its mean:
the mean is easily kept.
"""
_CONSTANT = 1e-9
"""Below this part there is nothing about the mean to judge but rounding."""


@dataclass(frozen=True)
class Agreement:
    """Of one output over all samples.

    `sqnr_db` is inf when they are equal; `top1` None where no class is chosen.

    centred_cosine, centred_sqnr_db: of the differences from the reference's mean, where
    the output is nearly constant; None elsewhere.
    """

    cosine: float
    sqnr_db: float
    top1: float | None
    samples: int
    centred_cosine: float | None = None
    centred_sqnr_db: float | None = None

    def misses(self) -> list[str]:
        """The figures that are below their marks, to be read; the centred ones where
        there are some.
        """
        cos = self.cosine if self.centred_cosine is None else self.centred_cosine
        ratio = self.sqnr_db if self.centred_sqnr_db is None else self.centred_sqnr_db
        if ratio >= LOW_SQNR_DB:
            found = []
        else:
            found = [f"SQNR {ratio:.1f} dB, below {LOW_SQNR_DB:g}"]
        if cos >= LOW_COSINE:
            return found
        return [*found, f"cosine {cos:.5f}, below {LOW_COSINE:g}"]

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity: an infinite ratio becomes None."""
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
    """Sums over pairs of arrays, one pair at a time, from which every figure follows:
    no array is kept.

    max_error: the largest difference of two elements.
    """

    def __init__(self) -> None:
        self.samples = self.elements = self._agreeing = 0
        self.max_error = 0.0
        self._ranked = True
        self._x = self._y = self._xx = self._yy = self._xy = self._ee = 0.0
        self._of_channels: Array | None = None

    def add(self, want: Array, got: Array) -> None:
        """One sample.

        Infinities that are equal count as nothing; what else is not finite spoils the
        figures.
        """
        x = want.reshape(-1).astype(np.float64)
        y = got.reshape(-1).astype(np.float64)
        finite = np.isfinite(x)
        if not finite.all():
            same = ~finite & ((x == y) | (np.isnan(x) & np.isnan(y)))
            x = np.where(same, 0.0, x)
            y = np.where(same, 0.0, y)
        error = x - y
        self.samples = self.samples + 1
        self.elements = self.elements + x.size
        self._x, self._y = self._x + float(x.sum()), self._y + float(y.sum())
        self._xx, self._yy, self._xy = (
            self._xx + _dot(x, x),
            self._yy + _dot(y, y),
            self._xy + _dot(x, y),
        )
        self._ee += _dot(error, error)
        self._channels(x, want.shape)
        self.max_error = max(self.max_error, float(np.abs(error).max(initial=0.0)))
        self._ranked = (
            self._ranked and x.size >= 2 and want.ndim > 0 and want.shape[-1] == x.size
        )
        if self._ranked:
            self._agreeing += int(x.argmax() == y.argmax())

    def powers(self) -> tuple[float, float]:
        """What was wanted, about its mean where it is nearly constant, and the
        difference: sums of squares.
        """
        about = self._variance()
        return (
            about if 0.0 < about <= _NEARLY_CONSTANT * self._xx else self._xx
        ), self._ee

    def state(self) -> dict[str, Any]:
        """The sums, for JSON; `of` takes them back."""
        return {
            k: v.tolist() if isinstance(v, np.ndarray) else v
            for k, v in vars(self).items()
        }

    @classmethod
    def of(cls, states: Iterable[Mapping[str, Any]]) -> Tally:
        """Of all pairs that others were added up from."""
        found = cls()
        for state in states:
            for name, part in state.items():
                old = getattr(found, name)
                if name == "max_error":
                    both: object = max(old, part)
                elif name == "_of_channels":
                    none = part is None or (old is not None and len(old) != len(part))
                    if none:
                        both = np.zeros(0)
                    else:
                        both = np.add(part, 0 if old is None else old)
                else:
                    both = old and part if isinstance(part, bool) else old + part
                setattr(found, name, both)
        return found

    def cosine(self) -> float:
        """Of the angle between all that was added; two zero vectors agree (1), a zero
        and another do not (0).
        """
        return _cosine(self._xx, self._yy, self._xy)

    def sqnr_db(self) -> float:
        """10 log10 of the power of what was wanted over that of the difference; inf
        when equal.
        """
        return _db(self._xx, self._ee)

    def centred_sqnr_db(self) -> float:
        """The same with the variance of what was wanted, if it has any, in place of its
        power.
        """
        return _db(self._variance() or self._xx, self._ee)

    def channels_sqnr_db(self) -> float:
        """The same about the mean of each channel (of the last axis): what stays so
        from sample to sample, or from place to place, is easily kept. About the mean
        where every channel is one element, or their number changes.
        """
        sums = self._of_channels
        if sums is None or not sums.size or self.elements <= sums.size:
            return self.centred_sqnr_db()
        about = self._xx - float(np.square(sums).sum()) / (self.elements / sums.size)
        return _db(about if about > _CONSTANT * self._xx else self._xx, self._ee)

    def _channels(self, x: Array, shape: tuple[int, ...]) -> None:
        """Sums of the last axis of what was wanted; none once it has another length."""
        last = shape[-1] if shape else 1
        if self._of_channels is None and self.samples == 1:
            self._of_channels = np.zeros(last)
        if self._of_channels is not None and len(self._of_channels) == last:
            self._of_channels = self._of_channels + x.reshape(-1, last).sum(0)
        else:
            self._of_channels = np.zeros(0)

    def rms_error(self) -> float:
        """The root of the mean square of the difference."""
        return math.sqrt(self._ee / max(1, self.elements))

    def gain(self) -> float | None:
        """By what factor the deviations from its mean are larger than those of what was
        wanted; None without any.
        """
        about = self._variance()
        return (self._xy - self._x * self._y / self.elements) / about if about else None

    def _variance(self) -> float:
        """Times the number of elements; 0 where it is lost in rounding."""
        about = self._xx - self._x * self._x / max(1, self.elements)
        return about if about > _CONSTANT * self._xx else 0.0

    def result(self) -> Agreement:
        """Of all samples."""
        top1 = self._agreeing / self.samples if self._ranked and self.samples else None
        plain = self.cosine(), self.sqnr_db(), top1, self.samples
        about = self._variance()
        if not 0.0 < about <= _NEARLY_CONSTANT * self._xx:
            return Agreement(*plain)
        n = self.elements
        other = self._yy - self._y * self._y / n
        both = self._xy - self._x * self._y / n
        return Agreement(
            *plain, _cosine(about, max(0.0, other), both), _db(about, self._ee)
        )


def _dot(a: Array, b: Array) -> float:
    """Not by BLAS, whose order of summing hangs on the number of cores: the figures are
    part of the bundle.
    """
    return float(np.einsum("i,i->", a, b))


def _cosine(xx: float, yy: float, xy: float) -> float:
    norms = math.sqrt(xx) * math.sqrt(yy)
    if norms == 0.0:
        return 1.0 if xx == yy == 0.0 else 0.0
    return float(np.clip(xy / norms, -1.0, 1.0))


def _db(power: float, noise: float) -> float:
    if noise == 0.0:
        return math.inf
    return 10 * math.log10(power / noise) if power else -math.inf


def tally(want: Array, got: Array) -> Tally:
    """Of one pair."""
    found = Tally()
    found.add(want, got)
    return found


def cosine(a: Array, b: Array) -> float:
    """Of the angle between two arrays taken as vectors; two zero vectors agree (1), a
    zero and another do not (0).
    """
    return tally(a, b).cosine()


def sqnr_db(reference: Array, got: Array) -> float:
    """10 log10 of the power of `reference` over that of the difference; inf when equal."""
    return tally(reference, got).sqnr_db()


def compare(
    pairs: Iterable[tuple[Mapping[str, Array], Mapping[str, Array]]],
) -> dict[str, Agreement]:
    """Agreement of each output over pairs (reference outputs, outputs), taken one at a
    time.

    Top-1 is taken along the last axis where an output is one row of at least two
    elements per sample.
    """
    tallies: dict[str, Tally] = {}
    for want, got in pairs:
        for name, array in want.items():
            tallies.setdefault(name, Tally()).add(array, got[name])
    return {name: t.result() for name, t in tallies.items()}
