"""A Session on our driver: in a process of its own, with C twins after faults."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from edgec_devices.stick import Stick
from edgec_devices.stick.faults import Fault, Phase, What
from edgec_runtime import DeviceError, InputError, Session
from edgec_runtime.session import edgetpu
from edgec_runtime.stick import driver, firmware
from edgec_runtime.stick.compiled_interpreter import refusal
from edgec_runtime.stick.process import StickModel

from edgec.ir import Graph
from tests.stick import driving
from tests.stick.bundles import compiled_bundle
from tests.stick.plugged import Plugged, environment, plugged
from tests.stick.test_driver import (
    EDGETPU,
    FIRMWARE_FROM,
    entry,
    random_inputs,
    same,
    source,
)
from tests.waiting import LIMIT_S

pytestmark = [pytest.mark.cc, pytest.mark.shared]
FIRMWARE = {firmware.VARIABLE: str(FIRMWARE_FROM)}
LSTM = "keras_lstm_mnist_ptq"


@pytest.fixture(scope="module")
def graph() -> Graph:
    return source(entry("dense_256"))


@pytest.fixture(scope="module")
def bundle() -> Path:
    return compiled_bundle(entry("dense_256"))


def right(process: Plugged, graph: Graph, seed: int) -> str:
    """One run; the backend that it ran on."""
    inputs = random_inputs(graph, seed)
    outputs, backend = process.call(driving.run_session, inputs)
    same(outputs, graph, inputs)
    assert isinstance(backend, str)
    return backend


@pytest.fixture
def stick() -> Iterator[Stick]:
    with Stick.serve(EDGETPU) as served:
        yield served


@pytest.mark.parametrize("name", ["auto", "own"])
def test_the_driver_is_chosen(
    name: str, stick: Stick, bundle: Path, graph: Graph, tmp_path: Path
) -> None:
    """For a stick on USB our driver, which needs no interpreter and no libedgetpu."""
    with plugged(stick, tmp_path, **FIRMWARE) as process:
        facts = process.call(
            driving.open_session, bundle, {"driver": name, "tpu": "delegate"}
        )
        assert facts is not None
        assert facts.up
        assert facts.driver == "own"
        assert [right(process, graph, seed) for seed in range(3)] == ["delegate"] * 3
        assert process.call(driving.close_session) == []


def test_without_a_stick(bundle: Path, graph: Graph) -> None:
    """The own driver is not there to be insisted on; otherwise the twin runs."""
    with pytest.raises(DeviceError) as e:
        Session(bundle, driver="own", tpu="delegate")
    assert "no Edge TPU on USB" in e.value.what
    with Session(bundle, driver="own") as s:
        assert s.edgetpu is None
    with pytest.raises(InputError) as wrong:
        Session(bundle, driver="libedgtpu")
    assert 'did you mean "libedgetpu"?' in wrong.value.what


def test_what_our_driver_cannot_run() -> None:
    """Operators for the CPU, and transfers that depend on the data."""
    reasons = {
        "dense_256": "",
        "deeplabv3_mnv2_dm05_pascal_quant": "8 of its 9 operators are for the CPU",
        LSTM: "its transfers depend on the data",
    }
    for name, why in reasons.items():
        assert refusal((EDGETPU / entry(name).compiled).read_bytes()) == why


def test_libedgetpu_runs_them_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = (EDGETPU / entry(LSTM).compiled).read_bytes()
    monkeypatch.setattr(edgetpu, "sticks", lambda: [object()])
    monkeypatch.setattr(edgetpu, "edgetpu_library", lambda: "libedgetpu.so.1")
    task = edgetpu.EdgeTpuOptions().task((StickModel((), {}, (compiled,)),))
    assert task.driver == "libedgetpu"


@pytest.mark.parametrize(
    ("name", "what", "hint"),
    [
        ("auto", "edgec's driver of the stick cannot run", "install libedgetpu"),
        ("own", "edgec's driver of the stick cannot run", 'use driver="libedgetpu"'),
        ("libedgetpu", "no Edge TPU can be opened", "install libedgetpu"),
    ],
)
def test_nothing_can_run_them_without_libedgetpu(
    name: str, what: str, hint: str, stick: Stick, tmp_path: Path
) -> None:
    """A warning with an action, or the same as an error where the stick is insisted on."""
    bundle = compiled_bundle(entry(LSTM))
    with plugged(stick, tmp_path, LD_LIBRARY_PATH="", **FIRMWARE) as process:
        options = {"driver": name}
        assert process.call(driving.open_session, bundle, options) is None
        (said,) = process.call(driving.close_session)
        assert what in said
        assert "it runs on the CPU" in said
        assert hint in said
        with pytest.raises(DeviceError) as e:
            process.call(driving.open_session, bundle, {**options, "tpu": "delegate"})
    assert what in e.value.what
    assert hint in str(e.value.hint)


def test_without_firmware(
    stick: Stick, bundle: Path, graph: Graph, tmp_path: Path
) -> None:
    """One message, with the command that gets it; the twin runs."""
    with plugged(
        stick, tmp_path, EDGEC_CACHE=str(tmp_path / "cache"), LD_LIBRARY_PATH=""
    ) as process:
        assert process.call(driving.open_session, bundle, {"driver": "own"}) is None
        assert right(process, graph, 0) == "c"
        (said,) = process.call(driving.close_session)
        assert "needs its firmware" in said


@pytest.mark.parametrize("name", ["nothing", "damaged", ".", "pipe"])
def test_a_file_without_firmware(
    name: str, stick: Stick, bundle: Path, tmp_path: Path
) -> None:
    """The command line names the file, in one line without code, and what to do."""
    (tmp_path / "damaged").write_bytes(bytes(10783))
    os.mkfifo(tmp_path / "pipe")
    np.save(tmp_path / "in.npy", random_inputs(source(entry("dense_256")), 0)[0])
    given = {firmware.VARIABLE: str(tmp_path / name)}
    with environment(stick, tmp_path, **given) as variables:
        done = typed(bundle, variables, tmp_path)
    assert done.returncode == 0
    (said,) = done.stderr.splitlines()
    assert said.startswith("warning: the Edge TPU cannot run its segments: ")
    assert f"{tmp_path / name} does not have the Edge TPU's firmware" in said
    assert said.endswith(f"hint: name a libedgetpu, or leave {firmware.VARIABLE} out")


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        (driver.CLOCK_VARIABLE, 'no clock "hihg"; did you mean "high"?'),
        (edgetpu.DRIVER_VARIABLE, 'no driver "hihg"'),
    ],
)
def test_a_wrong_variable(
    variable: str, said: str, bundle: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "in.npy", random_inputs(source(entry("dense_256")), 0)[0])
    done = typed(bundle, {**os.environ, variable: "hihg"}, tmp_path)
    assert done.returncode == 2
    what, hint = done.stderr.splitlines()
    assert said in what
    assert "hint: " in hint


def typed(
    bundle: Path, variables: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """`edgec run` of a bundle on in.npy, as a process with these variables."""
    return subprocess.run(
        [sys.executable, "-m", "edgec", "run", bundle, "--input", "in.npy"],
        env=variables,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    "fault",
    [
        Fault(What.UNPLUG, Phase.INPUT, 3),
        Fault(What.BROWN_OUT, Phase.OUTPUT, 3),
        Fault(What.UNPLUG, Phase.EVENT, 3, absence_s=1.0),
        Fault(What.HANG, Phase.INSTRUCTIONS, 3),
    ],
    ids=lambda f: f"{f.what.value}-{f.phase.value}",
)
def test_a_lost_stick_loses_no_frame(
    fault: Fault, stick: Stick, bundle: Path, graph: Graph, tmp_path: Path
) -> None:
    """C twins run until it is back, by itself."""
    with plugged(stick, tmp_path, **FIRMWARE) as process:
        process.call(driving.open_session, bundle, {"driver": "own"})
        stick.plan([fault])
        backends = list[str]()
        end = time.monotonic() + LIMIT_S
        while backends[-3:] != ["delegate"] * 3 or "c" not in backends:
            assert time.monotonic() < end, backends[-20:]
            backends.append(right(process, graph, len(backends)))
            if fault.what is What.HANG and backends.count("c") == 1:
                stick.replug()
            time.sleep(0.01)
        facts = process.call(driving.session_facts)
        assert (facts.lost, facts.back, facts.driver) == (1, 1, "own")
        process.call(driving.close_session)


def test_a_stalled_program_is_not_lost(
    stick: Stick, bundle: Path, graph: Graph, tmp_path: Path
) -> None:
    """The driver recovers it within the session's time limit."""
    with plugged(stick, tmp_path, **FIRMWARE) as process:
        process.call(driving.open_session, bundle, {"driver": "own", "timeout": 20.0})
        right(process, graph, 0)
        stick.plan([Fault(What.LOSE, Phase.EVENT)])
        assert [right(process, graph, seed) for seed in range(3)] == ["delegate"] * 3
        assert process.call(driving.session_facts).lost == 0
        process.call(driving.close_session)


def test_a_session_in_a_forked_child(
    stick: Stick, bundle: Path, graph: Graph, tmp_path: Path
) -> None:
    """It runs as its twin, also when the child opens the stick that its parent left."""
    inputs = random_inputs(graph, 0)
    with plugged(stick, tmp_path, **FIRMWARE) as process:
        found = process.call(driving.run_after_a_fork, bundle, inputs)
    for outputs, _ in found:
        same(outputs, graph, inputs)
    assert [backend for _, backend in found] == ["c", "delegate", "c"]
