"""The workflow of docs/ci.md: its form, and its commands as they stand on a model that is
there.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from tests.house.test_docs import parse_command_line

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / "docs" / "examples" / "ci").glob("*.yml"))
DIGITS = ROOT / "fixtures" / "digits"


def steps(path: Path) -> list[dict[str, Any]]:
    """The steps of all jobs of a workflow."""
    workflow = yaml.safe_load(path.read_text())
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def commands(path: Path) -> list[str]:
    """The edgec commands of a workflow, in order."""
    lines = [line for step in steps(path) for line in step.get("run", "").splitlines()]
    return [line for line in lines if line.startswith("edgec ")]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_a_workflow_has_the_form_of_one(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    # YAML 1.1, which such files are, reads the key "on" as true.
    assert workflow.keys() == {"name", True, "jobs"}
    for job in workflow["jobs"].values():
        assert job.keys() == {"runs-on", "steps"}
        for step in job["steps"]:
            assert step.keys() <= {"name", "uses", "with", "run", "if"}
            assert ("uses" in step) != ("run" in step)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_its_commands_parse(path: Path) -> None:
    lines = commands(path)
    verbs = [line.split()[1] for line in lines]
    assert {"compile", "eval", "bench"} <= set(verbs)
    for line in lines:
        parse_command_line(line)


def test_the_page_shows_the_workflow_and_its_budgets() -> None:
    page = (ROOT / "docs" / "ci.md").read_text()
    for path in WORKFLOWS:
        assert f"examples/ci/{path.name}" in page
        for line in commands(path):
            words = shlex.split(line)
            for option, value in pairwise(words):
                if option == "--budget":
                    assert value in page


def _repository(folder: Path) -> None:
    """The files that the head of the workflow names, of scikit-learn's digits."""
    shutil.copy(DIGITS / "digits.onnx", folder / "model.onnx")
    names = [str(i) for i in range(10)]
    (folder / "labels.txt").write_text("\n".join(names) + "\n")
    (folder / "photos").mkdir()
    for i, x in enumerate(np.load(DIGITS / "digits_calibration.npz")["input"][:8]):
        _picture(x).save(folder / "photos" / f"{i}.png")
    test = np.load(DIGITS / "digits_test.npz")
    for i, (x, y) in enumerate(zip(test["x"], test["y"], strict=True)):
        place = folder / "labelled" / names[y]
        place.mkdir(parents=True, exist_ok=True)
        _picture(x).save(place / f"{i}.png")


def _picture(x: np.ndarray[Any, Any]) -> Image.Image:
    return Image.fromarray((255 * x[0]).astype(np.uint8))


@pytest.mark.cc
@pytest.mark.slow
def test_its_commands_run_in_a_repository_as_it_says(tmp_path: Path) -> None:
    if shutil.which("qemu-aarch64") is None:
        pytest.skip("no qemu-aarch64: install qemu-user")
    _repository(tmp_path)
    (path,) = WORKFLOWS
    environment = {**os.environ, "NO_COLOR": "1"}
    for line in commands(path):
        words = [sys.executable, "-m", *shlex.split(line)]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    for name in ("inspect.html", "accuracy.xml", "accuracy.html", "latency.md"):
        assert (tmp_path / name).stat().st_size
