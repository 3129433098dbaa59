"""Avatars in a show, from a bundle to a picture, here and on a device."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime.face.motion import NEUTRAL_FRAMES
from edgec_runtime.face.puppet import puppet
from edgec_runtime.webcam.show import Show
from edgec_runtime.webcam.sources import open_source
from PIL import Image

from edgec.ir import Array
from tests.cli.verbs import edgec as typed
from tests.face.faces import SIZE
from tests.face.networks import face_bundle

pytestmark = pytest.mark.cc
DARK = 0
BRIGHT = 200


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return face_bundle(tmp_path_factory.mktemp("faces"))


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames in which the face rests, and then goes aside: dark and bright ones."""
    folder = tmp_path_factory.mktemp("clip")
    levels = [DARK] * (NEUTRAL_FRAMES + 2) + [BRIGHT] * 6
    for i, level in enumerate(levels):
        picture = np.full((SIZE[1], SIZE[0], 3), level, np.uint8)
        Image.fromarray(picture).save(folder / f"{i:02}.png")
    return folder


@pytest.fixture(scope="module")
def portrait(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("portrait") / "head.png"
    Image.fromarray(puppet(SIZE).picture).save(path)
    return path


def _place_points(portrait: Path) -> None:
    points = puppet(SIZE).points[:, :2].round(2).tolist()
    portrait.with_suffix(".json").write_text(json.dumps({"points": points}))


def _shown(bundle: Path, clip: Path, effect: str) -> list[Array]:
    show = Show(open_source(str(clip)), {"faces": str(bundle)}, effect)
    return [shown.after for shown in show]


def test_a_show_moves_a_portrait_with_the_bundles_c(
    bundle: Path, clip: Path, portrait: Path
) -> None:
    # The network finds the face of the portrait, too.
    after = _shown(bundle, clip, f"avatar={portrait}")
    still = np.asarray(Image.open(portrait)).astype(int)
    assert np.abs(after[NEUTRAL_FRAMES] - still).max() <= 2
    assert np.abs(after[-1] - still).max() > 60
    # The border of the picture keeps its place.
    assert np.abs(after[-1][0] - still[0]).max() <= 2


def test_a_neutral_pose_is_renewed_in_a_show(bundle: Path, tmp_path: Path) -> None:
    first = NEUTRAL_FRAMES + 2
    levels = [DARK] * first + [BRIGHT] * 60
    for i, level in enumerate(levels):
        picture = np.full((SIZE[1], SIZE[0], 3), level, np.uint8)
        Image.fromarray(picture).save(tmp_path / f"{i:02}.png")
    moved: dict[bool, float] = {}
    for is_renewed in (False, True):
        show = Show(open_source(str(tmp_path)), {"faces": str(bundle)}, "puppet")
        for shown in show:
            if shown.number == len(levels) - 2 * NEUTRAL_FRAMES and is_renewed:
                show.renew()
        difference = shown.after.astype(int) - puppet(SIZE).picture
        moved[is_renewed] = float(np.abs(difference).mean())
    # What was aside is the neutral pose now.
    assert moved[True] < moved[False] / 2


def test_a_run_of_one_photo_shows_the_portrait(
    bundle: Path, clip: Path, portrait: Path, tmp_path: Path
) -> None:
    words = ("--input", clip / "00.png", "--out", "out.png", "--effect")
    done = typed("run", bundle, *words, f"avatar={portrait}", cwd=tmp_path)
    assert done.code == 0, done.err
    assert Image.open(tmp_path / "out.png").size == SIZE


@pytest.mark.slow
def test_a_portrait_and_its_points_go_to_the_device(
    bundle: Path,
    clip: Path,
    portrait: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EDGEC_ROOT", str(tmp_path / "root"))
    shutil.copy(portrait, tmp_path / "cat.png")
    _place_points(tmp_path / "cat.png")
    words = (bundle, "--on", "local:", "--source", clip, "--no-display", "--effect")
    done = typed("webcam", *words, "avatar=cat.png", cwd=tmp_path)
    assert done.code == 0, done.err
    assert typed("webcam", *words, "mask=glasses", cwd=tmp_path).code == 0
    # The device reads the points: wrong ones are its error.
    (tmp_path / "cat.json").write_text('{"points": {"chinn": [1, 2]}}')
    done = typed("webcam", *words, "avatar=cat.png", cwd=tmp_path)
    assert done.code == 2
    assert 'no point is called "chinn"' in done.err
