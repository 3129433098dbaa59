"""A cascade on the Edge TPU: one process for all networks, whatever happens to it, and
one run of edgetpu_compiler for all of their segments.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import Bundle, Session, write_bundle
from edgec_runtime.model.interpreters import TfliteInterpreter, interpreter_factory
from numpy.typing import NDArray
from PIL import Image

import edgec
from tests import builds
from tests.cascade import objects
from tests.cascade.objects import Thing, scene, seen
from tests.runtime.fake_stick import AT_LOAD, FAULTS, FakeStick, go_wrong
from tests.toolchain.stand_in_edgetpu_compiler import Rules, StandInEdgetpuCompiler
from tests.waiting import LIMIT_S

pytestmark = [pytest.mark.cc, pytest.mark.slow]
# of one that is to hang, whatever else the machine does
TIMEOUT_S = 2.0
OPTIONS: dict[str, Any] = {
    "threads": 2,
    "edgetpu": "all",
    "quantize": "fast",
    "budget": "0%",
    "float_ops": ("v*",),
    "min_cosine": -1.0,
    "also": ["host"],
}
"""The convolutions in int8 on the Edge TPU, and the arithmetic after them in float."""


def photos(folder: Path) -> Path:
    folder.mkdir()
    for i in range(12):
        first = Thing(40 + 4 * i, 50 + 3 * i, 0.5 * i, 20 + 0.5 * i)
        Image.fromarray(scene(first, Thing(150, 100, 1 + i, 22))).save(
            folder / f"{i}.png"
        )
    return folder


def compiled(folder: Path, compiler: str) -> Any:
    file = objects.write(folder)
    return edgec.compile(
        file,
        "pi4+coral",
        folder / "x.edgec",
        calibrate=photos(folder / "photos"),
        edgetpu_compiler=compiler,
        **OPTIONS,
    )


def with_plain_segments(source: Path, path: Path) -> None:
    """Write a cascade anew, its compiled segments replaced by their .tflite files, which
    interpreters of this machine can run.
    """
    with Bundle.open(source) as bundle:
        files = {name: bundle.read(name) for name in bundle.names}
        for name in ("thing", "discs"):
            inner = bundle.network(name)
            fields = inner.manifest_fields()
            for segment in fields["segments"]:
                if "edgetpu" in segment:
                    segment["edgetpu"] = segment["tflite"]
            aside = path.with_name(f"{name}.edgec")
            contents = {n: inner.read(n) for n in inner.manifest.files}
            detached = [n for n, f in inner.manifest.files.items() if f.detached]
            write_bundle(aside, fields, contents, detached)
            files[f"networks/{name}.edgec"] = aside.read_bytes()
        write_bundle(path, bundle.manifest_fields(), files)


@pytest.fixture
def bundle() -> Path:
    def make(folder: Path) -> None:
        compiler = StandInEdgetpuCompiler(folder / "bin")
        compiled(folder, str(compiler.program))
        with_plain_segments(folder / "x.edgec", folder / "plain.edgec")

    return builds.once("cascade on the stick", make) / "plain.edgec"


class LiteRTStick(FakeStick):
    """An Edge TPU that runs segments by LiteRT, with faults by plan."""

    def make(self, model: bytes, delegate: object) -> Any:
        assert delegate is not None
        return _Faulty(self, interpreter_factory()(model, None))


class _Faulty(TfliteInterpreter):
    def __init__(self, stick: LiteRTStick, inner: TfliteInterpreter) -> None:
        self._stick = stick
        self._inner = inner
        self._invokes = 0

    def invoke(self) -> None:
        self._inner.invoke()
        self._invokes += 1
        if self._invokes <= AT_LOAD:
            return
        stick = self._stick
        number = stick.number()
        fault = stick.plan.get(number)
        stick.log(fault or "ran")
        if fault is None:
            return
        if fault == "vanish":
            (stick.folder / "away").write_text(str(time.monotonic() + stick.away))
        go_wrong(fault, random.Random(number))

    def allocate_tensors(self) -> None:
        self._inner.allocate_tensors()

    def get_input_details(self) -> list[Mapping[str, Any]]:
        return self._inner.get_input_details()

    def get_output_details(self) -> list[Mapping[str, Any]]:
        return self._inner.get_output_details()

    def tensor(self, index: int) -> Callable[[], NDArray[Any]]:
        return self._inner.tensor(index)


def frames() -> Iterator[NDArray[np.uint8]]:
    n = 0
    while True:
        yield scene(Thing(50 + n % 20, 50, 0.05 * n), Thing(145, 95, 2 - 0.03 * n, 24))
        n += 1


def test_one_process_runs_all_networks(bundle: Path, tmp_path: Path) -> None:
    stick = LiteRTStick(tmp_path / "stick")
    with (
        Session(bundle, tpu="c") as twin,
        Session(
            bundle,
            tpu="delegate",
            driver=stick.open,
            interpreter=stick.make,
            threads=2,
        ) as session,
    ):
        for _, frame in zip(range(12), frames(), strict=False):
            assert seen(session, frame).to_json() == seen(twin, frame).to_json()
        facts = session.edgetpu
        assert facts is not None
        assert (facts.up, facts.lost, facts.on_cpu) == (True, 0, 0)
        backends = {s.name: s.backends for s in session.figures()}
    # The detector in two frames of twelve, the others for both objects.
    assert backends["thing"] == {"c": 4, "delegate": 2}
    assert backends["discs"] == {"c": 48, "delegate": 24}
    ran = [(pid, what) for _, pid, what in stick.logged()]
    assert len({pid for pid, _ in ran}) == 1
    assert [what for _, what in ran].count("ran") == 2 + 24 + 24


@pytest.mark.parametrize("fault", FAULTS)
def test_it_goes_on_when_the_stick_does_not(
    bundle: Path, tmp_path: Path, fault: str
) -> None:
    """Until it was lost twice and is back, each frame's objects are those of the twins."""
    stick = LiteRTStick(tmp_path / "stick", {5: fault, 11: fault})
    timeout = TIMEOUT_S if fault.startswith("hang") else LIMIT_S
    end = time.monotonic() + LIMIT_S
    with (
        warnings.catch_warnings(record=True) as said,
        Session(bundle, tpu="c") as twin,
        Session(
            bundle, driver=stick.open, interpreter=stick.make, timeout=timeout
        ) as session,
    ):
        warnings.simplefilter("always", RuntimeWarning)
        for frame in frames():
            assert seen(session, frame).to_json() == seen(twin, frame).to_json()
            facts = session.edgetpu
            assert facts is not None
            lost = facts.lost
            if facts.back == 2 and stick.logged()[-1][2] == "ran":
                break
            assert time.monotonic() < end
            time.sleep(0.01)
    assert lost == 2
    assert len([w for w in said if "stopped answering" in str(w.message)]) == 1


