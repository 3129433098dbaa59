"""Tests statistically whether a build is slower than an earlier one.

The test may answer that it cannot tell.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from edgec.benching.steady import checked
from edgec.errors import InputError

Rounds = Sequence[Sequence[float]]
"""Times in ms, launch by launch.

Inferences of one launch resemble each other; only launches are independent.
"""
Answer = Literal["regress", "same", "better", "cannot tell"]

CONFIDENCE = 0.95
FIGURE = "p10"
"""The compared figure: the tenth percentile of a launch, without the time that it
waited for a processor. It is the time of the program when nothing interferes. Medians
follow the other work of the machine: with two to five busy processes on two cores, the
medians of one build's launches were 146 to 466 ms while this figure was 49.7 to 50.0
ms.
"""
ESTIMATE = "est. latency"
"""The compared figure of estimates."""
QUANTILE = 0.10
BETWEEN_BENCHES = 0.01
"""Logarithm by which two benches of one build may differ even if the launches of each
agree; the largest observed one is 0.006.
"""
CLOCK_TICK_MS = 1e-6
"""One nanosecond, the least time that the clock shows."""


def _min_launches() -> int:
    """Return the fewest launches of each side that can prove a difference.

    With fewer, not even launches that are all slower than all others prove anything:
    the probability of this order by chance is 1 in (2n choose n).
    """
    n = 1
    while 1 - 2 / math.comb(2 * n, n) < CONFIDENCE:
        n += 1
    return n


MIN_LAUNCHES = _min_launches()
MIN_RUNS = 3 * MIN_LAUNCHES
"""A launch times no fewer than three inferences."""


@dataclass(frozen=True)
class Comparison:
    """The outcome of a comparison.

    Attributes:
        verdict: "regress": surely slower than allowed; "better": surely faster; "same":
            surely not slower than allowed
        ratio: new / old of `figure`
        low: lower bound of the ratio's confidence interval
        high: upper bound of the ratio's confidence interval
        confidence: that of the interval; below 0.95 for too few launches
        runs_needed: runs of each side that would tell at this noise, about; None if it
            can tell, or more runs would not help
        max_regress: how much slower is allowed, 0.05 is 5 %
        machine: new / old of the yardstick; 1.1: the machine was 10 % slower; 1 without
            a yardstick
        figure: the compared figure
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
        """Return the outcome in words."""
        limit = f"the {100 * self.max_regress:g} % allowed"
        words = {
            "regress": f"slower than {limit}",
            "better": "faster",
            "same": f"not slower than {limit}",
            "cannot tell": f"cannot tell whether it is slower than {limit}",
        }
        details = "; ".join(self._details())
        return f"{words[self.verdict]}: {details}"

    def _details(self) -> Iterator[str]:
        """Yield the ratio, the change of the machine, and the runs that would tell."""
        ratio = f"{self.figure} x {self.ratio:.3f}"
        if self.low < self.high:
            # A single launch on each side has no interval.
            ratio += (
                f" ({self.low:.3f} to {self.high:.3f}, {100 * self.confidence:.0f} "
                "% confidence)"
            )
        yield ratio

        change = self.machine - 1
        if abs(change) >= BETWEEN_BENCHES:
            direction = "slower" if change > 0 else "faster"
            yield f"the machine itself was {100 * abs(change):.1f} % {direction}"

        if self.runs_needed is not None:
            yield f"about {self.runs_needed} runs of each would tell"
        elif self.verdict == "cannot tell":
            yield "more runs alone would not tell"


@dataclass(frozen=True)
class _Interval:
    """An estimate of a shift of logarithms, and its confidence interval."""

    shift: float
    low: float
    high: float

    def widened(self, below: float, above: float) -> _Interval:
        """Return the interval with its bounds moved apart."""
        return _Interval(self.shift, self.low - below, self.high + above)

    def verdict(self, limit: float) -> Answer:
        """Return the answer that holds everywhere in the interval."""
        if self.low > limit:
            return "regress"
        if self.high < 0:
            return "better"
        return "same" if self.high <= limit else "cannot tell"


