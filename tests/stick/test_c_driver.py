"""The driver of programs, in C, on our stick: its outputs are those of `interp`."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from edgec_devices.stick import Stick, StickOptions
from edgec_devices.stick.faults import PHASES as PHASES_OF
from edgec_devices.stick.faults import Fault, Phase, What
from edgec_devices.stick.sources import IndexEntry, SourceNetwork
from edgec_runtime import DeviceError
from edgec_runtime.stick import firmware

from tests.stick import driving, driving_c
from tests.stick.c_programs import built_driver, written_programs
from tests.stick.plugged import Plugged, environment, plugged, replug
from tests.stick.test_driver import (
    EDGETPU,
    FIRMWARE_FROM,
    PATIENT,
    WITH_SOURCES,
    entry,
    random_inputs,
    source,
)
from tests.waiting import LIMIT_S

pytestmark = [pytest.mark.cc, pytest.mark.shared]
FIRMWARE = {firmware.VARIABLE: str(FIRMWARE_FROM)}
RUNNING = StickOptions(firmware=True)
DENSE = entry("dense_256")


def operators(file: IndexEntry) -> list[tuple[Path, int]]:
    """The operators of a file that are for the Edge TPU."""
    path = EDGETPU / file.compiled
    read = driving.read(path).operators
    return [(path, i) for i, o in enumerate(read) if o.package is not None]


def right(
    process: Plugged, file: IndexEntry, seed: int, number: int = 0, segment: int = 0
) -> bool:
    """One inference of an operator; whether the stick ran it."""
    assert file.source is not None
    path = EDGETPU / file.compiled
    compiled = driving.read(path)
    operator = compiled.operators[number]
    rng = np.random.default_rng(seed)
    inputs = {
        compiled.tensors[i].name: rng.integers(
            0, 256, driving.shape(compiled.tensors[i]), np.uint8
        )
        for i in operator.inputs
    }
    found = process.call(
        driving_c.run, segment, (path, number), list(inputs.values()), True
    )
    if found is None:
        return False
    network = SourceNetwork(EDGETPU / file.source)
    expected = network.part(compiled, operator)(inputs)
    for i, values in zip(operator.outputs, found, strict=True):
        name = compiled.tensors[i].name
        np.testing.assert_array_equal(values, expected[name].reshape(-1))
    return True


def opened(
    process: Plugged, *files: IndexEntry, least: float = 0.25, first: float = 60.0
) -> str:
    """Connect with a stick; what is wrong, or "". Each operator is a segment.

    least: seconds; more where a busy machine must not look like a stall
    first: longest pause in a first inference, seconds; interp needs its time for the
    larger files
    """
    everything = [operator for file in files for operator in operators(file)]
    programs = written_programs(everything)
    assert process.call(driving_c.prepare, built_driver(), programs, first, least)
    answer = process.call(driving_c.connect)
    assert isinstance(answer, str)
    return answer


@pytest.mark.parametrize("super_speed", [True, False])
def test_one_model(super_speed: bool, tmp_path: Path) -> None:
    options = StickOptions(super_speed=super_speed, firmware=True)
    with Stick.serve(EDGETPU, options) as stick, plugged(stick, tmp_path) as process:
        assert opened(process, DENSE, least=60.0) == ""
        assert all(right(process, DENSE, seed) for seed in range(3))
        counts = process.call(driving_c.counts)
        assert counts == {"opened": 1, "lost": 0, "recovered": 0}
        process.call(driving_c.stop)


def test_firmware(tmp_path: Path) -> None:
    """A stick that was just plugged in gets its firmware."""
    with (
        Stick.serve(EDGETPU) as stick,
        plugged(stick, tmp_path, **FIRMWARE) as process,
    ):
        assert opened(process, DENSE) == ""
        assert "takes firmware of 10783 bytes" in " ".join(stick.lines)
        assert right(process, DENSE, 0)
        process.call(driving_c.stop)


def test_models_in_turn(tmp_path: Path) -> None:
    """Parameters are put into the chip again when another model has displaced them."""
    files = [DENSE, entry("looming_64x64_3x3")]
    with (
        Stick.serve(EDGETPU, RUNNING) as stick,
        plugged(stick, tmp_path, EDGEC_USBFS_CAPABILITIES="0") as process,
    ):
        assert opened(process, *files, least=60.0) == ""
        for i in (0, 1, 1, 0, 0):
            assert right(process, files[i], seed=i, segment=i)
        cached = sum("packet parameters" in line for line in stick.lines)
        assert cached == 3


@pytest.mark.sweep(3)
@pytest.mark.parametrize("file", WITH_SOURCES, ids=lambda e: Path(e.compiled).stem)
def test_every_file(file: IndexEntry, tmp_path: Path) -> None:
    """Each operator for the Edge TPU gives what its part of the source gives."""
    with Stick.serve(EDGETPU, RUNNING) as stick, plugged(stick, tmp_path) as process:
        assert opened(process, file) == ""
        for segment, (_, number) in enumerate(operators(file)):
            assert right(process, file, 1, number, segment), stick.lines[-5:]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "name", ["dense_256", "bright_128x128", "split_concat", "dense_1024"]
)
@pytest.mark.parametrize("super_speed", [True, False])
def test_the_drivers_send_the_same(
    name: str, super_speed: bool, tmp_path: Path
) -> None:
    """In C and in Python: registers, packets with all their bytes, events; three calls."""
    file = entry(name)
    path = EDGETPU / file.compiled
    graph = source(file)
    calls = [random_inputs(graph, seed) for seed in range(3)]
    options = StickOptions(super_speed=super_speed, firmware=True)
    logs = []
    for language in ("c", "python"):
        folder = tmp_path / language
        folder.mkdir()
        with Stick.serve(EDGETPU, options) as stick, plugged(stick, folder) as process:
            if language == "c":
                assert opened(process, file, least=60.0) == ""
                for inputs in calls:
                    assert process.call(driving_c.run, 0, (path, 0), inputs, False)
                process.call(driving_c.stop)
            else:
                process.call(driving.open_driver, PATIENT)
                for inputs in calls:
                    process.call(driving.run, path, inputs)
                process.call(driving.close_driver)
            logs.append(stick.lines)
    assert logs[0] == logs[1]
    assert sum("packet" in line for line in logs[0]) >= 7


# ---- faults
# --------------------------------------------------------------------------------------

STALLS = [
    (What.STALL, Phase.INPUT),
    (What.SHORT, Phase.OUTPUT),
    (What.LOSE, Phase.EVENT),
]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("what", "phase"), STALLS)
def test_a_stalled_program_is_run_again(
    what: What, phase: Phase, tmp_path: Path
) -> None:
    """The inference has its outputs all the same, and the next one its own."""
    with Stick.serve(EDGETPU, RUNNING) as stick, plugged(stick, tmp_path) as process:
        assert opened(process, DENSE) == ""
        assert right(process, DENSE, 0)
        stick.plan([Fault(what, phase)])
        assert right(process, DENSE, 1)
        assert right(process, DENSE, 2)
        counts = process.call(driving_c.counts)
        # A busy machine can stall it once more.
        assert counts["recovered"] >= 1
        assert (counts["opened"], counts["lost"]) == (1, 0)


PHASES = [phase for phase in Phase if phase in PHASES_OF[What.UNPLUG]]


def faults(stick: Stick) -> int:
    return sum(line.startswith("fault:") for line in stick.lines)


def test_a_lost_stick_comes_back(tmp_path: Path) -> None:
    """Unplugged in every phase: the twin runs, then the stick again, without leaks."""
    with (
        Stick.serve(EDGETPU) as stick,
        plugged(stick, tmp_path, **FIRMWARE) as process,
    ):
        opened(process, DENSE)
        process.call(driving_c.stop)
        before = process.call(driving.descriptors)
        for seed, phase in enumerate(PHASES):
            earlier = faults(stick)
            stick.plan([Fault(What.UNPLUG, phase, absence_s=0.05)])
            process.call(driving_c.connect)
            served = [right(process, DENSE, seed) for _ in range(2)]
            assert faults(stick) == earlier + 1, phase
            end = time.monotonic() + LIMIT_S
            while not served[-1]:
                assert time.monotonic() < end, phase
                time.sleep(0.02)
                served.append(right(process, DENSE, seed))
            process.call(driving_c.stop)
            assert process.call(driving.descriptors) == before
            replug(stick, tmp_path)


def test_a_stick_is_used_by_one_program(tmp_path: Path) -> None:
    """The drivers in C and in Python share the lock."""
    with (
        Stick.serve(EDGETPU, RUNNING) as stick,
        environment(stick, tmp_path) as variables,
    ):
        first, second = Plugged(variables), Plugged(variables)
        try:
            second.call(driving.open_driver)
            assert "in use by another program" in opened(first, DENSE)
            assert not right(first, DENSE, 0)
            second.call(driving.close_driver)
            assert right(first, DENSE, 0)
            with pytest.raises(DeviceError) as e:
                second.call(driving.open_driver)
            assert "in use by another program" in e.value.what
        finally:
            first.close()
            second.close()
