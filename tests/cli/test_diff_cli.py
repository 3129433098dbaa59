"""`edgec diff` on the command line: what it prints, its files, its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgec.cli.main import run_verb
from edgec.emit.tflite import write_tflite
from tests.comparing.nets import small

pytestmark = pytest.mark.cc


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """float.tflite, int8.tflite and x.npz."""
    folder = tmp_path_factory.mktemp("files")
    floats, int8, tries = small()
    (folder / "float.tflite").write_bytes(write_tflite(floats))
    (folder / "int8.tflite").write_bytes(write_tflite(int8))
    np.savez(folder / "x.npz", x=np.stack([s["x"] for s in tries]))
    return folder


def words(files: Path, *more: str) -> list[str]:
    a = str(files / "float.tflite")
    b = str(files / "int8.tflite")
    return ["diff", a, b, "--inputs", str(files / "x.npz"), "--samples", "3", *more]


def test_the_layers_are_shown_worst_first_or_in_order(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_verb(words(files)) == 0
    worst = capsys.readouterr().out
    assert "layer: " in worst
    assert "fix: " in worst
    assert "own = " in worst
    assert max(map(len, worst.splitlines()[3:])) <= 120
    assert run_verb(words(files, "--order", "graph")) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    numbers = [int(row[0]) for row in rows if row and row[0].isdigit()]
    assert numbers == sorted(numbers)
    assert len(numbers) == len(small()[1].ops)


def test_a_threshold_is_an_exit_code(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_verb(words(files, "--min-sqnr", "5")) == 0
    assert run_verb(words(files, "--min-sqnr", "90")) == 1
    assert "90 needed" in capsys.readouterr().out
    assert (
        run_verb(["diff", "a.tflite", "b.tflite", "--inputs", str(files / "x.npz")])
        == 2
    )
    assert run_verb(words(files, "--order", "random")) == 2


def test_json_has_every_figure(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_verb(words(files, "--json", str(tmp_path / "d.json"))) == 0
    capsys.readouterr()
    assert run_verb(words(files, "--json", "-")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((tmp_path / "d.json").read_text())
    assert found["schema"] == 1
    assert found["samples"] == 3
    assert found["culprit"]["value"] in [one["value"] for one in found["layers"]]
    layer = found["layers"][2]
    assert {
        "own_db",
        "inherited_db",
        "sqnr_db",
        "centred_db",
        "cosine",
        "max_error",
        "used",
        "clipped",
    } <= layer.keys()
    assert sum(layer["a"]) == sum(layer["b"]) > 0
    assert len(layer["edges"]) == len(layer["a"]) + 1


def test_a_page_is_written_whole(files: Path, tmp_path: Path) -> None:
    assert run_verb(words(files, "--html", str(tmp_path / "d.html"))) == 0
    html = (tmp_path / "d.html").read_text()
    assert 'class="chart"' in html
    assert html.count('<g class="op ') == len(small()[1].ops)
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "").replace(
        "http-equiv", ""
    )
    assert run_verb(words(files, "--html", str(tmp_path / "none" / "d.html"))) == 2
