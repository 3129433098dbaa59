"""`edgec webcam --out` writes the picture, the mask and the result of each frame."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.verbs import edgec as typed

pytestmark = pytest.mark.slow


def test_a_frame_has_three_files(
    bundles: list[Path], photos: Path, tmp_path: Path
) -> None:
    words = ("--source", photos, "--no-display", "--frames", 2, "--out", "frames")
    assert typed("webcam", bundles[1], *words, cwd=tmp_path).code == 0
    folder = tmp_path / "frames"
    names = [f"0000{i}.{end}" for i in (1, 2) for end in ("json", "mask.png", "png")]
    assert sorted(p.name for p in folder.iterdir()) == names
    assert np.asarray(Image.open(folder / "00002.png")).shape == (48, 64, 3)
    mask = np.asarray(Image.open(folder / "00002.mask.png")) > 0
    result = json.loads((folder / "00002.json").read_text())
    assert result["areas"][0]["share"] == mask.mean()


def test_out_is_a_folder(bundles: list[Path], photos: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = ("--source", photos, "--no-display", "--frames", 2, "--out", "file")
    done = typed("webcam", bundles[1], *words, cwd=tmp_path)
    assert (done.code, "is not a folder" in done.err) == (2, True)
