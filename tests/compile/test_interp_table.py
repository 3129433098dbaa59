"""make interp-table: both ways to compute a graph are measured, and what is too slow is
told.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.tables.interp_table import Row, markdown

DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"


def test_a_model_that_is_not_fast_enough_is_named() -> None:
    rows = [Row("a", 1_000_000, 50.0, 1.0), Row("b", 2_000_000, 20.0, 1.0)]
    text = list(markdown(rows))
    assert "| a | 1.0 | 50.0 | 1.000 | 50.0 |" in text
    assert text[-2:] == [
        "2 models: geometric mean 32, at least 20.0 (b)",
        "below 23: b",
    ]


@pytest.mark.slow
@pytest.mark.cc
def test_the_command_on_a_file(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command = [
        sys.executable,
        "-m",
        "tests.tables.interp_table",
        "--models",
        str(DIGITS),
        "--json",
        str(out),
    ]
    done = subprocess.run(
        [*command, "--rounds", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )
    (row,) = json.loads(out.read_text())
    assert done.returncode == (row["ratio"] < 23), done.stderr
    assert row["ratio"] == pytest.approx(row["interp_ms"] / row["compiled_ms"])
    assert row["ratio"] > 5
