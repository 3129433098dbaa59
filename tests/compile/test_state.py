"""A model that keeps something between calls, compiled: by the Session, by ek_infer, by
devices, and calibrated.
"""

from __future__ import annotations

import json
import subprocess
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_partitioner.regions import Region
from edgec_partitioner.segments import segment
from edgec_runtime import Bundle, BundleError, InputError, Session
from edgec_runtime.bundle.manifest import check_manifest
from edgec_runtime.device_end.bundles import machine_target

import edgec
from edgec.compiler.op_by_op import op_by_op
from edgec.frontends import read_model
from edgec.ir import Array
from tests import builds
from tests.frontends.test_state import running
from tests.frontends.tflite_state import START, litert_calls, stateful

pytestmark = pytest.mark.slow
_RNG = np.random.default_rng(0)
XS = [_RNG.normal(size=(1, 4)).astype(np.float32) for _ in range(5)]


def _compiled(to: Path) -> None:
    (to / "m.tflite").write_bytes(stateful())
    edgec.compile(to / "m.tflite", "host", to / "m.edgec")


@pytest.fixture
def bundle() -> Path:
    return builds.once("stateful", _compiled) / "m.edgec"


@pytest.fixture
def want() -> list[list[Array]]:
    return [*litert_calls(stateful(), XS)]


def _same(session: Session, want: list[list[Array]]) -> None:
    for x, (y, w) in zip(XS, want, strict=True):
        got = session.run({"x": x})
        np.testing.assert_allclose(got["y"], y, atol=1e-6)
        np.testing.assert_allclose(got["w"], w, atol=1e-6)


def test_a_session_keeps_it_and_begins_anew(
    bundle: Path, want: list[list[Array]]
) -> None:
    with Session(bundle) as session, Session(bundle) as other:
        assert [i.name for i in session.inputs] == ["x"]
        assert [o.name for o in session.outputs] == ["y", "w"]
        other.run({"x": XS[0]})
        _same(session, want)
        session.reset()
        _same(session, want)
        np.testing.assert_allclose(other.run({"x": XS[1]})["y"], want[1][0], atol=1e-6)


def test_a_stream_keeps_it(bundle: Path, want: list[list[Array]]) -> None:
    with Session(bundle) as session, session.stream(XS) as shots:
        for shot, (y, w) in zip(shots, want, strict=True):
            np.testing.assert_allclose(shot.value["y"], y, atol=1e-6)
            np.testing.assert_allclose(shot.value["w"], w, atol=1e-6)


def test_a_run_shows_what_it_began_with_and_may_be_given_it(
    bundle: Path, want: list[list[Array]]
) -> None:
    with Session(bundle) as session:
        session.run({"x": XS[0]})
        state = {n: session.tensor(n) for n in session.manifest.kept}
        np.testing.assert_array_equal(state["sum"], START)
        session.run({"x": XS[1]})
        np.testing.assert_allclose(
            session.run({"x": XS[0], **state})["y"], want[0][0], atol=1e-6
        )
        np.testing.assert_allclose(
            session.run({"x": XS[1]})["y"], want[1][0], atol=1e-6
        )
        with pytest.raises(InputError, match='"old" is missing'):
            session.run({"x": XS[0], "sum": START})
        session.time({"x": XS[0]}, runs=3)
        # each run was the first
        np.testing.assert_allclose(session.tensor("y"), want[0][0], atol=1e-6)


