"""Interpreters on a stand-in for the Edge TPU, which one process has at a time."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import Bundle, write_bundle
from edgec_runtime.coral.adapters import classify, common, detect
from edgec_runtime.coral.utils import edgetpu
from edgec_runtime.interpreter import Interpreter, load_delegate
from numpy.typing import NDArray

from tests import builds
from tests.interpreters import networks

pytestmark = [pytest.mark.cc, pytest.mark.slow]
Array = NDArray[Any]
PATIENCE_S = 60.0


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in, whose only device nobody has."""
    monkeypatch.setenv("STAND_IN_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("STAND_IN_LOCK", str(tmp_path / "lock"))
    made = builds.once("stand-in libedgetpu", networks.stand_in_library)
    return made / "libedgetpu.so.1"


def on_stick(name: str, library: Path, device: str = ":0") -> Interpreter:
    bundle = networks.compiled(name, "pi4+coral")[1]
    delegate = load_delegate(str(library), {"device": device})
    interpreter = edgetpu.make_interpreter(str(bundle), delegate=delegate)
    interpreter.allocate_tensors()
    return interpreter


def backends(interpreter: Interpreter) -> set[str]:
    """Of its segments for the Edge TPU."""
    session = interpreter._session
    places = {s.name: s.place for s in session.manifest.segments}
    return {b for n, b in session.backends.items() if places[n] == "edgetpu"}


def picture(seed: int) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (16, 16, 3), np.uint8)


def classes_on_cpu(seed: int) -> list[int]:
    interpreter = Interpreter(networks.compiled("classifier", "pi4+coral")[1])
    interpreter.allocate_tensors()
    common.set_input(interpreter, picture(seed))
    interpreter.invoke()
    return [c.id for c in classify.get_classes(interpreter, 1)]


def check(classifier: Interpreter, seed: int) -> None:
    common.set_input(classifier, picture(seed))
    classifier.invoke()
    found = [c.id for c in classify.get_classes(classifier, 1)]
    assert found == classes_on_cpu(seed)


def test_two_models_share_the_stick(library: Path, tmp_path: Path) -> None:
    """As in pycoral's example, both ask for the device ":0"."""
    classifier = on_stick("classifier", library)
    detector = on_stick("heads", library)
    for seed in range(3):
        check(classifier, seed)
        common.set_input(detector, picture(seed))
        detector.invoke()
        assert detect.get_objects(detector)
    assert backends(classifier) == backends(detector) == {"delegate"}
    assert "prepared :0" in (tmp_path / "log").read_text()

    # The one that stays keeps the stick, and the last one frees it.
    del detector
    gc.collect()
    check(classifier, 4)
    assert backends(classifier) == {"delegate"}
    del classifier
    gc.collect()
    again = on_stick("classifier", library, "usb")
    assert backends(again) == {"delegate"}


def test_an_interpreter_that_comes_while_another_one_runs(library: Path) -> None:
    classifier = on_stick("classifier", library)
    wrong: list[BaseException] = []
    stop = threading.Event()

    def work() -> None:
        try:
            while not stop.is_set():
                check(classifier, 5)
        except BaseException as e:
            wrong.append(e)

    thread = threading.Thread(target=work)
    thread.start()
    others = [on_stick("heads", library), on_stick("points", library)]
    stop.set()
    thread.join(PATIENCE_S)
    assert wrong == []
    check(classifier, 6)
    assert {b for i in (classifier, *others) for b in backends(i)} == {"delegate"}


def test_a_device_that_is_not_there(library: Path) -> None:
    classifier = on_stick("classifier", library)
    with pytest.raises(ValueError, match="the Edge TPU"):
        on_stick("heads", library, "usb:7")
    check(classifier, 7)
    assert backends(classifier) == {"delegate"}


def test_a_model_that_the_stick_does_not_take(library: Path, tmp_path: Path) -> None:
    """The one before goes on, on the stick."""
    classifier = on_stick("classifier", library)
    path = networks.compiled("heads", "pi4+coral")[1]
    with Bundle.open(path) as bundle:
        fields = bundle.manifest_fields()
        files = {name: bundle.read(name) for name in bundle.names}
    for segment in fields["segments"]:
        if segment["place"] == "edgetpu":
            segment["edgetpu"] = "segments/broken.tflite"
    files["segments/broken.tflite"] = b"no model at all"
    write_bundle(tmp_path / "broken.edgec", fields, files)
    delegate = load_delegate(str(library), {"device": ":0"})
    with pytest.raises(ValueError, match="the Edge TPU cannot run"):
        edgetpu.make_interpreter(str(tmp_path / "broken.edgec"), delegate=delegate)
    check(classifier, 10)
    assert backends(classifier) == {"delegate"}


def test_a_stick_of_another_process(library: Path, tmp_path: Path) -> None:
    import fcntl

    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="the Edge TPU"):
            on_stick("classifier", library)
    assert backends(on_stick("classifier", library)) == {"delegate"}


def test_the_child_of_a_fork_runs_on_the_cpu(library: Path) -> None:
    classifier = on_stick("classifier", library)
    child = os.fork()
    if child == 0:
        try:
            check(classifier, 8)
            os._exit(0 if backends(classifier) == {"c"} else 3)
        finally:
            os._exit(4)
    end = time.monotonic() + PATIENCE_S
    status = None
    while status is None and time.monotonic() < end:
        pid, code = os.waitpid(child, os.WNOHANG)
        status = code if pid else None
        time.sleep(0.05)
    assert status == 0
    check(classifier, 9)
    assert backends(classifier) == {"delegate"}


def test_what_pycoral_tells_of_the_library(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edgetpu, "edgetpu_library", lambda: str(library))
    assert edgetpu.get_runtime_version() == "BuildLabel(STAND-IN) RuntimeVersion(14)"
    assert edgetpu.load_edgetpu_delegate({"device": "usb"}).device == "usb"
    assert edgetpu.set_verbosity(10) is False
    there = ([{"node": "/dev/bus/usb/001/004"}], ["/dev/apex_0"])
    monkeypatch.setattr(edgetpu, "edgetpus_here", lambda: there)
    assert edgetpu.list_edge_tpus() == [
        {"type": "usb", "path": "/dev/bus/usb/001/004"},
        {"type": "pci", "path": "/dev/apex_0"},
    ]
