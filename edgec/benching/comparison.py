"""Whether a build is slower than an earlier one: a statistical test that may answer
that it cannot tell.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from edgec.benching.steady import checked
from edgec.errors import InputError

Rounds = Sequence[Sequence[float]]
"""ms, launch by launch.

Inferences of one launch resemble each other; launches are what is independent.
"""
Answer = Literal["regress", "same", "better", "cannot tell"]

CONFIDENCE = 0.95
FIGURE = "p10"
"""What is compared: the tenth percentile of a launch, waiting for the processor taken
off. It is what the program takes when nothing interferes. Medians follow the other work
of the machine: with two to five busy processes on two cores, the medians of one build's
launches were 146 to 466 ms where this was 49.7 to 50.0 ms.
"""
ESTIMATE = "est. latency"
"""What is compared of estimates."""
_QUANTILE = 0.10
_BETWEEN_BENCHES = 0.01
"""Two benches of one build may differ by so much even where the launches of each agree;
the most seen is 0.006.
"""
_TICK_MS = 1e-6
"""One nanosecond: shorter times than the clock shows."""
_MIN_LAUNCHES = next(
    n for n in range(1, 9) if 1 - 2 / math.comb(2 * n, n) >= CONFIDENCE
)
"""Of each side; with fewer not even launches that are all slower than all others prove
anything.
"""
_LEAST_RUNS = 3 * _MIN_LAUNCHES
"""A launch times no fewer than three inferences."""


@dataclass(frozen=True)
class Comparison:
    """verdict: "regress": surely slower than allowed; "better": surely faster; "same":
    surely not slower than allowed.

    ratio: new / old of `figure`; low and high: its confidence interval, of
    `confidence`, which is below 0.95 where there are too few launches. machine: new /
    old of the yardstick, 1.1: the machine was 10 % slower; 1 where there was none.
    runs_needed: how many of each it would take at the noise seen, about; None where it
    can tell, and where more runs would not help.
    """

    verdict: Answer
    ratio: float
    low: float
    high: float
    confidence: float
    runs_needed: int | None
    max_regress: float
    machine: float = 1.0
    figure: str = FIGURE

    def sentence(self) -> str:
        """For people."""
        limit = f"the {100 * self.max_regress:g} % allowed"
        words = {
            "regress": f"slower than {limit}",
            "better": "faster",
            "same": f"not slower than {limit}",
            "cannot tell": f"cannot tell whether it is slower than {limit}",
        }
        return f"{words[self.verdict]}: {'; '.join(self._seen())}"

    def _seen(self) -> Iterator[str]:
        interval = (
            f" ({self.low:.3f} to {self.high:.3f}, {100 * self.confidence:.0f} "
            "% confidence)"
        )
        yield f"{self.figure} x {self.ratio:.3f}{interval if self.low < self.high else ''}"
        moved = self.machine - 1
        if abs(moved) >= _BETWEEN_BENCHES:
            yield (
                f"the machine itself was {100 * abs(moved):.1f} % "
                f"{'slower' if moved > 0 else 'faster'}"
            )
        if self.runs_needed is not None:
            yield f"about {self.runs_needed} runs of each would tell"
        elif self.verdict == "cannot tell":
            yield "more runs alone would not tell"


def compare(
    old: Rounds,
    new: Rounds,
    max_regress: float,
    old_yardstick: Rounds = (),
    new_yardstick: Rounds = (),
    *,
    old_waited: Rounds = (),
    new_waited: Rounds = (),
    exact: bool = False,
) -> Comparison:
    """Of the steady inferences of two benches, launch by launch.

    A launch counts as one observation: its tenth percentile. The ratio is the
    Hodges-Lehmann estimate on logarithms, and its interval is the exact one that
    belongs to the Mann-Whitney test (Hollander and Wolfe, Nonparametric Statistical
    Methods, 4.2 and 4.3): no distribution is assumed, and one or two launches that went
    wrong move it little. It is widened by what benches of one build differ by. Where a
    yardstick (a fixed loop, timed between inferences) took longer or shorter than in
    the earlier run, it is widened to both readings: that all of this shift is in the
    times, and that none is. waited: of each inference, the ms in which it had no
    processor; taken off where both have it (generated C does not sleep, so that others
    had it).

    exact: both are computed, not sampled: their first values are compared as they are.
    Raises InputError for values that are no durations, and where there is nothing to
    compare.
    """
    limit = math.log1p(max_regress)
    if exact:
        shift = math.log(_tick(_first(new)) / _tick(_first(old)))
        found = _result(
            _verdict(shift, shift, limit), (shift, shift, shift), 1.0, None, max_regress
        )
        return replace(found, figure=ESTIMATE)
    if old_waited and new_waited:
        old = _without(old, old_waited)
        new = _without(new, new_waited)
    # Of few inferences the least is near this quantile; the same one for both, or the
    # shorter bench would look slower.
    least = min((len(one) for one in (*old, *new) if one), default=1)
    level = max(_QUANTILE, 1 / (least + 1))
    was, now = (_of_launches(rounds, level) for rounds in (old, new))
    shift, low, high, confidence = _shift(was, now)
    machine = _machine(old_yardstick, new_yardstick)
    wide = (shift, low - _BETWEEN_BENCHES, high + _BETWEEN_BENCHES)
    hull = (shift, min(wide[1], wide[1] - machine), max(wide[2], wide[2] - machine))
    if confidence >= CONFIDENCE:
        verdict = _verdict(hull[1], hull[2], limit)
    else:
        verdict = "cannot tell"
    needed = None
    if verdict == "cannot tell" and (
        confidence < CONFIDENCE or _verdict(wide[1], wide[2], limit) == verdict
    ):
        each = statistics.median(len(one) for one in new if one)
        needed = _runs_needed(
            (shift, low, high), limit, (len(was), len(now)), each, confidence
        )
    return _result(verdict, hull, confidence, needed, max_regress, math.exp(machine))


def _result(
    verdict: Answer,
    interval: tuple[float, float, float],
    confidence: float,
    needed: int | None,
    max_regress: float,
    machine: float = 1.0,
) -> Comparison:
    ratio, low, high = map(math.exp, interval)
    return Comparison(
        verdict, ratio, low, high, confidence, needed, max_regress, machine
    )


def _verdict(low: float, high: float, limit: float) -> Answer:
    """Of an interval of the shift, logarithms."""
    if low > limit:
        return "regress"
    if high < 0:
        return "better"
    return "same" if high <= limit else "cannot tell"


# ---- observations


def _of_launches(rounds: Rounds, level: float) -> list[float]:
    """The logarithm of a quantile of each launch; launches without a steady inference
    are left out.
    """
    found = [
        math.log(_tick(float(np.quantile(checked(one), level, method="weibull"))))
        for one in rounds
        if len(one)
    ]
    if not found:
        raise InputError(
            "there are no times to compare", hint="measure again with more runs"
        )
    return found


def _first(rounds: Rounds) -> float:
    values = [ms for one in rounds for ms in checked(one)]
    if not values:
        raise InputError("there are no times to compare", hint="measure again")
    return float(values[0])


def _tick(ms: float) -> float:
    return max(ms, _TICK_MS)


def _without(rounds: Rounds, waited: Rounds) -> Rounds:
    if [len(one) for one in rounds] != [len(one) for one in waited]:
        raise InputError(
            "the waiting times do not fit the inferences", hint="measure again"
        )
    return [
        np.maximum(checked(one) - checked(away), 0).tolist()
        for one, away in zip(rounds, waited, strict=True)
    ]


def _machine(old: Rounds, new: Rounds) -> float:
    """How much longer the yardstick takes, a logarithm."""
    if not any(map(len, old)) or not any(map(len, new)):
        return 0.0
    return statistics.median(_of_launches(new, _QUANTILE)) - statistics.median(
        _of_launches(old, _QUANTILE)
    )


# ---- the test


def _shift(
    was: Sequence[float], now: Sequence[float]
) -> tuple[float, float, float, float]:
    """Estimate, bounds and confidence of how far `now` lies above `was`."""
    differences = sorted(b - a for a in was for b in now)
    counts = _rank_sums(len(was), len(now))
    total = sum(counts)
    tail = 0
    rank = 0
    # The bounds are the rank-th difference from either end; the first ones are taken
    # even if they do not suffice.
    while rank == 0 or (
        rank < len(differences) // 2
        and 1 - 2 * (tail + counts[rank]) / total >= CONFIDENCE
    ):
        tail += counts[rank]
        rank += 1
    confidence = max(0.0, 1 - 2 * tail / total)
    return (
        statistics.median(differences),
        differences[rank - 1],
        differences[-rank],
        confidence,
    )


def _rank_sums(m: int, n: int) -> list[int]:
    """In how many of the orders of m and n values without a difference the Mann-Whitney
    statistic is 0, 1, …, m n.

    The coefficients of the Gaussian binomial, product over i of (1 - q^(n+i)) / (1 -
    q^i).
    """
    counts = [1] + [0] * (m * n)
    for i in range(1, m + 1):
        for k in range(m * n, n + i - 1, -1):
            counts[k] -= counts[k - n - i]
        for k in range(i, m * n + 1):
            counts[k] += counts[k - i]
    return counts


def _runs_needed(
    interval: tuple[float, float, float],
    limit: float,
    launches: tuple[int, int],
    each: float,
    confidence: float,
) -> int | None:
    """each: inferences in a launch.

    The interval shrinks with the square root of the launches.
    """
    shift, low, high = interval
    least = max(_LEAST_RUNS, math.ceil(_MIN_LAUNCHES * each))
    if confidence < CONFIDENCE:
        return least
    gap = abs(limit - shift) - _BETWEEN_BENCHES
    if gap <= 0:
        return None
    half = high - shift if shift < limit else shift - low
    harmonic = 2 / (1 / launches[0] + 1 / launches[1])
    return max(least, math.ceil(harmonic * (half / gap) ** 2 * each))
