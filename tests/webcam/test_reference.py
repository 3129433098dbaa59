"""`make webcam-check` on a small sample: what the command keeps of a photo is what the
reference outputs mean.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.webcam_check import check, sample
from benchmarks.webcam_judging import Judged, Kept, boxes, mask
from tests.cli.verbs import edgec as typed
from tests.tasks.published import Found, Size

pytestmark = pytest.mark.slow


@pytest.mark.shared
@pytest.mark.parametrize("model", ["mp_blazeface_short_f16", "mp_selfie_land_f16"])
def test_a_sample_of_photos(model: str, tmp_path: Path) -> None:
    rows = check([model], sample(2, seed=7), tmp_path)
    assert all(row.photos == 2 and not row.missed for row in rows), rows


def test_what_is_kept(bundles: list[Path], photos: Path, tmp_path: Path) -> None:
    words = ("--source", photos, "--no-display", "--frames", 2, "--out", "kept")
    assert typed("webcam", bundles[1], *words, cwd=tmp_path).code == 0
    names = [f"0000{i}.{end}" for i in (1, 2) for end in ("json", "mask.png", "png")]
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == names
    kept = Kept(tmp_path / "kept" / "00002", np.zeros((48, 64, 3), np.uint8))
    assert kept.picture.shape == (48, 64, 3)
    assert kept.result["areas"][0]["share"] == kept.mask.mean()
    (tmp_path / "file").write_text("")
    done = typed("webcam", bundles[1], *words[:-1], "file", cwd=tmp_path)
    assert (done.code, "is not a folder" in done.err) == (2, True)


def _kept(folder: Path, box: list[float], score: float) -> Kept:
    found = {"boxes": [{"class": 1, "score": score, "box": box}]}
    (folder / "00001.json").write_text(json.dumps(found))
    Image.fromarray(np.full((100, 200), 255, np.uint8)).save(folder / "00001.mask.png")
    return Kept(folder / "00001", np.zeros((100, 200, 3), np.uint8))


def test_the_judges_see_what_is_off(tmp_path: Path) -> None:
    def judged(box: list[float], score: float, *reference: Found) -> Judged:
        def way(size: Size) -> list[Found]:
            return list(reference)

        return boxes(way, 0.5)(_kept(tmp_path, box, score), [])

    there = Found((10, 10, 110, 90), 0.9, 1)
    assert judged([10, 10, 110, 90], 0.9, there) == Judged(1.0, True, 1)
    assert not judged([12, 10, 110, 90], 0.9, there).holds
    assert not judged([10, 10, 110, 90], 0.8, there).holds
    assert not judged([10, 10, 110, 90], 0.9, there, Found((0, 0, 9, 9), 0.6, 1)).holds
    assert not judged([10, 10, 110, 90], 0.9).holds
    # at the threshold it may be there or not
    assert judged([10, 10, 110, 90], 0.5004).holds
    half = np.zeros((1, 10, 20, 1), np.float32)
    half[:, :, :10] = 1
    seen = mask(_kept(tmp_path, [0, 0, 1, 1], 0.9), [half])
    assert seen.figure == pytest.approx(0.5, abs=0.01)
    assert not seen.holds
