"""Short samples of make stream-check, delegate-faults and endurance: counts, order,
results, growth; no times.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.cc, pytest.mark.slow]


@pytest.mark.parametrize(
    "command",
    [
        "stream_check --frames 15 --no-times",
        "delegate_faults --cases 12 --seed 1 --no-times",
        "endurance --runs 3000 --openings 60 --forks 18",
    ],
)
def test_a_sample(command: str) -> None:
    name, *options = command.split()
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
