"""Every program that measures has a row that says which figure it makes, and can be imported."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(p for p in (ROOT / "benchmarks").glob("*.py") if p.stem != "__init__")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_it_has_a_row(program: Path) -> None:
    readme = (ROOT / "benchmarks" / "README.md").read_text()
    assert f"`{program.name}`" in readme


def test_targets_are_those_of_the_makefile() -> None:
    readme = (ROOT / "benchmarks" / "README.md").read_text()
    rows = [
        line.split("|")[1] for line in readme.splitlines() if line.startswith("| `")
    ]
    targets = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}
    makefile = (ROOT / "Makefile").read_text()
    assert targets <= set(re.findall(r"^([a-z][a-z-]*):", makefile, re.M))


def test_programs_can_be_imported() -> None:
    # these are run by another interpreter, with packages that are not installed here
    alone = {"accuracy_peer", "tflite_quantizer", "host_peer", "peer_launch"}
    for program in PROGRAMS:
        if program.stem not in alone:
            importlib.import_module(f"benchmarks.{program.stem}")