def compare_estimates(old: Rounds, new: Rounds, max_regress: float) -> Comparison:
    """Compare two estimates, which have no noise; only the first values count.

    Raises InputError if there is nothing to compare.
    """
    # Logarithms turn a ratio into a difference.
    shift = math.log(_first(new) / _first(old))
    ratio = math.exp(shift)
    return Comparison(
        verdict=_Interval(shift, shift, shift).verdict(math.log1p(max_regress)),
        ratio=ratio,
        low=ratio,
        high=ratio,
        confidence=1.0,
        runs_needed=None,
        max_regress=max_regress,
        figure=ESTIMATE,
    )


def compare(
    old: Rounds,
    new: Rounds,
    max_regress: float,
    old_yardstick: Rounds = (),
    new_yardstick: Rounds = (),
    *,
    waited: tuple[Rounds, Rounds] = ((), ()),
) -> Comparison:
    """Compare the steady inferences of two benches.

    A launch counts as one observation: its tenth percentile. The ratio is the
    Hodges-Lehmann estimate on logarithms, and its interval is the exact one that
    belongs to the Mann-Whitney test (Hollander and Wolfe, Nonparametric Statistical
    Methods, 4.2 and 4.3): no distribution is assumed, and one or two launches that went
    wrong move it little. It is widened by the difference of two benches of one build.

    If a yardstick (a fixed loop, timed between inferences) took longer or shorter than
    in the earlier run, it is widened to both readings: that all of this shift is in the
    times, and that none is.

    Raises InputError for values that are no durations, and if there is nothing to
    compare.

    Args:
        old: the earlier inferences
        new: the inferences of this run
        max_regress: how much slower is allowed, 0.05 is 5 %
        old_yardstick: the earlier yardstick
        new_yardstick: the yardstick of this run
        waited: the time that each inference, old and new, had no processor (ms). It is
            subtracted if both are known: generated C does not sleep, so that other
            programs had the processor
    """
    if all(waited):
        old = _without(old, waited[0])
        new = _without(new, waited[1])
    level = _common_level(old, new)
    before = _of_launches(old, level)
    now = _of_launches(new, level)
    sampled, confidence = _shift(before, now)

    limit = math.log1p(max_regress)
    machine = _machine_shift(old_yardstick, new_yardstick)
    interval = sampled.widened(BETWEEN_BENCHES, BETWEEN_BENCHES)
    # On a slower machine the program may be faster than it seems, not slower: only one
    # bound moves.
    if machine > 0:
        both_readings = interval.widened(machine, 0)
    else:
        both_readings = interval.widened(0, -machine)
    verdict: Answer = "cannot tell"
    if confidence >= CONFIDENCE:
        verdict = both_readings.verdict(limit)

    needed = None
    # Too few launches prove nothing, whatever they show.
    if confidence < CONFIDENCE:
        needed = _least_runs(new)
    elif verdict == "cannot tell" and interval.verdict(limit) == verdict:
        # Otherwise only the machine is in the way, which more runs do not change.
        launches = (len(before), len(now))
        needed = _runs_needed(sampled, limit, launches, new)
    return Comparison(
        verdict=verdict,
        ratio=math.exp(both_readings.shift),
        low=math.exp(both_readings.low),
        high=math.exp(both_readings.high),
        confidence=confidence,
        runs_needed=needed,
        max_regress=max_regress,
        machine=math.exp(machine),
    )


# ---- observations


def _common_level(old: Rounds, new: Rounds) -> float:
    """Return the quantile that is compared.

    The least of few inferences is near a higher quantile than the tenth percentile. The
    level is the same for both sides, or the shorter bench would look slower.
    """
    # Launches without a steady inference do not count.
    sizes = [len(launch) for launch in (*old, *new) if launch]
    least = min(sizes, default=1)
    return max(QUANTILE, 1 / (least + 1))


def _of_launches(rounds: Rounds, level: float) -> list[float]:
    """Return the logarithm of a quantile of each launch with steady inferences."""
    logarithms = []
    for launch in rounds:
        if len(launch):
            # Weibull's positions put the least of n values at 1 / (n + 1), as does
            # `_common_level`.
            quantile = np.quantile(checked(launch), level, method="weibull")
            logarithms.append(math.log(_at_least_tick(float(quantile))))
    if not logarithms:
        raise InputError(
            "there are no times to compare", hint="measure again with more runs"
        )
    return logarithms


