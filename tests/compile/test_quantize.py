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

from edgec.quantize.recipe import Recipe
from tests.cli.verbs import edgec

pytestmark = pytest.mark.slow

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits"
MODEL, CALIBRATION, TEST = (DIGITS / f"digits{end}" for end in (".onnx", "_calibration.npz", "_test.npz"))


def test_best_says_what_it_tried(tmp_path: Path) -> None:
    """It is what a compile does that is told nothing else."""
    done = edgec("compile", MODEL, "--calibrate", CALIBRATION, "-o", "d.edgec", cwd=tmp_path)
    assert done.code == 0, done.err
    recipe = Recipe.load("best")
    with Bundle.open(tmp_path / "d.edgec") as bundle:
        said = bundle.manifest.quantization
    tried = json.loads(zipfile.ZipFile(tmp_path / "d.edgec").read("report/quantize.json"))
    assert Recipe.of(said["recipe"], "other") == recipe
    assert said["kept"] == tried["kept"]
    assert [t["name"] for t in tried["tried"]] == [c.name for c in recipe.candidates]
    rows = {t["name"]: t for t in tried["tried"]}
    assert rows[said["kept"]]["db"] >= rows["minmax"]["db"]
    count = tried["samples"]
    assert f"quantized by best: {said['kept']}; judged on {count} samples, each held back in turn:" in done.out
    assert all(c.name in done.out for c in recipe.candidates)


def test_the_same_bytes_however_many_cores_multiply(tmp_path: Path) -> None:
    """The recipe that computes most, as a file of its own, by one thread of BLAS and by two."""
    (tmp_path / "all.toml").write_text(
        '[[candidate]]\nname = "all"\nsteps = ["lower", "equalize", "choose", "gptq", "bias"]\n'
    )
    for threads in ("1", "2"):
        command = [sys.executable, "-m", "edgec", "compile", str(MODEL), "--calibrate", str(CALIBRATION), "-q"]
        subprocess.run(
            [*command, "--quantize", "all.toml", "-o", f"{threads}.edgec"], cwd=tmp_path, check=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads},
        )  # fmt: skip
    assert (tmp_path / "1.edgec").read_bytes() == (tmp_path / "2.edgec").read_bytes()
    with Session(tmp_path / "1.edgec") as session, np.load(TEST) as data:
        (x,) = (data[k] for k in data.files if data[k].ndim == 4)
        (label,) = (data[k] for k in data.files if data[k].ndim == 1)
        name = next(iter(session.bundle.manifest.inputs))
        right = [int(np.argmax(next(iter(session.run({name: s[None]}).values())))) for s in x] == label
    assert right.mean() > 0.95


def test_a_recipe_that_is_none_is_told_of_before_any_work(tmp_path: Path) -> None:
    done = edgec("compile", MODEL, "--quantize", "besst", "-o", "d.edgec", cwd=tmp_path)
    assert done.code == 2
    assert 'there is no recipe besst; did you mean "best"?' in done.err
    (tmp_path / "mine.toml").write_text('[[candidate]]\nname = "a"\nsteps = ["gptq", "minmax"]\n')
    done = edgec("compile", MODEL, "--quantize", "mine.toml", "-o", "d.edgec", cwd=tmp_path)
    assert done.code == 2
    assert "must change graph, then ranges, then weights, then biases" in done.err
