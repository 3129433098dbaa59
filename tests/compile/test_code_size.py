"""How much code a model takes on a board."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tables.arm_programs import compile_for

KIB = 1024
MOST = {"mnv2_tf2_i8": 48 * KIB, "resnet8_i8": 24 * KIB, "vww96_i8": 24 * KIB}
"""Bytes of .text of a model's own library."""


@pytest.mark.cc
@pytest.mark.shared
@pytest.mark.parametrize("board", ["pi3", "pi4", "pi5"])
@pytest.mark.parametrize("name", MOST)
def test_code_stays_small(name: str, board: str, shared: Path) -> None:
    program = compile_for(shared / "models" / name / f"{name}.tflite", board)
    assert 0 < program.text <= MOST[name]
