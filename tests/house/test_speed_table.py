"""The pages' tables of speed, and which figures of peers it takes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from benchmarks.arm_peers import _agree, _printed
from benchmarks.peer_figures import Figure, figures, read, write
from benchmarks.speed_page import (
    BEGIN,
    END,
    PAGES,
    RESULTS,
    Rows,
    added,
    replaced,
    summary,
    table,
)

ROWS: Rows = [
    {
        "model": "net_a",
        "board": "pi3",
        "cycles": 20.0,
        "peers": {"LiteRT": 30.0, "ncnn": 33.0},
    },
    {"model": "net_a", "board": "pi5", "cycles": 10.0, "peers": {"ncnn": 9.0}},
    {"model": "net_b", "board": "pi5", "cycles": 10.0, "peers": {}},
]


def test_a_cell_has_the_best_peer() -> None:
    assert [*table(ROWS)] == [
        "| network | Pi 3 | Pi 4 | Pi 5 |",
        "| --- | --- | --- | --- |",
        "| net_a | 1.50 LiteRT | – | 0.90 ncnn |",
        "| net_b | – | – | – |",
        "| geometric mean | 1.50 of 1 | – | 0.90 of 1 |",
    ]


def test_new_rows_take_the_place_of_old_ones() -> None:
    new = {**ROWS[1], "cycles": 8.0, "differs": {}, "arena": 1}
    rows = added([{**row, "differs": {}} for row in ROWS], [new])
    assert [(row["model"], row["cycles"]) for row in rows] == [
        ("net_a", 20.0),
        ("net_a", 8.0),
        ("net_b", 10.0),
    ]
    assert "arena" not in rows[1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_rest_of_a_page_stays(page: Path) -> None:
    text = page.read_text()
    new = replaced(text, [*table(ROWS)])
    assert "net_a" in new
    assert new.split(BEGIN)[0] == text.split(BEGIN)[0]
    assert new.split(END)[1] == text.split(END)[1]
    assert replaced(new, [*table(ROWS)]) == new
    with pytest.raises(ValueError, match="no table"):
        replaced("# a page\n", [])


def test_the_pages_have_the_results() -> None:
    results = json.loads(RESULTS.read_text())
    for page, lines in zip(
        PAGES, (table(results["cpu"]), summary(results)), strict=True
    ):
        text = page.read_text()
        assert replaced(text, [*lines]) == text


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
    figure = Figure("net", digest, "pi3", "LiteRT", "2.3.0", 5.0, True)
    write(tmp_path / "peers.json", [figure])
    known = read(tmp_path / "peers.json")
    assert [*figures("net", [file], "pi3", known)] == [figure]
