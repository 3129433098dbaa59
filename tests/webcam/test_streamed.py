"""What a bench knows of a stream: its figures, its budgets, and where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from edgec_runtime import InputError
from edgec_runtime.webcam.stream_measurement import streamed

import edgec
from tests.cli.verbs import edgec as typed

pytestmark = pytest.mark.slow
SCHEMA = Path(__file__).parents[2] / "docs" / "bench.schema.json"


def test_a_bench_streams(bundles: list[Path], photos: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").symlink_to(photos)
    holds = [
        "fps>=0.1",
        "stage.capture<=60s",
        "latency.p95<=60s",
        "dropped==0",
        "stage.seg0.min<=60s",
    ]
    # more frames than photos
    words = ["--source", "photos", "--frames", 20, "--runs", 3, "--json", "b.json"]
    done = typed("bench", bundles[1], *words, "--budget", ",".join(holds), cwd=tmp_path)
    assert done.code == 0, done.out + done.err
    assert "Stream of 20 frames: " in done.out
    report = json.loads((tmp_path / "b.json").read_text())
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    stream = report["stream"]
    assert (stream["captured"] >= 20, stream["delivered"], stream["dropped"]) == (
        True,
        20,
        0,
    )
    assert [s["name"] for s in stream["stages"]] == [
        "capture",
        "prepare",
        "inputs",
        "seg0",
        "result",
        "picture",
        "out",
    ]
    assert {c["what"]: c["holds"] for c in report["budgets"]} == dict.fromkeys(
        holds, True
    )
    (fps,) = (c["measured"] for c in report["budgets"] if c["what"] == "fps>=0.1")
    assert fps == pytest.approx(stream["fps"])
    earlier = edgec.bench(
        bundles[1],
        runs=3,
        compare=tmp_path / "b.json",
        frames=4,
        budgets=["stage.picture<=1ns"],
    )
    assert earlier.report.stream is not None
    (missed,) = earlier.budgets
    assert (missed.holds, missed.unit) == (False, "ns")


def test_a_bundle_without_a_task_streams_its_model_alone(
    bundles: list[Path], photos: Path
) -> None:
    figures = streamed(str(bundles[2]), 5)
    assert figures.delivered == 5
    assert [s.name for s in figures.stages] == ["capture", "inputs", "seg0", "out"]
    with pytest.raises(InputError, match="so it takes no source"):
        streamed(str(bundles[2]), 5, str(photos))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--budget", "latency.p95<=80ms"],
            "latency.p95 is of a stream, and none is run",
        ),
        (
            ["--budget", "stage.captur<=8ms", "--frames", "9"],
            'did you mean "stage.capture"?',
        ),
        (["--frames", "1"], "cannot time a stream of 1 frames"),
        (
            ["--frames", "9", "--on", "emulated:pi4"],
            "an emulated board is estimated, and runs no stream of frames",
        ),
        (
            ["--source", "0", "--on", "ssh://pi@attic"],
            "--source names a camera or file of this machine, and --on another one",
        ),
    ],
)
def test_what_has_no_stream(
    bundles: list[Path], tmp_path: Path, words: list[str], said: str
) -> None:
    done = typed("bench", bundles[0], *words, cwd=tmp_path)
    assert (done.code, said in done.err) == (2, True), done.err
