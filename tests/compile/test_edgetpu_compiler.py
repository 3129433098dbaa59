"""`compile` and `finish` with the stand-in compiler: the bundle is right whatever it
refuses, and tells about it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from edgec_runtime import Bundle, Session

from edgec.cli.main import cli
from edgec.compiler import compile as compiler
from edgec.compiler.compilation import Compiled
from edgec.errors import EdgecError, InputError
from edgec.ir import Rounding
from edgec.options.compile import CompileOptions
from tests.toolchain.stand_in_edgetpu_compiler import Rules, StandInEdgetpuCompiler

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
CALIBRATION = ROOT / "fixtures" / "digits" / "digits_calibration.npz"
TEST = ROOT / "fixtures" / "digits" / "digits_test.npz"

pytestmark = pytest.mark.slow


@pytest.fixture
def double(tmp_path: Path) -> StandInEdgetpuCompiler:
    return StandInEdgetpuCompiler(tmp_path / "bin")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy, which a test may change."""
    return Path(shutil.copy(DIGITS, tmp_path / "digits.onnx"))


def compile_it(model: Path, where: str) -> Compiled:
    options = CompileOptions(
        "pi4+coral",
        model.with_suffix(".edgec"),
        calibrate=CALIBRATION,
        edgetpu="all",
        quantize="fast",
        edgetpu_compiler=where,
    )
    return compiler.compile_model(model, options)


def outputs(bundle: Path) -> np.ndarray:
    data = np.load(TEST)["x"].astype(np.float32)
    with Session(bundle) as session:
        return np.stack(
            [session.run({"input": x[None]})["output"].copy() for x in data[:8]]
        )


def edgetpu_ops(done: Compiled) -> list[str]:
    segments = done.network.lowered.partition.segments
    return [
        op.outputs[0].name
        for s in segments
        if s.place == "edgetpu"
        for op in s.graph.ops
    ]


def test_a_refused_op_leaves_a_right_bundle(
    model: Path, double: StandInEdgetpuCompiler
) -> None:
    plain = compile_it(model, str(double.program))
    want = outputs(plain.path)
    victim = edgetpu_ops(plain)[-1]
    double.set(Rules(refuse={victim: "Operation not supported"}))
    done = compile_it(model, str(double.program))
    assert victim not in edgetpu_ops(done)
    np.testing.assert_array_equal(outputs(done.path), want)
    assert f"edgetpu_compiler refused {victim}" in done.summary()
    with Bundle.open(done.path) as bundle:
        assert bundle.manifest.toolchain["edgetpu_compiler"] == "16.0.384591198"
        compiled = [s.name for s in bundle.manifest.segments if s.edgetpu is not None]
        assert compiled == [
            s.name for s in bundle.manifest.segments if s.place == "edgetpu"
        ]
        report = json.loads(bundle.read("report/edgetpu_compiler.json"))
    assert [(r["op"], r["seen"]) for r in report["refused"]] == [
        (victim, "Operation not supported")
    ]
    assert all(s["whole"] for s in report["segments"].values())


def test_the_rounding_is_that_of_the_chip_or_of_the_file(model: Path) -> None:
    files = {}
    laws = {}
    for rounding in ("chip", "tflite"):
        options = CompileOptions(
            "pi4+coral",
            model.with_suffix(f".{rounding}.edgec"),
            calibrate=CALIBRATION,
            edgetpu="all",
            quantize="fast",
            edgetpu_compiler="none",
            rounding=rounding,
        )
        # A compile verifies the C by the law that it has, and the file by TFLite's.
        done = compiler.compile_model(model, options)
        with Bundle.open(done.path) as bundle:
            files[rounding] = [
                bundle.read(f"segments/{s.name}.tflite")
                for s in bundle.manifest.segments
                if s.place == "edgetpu"
            ]
        segments = done.network.lowered.partition.segments
        on_chip = (s.graph for s in segments if s.place == "edgetpu")
        specs = (op.spec for graph in on_chip for op in graph.ops)
        laws[rounding] = {s.rounding for s in specs if hasattr(s, "rounding")}
    assert files["chip"] == files["tflite"] != []
    assert Rounding.EDGETPU in laws["chip"]
    assert laws["tflite"] == {Rounding.TFLITE}
    with pytest.raises(InputError, match="--rounding cannot be up"):
        CompileOptions("pi4+coral", rounding="up").check()


