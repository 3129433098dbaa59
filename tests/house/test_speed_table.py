"""The page's table of speed, and which figures of peers it takes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from benchmarks.arm_peers import _agree, _printed
from benchmarks.peer_figures import Figure, figures, read, write
from benchmarks.speed_page import INTRODUCTION, PAGE, Rows, replaced, table

ROWS: Rows = {
    ("net_a", "pi3"): {"ratio": 1.5, "peers": {"LiteRT": 30.0, "ncnn": 33.0}},
    ("net_a", "pi5"): {"ratio": 0.9, "peers": {"ncnn": 9.0}},
    ("net_b", "pi5"): {"ratio": None, "peers": {}},
}


def test_a_cell_has_the_best_peer() -> None:
    assert [*table(ROWS)] == [
        "| model | Pi 3 | Pi 4 | Pi 5 |\n",
        "| --- | --- | --- | --- |\n",
        "| net_a | 1.50 LiteRT | – | 0.90 ncnn |\n",
        "| net_b | – | – | – |\n",
        "| geometric mean | 1.50 of 1 | – | 0.90 of 1 |\n",
    ]


def test_the_rest_of_the_page_stays() -> None:
    text = PAGE.read_text()
    new = replaced(text, [*table(ROWS)])
    assert INTRODUCTION in new
    assert "net_a" in new
    heading = "## Speed on the CPU\n"
    assert new.split(heading)[0] == text.split(heading)[0]
    after = "\nThe figures are from `make bench-arm`"
    assert new.split(after)[1] == text.split(after)[1]
    assert replaced(new, [*table(ROWS)]) == new
    with pytest.raises(ValueError, match="no table"):
        replaced("# a page\n", [])


@pytest.mark.parametrize(
    ("text", "agrees"),
    [
        ("# outputs [[0.5, 1.0], [3.0, 2.0]]", True),
        ("noise\n# outputs [[3.0, 2.01], [0.49, 1.0]]\n", True),
        ("# outputs [[0.5, 1.0]]", False),
        ("# outputs [[0.5, 1.0], [3.0, 2.5]]", False),
        ("# outputs [[NaN, NaN], [3.0, 2.0]]", False),
    ],
)
def test_a_peer_computes_the_network(text: str, agrees: bool) -> None:
    """By the mean and the deviation of each output, in any order."""
    found = _printed(text)
    assert found is not None
    assert _agree(found, [(0.5, 1.0), (3.0, 2.0)]) == agrees


def test_known_figures_are_not_counted_again(tmp_path: Path) -> None:
    file = tmp_path / "net.tflite"
    file.write_bytes(b"a network")
    digest = hashlib.sha256(b"a network").hexdigest()
    figure = Figure("net", digest, "pi5", "LiteRT", "2.3.0", 5.0, True)
    write(tmp_path / "peers.json", [figure])
    known = read(tmp_path / "peers.json")
    assert [*figures("net", [file], "pi5", known)] == [figure]