def _first(rounds: Rounds) -> float:
    """Return the first time, ms; all of them must be durations."""
    times = [ms for launch in rounds for ms in checked(launch)]
    if not times:
        raise InputError("there are no times to compare", hint="measure again")
    return _at_least_tick(float(times[0]))


def _at_least_tick(ms: float) -> float:
    """Return a time with a logarithm."""
    return max(ms, CLOCK_TICK_MS)


def _without(rounds: Rounds, waited: Rounds) -> Rounds:
    """Return the times without the time waited for a processor."""
    if [len(launch) for launch in rounds] != [len(launch) for launch in waited]:
        raise InputError(
            "the waiting times do not fit the inferences", hint="measure again"
        )
    busy = []
    for launch, away in zip(rounds, waited, strict=True):
        difference = checked(launch) - checked(away)
        # Two clocks are compared, so that the difference may be below 0 by a tick.
        busy.append(np.maximum(difference, 0).tolist())
    return busy


def _machine_shift(old: Rounds, new: Rounds) -> float:
    """Return the logarithm of how much longer the yardstick takes; 0 without one."""
    if not any(map(len, old)) or not any(map(len, new)):
        return 0.0
    before = statistics.median(_of_launches(old, QUANTILE))
    now = statistics.median(_of_launches(new, QUANTILE))
    return now - before


# ---- the test


def _shift(before: Sequence[float], now: Sequence[float]) -> tuple[_Interval, float]:
    """Return the shift from `before` to `now`, and the confidence of its interval."""
    # All pairs of a launch before and a launch now.
    differences = sorted(b - a for a in before for b in now)
    counts = _rank_sums(len(before), len(now))
    total = sum(counts)

    # The bounds are the rank-th difference from either end; the first ones are taken
    # even if their confidence is too low.
    tail = counts[0]
    rank = 1
    while rank < len(differences) // 2:
        narrower_tail = tail + counts[rank]
        if 1 - 2 * narrower_tail / total < CONFIDENCE:
            break
        tail = narrower_tail
        rank += 1

    confidence = max(0.0, 1 - 2 * tail / total)
    median = statistics.median(differences)
    return _Interval(median, differences[rank - 1], differences[-rank]), confidence


def _rank_sums(m: int, n: int) -> list[int]:
    """Return the distribution of the Mann-Whitney statistic without a difference.

    Element u is the number of orders of m and n values with the statistic u, from 0 to
    m n: the coefficients of the Gaussian binomial, product over i of (1 - q^(n+i)) / (1
    - q^i).
    """
    counts = [1] + [0] * (m * n)
    for i in range(1, m + 1):
        # Times (1 - q^(n+i)), from the highest power down.
        for k in range(m * n, n + i - 1, -1):
            counts[k] -= counts[k - n - i]

        # Divided by (1 - q^i), from the lowest power up.
        for k in range(i, m * n + 1):
            counts[k] += counts[k - i]
    return counts


def _typical_launch(rounds: Rounds) -> float:
    """Return the median number of inferences in a launch."""
    return statistics.median(len(launch) for launch in rounds if launch)


def _least_runs(new: Rounds) -> int:
    """Return how many runs make enough launches for any answer."""
    return max(MIN_RUNS, math.ceil(MIN_LAUNCHES * _typical_launch(new)))


def _runs_needed(
    interval: _Interval, limit: float, launches: tuple[int, int], new: Rounds
) -> int | None:
    """Return how many runs of each side would tell, or None if no number would.

    The interval shrinks with the square root of the launches.
    """
    gap = abs(limit - interval.shift) - BETWEEN_BENCHES
    # Two benches of one build differ by this much, however many launches they have.
    if gap <= 0:
        return None
    if interval.shift < limit:
        half_width = interval.high - interval.shift
    else:
        half_width = interval.shift - interval.low

    before, now = launches
    # The variance of a difference of means is proportional to 1/m + 1/n, so that two
    # benches with this number of launches each would be as sharp.
    harmonic_mean = 2 / (1 / before + 1 / now)
    launches_needed = harmonic_mean * (half_width / gap) ** 2
    runs = math.ceil(launches_needed * _typical_launch(new))
    return max(_least_runs(new), runs)
