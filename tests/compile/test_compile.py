"""The whole line on the fixtures: a file in, a verified bundle out, the right answers
here and on an emulated Pi.
"""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from edgec_devices.device import device_for
from edgec_runtime import Bundle, Session

import edgec
from edgec.compiler import compile as compiler
from edgec.emit import sources
from edgec.emit.c import CSource, segment_source
from edgec.emit.weights import WeightsFile
from edgec.errors import EdgecError
from edgec.ir import Array, Graph
from edgec.options.compile import CompileOptions
from edgec.schedule.cores import Core
from edgec.schedule.variant import Rules
from tests.toolchain.stand_in_edgetpu_compiler import StandInEdgetpuCompiler

FIXTURES = Path(__file__).parents[2] / "fixtures"
DIGITS = FIXTURES / "digits" / "digits.onnx"
CALIBRATION = FIXTURES / "digits" / "digits_calibration.npz"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def digits() -> tuple[Array, Array]:
    """64 held-out pictures [64,1,32,32] and their labels."""
    data = np.load(FIXTURES / "digits" / "digits_test.npz")
    return data["x"].astype(np.float32), data["y"]


def accuracy(bundle: Path, digits: tuple[Array, Array]) -> float:
    with Session(bundle) as session:
        guesses = [
            session.run({"input": x[None]})["output"].argmax() for x in digits[0]
        ]
    return float(np.mean(np.array(guesses) == digits[1]))


def test_float_and_int8_classify_as_trained(
    tmp_path: Path, digits: tuple[Array, Array]
) -> None:
    edgec.compile(DIGITS, "host", tmp_path / "f.edgec")
    done = edgec.compile(
        DIGITS,
        "pi4+coral",
        tmp_path / "q.edgec",
        calibrate=CALIBRATION,
        quantize="fast",
        edgetpu="all",
    )
    assert accuracy(tmp_path / "f.edgec", digits) >= 0.97
    assert accuracy(tmp_path / "q.edgec", digits) >= 0.97
    assert done.network.verification.quantized
    assert done.network.verification.whole["output"].cosine > 0.99
    assert (
        "accuracy against the float model, on 8 samples of digits_calibration.npz, "
        "held back" in done.summary()
    )


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        edgec.compile(DIGITS, "pi4", tmp_path / f"{name}.edgec")
    assert (tmp_path / "a.edgec").read_bytes() == (tmp_path / "b.edgec").read_bytes()


@pytest.mark.arm
@pytest.mark.parametrize("board", ["pi-zero2", "pi4/linux-armv7", "pi5"])
def test_an_emulated_board_gives_the_local_answer(
    tmp_path: Path, board: str, digits: tuple[Array, Array]
) -> None:
    path = tmp_path / "d.edgec"
    edgec.compile(
        DIGITS, board.split("/")[0], path, also=["armv7"] if "armv7" in board else []
    )
    sample = {"input": digits[0][:1]}
    with Bundle.open(path) as bundle, Session(bundle) as session:
        there = device_for(f"emulated:{board}").run(bundle, sample)
        here = session.run(sample)
    # Sums in float16 depend on their order, which is that of the core's vectors.
    computes_float16 = "float16" in bundle.manifest.quantization
    atol = 2**-10 if computes_float16 else 1e-6
    rtol = 0 if computes_float16 else 1e-5
    np.testing.assert_allclose(there["output"], here["output"], rtol, atol)


@pytest.mark.arm
def test_the_image_network_crosses_between_edge_tpu_and_cpu(tmp_path: Path) -> None:
    path = tmp_path / "cartoon.edgec"
    model = FIXTURES / "cartoon" / "cartoon.onnx"
    edgec.compile(
        model,
        "pi4+coral",
        path,
        calibrate=FIXTURES / "photos",
        quantize="fast",
        preprocess="0_1",
        rounding="tflite",
    )
    with Bundle.open(path) as bundle:
        places = [s.place for s in bundle.manifest.segments]
        assert places == ["cpu", "edgetpu", "cpu", "edgetpu", "cpu"]
        sample = {
            "input": np.random.default_rng(0).random((1, 3, 192, 192), np.float32)
        }
        results = [device_for("emulated:pi4").run(bundle, sample)["output"]]
        for tpu in ("c", "interpreter"):
            with Session(bundle, tpu=tpu) as session:
                results.append(session.run(sample)["output"])
    result = edgec.bench(path, "emulated:pi4").report
    assert result.estimated
    assert [s.place for s in result.segments] == places
    assert result.latency.samples[0] > max(
        s.latency.samples[0] for s in result.segments
    )
    # the middle is float: its last bits may differ between machines' libm, which moves
    # an int8 step at most
    for other in results[1:]:
        np.testing.assert_allclose(results[0], other, atol=1.5 / 255)


