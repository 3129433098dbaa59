"""Signals while our driver works: the next inference is right, nothing hangs, and no
descriptor, thread or process is left.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from edgec_devices.stick import Stick
from edgec_runtime.stick import firmware

from edgec.ir import interp
from tests.runtime.resources import Resources
from tests.runtime.test_interrupts import counts
from tests.stick import driving, driving_c, interrupted
from tests.stick.bundles import compiled_bundle
from tests.stick.interrupted import Work
from tests.stick.plugged import Plugged, plugged
from tests.stick.test_c_driver import opened, right
from tests.stick.test_driver import (
    EDGETPU,
    FIRMWARE_FROM,
    entry,
    random_inputs,
    source,
)
from tests.stick.test_faults import FILE, OPTIONS, inference
from tests.waiting import until

pytestmark = [pytest.mark.cc, pytest.mark.shared]
MANY = [pytest.mark.slow, pytest.mark.sweep(2, among="long runs of interrupts")]
MEGABYTES = 8.0
"""Most memory that many calls may add to the first few."""
FIRMWARE = {firmware.VARIABLE: str(FIRMWARE_FROM)}


def work(name: str) -> Work:
    """A compiled file's bundle with one sample."""
    file = entry(name)
    graph = source(file)
    inputs = random_inputs(graph, 1)
    named = dict(zip((v.name for v in graph.inputs), inputs, strict=True))
    return Work(compiled_bundle(file), inputs, [*interp(graph, named).values()])


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Plugged]:
    """Its stick was just plugged in."""
    with (
        Stick.serve(EDGETPU) as stick,
        plugged(stick, tmp_path, **FIRMWARE) as plugged_in,
    ):
        yield plugged_in


@counts(1000)
@pytest.mark.parametrize(
    "names",
    [["dense_256"], ["dense_256", "looming_64x64_3x3"]],
    ids=["one", "parameters in turn"],
)
def test_a_run(names: list[str], process: Plugged, times: int) -> None:
    """Of one session, and of two that displace each other's parameters."""
    works = [work(name) for name in names]
    process.call(interrupted.opening, works[0])
    before = process.call(Resources.now)
    up, lost, backends = process.call(interrupted.runs, works, times)
    assert (up, lost, backends) == (True, 0, ["delegate"] * len(works))
    assert process.call(Resources.now).beyond(before, megabytes=MEGABYTES) == []


@pytest.mark.parametrize("times", [8, pytest.param(300, marks=MANY)])
def test_an_opening_and_closing(process: Plugged, times: int) -> None:
    one = work("dense_256")
    process.call(interrupted.opening, one)
    before = process.call(Resources.now)
    process.call(interrupted.openings, one, times)
    assert process.call(Resources.now).beyond(before, megabytes=MEGABYTES) == []


@pytest.mark.parametrize("blocks", [1, 7])
@pytest.mark.parametrize("request_number", [1, 2], ids=["sent", "read"])
@pytest.mark.parametrize("language", ["python", "c"])
def test_firmware_that_another_program_left(
    language: str, request_number: int, blocks: int, process: Plugged
) -> None:
    """It was killed while it sent the firmware, or while it read it back."""
    process.call(interrupted.leave_firmware, request_number, blocks)
    if language == "c":
        assert opened(process, FILE) == ""
    else:
        process.call(driving.open_driver, OPTIONS)
        inference(process, 0)


@pytest.mark.parametrize("language", ["python", "c"])
def test_waits_that_signals_end(language: str, process: Plugged) -> None:
    """While the stick gets its firmware, is opened, runs and is closed."""
    process.call(interrupted.heard, 2e-3)
    for seed in range(0, 40, 4):
        if language == "c":
            assert opened(process, FILE, least=1.0) == ""
            assert all(right(process, FILE, seed + i) for i in range(4))
            process.call(driving_c.stop)
        else:
            process.call(driving.open_driver, OPTIONS)
            for i in range(4):
                inference(process, seed + i)
            process.call(driving.close_driver)
    process.call(interrupted.heard, 0.0)


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_to_the_process_of_the_stick(
    number: signal.Signals, process: Plugged, capfd: pytest.CaptureFixture[str]
) -> None:
    """It leaves the end to its session, which got the signal, too, as of a service."""
    one = work("dense_256")
    process.call(driving.open_session, one.bundle, {"driver": "own"})
    (child,) = process.call(interrupted.children)
    for _ in range(5):
        os.kill(child, number)
        outputs, backend = process.call(driving.run_session, one.inputs)
        assert backend == "delegate"
        np.testing.assert_array_equal(outputs[0], one.outputs[0])
    assert process.call(driving.close_session) == []
    assert process.call(interrupted.children) == []
    assert capfd.readouterr().err == ""


def test_the_process_of_the_stick_ends_with_its_session(process: Plugged) -> None:
    """Whatever ends that, and without any call there."""
    one = work("dense_256")
    process.call(driving.open_session, one.bundle, {"driver": "own"})
    (child,) = process.call(interrupted.children)
    os.kill(process.pid, signal.SIGTERM)
    until(lambda: not Path(f"/proc/{child}").exists(), "it has ended")


def test_a_stopped_process_of_the_stick(process: Plugged) -> None:
    """The twin runs, and the stick again when the process is replaced."""
    one = work("dense_256")
    options = {"driver": "own", "timeout": 0.5}
    process.call(driving.open_session, one.bundle, options)
    (child,) = process.call(interrupted.children)
    os.kill(child, signal.SIGSTOP)
    backends = list[str]()

    def back() -> bool:
        outputs, backend = process.call(driving.run_session, one.inputs)
        np.testing.assert_array_equal(outputs[0], one.outputs[0])
        backends.append(str(backend))
        return backends[-1] == "delegate"

    until(back, "the stick is used again")
    assert backends[0] == "c"
    process.call(driving.close_session)
    assert process.call(interrupted.children) == []
