"""A script of tflite_runtime and one of pycoral, changed in their imports alone: here, as
on a Raspberry Pi 4 in an emulated process, and on a whole emulated one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.interpreters.scripted import SCRIPTS, Given, ported, prepared

pytestmark = pytest.mark.cc


def run(folder: Path, *words: str) -> str:
    """What a script prints."""
    done = subprocess.run(
        [sys.executable, "-B", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "runtime")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["classify_tflite.py", "detect_coral.py"])
def test_only_imports_change(name: str) -> None:
    before = (SCRIPTS / name).read_text().splitlines()
    after = ported(name).splitlines()
    assert len(before) <= 42
    changed = [old for old, new in zip(before, after, strict=True) if old != new]
    assert changed
    assert all(line.startswith("from ") for line in changed)
    assert not any("edgec" in line for line in before)


def test_on_this_machine(tmp_path: Path) -> None:
    prepared(tmp_path, "host")
    found = run(tmp_path, *Given.TFLITE)
    assert found.startswith("[1, 16, 16, 3] uint8\n")
    assert found.count("class ") == 4

    # The same text on LiteRT, whose usual kernels may round one level elsewhere.
    (tmp_path / "on_litert.py").write_text(
        ported("classify_tflite.py", new="ai_edge_litert")
    )
    expected = run(tmp_path, "on_litert.py", "classifier.tflite", "pictures.npy")
    for mine, theirs in zip(found.splitlines(), expected.splitlines(), strict=True):
        assert mine.split(":")[0] == theirs.split(":")[0]

    coral = run(tmp_path, *Given.CORAL)
    lines = coral.splitlines()
    assert lines[0].startswith("Edge TPUs: ")
    boxes = [line.split() for line in lines[1:] if ":" not in line]
    assert boxes
    assert {words[0] for words in boxes} <= {"ant", "bee", "cat", "dog", "emu"}
    assert all(len(words) == 6 and float(words[1]) >= 0.6 for words in boxes)
    assert any(": 0." in line for line in lines)
