"""How much code a model takes on a board."""

from __future__ import annotations

from pathlib import Path

import pytest
from edgec_devices.boards import Board

from benchmarks.arm_programs import compile_for
from edgec.benching.memory import sections
from edgec.compiler.lower import lower
from edgec.emit.c import CSRC
from edgec.emit.sources import target_sources
from edgec.options.compile import CompileOptions
from edgec.schedule.cores import cores_of
from edgec.toolchain.build import build
from edgec.toolchain.cc import Compiler

KIB = 1024
MOST = {"mnv2_tf2_i8": 48 * KIB, "resnet8_i8": 24 * KIB, "vww96_i8": 24 * KIB}
"""Bytes of .text of a model's own library."""


@pytest.mark.sweep(3)
@pytest.mark.cc
@pytest.mark.shared
@pytest.mark.parametrize("board", ["pi3", "pi4", "pi5"])
@pytest.mark.parametrize("name", MOST)
def test_code_stays_small(name: str, board: str, shared: Path) -> None:
    program = compile_for(shared / "models" / name / f"{name}.tflite", board)
    assert 0 < program.text <= MOST[name]


@pytest.mark.sweep(2)
@pytest.mark.cc
@pytest.mark.shared
@pytest.mark.parametrize("core", ["x86_64_v3", "x86_64_v4_vnni"])
@pytest.mark.parametrize("name", MOST)
def test_code_stays_small_on_a_laptop(name: str, core: str, shared: Path) -> None:
    """What its library has for one core; it has that of both."""
    host = Board.load("host")
    target = next(t for t in host.targets if t.mcpu == "x86_64_v3")
    on = next(c for c in cores_of(host, target) if c.name == core)
    lowered = lower(
        shared / "models" / name / f"{name}.tflite", CompileOptions(target="host")
    )
    sources = target_sources(lowered.graph, lowered.partition.segments, [on])
    flags = {file: on.flags for file in sources.texts if file != "model.c"}
    compiler = Compiler.zig(target.library, target.program, target.mcpu)
    made = build(
        {target.name: sources.texts}, CSRC, {target.name: compiler}, flags=flags
    )[target.name]
    assert 0 < sections(made.library)[0] <= MOST[name]
