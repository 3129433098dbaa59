"""What our driver does when the stick fails: it recovers, or it ends in one error and a
later open finds the stick again.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from edgec_devices.stick import Stick, StickOptions
from edgec_devices.stick.faults import Fault, Phase, What
from edgec_runtime import DeviceError
from edgec_runtime.stick import driver

from tests.stick import driving
from tests.stick.plugged import Plugged, plugged, replug
from tests.stick.test_driver import (
    EDGETPU,
    FIRMWARE_FROM,
    entry,
    random_inputs,
    same,
    source,
)

pytestmark = [pytest.mark.cc, pytest.mark.shared]
FILE = entry("dense_256")
GRAPH = source(FILE)
RUNNING = StickOptions(firmware=True)
OPTIONS = driver.StickOptions(firmware=str(FIRMWARE_FROM), least_patience=1.0)
"""A busy machine is not to stall the program that is run again."""
LIMIT_S = 20.0


def inference(process: Plugged, seed: int) -> None:
    inputs = random_inputs(GRAPH, seed)
    same(process.call(driving.run, EDGETPU / FILE.compiled, inputs), GRAPH, inputs)


STALLS = [
    (What.STALL, Phase.INSTRUCTIONS),
    (What.STALL, Phase.INPUT),
    (What.STALL, Phase.OUTPUT),
    (What.SHORT, Phase.OUTPUT),
    (What.LOSE, Phase.OUTPUT),
    (What.SHORT, Phase.EVENT),
    (What.LOSE, Phase.EVENT),
]


@pytest.mark.parametrize(("what", "phase"), STALLS)
def test_a_stalled_program_is_run_again(
    what: What, phase: Phase, tmp_path: Path
) -> None:
    """The inference has its outputs all the same, and the next one its own."""
    with Stick.serve(EDGETPU, RUNNING) as stick, plugged(stick, tmp_path) as process:
        process.call(driving.open_driver, OPTIONS)
        inference(process, 0)
        stick.plan([Fault(what, phase)])
        begin = time.monotonic()
        inference(process, 1)
        assert time.monotonic() - begin < LIMIT_S
        inference(process, 2)
        counts = process.call(driving.counts)
        # A busy machine can stall it once more.
        assert counts["recovered"] >= 1
        assert counts["cached"] == 1 + counts["recovered"]


def test_parameters_stall(tmp_path: Path) -> None:
    """In the first inference nothing is known, so that it is compared with itself."""
    with Stick.serve(EDGETPU, RUNNING) as stick, plugged(stick, tmp_path) as process:
        process.call(driving.open_driver, OPTIONS)
        stick.plan([Fault(What.SHORT, Phase.EVENT)])
        inference(process, 0)
        assert process.call(driving.counts)["recovered"] >= 1


def test_several_are_run_again(tmp_path: Path) -> None:
    with Stick.serve(EDGETPU, RUNNING) as stick, plugged(stick, tmp_path) as process:
        process.call(driving.open_driver, OPTIONS)
        inference(process, 0)
        stick.plan([Fault(What.LOSE, Phase.EVENT, 2)])
        several = [random_inputs(GRAPH, seed) for seed in range(4)]
        path = EDGETPU / FILE.compiled
        for inputs, outputs in zip(
            several, process.call(driving.run_together, path, several), strict=True
        ):
            same(outputs, GRAPH, inputs)
        assert process.call(driving.counts)["recovered"] >= 1


PHASES = [
    Phase.REGISTER,
    Phase.INSTRUCTIONS,
    Phase.INPUT,
    Phase.PARAMETERS,
    Phase.OUTPUT,
    Phase.EVENT,
    Phase.FIRMWARE,
    Phase.RESET,
    Phase.IMPORT,
]


@pytest.mark.sweep(9)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("what", [What.UNPLUG, What.BROWN_OUT])
def test_a_lost_stick_is_found_again(what: What, phase: Phase, tmp_path: Path) -> None:
    """Whenever it is lost there is one error; a later open finds it, without leaks."""
    with Stick.serve(EDGETPU) as stick, plugged(stick, tmp_path) as process:
        before = process.call(driving.descriptors)
        stick.plan([Fault(what, phase, absence_s=0.1)])
        with pytest.raises(DeviceError) as e:
            process.call(driving.open_and_run, OPTIONS, EDGETPU / FILE.compiled)
        assert e.value.hint is not None
        assert process.call(driving.descriptors) == before
        end = time.monotonic() + LIMIT_S
        while True:
            try:
                process.call(driving.open_driver, OPTIONS)
                break
            except DeviceError:
                assert time.monotonic() < end
                time.sleep(0.05)
        inference(process, 3)
        process.call(driving.close_driver)
        assert process.call(driving.descriptors) == before


def test_a_stick_that_hangs_is_given_up(tmp_path: Path) -> None:
    """Without an answer to a register it is to be replugged, which helps."""
    with Stick.serve(EDGETPU, RUNNING) as stick, plugged(stick, tmp_path) as process:
        process.call(driving.open_driver, OPTIONS)
        inference(process, 0)
        stick.plan([Fault(What.HANG, Phase.OUTPUT)])
        begin = time.monotonic()
        with pytest.raises(DeviceError) as e:
            inference(process, 1)
        assert time.monotonic() - begin < LIMIT_S
        assert "plug" in str(e.value.hint)
        replug(stick, tmp_path)
        process.call(driving.open_driver, OPTIONS)
        inference(process, 2)


def test_transfers_that_cannot_begin(tmp_path: Path) -> None:
    """Nor after a reset: the stick is closed, and the next opening has it."""
    with Stick.serve(EDGETPU, RUNNING) as stick, plugged(stick, tmp_path) as process:
        process.call(driving.open_driver, OPTIONS)
        inputs, path = random_inputs(GRAPH, 0), EDGETPU / FILE.compiled
        assert process.call(driving.submit_to_a_stuck_stick, path, inputs)
        found = process.call(driving.run_or_open, OPTIONS, path, inputs)
        same(found, GRAPH, inputs)


def test_firmware_that_is_refused(tmp_path: Path) -> None:
    for fault in (
        Fault(What.REFUSE, Phase.FIRMWARE),
        Fault(What.SHORT, Phase.FIRMWARE, 3),
    ):
        with Stick.serve(EDGETPU) as stick:
            stick.plan([fault])
            folder = tmp_path / fault.what.value
            folder.mkdir()
            with plugged(stick, folder) as process:
                with pytest.raises(DeviceError) as e:
                    process.call(driving.open_driver, OPTIONS)
                assert "refused its firmware" in e.value.what
                # the loader takes it at the next time
                process.call(driving.open_driver, OPTIONS)
                inference(process, 0)


def test_heat(tmp_path: Path) -> None:
    """The warning is counted and cleared, and the inference goes on."""
    with Stick.serve(EDGETPU, RUNNING) as stick, plugged(stick, tmp_path) as process:
        process.call(driving.open_driver, OPTIONS)
        stick.plan([Fault(What.HEAT, Phase.INPUT)])
        inference(process, 0)
        inference(process, 1)
        assert process.call(driving.counts)["warnings"] == 1
        assert any("write32 0x1a0dc" in line for line in stick.lines)


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with Stick.serve(EDGETPU, RUNNING) as stick, plugged(stick, tmp_path) as process:
        process.call(driving.open_driver, OPTIONS)
        with pytest.raises(DeviceError) as e:
            process.call(driving.open_driver, OPTIONS)
        assert "in use by another program" in e.value.what
        inference(process, 0)


def test_random_bytes_stay_apart() -> None:
    """The inputs of the tests differ, so that a mix-up would be noticed."""
    one, other = random_inputs(GRAPH, 0), random_inputs(GRAPH, 1)
    assert not np.array_equal(one[0], other[0])
