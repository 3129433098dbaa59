"""Figures of what a network is for, from both outputs, where a bundle says what that
is.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgec_runtime.vision.preprocess import Fit
from edgec_runtime.vision.tasks.base import Result, View
from edgec_runtime.vision.tasks.classification import Class, Classes
from edgec_runtime.vision.tasks.image import Picture
from edgec_runtime.vision.tasks.instances import Box, Boxes
from edgec_runtime.vision.tasks.points import Points
from edgec_runtime.vision.tasks.segmentation import Segments

import edgec
from edgec.comparing.tasks import Meaning, TaskFigures, agreement
from edgec.ir import Array
from edgec.report.diff.text import to_text
from tests.conftest import ROOT

VIEW = View.of((8, 4), (8, 4), Fit("stretch"))
DIGITS = ROOT / "fixtures" / "digits"


def box(left: float, right: float, index: int = 0) -> Box:
    return Box((left, 0.0, right, 2.0), 0.9, index, "thing")


def mask(columns: int) -> Segments:
    return Segments(
        (np.arange(8) < columns).astype(np.float32) * np.ones((4, 1), np.float32),
        None,
        VIEW,
    )


def classes(columns: int) -> Segments:
    return Segments(
        mask(columns).probability, mask(columns).probability.astype(np.uint16), VIEW
    )


def points(x: float, shown: bool = True) -> Points:
    return Points(
        np.full((3, 2), x, np.float32), np.ones(3), np.full(3, shown), 1.0, None
    )


def picture(level: int) -> Picture:
    return Picture(np.full((4, 8, 3), level, np.uint8), VIEW)


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        (
            Classes((Class(3, "c", 0.5),)),
            Classes((Class(3, "c", 0.1), Class(1, "b", 0.1))),
            {"top-1": 1},
        ),
        (Classes((Class(3, "c", 0.5),)), Classes((Class(1, "b", 0.5),)), {"top-1": 0}),
        (mask(4), mask(3), {"IoU": 3 / 4, "probability": 1 / 8}),
        (mask(0), mask(0), {"probability": 0}),
        (classes(4), classes(3), {"IoU": (3 / 4 + 4 / 5) / 2}),
        (
            Boxes((box(0, 4), box(5, 7))),
            Boxes((box(5, 7), box(0, 3))),
            {"boxes": (3 / 4 + 1) / 2},
        ),
        (Boxes((box(0, 4),)), Boxes((box(0, 4, 1),)), {"boxes": 0}),
        (Boxes((box(0, 4),)), Boxes((box(0, 4), box(0, 4))), {"boxes": 1 / 2}),
        (Boxes(()), Boxes(()), {}),
        (points(1), points(3), {"seen": 1, "points": np.sqrt(8) / 8}),
        (points(1), points(1, False), {"seen": 0, "points": 0}),
        (picture(3), picture(3), {"PSNR": 100}),
        (picture(0), picture(255), {"PSNR": 0}),
        (picture(0), mask(1), {}),
    ],
)
def test_figures(a: Result, b: Result, want: dict[str, float]) -> None:
    assert agreement(a, b, width=8) == pytest.approx(want)


def test_outputs_are_the_tasks_by_name_and_shape() -> None:
    """The bundle may be either side; a sample whose outputs are others says nothing."""

    def decode(outputs: dict[str, Array]) -> Classes:
        return Classes((Class(int(outputs["y"].argmax()), "", 1.0),))

    meaning = Meaning("classification", 8, {"y": (1, 3)}, decode)  # type: ignore[arg-type]
    judge = TaskFigures(meaning, {"theirs": "y"})
    one = np.eye(3, dtype=np.float32)[None, 0]
    other = np.eye(3, dtype=np.float32)[None, 1]
    judge.add({"y": (one, other)})
    judge.add({"theirs": (one, one)})
    judge.add({"theirs": (one.T, one.T)})
    judge.add({"z": (one, other)})
    assert judge.found == {"top-1": [0, 1]}
    assert judge.means() == {"top-1": 0.5}


@pytest.mark.cc
def test_a_bundle_says_its_task(tmp_path: Path) -> None:
    calibrate = DIGITS / "digits_calibration.npz"
    model = DIGITS / "digits.onnx"
    edgec.compile(
        model,
        "host",
        tmp_path / "d.edgec",
        calibrate=calibrate,
        quantize="fast",
        task="classification",
        preprocess="0_1,gray",
    )
    for a, b in ((model, tmp_path / "d.edgec"), (tmp_path / "d.edgec", model)):
        found = edgec.diff(a, b, calibrate, samples=4)
        assert found.kind == "classification"
        assert found.task == {"top-1": 1.0}
        assert found.to_json()["task"] == {"kind": "classification", "top-1": 1.0}
        assert "classification: top-1 1 (" in to_text(found)
    assert (
        edgec.diff(model, f"interp:{model}", calibrate, samples=1).to_json()["task"]
        is None
    )
