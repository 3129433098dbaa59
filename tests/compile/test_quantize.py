"""`--quantize`: as a user has it, from the command line to the bundle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Bundle, Session

from edgec.compiler.lower import lower
from edgec.compiler.quantize import QuantizeOptions
from edgec.options.compile import CompileOptions, Options
from edgec.quantize.change.recipe import RECIPE_FOLDER, Recipe
from edgec.quantize.float_ops.limits import AccuracyGoal, CostBudget
from tests.cli.verbs import edgec

pytestmark = pytest.mark.slow

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits"
MODEL, CALIBRATION, TEST = (
    DIGITS / f"digits{end}" for end in (".onnx", "_calibration.npz", "_test.npz")
)


def test_best_tries_nothing_where_minmax_leaves_nothing_to_gain(tmp_path: Path) -> None:
    """It is what a compile does that is told nothing else."""
    done = edgec(
        "compile", MODEL, "--calibrate", CALIBRATION, "-o", "d.edgec", cwd=tmp_path
    )
    assert done.code == 0, done.err
    assert "quantized by best: minmax; judged on 8 samples" in done.out
    assert "with 40 dB or more nothing else is tried" in done.out
    assert "gptq" not in done.out


def test_a_recipe_says_what_it_tried(tmp_path: Path) -> None:
    """That is `best`, but for networks of any accuracy."""
    text = recipe_text("best").replace("ample_db = 40.0", "ample_db = 90.0")
    (tmp_path / "best.toml").write_text(text)
    words = ["--calibrate", CALIBRATION, "--quantize", tmp_path / "best.toml"]
    done = edgec("compile", MODEL, *words, "-o", "d.edgec", cwd=tmp_path)
    assert done.code == 0, done.err
    recipe = Recipe.load(str(tmp_path / "best.toml"))
    with Bundle.open(tmp_path / "d.edgec") as bundle:
        said = bundle.manifest.quantization
    tried = json.loads(
        zipfile.ZipFile(tmp_path / "d.edgec").read("report/quantize.json")
    )
    assert Recipe.of(said["recipe"], "other") == recipe
    assert said["kept"] == tried["kept"]
    assert [t["name"] for t in tried["tried"]] == [c.name for c in recipe.candidates]
    rows = {t["name"]: t for t in tried["tried"]}
    assert rows[said["kept"]]["db"] >= rows["minmax"]["db"]
    count = tried["samples"]
    assert (
        f"quantized by best: {said['kept']}; judged on {count} samples, "
        "each held back in turn:" in done.out
    )
    assert all(c.name in done.out for c in recipe.candidates)


def recipe_text(name: str) -> str:
    """Return the file of one of edgec's own recipes."""
    return (RECIPE_FOLDER / f"{name}.toml").read_text()


def test_the_same_bytes_however_many_cores_multiply(tmp_path: Path) -> None:
    """The recipe that computes most, as a file of its own, by one thread of BLAS and by
    two.
    """
    (tmp_path / "all.toml").write_text(
        '[[candidate]]\nname = "all"\nsteps = ["lower", "equalize", "choose", "gptq", '
        '"bias"]\n'
    )
    for threads in ("1", "2"):
        command = [
            sys.executable,
            "-m",
            "edgec",
            "compile",
            str(MODEL),
            "--calibrate",
            str(CALIBRATION),
            "-q",
        ]
        subprocess.run(
            [*command, "--quantize", "all.toml", "-o", f"{threads}.edgec"],
            cwd=tmp_path,
            check=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads},
        )
    assert (tmp_path / "1.edgec").read_bytes() == (tmp_path / "2.edgec").read_bytes()
    with Session(tmp_path / "1.edgec") as session, np.load(TEST) as data:
        (x,) = (data[k] for k in data.files if data[k].ndim == 4)
        (label,) = (data[k] for k in data.files if data[k].ndim == 1)
        name = next(iter(session.bundle.manifest.inputs))
        right = [
            int(np.argmax(next(iter(session.run({name: s[None]}).values())))) for s in x
        ] == label
    assert right.mean() > 0.95


