"""Damaged files of every kind end as a message: a seeded sample of `make fuzz-readers`;
and what the driver sees.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.fuzzing.driver import Limits, run
from benchmarks.fuzzing.formats import FORMATS
from benchmarks.fuzzing.readers import run_cases

SAMPLE = 8
SMALL = [name for name in FORMATS if not name.startswith("network")]
"""The formats whose files are read in a moment."""


@pytest.mark.cc
@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_sample(name: str) -> None:
    before = {**os.environ}
    bad = [
        (case, v.fault, v.last)
        for _, case, _, v in run_cases([name], 0, range(SAMPLE))
        if v.fault
    ]
    assert not bad
    assert {**os.environ} == before, "other tests have the cache of before"


@pytest.mark.cc
@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_what_is_not_damaged_is_read(name: str, tmp_path: Path) -> None:
    """Or damage would be tried on what is refused for another reason.

    What ONNX's own tests have is not all read.
    """
    form = FORMATS[name]
    ends = Counter[int | None]()
    for case in range(SAMPLE):
        folder = tmp_path / str(case)
        rng = random.Random(f"whole {name} {case}")
        folder.mkdir()
        ends[run(form.read(rng, rng.choice(form.wholes()), folder), folder).code] += 1
    assert ends[0] >= {"onnx": SAMPLE // 3, "samples": SAMPLE // 2, "protocol": 1}.get(
        name, SAMPLE - 2
    ), ends


def _print(text: str) -> int:
    print(text)
    return 0


def _take(size: int) -> int:
    return len(bytearray(size))


def _die() -> int:
    os.kill(os.getpid(), signal.SIGSEGV)
    return 0


def _wait() -> int:
    time.sleep(60)
    return 0


def _leave() -> int:
    (Path(tempfile.gettempdir()) / "left").write_text("x")
    return 0


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda: 0, ""),
        (lambda: 2, ""),
        (lambda: 70, "exit 70"),
        (lambda: _print("a\x1b[31m"), r"control character '\x1b'"),
        (lambda: _print("Traceback (most recent call last):"), "traceback"),
        (lambda: [][0], "exit 70"),
        (lambda: _take(1 << 30), "exit 70"),
        (_die, "signal SIGSEGV"),
        (_wait, "time"),
        (lambda: sys.exit(2), ""),
        (_leave, "left left"),
    ],
)
def test_what_the_driver_sees(
    call: Callable[[], int], fault: str, tmp_path: Path
) -> None:
    seconds = 5.0 if fault == "time" else Limits.seconds
    verdict = run(call, tmp_path, Limits(256 << 20, seconds))
    assert verdict.fault == fault, verdict.said
    assert list(tmp_path.iterdir()) == []
