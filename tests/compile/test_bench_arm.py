"""make bench-arm: its figures are those of what it runs, and beside LiteRT's they say
who is faster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgec.benching.memory import sections
from tests.tables import picycles
from tests.tables.arm_programs import Call, alone, compile_for
from tests.tables.bench_arm import Row, Share, files, geo_mean, markdown

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"


def row(
    model: str,
    board: str,
    cycles: float,
    litert: float | None,
    shares: tuple[Share, ...] = (),
) -> Row:
    return Row(
        model,
        board,
        1000,
        cycles,
        litert,
        arena=640,
        bound=576,
        text=2048,
        shares=shares,
    )


def test_a_ratio_above_one_is_faster_than_litert() -> None:
    rows = [
        row("a", "pi4", 1e6, 2e6),
        row("b", "pi4", 2e6, 1e6),
        row("c", "pi4", 1e6, 8e6),
        row("onnx", "pi4", 9e6, None),
    ]
    assert [r.ratio for r in rows] == [2, 0.5, 8, None]
    text = "\n".join(markdown(rows))
    assert "| a | 0.0 | pi4 | 1.00 | 2.00 | 2.00 | 640 | 64 | 2.0 K |" in text
    assert "| onnx | 0.0 | pi4 | 9.00 | – | – | 640 | 64 | 2.0 K |" in text
    assert "| pi4 | 3 | 2.000 | 1.4 | b |" in text, (
        "over those that LiteRT runs, and the one that is slower by name"
    )
    assert geo_mean([2, 0.5, 8]) == pytest.approx(2)


def test_functions_by_their_share_of_the_peak() -> None:
    """int8 is measured by the dot products of a Cortex-A76, float by its multiply-adds."""
    quick = Share(Call((0, 0), "conv2d", "int8", "x", 16000), 1000)
    slow = Share(Call((0, 1), "conv2d", "float32", "y", 16000, ("add",)), 4000, 2000)
    assert (quick.rate, quick.of_peak("pi5")) == (16, 0.5)
    assert (slow.rate, slow.of_peak("pi5")) == (4, 0.5)
    lines = list(markdown([row("a", "pi5", 5000, 4000, (quick, slow))]))
    assert lines[-2:] == [
        "| op 1 conv2d+add float32 | y | 0.02 | 0.004 | 80.0% | 4.00 | 50% | 0.002 | "
        "0.50 |",
        "| op 0 conv2d int8 | x | 0.02 | 0.001 | 20.0% | 16.00 | 50% | – | – |",
    ]


def bench_arm(out: Path, words: str, **env: str) -> tuple[str, list[dict[str, Any]]]:
    """The command: what it prints, and the rows that it writes."""
    command = [
        sys.executable,
        "-m",
        "tests.tables.bench_arm",
        *words.split(),
        "--ops",
        "all",
        "--json",
        str(out),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **env},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(out.read_text())


@pytest.mark.slow
@pytest.mark.arm
def test_without_the_data_folder_by_the_own_model(tmp_path: Path) -> None:
    """As a user runs it, on a file; the second time from what is remembered, until told
    not to.
    """
    env = {
        "EDGEC_SHARED": str(tmp_path / "none"),
        "EDGEC_CACHE": str(tmp_path / "cache"),
    }
    words = f"--models {DIGITS} --boards pi4,pi5"
    said, rows = bench_arm(tmp_path / "out.json", words, **env)
    assert "edgec's own model of the pipelines" in said
    assert [(r["model"], r["board"], r["litert"]) for r in rows] == [
        ("digits", "pi4", None),
        ("digits", "pi5", None),
    ]
    for r in rows:
        assert r["arena"] >= r["bound"] > 0
        assert 1000 < r["text"] < 200_000
        assert r["macs"] == sum(f["macs"] for f in r["functions"])
        own = sum(f["cycles"] for f in r["functions"])
        assert 0.9 * r["cycles"] < own <= r["cycles"], (
            "the rest is outside of the functions"
        )
    for again in (words, f"{words} --fresh"):
        assert bench_arm(tmp_path / "out.json", again, **env) == (said, rows)


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.arm
def test_by_picycles_beside_litert(shared: Path, tmp_path: Path) -> None:
    """The cycles are what picycles says of the program that is left in build/, the
    ratio is LiteRT's by them.
    """
    if reason := picycles.missing():
        pytest.skip(reason)
    words = "--models resnet8_i8 --boards pi5 --jobs 1"
    _, (found,) = bench_arm(
        tmp_path / "out.json", words, EDGEC_CACHE=str(tmp_path / "cache")
    )
    main = ROOT / "build" / "bench-arm" / "resnet8_i8-pi5" / "main"
    cycles = picycles.Picycles(tmp_path / "lab").program("pi5", [main, "--runs", "1"])
    assert found["cycles"] == pytest.approx(cycles, rel=0.01), (
        "the length of a path shifts the stack"
    )
    litert = json.loads((shared / "bench" / "arm-litert.json").read_text())[
        "resnet8_i8"
    ]["pi5"]
    assert found["ratio"] == pytest.approx(litert / found["cycles"])
    functions = sum(f["cycles"] for f in found["functions"])
    assert functions == pytest.approx(found["cycles"], rel=0.1)


@pytest.mark.slow
@pytest.mark.cc
def test_a_program_is_known_by_what_it_does() -> None:
    """text is that of the model's functions, which the program has beside main and the
    C library.
    """
    one = compile_for(DIGITS, "pi4")
    again = compile_for(DIGITS, "pi4")
    other = compile_for(DIGITS, "pi5")
    assert one.digest == again.digest != other.digest
    assert one.macs == sum(c.macs for c in one.calls) > 10_000
    assert 1000 < one.text < sections(one.main)[0] / 2


def test_a_function_as_a_model_of_its_own() -> None:
    """Its input and output are what the function has; LiteRT takes it."""
    from ai_edge_litert.interpreter import Interpreter

    (content,) = alone(DIGITS, "pi4", {(0, 1)}).values()
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    interpreter.invoke()
    assert [
        len(interpreter.get_input_details()),
        len(interpreter.get_output_details()),
    ] == [1, 1]


@pytest.mark.shared
def test_names_are_those_of_the_issue_or_files(shared: Path) -> None:
    """mp_selfie_land is kept under another name there."""
    found = dict(
        files(["mp_selfie_land", "yolox_nano", "mnv1_025_224_u8", str(DIGITS)])
    )
    assert (
        found["mp_selfie_land"]
        == shared / "models/mp_selfie_land_f16/mp_selfie_land_f16.tflite"
    )
    assert found["yolox_nano"] == shared / "models/yolox_nano_416/yolox_nano_416.onnx"
    assert (
        found["mnv1_025_224_u8"]
        == shared / "models/mnv1_025_224_u8/mnv1_025_224_u8.tflite"
    )
    assert found["digits"] == DIGITS
    with pytest.raises(SystemExit, match="there is no model mnv9"):
        list(files(["mnv9"]))