def test_the_same_answers_give_the_same_bytes(
    model: Path, double: StandInEdgetpuCompiler
) -> None:
    first = compile_it(model, str(double.program)).path.read_bytes()
    assert compile_it(model, str(double.program)).path.read_bytes() == first


def test_what_it_never_compiles_runs_as_c_with_a_warning(
    model: Path, double: StandInEdgetpuCompiler
) -> None:
    double.set(Rules(says="rubbish\n"))
    done = compile_it(model, str(double.program))
    assert 'edgetpu_compiler did not compile seg1: it said "rubbish"' in done.summary()
    with Session(done.path) as session:
        assert session.backends["seg1"] == "c"


def test_none_does_not_ask(
    model: Path, double: StandInEdgetpuCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(double.folder), prepend=os.pathsep)
    done = compile_it(model, "none")
    assert double.calls() == []
    assert "edgetpu_compiler was not run" in done.summary()


def compile_there(folder: Path, double: StandInEdgetpuCompiler) -> None:
    env = {"PATH": f"{double.folder}:/usr/bin:/bin"}
    subprocess.run(
        ["sh", folder / "compile.sh"], env=env, check=True, capture_output=True
    )


def test_by_hand_in_two_steps(
    model: Path, double: StandInEdgetpuCompiler, tmp_path: Path
) -> None:
    folder = tmp_path / "handoff"
    started = compile_it(model, f"folder:{folder}")
    assert "until then Edge TPU segments run as C" in started.summary()
    assert f"edgec finish {folder}" in started.summary()
    want = outputs(started.path)
    with pytest.raises(EdgecError, match="has not run on call-01 yet") as e:
        compiler.finish(folder)
    assert e.value.exit_code == 1
    victim = edgetpu_ops(started)[-1]
    double.set(Rules(refuse={victim: "Operation not supported"}))
    compile_there(folder, double)
    with pytest.raises(EdgecError, match="has to run once more"):
        compiler.finish(folder)
    started.path.unlink()
    compile_there(folder, double)
    result = CliRunner().invoke(cli, ["finish", str(folder)])
    assert result.exit_code == 0, result.output
    assert f"edgetpu_compiler refused {victim}" in result.output
    assert "2 rounds" in result.output
    np.testing.assert_array_equal(outputs(started.path), want)
    with Bundle.open(started.path) as bundle:
        assert all(s.edgetpu for s in bundle.manifest.segments if s.place == "edgetpu")


def test_a_folder_whose_model_changed(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "handoff"
    compile_it(model, f"folder:{folder}")
    data = model.read_bytes()
    model.write_bytes(data + b"\0")
    with pytest.raises(InputError, match="is not what it was"):
        compiler.finish(folder)
    model.unlink()
    with pytest.raises(InputError, match="is gone"):
        compiler.finish(folder)


def test_a_recipe_of_another_edgec(model: Path, tmp_path: Path) -> None:
    from edgec.compiler.job import Job

    options = CompileOptions(
        "pi4",
        tmp_path / "o.edgec",
        input_shapes={"x": (1, 2)},
        disable=("fold_pad",),
        calibrate=CALIBRATION,
    )
    recipe = Job(model, options).recipe()
    again = Job.again(json.loads(json.dumps(recipe)), tmp_path)
    assert json.dumps(again.recipe()) == json.dumps(recipe)
    assert again.options.shapes == options.shapes
    assert list(again.options.disable) == ["fold_pad"]
    assert again.options.calibrate == str(Path(CALIBRATION).absolute())
    recipe["options"]["unheard_of"] = 1
    with pytest.raises(
        InputError, match="recipe of the hand-off folder cannot be read"
    ):
        Job.again(recipe, tmp_path)
