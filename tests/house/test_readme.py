"""README's first lines, as a newcomer types them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from PIL import Image

from tests.cli.verbs import edgec
from tests.house.pages import ROOT, commands

MAX_LINES = 120


def test_it_is_short_and_says_how_figures_are_known() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= MAX_LINES
    assert "No board was at hand" in " ".join(lines[2:4])


@pytest.mark.arm
def test_the_first_result_comes_as_written(tmp_path: Path) -> None:
    setup, *lines = commands("README.md", "A first result")
    # Setup is what these tests run in.
    assert setup.startswith("make setup")
    assert len(lines) == 2
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "edgec"
        done = edgec(*arguments, cwd=tmp_path)
        assert done.code == 0, done.err
    assert Image.open(tmp_path / "cartoon.png").mode == "RGB"