@pytest.mark.parametrize(
    ("calibrate", "right", "wrong"),
    [(None, "0.0f", "0.5f"), (CALIBRATION, "-128", "-100")],
)
def test_a_wrong_kernel_leaves_no_bundle(
    calibrate: Path | None,
    right: str,
    wrong: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(
        graph: Graph, name: str, core: Core, weights: WeightsFile, *, rules: Rules
    ) -> CSource:
        source = segment_source(graph, name, core, weights, rules=rules)
        assert f".low = {right}" in source.text
        return replace(
            source, text=source.text.replace(f".low = {right}", f".low = {wrong}")
        )

    monkeypatch.setattr(sources, "segment_source", broken)
    with pytest.raises(EdgecError, match="verification failed: seg0 as C") as e:
        edgec.compile(
            DIGITS, "host", tmp_path / "d.edgec", calibrate=calibrate, quantize="fast"
        )
    assert e.value.exit_code == 1
    assert e.value.hint == "report it with the model"
    assert list(tmp_path.iterdir()) == []


def test_a_quantized_model_too_unlike_its_original_is_refused(tmp_path: Path) -> None:
    options = CompileOptions(
        "pi4+coral",
        tmp_path / "d.edgec",
        calibrate=CALIBRATION,
        min_cosine=0.9999999,
        quantize="fast",
    )
    with pytest.raises(
        EdgecError, match=r"cosine 0\.\d+ with the float model, 0.9999999 needed"
    ):
        compiler.compile_model(DIGITS, options)
    assert list(tmp_path.iterdir()) == []


def test_edgetpu_compiler_on_the_path_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler_double = StandInEdgetpuCompiler(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(compiler_double.folder), prepend=os.pathsep)
    path = tmp_path / "d.edgec"
    done = edgec.compile(
        DIGITS, "pi4+coral", path, calibrate=CALIBRATION, quantize="fast", edgetpu="all"
    )
    assert compiler_double.calls() == [["seg1"]]
    assert "edgetpu_compiler mapped all of seg1" in done.summary()
    with Bundle.open(path) as bundle:
        assert bundle.manifest.segments[1].edgetpu == "segments/seg1_edgetpu.tflite"
        assert b"edgetpu-custom-op" in bundle.read("segments/seg1_edgetpu.tflite")
    with Session(path) as session:  # without a stick its twin runs
        assert session.backends["seg1"] == "c"


def test_passes_can_be_switched_off_and_dumped(tmp_path: Path) -> None:
    path = tmp_path / "d.edgec"
    options = CompileOptions(output=path, dump=["after=fold_batch_norm"])
    everything = compiler.compile_model(DIGITS, options)
    assert len(list(tmp_path.glob("d.*-fold_batch_norm.txt"))) >= 1
    disabled = ["fold_batch_norm", "fuse_activation"]
    less = compiler.compile_model(DIGITS, CompileOptions(output=path, disable=disabled))
    assert len(less.network.lowered.graph.ops) > len(
        everything.network.lowered.graph.ops
    )
    assert not less.network.verification.failures


@pytest.mark.parametrize("edgetpu", ["auto", "all"])
def test_explain_agrees_with_what_is_compiled(tmp_path: Path, edgetpu: str) -> None:
    report = edgec.explain(
        DIGITS, "pi4+coral", calibrate=CALIBRATION, quantize="fast", edgetpu=edgetpu
    ).report
    edgec.compile(
        DIGITS,
        "pi4+coral",
        tmp_path / "d.edgec",
        calibrate=CALIBRATION,
        quantize="fast",
        edgetpu=edgetpu,
    )
    segments = json.loads(zipfile.ZipFile(tmp_path / "d.edgec").read("manifest.json"))[
        "segments"
    ]
    assert [(s.name, s.place, s.macs) for s in report.segments] == [
        (s["name"], s["place"], s["macs"]) for s in segments
    ]
    assert all(row.refusals for row in report.ops if row.place == "cpu")
