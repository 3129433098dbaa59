"""The loop that sessions are timed with, by a clock that moves only when a call takes
time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from edgec_runtime.errors import InputError
from edgec_runtime.model import timing
from edgec_runtime.model.timing import MIN_RUNS, time_calls

MS = 1_000_000
START = 5_000 * MS


class Clock:
    """In place of the module time: stands still, except when it is told to move."""

    def __init__(self) -> None:
        self.now = START

    def monotonic_ns(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1e9


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(timing, "time", found)
    return found


def taking(clock: Clock, *ms: float) -> Callable[[], Sequence[int]]:
    """A call that takes these times, one after the other, the last one for ever; its
    parts: its number, its ns.
    """
    count = 0

    def call() -> Sequence[int]:
        nonlocal count
        ns = round(ms[min(count, len(ms) - 1)] * MS)
        clock.now += ns
        count += 1
        return [count, ns]

    return call


def test_every_call_is_kept_in_order_with_its_begin_its_time_and_its_parts(
    clock: Clock,
) -> None:
    times = time_calls(taking(clock, 9, 1, 2, 4), runs=3)
    assert times.total == (9 * MS, 1 * MS, 2 * MS, 4 * MS)
    assert times.at == (START, START + 9 * MS, START + 10 * MS, START + 12 * MS)
    assert times.parts == ((1, 9 * MS), (2, 1 * MS), (3, 2 * MS), (4, 4 * MS))


@pytest.mark.parametrize(
    ("seconds", "calls"), [(0.0, 1), (0.009, 1), (0.011, 2), (0.095, 10)]
)
def test_warm_up_ends_by_time_and_the_first_call_counts(
    clock: Clock, seconds: float, calls: int
) -> None:
    times = time_calls(taking(clock, 10), runs=5, warmup=seconds)
    assert times.warmup == calls
    assert len(times.total) == calls + 5


def test_a_slow_first_call_can_be_all_of_the_warm_up(clock: Clock) -> None:
    assert time_calls(taking(clock, 500, 1), runs=3, warmup=0.3).warmup == 1


@pytest.mark.parametrize(
    ("runs", "seconds", "made"),
    [
        (50, 0.038, 8),  # time ends first: after 8 calls of 5 ms none is left
        (6, 0.038, 6),  # the cap on runs does
        (50, 0.001, MIN_RUNS),  # there is no time for one, and yet
        (2, 0.001, 2),  # no more than are asked for
        (50, None, 50),
    ],
)
def test_runs_end_by_number_or_by_time_but_not_before_three(
    clock: Clock, runs: int, seconds: float | None, made: int
) -> None:
    times = time_calls(taking(clock, 100, 5), runs, seconds)
    assert len(times.total) - times.warmup == made


def test_the_time_of_the_runs_begins_after_the_warm_up(clock: Clock) -> None:
    times = time_calls(taking(clock, 10), runs=50, seconds=0.045, warmup=0.995)
    assert (times.warmup, len(times.total)) == (100, 105)


def test_only_the_call_is_inside_its_time(clock: Clock) -> None:
    class Slow(Clock):
        def monotonic(self) -> float:
            self.now += 7 * MS  # what the loop itself does takes its time as well
            return super().monotonic()

    clock.__class__ = Slow
    times = time_calls(taking(clock, 3), runs=4, seconds=1.0, warmup=0.05)
    assert set(times.total) == {3 * MS}
    assert times.at[1] - times.at[0] > 3 * MS


def test_no_runs_are_refused_before_anything_is_called(clock: Clock) -> None:
    with pytest.raises(InputError, match="cannot time 0 runs"):
        time_calls(taking(clock, 1), runs=0)
    assert clock.now == START


def test_what_a_call_raises_comes_through(clock: Clock) -> None:
    def broken() -> Sequence[int]:
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError, match="gone"):
        time_calls(broken, runs=1)