def test_a_recipe_that_is_none_is_told_of_before_any_work(tmp_path: Path) -> None:
    done = edgec("compile", MODEL, "--quantize", "besst", "-o", "d.edgec", cwd=tmp_path)
    assert done.code == 2
    assert 'there is no recipe besst; did you mean "best"?' in done.err
    (tmp_path / "mine.toml").write_text(
        '[[candidate]]\nname = "a"\nsteps = ["gptq", "minmax"]\n'
    )
    done = edgec(
        "compile", MODEL, "--quantize", "mine.toml", "-o", "d.edgec", cwd=tmp_path
    )
    assert done.code == 2
    assert (
        "must change graph, then ranges, then precision, then weights, then biases"
        in done.err
    )


QUANTIZED = "resnet8_i8,vww96_i8,mnv1_025_128_u8,mnv2_tf2_i8,omv_blazeface_i8,person_detect_i8,shufflenetv2_i8_onnx,prisma_i8"


@pytest.mark.shared
@pytest.mark.parametrize("name", QUANTIZED.split(","))
def test_a_quantized_model_is_taken_as_it_is(shared: Path, name: str) -> None:
    """Calibration and recipes change nothing of it, and the compile says so."""
    (path,) = (shared / "models" / name).glob(f"{name}.*")
    plain = lower(path, CompileOptions())
    best = lower(
        path, CompileOptions(calibrate=shared / "data" / "photos", quantize="best")
    )
    assert best.graph == plain.graph
    assert best.model.quantized is None
    assert [n for n in plain.notes if "quantized already" in n] == []
    (said,) = (n for n in best.notes if "quantized already" in n)
    assert said.endswith(
        "taken exactly as it is: --calibrate and --quantize best do nothing"
    )


def test_a_recipe_without_calibration_is_told_of() -> None:
    other = "fast" if CompileOptions().quantize == "best" else "best"
    assert f"--quantize {other} needs --calibrate" in " ".join(
        lower(MODEL, CompileOptions(quantize=other)).notes
    )
    assert not lower(MODEL, CompileOptions()).notes


def test_a_model_with_made_up_scales_is_not_said_to_stay_float() -> None:
    options = CompileOptions(target="pi4+coral", quantize="fast")
    notes = " ".join(lower(MODEL, options, assume=True).notes)
    assert "int8 scales are made up: --quantize fast needs --calibrate" in notes
    assert "stays in float" not in notes


def test_named_operations_stay_float_and_the_edge_tpu_gets_the_rest(
    tmp_path: Path,
) -> None:
    """By explain and compile alike; the bundle's recipe makes it again."""
    same = ("--target", "pi4+coral", "--calibrate", CALIBRATION, "--quantize", "fast")
    every = json.loads(edgec("explain", MODEL, *same, "--json", cwd=tmp_path).out)[
        "ops"
    ]
    first = next(row for row in every if row["kind"] == "conv2d")
    told = edgec(
        "explain", MODEL, *same, "--float-ops", first["name"], "--json", cwd=tmp_path
    )
    assert told.code == 0, told.err
    (row,) = (r for r in json.loads(told.out)["ops"] if r["name"] == first["name"])
    assert row["place"] == "cpu"
    assert row["output"].startswith("float32")
    assert [r["rule"] for r in row["refusals"]] == ["precision"]
    done = edgec(
        "compile",
        MODEL,
        *same,
        "--float-ops",
        first["source"],
        "-o",
        "d.edgec",
        cwd=tmp_path,
    )
    assert done.code == 0, done.err
    with Bundle.open(tmp_path / "d.edgec") as bundle:
        (candidate,) = bundle.manifest.quantization["recipe"]["candidate"]
        assert {"step": "precision", "floats": [first["source"]]} in candidate["steps"]
        assert "cpu" in {s.place for s in bundle.manifest.segments}
    wrong = edgec(
        "compile", MODEL, *same, "--float-ops", "conw", "-o", "e.edgec", cwd=tmp_path
    )
    assert wrong.code == 2
    assert "no operation is called conw" in wrong.err
    assert not (tmp_path / "e.edgec").exists()