def test_segments_are_compiled_together(tmp_path: Path) -> None:
    compiler = StandInEdgetpuCompiler(tmp_path / "bin")
    done = compiled(tmp_path, str(compiler.program))
    # Each alone until it maps whole, then both; the detector, which rests, comes last.
    assert compiler.calls() == [["seg1"], ["seg1"], ["discs-seg1", "thing-seg1"]]
    assert "discs, thing share the memory of the Edge TPU" in done.summary()
    with Bundle.open(done.path) as bundle:
        for name in ("thing", "discs"):
            segments = bundle.network(name).manifest.segments
            assert [s.edgetpu is not None for s in segments] == [False, True, False]


def test_without_a_compiler_they_run_as_c(tmp_path: Path) -> None:
    compiler = StandInEdgetpuCompiler(tmp_path / "bin")
    compiler.set(Rules(says="rubbish\n"))
    done = compiled(tmp_path, str(compiler.program))
    assert "share" not in done.summary()
    with Session(done.path) as session:
        assert len(seen(session, next(frames())).objects) == 2
        assert session.edgetpu is None


def test_the_plan_says_what_a_swap_costs(tmp_path: Path) -> None:
    file = objects.write(tmp_path)
    options = {k: v for k, v in OPTIONS.items() if k not in ("threads", "also")}
    report = edgec.explain(
        file, target="pi4+coral", calibrate=photos(tmp_path / "photos"), **options
    )
    text = report.text(False)
    assert "stay on the chip together" in text
    assert "a swap costs thing est. " in text
