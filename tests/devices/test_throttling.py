"""The judge of what slows a device down, on vitals that are written down here; on
machines: test_vitals.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from edgec_devices.throttling import judge
from hypothesis import given
from hypothesis import strategies as st


def look(word: int | None, by: str = "vcgencmd", **more: Any) -> dict[str, Any]:
    return {"throttled": word, "throttled_by": by, **more}


def run(before: int, after: int, *middle: int, by: str = "vcgencmd") -> dict[str, Any]:
    return {
        "before": look(before, by),
        "during": [look(w, by) for w in middle],
        "after": look(after, by),
    }


@pytest.mark.parametrize(
    ("bit", "words"),
    [
        (0, "under-voltage: use the power supply"),
        (1, "the clock was capped"),
        (2, "the firmware throttled the CPU"),
        (3, "the soft temperature limit lowered the clock"),
    ],
)
def test_each_bit(bit: int, words: str) -> None:
    now = 1 << bit
    since = 1 << bit + 16
    for rounds in (
        [run(0, 0, now | since, 0)],  # seen in the run
        [run(0, since)],  # it came and went between two looks
        [run(0, 0), run(since, since)],  # and between two launches
        [run(since, since, now | since)],  # it had happened before, and happens again
        [run(now, 0)],
    ):
        (reason,) = judge(rounds).reasons
        assert reason.startswith(words)
    earlier = judge([run(since, since, since)])
    assert (earlier.throttled, earlier.reasons) == (False, ())
    assert [n for n in earlier.notes if "has happened before this run" in n]


def test_what_two_tellers_say_is_not_mixed() -> None:
    """vcgencmd remembers since the boot, the file in sysfs for 2 s."""
    mixed = {
        "before": look(0x50000),
        "during": [look(0, "sysfs"), look(0, "sysfs")],
        "after": look(0x50000),
    }
    assert not judge([mixed]).throttled
    mixed["during"] = [look(0, "sysfs"), look(0x50000, "sysfs")]
    assert judge([mixed]).throttled


def test_notes_about_heat_and_clock() -> None:
    warm = {
        "before": look(0, celsius=70.0, governor="performance", max_khz=1800000),
        "after": look(0),
    }
    warm["during"] = [look(0, celsius=78.26, khz=[1500000, 1500000])]  # type: ignore[assignment]
    assert judge([warm]).notes == (
        "the clock was 1500 of 1800 MHz under the governor performance",
        "78.3 °C: from 80 °C on the clock is lowered",
    )


MAYBE = st.fixed_dictionaries(
    {"throttled_by": st.sampled_from(["vcgencmd", "sysfs"])},
    optional={
        "throttled": st.none() | st.integers(0, 0xFFFFF),
        "celsius": st.none() | st.floats(-40, 120),
        "khz": st.none()
        | st.lists(st.integers(1, 5_000_000), min_size=2, max_size=2).map(sorted),
        "arm_khz": st.none() | st.integers(1, 5_000_000),
        "undervoltage": st.none() | st.booleans(),
        "cooling": st.none() | st.integers(0, 9),
        "max_khz": st.none() | st.integers(1, 5_000_000),
        "throttle_count": st.none() | st.integers(0, 99),
        "governor": st.none() | st.just("ondemand"),
    },
)


@given(st.lists(MAYBE, min_size=2, max_size=12))
def test_any_vitals_can_be_judged(samples: list[dict[str, Any]]) -> None:
    found = judge(
        [{"before": samples[0], "during": samples[1:-1], "after": samples[-1]}]
    )
    assert found.throttled == bool(found.reasons)
    assert all(
        "\n" not in text and "None" not in text
        for text in (*found.reasons, *found.notes, found.table())
    )