def test_limits_say_what_float_buys(tmp_path: Path) -> None:
    same = ("--calibrate", CALIBRATION, "-o", "d.edgec")
    done = edgec(
        "compile", MODEL, "--target", "pi4", *same, "--accuracy", "80dB", cwd=tmp_path
    )
    assert done.code == 0, done.err
    assert "left in float32; what that buys, on" in done.out
    plan = json.loads(
        zipfile.ZipFile(tmp_path / "d.edgec").read("report/quantize.json")
    )["plan"]
    first, *_, last = plan["rows"]
    assert all(
        o["sqnr_db"] is None or o["sqnr_db"] >= 80 for o in last["outputs"].values()
    ), "None: without noise"
    assert last["price"]["ms"] > first["price"]["ms"], (
        "not at 60 dB: a softmax of floats is faster than its integers"
    )
    assert f"{last['price']['ms']:.2f}" in done.out
    easy = edgec("compile", MODEL, *same, "--accuracy", "50%", cwd=tmp_path)
    assert (
        "nothing is left in float32: int8 alone is as accurate as was asked for"
        in easy.out
    )
    never = edgec(
        "compile",
        MODEL,
        *same,
        "--accuracy",
        "60dB",
        "--budget",
        "0.001ms",
        cwd=tmp_path,
    )
    assert never.code == 1
    assert "the accuracy that was asked for is not reached" in never.err


def test_an_accuracy_and_a_budget_are_limits() -> None:
    same = {"calibrate": CALIBRATION, "target": "pi4+coral"}
    both = Options(**same, accuracy="20dB", budget="10%")  # type: ignore[arg-type]
    quantizing = QuantizeOptions.of(both, MODEL.name, assume=False)
    assert quantizing.goal == AccuracyGoal(min_sqnr=20.0)
    assert quantizing.budget == CostBudget(max_slowdown=0.1)
    assert quantizing.precision_options == "--accuracy, --budget"


def test_a_slowdown_is_said_and_can_be_forbidden(tmp_path: Path) -> None:
    """Of any recipe; `best` has one of its own."""
    (tmp_path / "mine.toml").write_text(
        'enough_db = 90\n[[candidate]]\nname = "plain"\nsteps = ["minmax"]\n'
    )
    same = (
        "--calibrate",
        CALIBRATION,
        "--target",
        "pi4",
        "--quantize",
        "mine.toml",
        "-o",
        "d.edgec",
    )
    done = edgec("compile", MODEL, *same, "--budget", "60%", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "left in float32; what that buys, on" in done.out
    plan = json.loads(
        zipfile.ZipFile(tmp_path / "d.edgec").read("report/quantize.json")
    )["plan"]
    first, last = plan["rows"]
    assert last["db"] >= first["db"] + Recipe.load("best").worth_db
    assert first["price"]["ms"] < last["price"]["ms"] <= 1.6 * first["price"]["ms"]
    assert last["ops"] == plan["floats"]
    done = edgec("compile", MODEL, *same, "--budget", "0%", cwd=tmp_path)
    assert "float32" not in done.out


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("--accuracy", "-1%"), "-1% is not a percentage from 0% to 100%"),
        (("--accuracy", "101%"), "101% is not a percentage from 0% to 100%"),
        (("--accuracy", "x%"), "x% is not a percentage from 0% to 100%"),
        (("--budget", "tpu=90"), "90 is not a percentage from 0% to 100%"),
        (("--budget", "5"), "5 is not a percentage from 0% to 100%"),
        (("--accuracy", "20"), "20 is not a percentage from 0% to 100%"),
        (("--accuracy", "20dB,30dB"), "--accuracy cannot be 20dB,30dB"),
        (("--budget", "tpu=90%"), "host has no Edge TPU"),
        (("--budget", "-1ms"), "no inference can take -1 ms"),
    ],
)
def test_limits_that_cannot_be(
    given: tuple[str, str], why: str, tmp_path: Path
) -> None:
    done = edgec(
        "compile",
        MODEL,
        "--calibrate",
        CALIBRATION,
        *given,
        "-o",
        "d.edgec",
        cwd=tmp_path,
    )
    assert done.code == 2
    assert why in done.err


def test_limits_are_for_what_becomes_int8(tmp_path: Path) -> None:
    done = edgec("compile", MODEL, "--accuracy", "1%", "-o", "d.edgec", cwd=tmp_path)
    assert done.code == 2
    assert "--accuracy is for a float model that becomes int8" in done.err
