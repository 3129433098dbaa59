"""Comparison of benches: how often it is wrong on noise of a known truth, and what it
does where it cannot tell.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgec.benching.comparison import (
    Comparison,
    Rounds,
    _rank_sums,
    compare,
    compare_estimates,
)
from edgec.errors import InputError
from tests.benching.noise import bench

Way = Callable[[Rounds, Rounds, float], Comparison]
LIMIT = 0.05


def verdicts(ratio: float, seed: int, times: int = 100) -> Counter[str]:
    rng = np.random.default_rng(seed)
    return Counter(
        compare(bench(rng), bench(rng, ms=2.0 * ratio), LIMIT).verdict
        for _ in range(times)
    )


def quiet(ms: float, launches: int = 10, n: int = 30) -> list[list[float]]:
    """Launches that differ by a thousandth."""
    return [[ms * (1 + 0.0001 * i)] * n for i in range(launches)]


def test_a_build_against_itself_is_no_regression() -> None:
    found = verdicts(1.0, seed=1, times=200)
    assert found["regress"] + found["better"] == 0
    assert found["same"] >= 195


def test_a_slowdown_of_ten_percent_is_found() -> None:
    assert verdicts(1.1, seed=2)["regress"] >= 98


def test_an_improvement_is_seen() -> None:
    assert verdicts(0.95, seed=3)["better"] >= 98


def test_just_at_the_limit_it_is_not_called_a_regression() -> None:
    found = verdicts(1.05, seed=4)
    assert found["regress"] <= 3
    assert found["same"] <= 3


def test_the_interval_holds_the_truth() -> None:
    rng = np.random.default_rng(6)
    held = [
        (c.low <= 1.08 <= c.high)
        for c in (compare(bench(rng), bench(rng, ms=2.16), LIMIT) for _ in range(100))
    ]
    assert sum(held) >= 95


def test_it_is_not_moved_by_two_launches_that_went_wrong() -> None:
    new = quiet(2.0)
    new[0], new[7] = [9.0] * 30, [7.0] * 30
    found = compare(quiet(2.0), new, LIMIT)
    assert found.verdict == "same"
    assert found.ratio == pytest.approx(1, abs=0.002)


def test_waiting_for_the_processor_is_taken_off() -> None:
    waited = [[5.0 * (i % 3 > 0) for i in range(30)] for _ in range(10)]
    new = [
        [ms + away for ms, away in zip(*both, strict=True)]
        for both in zip(quiet(2.0), waited, strict=True)
    ]
    new = [[ms if i % 10 else ms + 1 for i, ms in enumerate(one)] for one in new]
    none = [[0.0] * 30 for _ in range(10)]
    assert compare(quiet(2.0), new, LIMIT, waited=(none, waited)).verdict == "same"
    always = [[5.0] * 30] * 10
    slowed = [[ms + 5.0 for ms in one] for one in quiet(2.0)]
    assert compare(quiet(2.0), slowed, LIMIT).verdict == "regress"
    assert compare(quiet(2.0), slowed, LIMIT, waited=(none, always)).verdict == "same"
    # One of the two does not tell: neither is corrected.
    assert compare(quiet(2.0), slowed, LIMIT, waited=((), always)).verdict == "regress"
    with pytest.raises(InputError, match="do not fit"):
        compare(quiet(2.0), slowed, LIMIT, waited=(none, always[:9]))


def test_a_machine_that_was_slower_leaves_it_open() -> None:
    """Ten percent more on a machine that is ten percent slower: the build, or the
    machine?
    """
    found = compare(quiet(2.0), quiet(2.2), LIMIT, quiet(0.02), quiet(0.022))
    assert found.verdict == "cannot tell"
    assert found.machine == pytest.approx(1.1, abs=0.001)
    assert found.low < 1.0 < 1.09 < found.high
    assert found.runs_needed is None
    assert "the machine itself was 10.0 % slower" in found.sentence()
    assert "more runs alone would not tell" in found.sentence()


def test_a_slowdown_that_the_machine_does_not_explain() -> None:
    assert (
        compare(quiet(2.0), quiet(2.4), LIMIT, quiet(0.02), quiet(0.021)).verdict
        == "regress"
    )
    assert (
        compare(quiet(2.0), quiet(2.2), LIMIT, quiet(0.02), quiet(0.02)).verdict
        == "regress"
    )
    assert (
        compare(quiet(2.0), quiet(2.0), LIMIT, quiet(0.02), quiet(0.0204)).verdict
        == "same"
    )
    # A slower build on a faster machine does not get away.
    assert (
        compare(quiet(2.0), quiet(2.0), LIMIT, quiet(0.02), quiet(0.018)).verdict
        == "cannot tell"
    )


def test_as_many_runs_as_it_says_do_tell() -> None:
    """Half of the launches 6 % apart: an interval across the limit, until there are
    enough of them.
    """

    def noisy(ms: float, launches: int) -> list[list[float]]:
        spread = np.random.default_rng(launches).permutation(
            np.linspace(0.9, 1.1, launches)
        )
        return [[ms * s] * 20 for s in spread]

    few = compare(noisy(2.0, 8), noisy(2.0, 8), LIMIT)
    assert few.verdict == "cannot tell"
    assert few.runs_needed is not None
    assert f"about {few.runs_needed} runs of each would tell" in few.sentence()
    launches = math.ceil(few.runs_needed / 20)
    assert launches > 8
    assert (
        compare(noisy(2.0, launches + 2), noisy(2.0, launches + 2), LIMIT).verdict
        == "same"
    )


@pytest.mark.parametrize("launches", [1, 2, 3])
def test_too_few_launches_cannot_tell_whatever_they_show(launches: int) -> None:
    found = compare(quiet(2.0, launches), quiet(8.0, launches), LIMIT)
    assert found.verdict == "cannot tell"
    assert found.confidence < 0.95
    assert found.runs_needed == 4 * 30
    assert compare(quiet(2.0, 4), quiet(8.0, 4), LIMIT).verdict == "regress"
    assert compare(quiet(2.0, 3), quiet(8.0, 10), LIMIT).verdict == "regress"


def test_one_inference_each() -> None:
    found = compare([[2.0]], [[3.0]], LIMIT)
    assert (found.verdict, found.runs_needed, found.confidence) == (
        "cannot tell",
        12,
        0.0,
    )
    assert found.ratio == found.low / math.exp(-0.01) == pytest.approx(1.5)


def test_estimates_are_compared_exactly() -> None:
    assert compare_estimates([[2.0]], [[2.0]], LIMIT).verdict == "same"
    assert compare_estimates([[2.0]], [[2.099]], LIMIT).verdict == "same"
    assert compare_estimates([[2.0]], [[2.101]], LIMIT).verdict == "regress"
    found = compare_estimates([[2.0]], [[1.0]], LIMIT)
    assert (found.verdict, found.ratio, found.low, found.high, found.confidence) == (
        "better",
        0.5,
        0.5,
        0.5,
        1.0,
    )
    assert found.sentence() == "faster: est. latency x 0.500"


def test_short_benches_are_not_slower_for_being_short() -> None:
    """The least of few inferences is compared with a quantile of many that is as high."""
    rng = np.random.default_rng(9)
    ratios = [
        compare(bench(rng, 10, 200), bench(rng, 10, 4), LIMIT).ratio for _ in range(30)
    ]
    assert np.mean(ratios) == pytest.approx(1, abs=0.01)


def test_times_of_zero_and_constants() -> None:
    assert compare([[0.0] * 5] * 5, [[0.0] * 5] * 5, LIMIT).verdict == "same"
    assert compare([[0.0] * 5] * 5, [[1.0] * 5] * 5, LIMIT).verdict == "regress"
    assert compare([[1.0] * 5] * 5, [[1.0] * 5] * 5, LIMIT).ratio == 1


def test_a_launch_without_steady_inferences_is_left_out() -> None:
    assert compare([*quiet(2.0), []], [[], *quiet(2.0)], LIMIT).verdict == "same"


@pytest.mark.parametrize("rounds", [[], [[]], [[], []]])
@pytest.mark.parametrize("way", [compare, compare_estimates])
def test_nothing_to_compare_is_refused(rounds: list[list[float]], way: Way) -> None:
    with pytest.raises(InputError, match="no times"):
        way(rounds, quiet(2.0), LIMIT)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.5])
@pytest.mark.parametrize("way", [compare, compare_estimates])
def test_what_is_no_time_is_refused(bad: float, way: Way) -> None:
    with pytest.raises(InputError, match="not a duration"):
        way(quiet(2.0), [[1.0, bad]], LIMIT)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 4), (3, 2), (4, 4)])
def test_the_distribution_of_the_statistic_is_that_of_all_orders(
    m: int, n: int
) -> None:
    seen = Counter(
        sum(i > j for i in chosen for j in range(m + n) if j not in chosen)
        for chosen in itertools.combinations(range(m + n), m)
    )
    assert _rank_sums(m, n) == [seen[u] for u in range(m * n + 1)]


_LAUNCHES = st.lists(
    st.lists(st.floats(0.001, 1000), min_size=1, max_size=8), min_size=1, max_size=8
)


@given(_LAUNCHES, _LAUNCHES, st.floats(0.01, 1))
def test_whatever_the_times_the_answer_fits_its_interval(
    old: list[list[float]], new: list[list[float]], limit: float
) -> None:
    found = compare(old, new, limit)
    assert found == compare(old, new, limit)
    assert found.low <= found.ratio <= found.high
    assert (found.verdict == "regress") <= (found.low > 1 + limit)
    assert (found.verdict == "better") <= (found.high < 1)
    assert (found.verdict == "same") <= (found.high <= (1 + limit) * (1 + 1e-9))
    assert (found.verdict != "cannot tell") <= (
        found.confidence >= 0.95 and found.runs_needed is None
    )
    assert "nan" not in found.sentence()


def test_sentences() -> None:
    assert (
        Comparison("regress", 1.1034, 1.098, 1.108, 0.957, None, LIMIT).sentence()
        == "slower than the 5 % allowed: p10 x 1.103 (1.098 to 1.108, 96 % confidence)"
    )
    assert (
        compare(quiet(2.0), quiet(2.0), 0.025)
        .sentence()
        .startswith("not slower than the 2.5 % allowed: p10 x 1.000")
    )
