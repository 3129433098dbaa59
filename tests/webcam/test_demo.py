"""The demo: a portrait moved by a face, and a cartoon where its networks are not here."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import edgec
from edgec.errors import ToolError
from edgec.options.webcam import WebcamOptions
from edgec.verbs import webcam_demo
from edgec.verbs.webcam import run_webcam
from edgec.verbs.webcam_demo import GESTURES, poses
from tests.catalogue.networks import fetched
from tests.cli.verbs import edgec as typed

pytestmark = pytest.mark.slow


@pytest.fixture
def no_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, and an index without a wheel."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))


@pytest.mark.usefixtures("no_networks")
def test_without_networks_it_shows_a_cartoon() -> None:
    said: list[str] = []
    shown = edgec.webcam(demo=True, display=False, frames=3, progress=said.append)
    assert shown.figures.delivered == 3
    assert shown.found == {"image": {"width": 192, "height": 192}}
    assert "a cartoon is shown: --yes downloads the networks" in said[0]


@pytest.mark.usefixtures("no_networks")
def test_without_an_index_too(tmp_path: Path) -> None:
    words = ("--demo", "--yes", "--no-display", "--frames", 2)
    done = typed("webcam", *words, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "a cartoon is shown: the package index has no mediapipe" in done.out


def test_it_asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel's files are one download."""
    questions: list[str] = []

    def refuse(question: str) -> bool:
        questions.append(question)
        return False

    monkeypatch.setattr("edgec.catalogue.listing.in_cache", lambda entry: None)
    run_webcam(WebcamOptions(demo=True, display=False, frames=1, confirm=refuse))
    (question,) = questions
    assert question.endswith("out of mediapipe 0.10.21 (35 MB)?")


def test_a_download_that_fails_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise ToolError("the disk is full", "mediapipe", "free some space")

    monkeypatch.setattr("edgec.catalogue.listing.in_cache", lambda entry: None)
    monkeypatch.setattr(webcam_demo, "fetch", fail)
    said: list[str] = []
    options = WebcamOptions(
        demo=True, display=False, frames=1, yes=True, progress=said.append
    )
    run_webcam(options)
    assert said == ["a cartoon is shown: the disk is full"]


def test_the_face_begins_and_ends_at_rest() -> None:
    every = list(poses())
    assert every[0] == every[24] == GESTURES[0].pose.part(0)
    # The slider of the page halves both faces: one eye alone would seem to be missed.
    assert all(pose.left_lid == pose.right_lid for pose in every)
    turns = [pose.turn[1] for pose in every]
    assert max(turns) == pytest.approx(0.3, abs=0.01)
    # No jerk: from frame to frame a head turns by some degrees at most.
    assert np.abs(np.diff(turns)).max() < math.radians(3)


def test_a_face_moves_the_portrait_of_a_cat(tmp_path: Path) -> None:
    fetched("faces-irises")
    out = tmp_path / "out"
    shown = edgec.webcam(demo=True, display=False, frames=70, out=out)
    assert shown.figures.delivered == 70
    assert [row["name"] for row in shown.figures.as_dict()["stages"]][1] == "cascade"
    first, last = (out / f"{number:05}.png" for number in (1, 48))
    rest, turned = (np.asarray(Image.open(p)).astype(int) for p in (first, last))
    moved = np.abs(turned - rest).max(axis=2)
    # The head turns; the border of the picture stays.
    assert (moved[100:380, 180:460] > 40).mean() > 0.05
    border = np.concatenate([moved[0], moved[:, 0], moved[:, -1]])
    assert border.max() <= 2