def test_threads_take_turns(bundle: Path) -> None:
    """Each run adds 1 to what the one before left, whichever thread it was in."""
    ones = np.ones((1, 4), np.float32)
    seen = list[float]()
    with Session(bundle) as session:

        def some() -> None:
            seen.extend(float(session.run({"x": ones})["y"][0, 0]) for _ in range(50))

        threads = [threading.Thread(target=some) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert sorted(seen) == [START[0, 0] + 1 + i for i in range(200)]


def test_devices_begin_with_the_initial_state(
    bundle: Path, want: list[list[Array]]
) -> None:
    """However often the program runs; a device may be given the state too."""
    with zipfile.ZipFile(bundle) as z:
        target = machine_target()
        folder = bundle.parent / "program"
        z.extractall(
            folder,
            [
                n
                for n in z.namelist()
                if n.startswith(f"bin/{target}") or n.endswith("weights.bin")
            ],
        )
    program = folder / "bin" / target / "main"
    program.chmod(0o755)
    np.save(folder / "x.npy", XS[0])
    for files, y in ((1, want[0][0]), (4, XS[0] * 2)):
        inputs = ["x.npy"] * files
        command = [
            str(program.resolve()),
            "--runs",
            "4",
            "--input",
            *inputs,
            "--output",
            "out",
            "--json",
        ]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        np.testing.assert_allclose(
            np.load(folder / "out" / "output0.npy"), y, atol=1e-6
        )
    assert not (folder / "out" / "output2.npy").exists()
    given = {"x": XS[0], **dict.fromkeys(("sum", "old", "older"), XS[0])}
    np.testing.assert_allclose(edgec.run(bundle, given)["y"], XS[0] * 2, atol=1e-6)


APP = """
#include "ek_model.h"
#include <stdio.h>
int main(void)
{
    const ek_model *m = &edgec_model;
    const ek_tensor *x = &m->tensors[m->inputs[0]], *y = &m->tensors[m->outputs[0]];
    float given[4];
    for (int turn = 0; turn < 2; turn++, ek_reset(m))
        for (int i = 0; i < 5; i++) {
            if (scanf("%f %f %f %f", given, given + 1, given + 2, given + 3) != 4) return 2;
            memcpy(x->data, given, x->bytes);
            if (ek_infer(m, NULL)) return 1;
            const float *out = y->data;
            printf("%.9g %.9g %.9g %.9g\\n", out[0], out[1], out[2], out[3]);
        }
    return m->n_inputs != 1 || m->n_outputs != 2 || m->n_state != 3;
}
"""


@pytest.mark.cc
def test_c_keeps_it_and_begins_anew(
    bundle: Path, want: list[list[Array]], tmp_path: Path
) -> None:
    with zipfile.ZipFile(bundle) as z:
        z.extractall(
            tmp_path / "model", [n for n in z.namelist() if n.startswith("src/")]
        )
    (tmp_path / "app.c").write_text(APP)
    source = tmp_path / "model" / "src" / machine_target()
    build = (
        f"include {source}/model.mk\napp: app.o $(MODEL_OBJECTS)\n\t$(CC) -o $@ "
        "$^ "
        "$(MODEL_LIBS)\n"
    )
    (tmp_path / "Makefile").write_text(
        f"{build}app.o: app.c\n\t$(CC) -Wall -Werror $(MODEL_INCLUDES) -c -o $@ $<\n"
    )
    subprocess.run(["make", "-s", "app", "CC=gcc"], cwd=tmp_path, check=True)
    text = "\n".join(" ".join(f"{v:.9g}" for v in x.reshape(-1)) for x in XS * 2)
    done = subprocess.run(
        ["./app"], cwd=tmp_path, input=text, capture_output=True, text=True
    )
    assert done.returncode == 0
    got = np.array(
        [[float(v) for v in line.split()] for line in done.stdout.splitlines()],
        np.float32,
    )
    np.testing.assert_allclose(got, np.concatenate([y for y, _ in want * 2]), atol=1e-6)


def test_manifests_that_contradict_themselves(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as z:
        plain = json.loads(z.read("manifest.json"))
    assert [s["input"] for s in plain["state"]] == ["sum", "old", "older"]
    files = plain["files"]
    every: tuple[dict[str, Any], ...] = (
        {"state": [{"input": "nothing", "output": "sum_next"}]},
        {"state": [{"input": "sum"}]},
        {"state": [*plain["state"], plain["state"][0]]},
        {"state": [{**plain["state"][0], "initial": "manifest.json"}]},
        {"files": {**files, "state/0.bin": {**files["state/0.bin"], "bytes": 8}}},
        {"state": []},
    )
    for wrong in every:
        with pytest.raises(BundleError):
            check_manifest({**plain, **wrong})


def test_calibration_sees_the_sequence(tmp_path: Path) -> None:
    """h grows to 8 times what one call makes of it; int8 that had seen only the first
    call would stop at that.
    """
    from tests.frontends.onnx_files import node, write

    nodes = [
        node("MatMul", ["x", "w"], "a"),
        node("Relu", ["a"], "r"),
        node("Mul", ["h", "keep"], "k"),
        node("Add", ["k", "r"], "h_out"),
        node("MatMul", ["h_out", "v"], "y"),
    ]
    rng = np.random.default_rng(1)
    constants = {
        "w": rng.random((16, 16)).astype(np.float32),
        "v": rng.random((16, 16)).astype(np.float32),
    }
    path = write(
        tmp_path / "m.onnx",
        nodes,
        {"x": [1, 16], "h": [1, 16]},
        ["y", "h_out"],
        {**constants, "keep": np.array(0.9, np.float32)},
    )
    xs = rng.random((40, 1, 16)).astype(np.float32)
    np.savez(tmp_path / "c.npz", x=xs)
    made = edgec.compile(
        path,
        "host",
        tmp_path / "m.edgec",
        calibrate=tmp_path / "c.npz",
        state={"h": "h_out"},
        quantize="fast",
    )
    assert "state: h" in made.summary()
    h = np.zeros((1, 16), np.float32)
    worst = 0.0
    largest = 0.0
    with Session(tmp_path / "m.edgec") as session:
        for x in xs:
            h = h * np.float32(0.9) + x @ constants["w"]
            y = h @ constants["v"]
            worst = max(worst, float(np.abs(session.run({"x": x})["y"] - y).max()))
            largest = max(largest, float(np.abs(y).max()))
    assert worst < 0.05 * largest


def test_a_pair_that_looks_like_state_is_told(tmp_path: Path) -> None:
    path = running(tmp_path / "m.onnx")
    told = edgec.compile(path, "host", tmp_path / "m.edgec").summary()
    assert "--state h=h_out" in told.replace("\n", " ")
    again = edgec.compile(
        path, "host", tmp_path / "m.edgec", state={"h": "h_out"}
    ).summary()
    assert "look like state" not in again
    with Session(tmp_path / "m.edgec") as session:
        assert [*session.run({"x": XS[0]})] == ["y"]


def test_ops_that_read_state_are_judged_with_it(bundle: Path) -> None:
    """What a sample says of state, else what it begins with."""
    graph = read_model(bundle.with_name("m.tflite"))
    s = segment(
        "seg0",
        Region("cpu", tuple(graph.ops), tuple(graph.inputs), tuple(graph.outputs)),
    )
    with Bundle.open(bundle) as opened:
        kept = {
            n: np.full(opened.manifest.tensors[n].shape, 3, np.float32)
            for n in opened.manifest.kept
        }
        for sample in ({"x": XS[0]}, {"x": XS[0], **kept}):
            assert all(check.ok for check in op_by_op(opened, [s], sample).checks)
        assert op_by_op(opened, [s], sample).checks


def test_first_calls_are_compared(bundle: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.stack(XS))
    for a in ("interp:", "c:", "litert:"):
        found = edgec.diff(
            f"{a}{bundle.with_suffix('.tflite')}", bundle, inputs=tmp_path / "x.npz"
        )
        assert min(o.agreement.sqnr_db for o in found.outputs.values()) > 100
