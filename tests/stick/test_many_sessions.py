"""Many sessions on one stick, in turn, at once, and in processes that fight for it: memory,
descriptors, threads and processes stay as they are, and every output is right.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from edgec_devices.stick import Stick
from edgec_runtime import DeviceError

from tests.runtime.resources import Resources
from tests.stick import driving, driving_c, interrupted, many
from tests.stick.plugged import Plugged, environment
from tests.stick.test_c_driver import DENSE, opened, right
from tests.stick.test_driver import EDGETPU
from tests.stick.test_faults import OPTIONS, inference
from tests.stick.test_interrupted import FIRMWARE, MANY, MEGABYTES, work
from tests.waiting import until

pytestmark = [pytest.mark.cc, pytest.mark.shared]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[tuple[Plugged, Plugged]]:
    """Both have the same stick, which was just plugged in."""
    with (
        Stick.serve(EDGETPU) as stick,
        environment(stick, tmp_path, **FIRMWARE) as variables,
    ):
        two = Plugged(variables), Plugged(variables)
        try:
            yield two
        finally:
            for process in two:
                process.close()


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=MANY)])
def test_in_turn(count: int, processes: tuple[Plugged, Plugged]) -> None:
    process, _ = processes
    one = work("dense_256")
    process.call(many.in_turn, one, 10)
    before = process.call(Resources.now)
    assert process.call(many.in_turn, one, count) == {"delegate": count}
    assert process.call(Resources.now).beyond(before, megabytes=MEGABYTES) == []


def test_at_once(processes: tuple[Plugged, Plugged]) -> None:
    """While another one is opened, a session runs as its twin."""
    process, _ = processes
    one = work("dense_256")
    process.call(interrupted.opening, one)
    before = process.call(Resources.now)
    backends = process.call(many.at_once, one, 20, 1)
    assert sum(backends.values()) == 20
    # Each thread may have an arena of the C library.
    assert process.call(Resources.now).beyond(before, megabytes=64.0) == []
    assert process.call(interrupted.opening, one) == "delegate"


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=MANY)])
def test_the_driver_in_c_many_times(
    count: int, processes: tuple[Plugged, Plugged]
) -> None:
    process, _ = processes
    assert opened(process, DENSE, least=1.0) == ""
    process.call(driving_c.stop)
    process.call(many.c_openings, 10)
    before = process.call(Resources.now)
    process.call(many.c_openings, count)
    assert process.call(Resources.now).beyond(before, megabytes=MEGABYTES) == []
    assert right(process, DENSE, 0)


@pytest.mark.parametrize("language", ["python", "c"])
@pytest.mark.parametrize("runs", [0, 1], ids=["idle", "parameters in the chip"])
def test_a_killed_process_leaves_the_stick(
    language: str, runs: int, processes: tuple[Plugged, Plugged]
) -> None:
    """The lock, and a chip that is on, with another's parameters and transfers."""
    first, second = processes
    first.call(driving.open_driver, OPTIONS)
    for seed in range(runs):
        inference(first, seed)
    with pytest.raises(DeviceError) as e:
        second.call(driving.open_driver, OPTIONS)
    assert "in use by another program" in e.value.what
    os.kill(first.pid, signal.SIGKILL)
    if language == "c":
        until(lambda: opened(second, DENSE, least=1.0) == "", "it is free")
        assert right(second, DENSE, 0)
        return
    # The kernel frees it when the process has ended.
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
    second.call(driving.open_driver, OPTIONS)
    inference(second, 0)
