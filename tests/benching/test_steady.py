"""Where a launch becomes steady: start-ups of known length, noise that is no start-up,
and series that never settle.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgec.benching.steady import Steady, steady_from
from edgec.errors import InputError
from tests.benching.noise import shared_machine


@pytest.mark.parametrize("n", [20, 200, 2000])
@pytest.mark.parametrize("before", [0.7, 1.5])
def test_a_first_phase_at_another_speed_is_cut_off(n: int, before: float) -> None:
    """Slower: cold caches, a low clock. Faster: a boost that does not last."""
    rng = np.random.default_rng(n)
    for length in (n // 10, n // 3):
        ms = 2.0 * np.exp(rng.normal(0, 0.002, n))
        ms[:length] *= before
        found = steady_from(ms.tolist())
        assert found.reached
        assert 0 <= found.start - length <= n // 30 + 1


def test_a_decay_is_cut_where_it_is_within_two_percent() -> None:
    ms = [2.0 * (1 + math.exp(-i / 20)) for i in range(400)]
    found = steady_from(ms)
    assert found.reached
    assert ms[found.start] < 2.0 * 1.021
    assert found.start < 20 * math.log(1 / 0.02) + 400 / 64


def test_a_slow_first_inference_alone_costs_only_itself() -> None:
    assert steady_from([9.0, *[2.0] * 40]) == Steady(1, True)
    assert steady_from([2.0] * 40) == Steady(0, True)


@given(st.integers(0, 299), st.floats(3.0, 1000.0))
def test_one_outlier_changes_nothing_wherever_it_is(at: int, ms: float) -> None:
    series = [2.0] * 300
    series[at] = ms
    assert steady_from(series) == Steady(0, True)


def test_a_burst_after_the_start_up_is_not_cut_away() -> None:
    ms = np.full(1000, 2.0)
    ms[:60] = 3.0
    ms[300:400] = 2.5
    found = steady_from(ms.tolist())
    assert found.reached
    assert 60 <= found.start < 100


def test_noise_of_a_shared_machine_is_steady() -> None:
    rng = np.random.default_rng(5)
    found = [steady_from(shared_machine(rng, 400).tolist()) for _ in range(100)]
    assert sum(f.reached for f in found) >= 95
    assert np.median([f.start for f in found]) <= 12


@pytest.mark.parametrize("n", [16, 100, 3000])
def test_what_still_drifts_in_its_second_half_is_not_steady(n: int) -> None:
    rng = np.random.default_rng(n)
    ms = np.linspace(2.0, 3.0, n) * np.exp(rng.normal(0, 0.003, n))
    assert not steady_from(ms.tolist()).reached
    assert not steady_from(ms[::-1].tolist()).reached


def test_a_change_of_speed_late_in_the_launch_is_not_steady() -> None:
    assert not steady_from([2.0] * 300 + [2.6] * 100).reached


def test_too_few_to_tell() -> None:
    assert steady_from([]) == Steady(0, False)
    assert steady_from([2.0]) == Steady(0, False)
    assert steady_from([9.0, 2.0, 2.0]) == Steady(2, False)
    assert steady_from([9.0, 2.0, 2.0, 2.0]) == Steady(1, True)


def test_times_below_the_clocks_resolution() -> None:
    assert steady_from([0.0] * 50) == Steady(0, True)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_what_is_no_time_is_refused(bad: float) -> None:
    with pytest.raises(InputError, match=r"not a duration \(inference 2\)"):
        steady_from([1.0, 1.0, bad, 1.0])


@given(st.lists(st.floats(0, 1e6), max_size=200))
def test_the_start_is_always_an_index(ms: list[float]) -> None:
    found = steady_from(ms)
    assert 0 <= found.start < max(1, len(ms))
    if found.reached:
        assert found.start <= len(ms) // 2 + 1
