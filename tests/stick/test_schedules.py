"""A sample of the random faults; `make stick-faults` tries 5,000."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stick.schedules import DRIVERS, Schedules

pytestmark = [pytest.mark.cc, pytest.mark.shared, pytest.mark.slow]


@pytest.mark.parametrize("language", DRIVERS)
def test_random_faults(language: str, tmp_path: Path) -> None:
    schedules = Schedules(tmp_path, language)
    try:
        for seed in range(15):
            schedules.run(seed)
    finally:
        schedules.close()
    assert sum(schedules.tally.faults.values()) > 8
    assert schedules.tally.errors > 3
    assert schedules.tally.recovered > 0
