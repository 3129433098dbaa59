"""The logic of make accuracy-table: figures, tasks, verdicts, peers' child,
environments; not the peers themselves.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgec.ir import Array
from tests.conftest import ROOT
from tests.tables import accuracy_rows, accuracy_tasks, accuracy_ways, peer_env
from tests.tables.accuracy_rows import Case, Row, judge
from tests.tables.accuracy_table import behind, markdown, models, verdicts
from tests.tables.accuracy_ways import PUBLISHED

ENTRY = {
    "name": "digits",
    "file": "none",
    "group": "g",
    "task": "cls",
    "inputs": [{"shape": [1, 1, 32, 32]}],
}


def photos(count: int, size: int = 50, seed: int = 0) -> list[list[Array]]:
    return [
        [row[None]] for row in np.random.default_rng(seed).normal(3, 1, (count, size))
    ]


def test_figures_of_noise_of_known_power_are_its_ratio() -> None:
    want = photos(40, 500)
    noise = np.random.default_rng(1).normal(0, 0.1, (40, 1, 500))
    row = Row("m", "way")
    judge(row, "cls", want, [[w + e] for (w,), e in zip(want, noise, strict=True)])
    assert row.sqnr == pytest.approx(30, abs=0.2)  # power 9 + 1 over 0.01
    assert row.centred == pytest.approx(20, abs=0.2)
    assert row.median == pytest.approx(30, abs=0.3)


def test_equal_outputs_and_lost_ones_have_finite_figures() -> None:
    row = Row("m", "way")
    want = photos(3)
    judge(row, "cls", want, want)
    assert (row.sqnr, row.task) == (accuracy_rows.TOP_DB, {"top-1": 1.0})
    judge(row, "cls", want, [[np.full_like(w, np.nan)] for (w,) in want])
    assert row.sqnr == -accuracy_rows.TOP_DB


@pytest.mark.parametrize("count", [2, 21])
def test_mask_figures_find_the_axis_of_the_classes(count: int) -> None:
    """Channels first and last give the same; one of two halves lost is what it is."""
    scores = np.zeros((1, 24, 36, count))
    scores[..., 0] = 0.5
    scores[:, :12, :, 1] = 1  # class 1 above, class 0 below
    worse = scores.copy()
    worse[:, :6, :, 1] = 0
    for axis in (-1, 1):
        pair = [np.moveaxis(scores, -1, axis)], [np.moveaxis(worse, -1, axis)]
        found = accuracy_tasks.figures("m", "person seg", [pair])
        assert found["IoU"] == pytest.approx((6 / 12 + 12 / 18) / 2, abs=1e-4)


def test_soft_masks_have_their_mean_difference() -> None:
    one = np.full((1, 1, 4, 4), 0.8)
    other = np.full((1, 1, 4, 4), 0.6)
    assert accuracy_tasks.figures("m", "person seg", [([one], [other])]) == {
        "IoU": 1.0,
        "|Δp|": 0.2,
    }


def test_landmarks_and_peaks_are_told_in_parts_of_the_width() -> None:
    points = np.random.default_rng(0).uniform(0, 1, (1, 196))
    moved = points + np.tile([0.03, 0.04], 98)
    assert accuracy_tasks.figures(
        "pfld_ghostone", "face landmark", [([points], [moved])]
    ) == {"distance": 0.05}
    maps = np.zeros((1, 48, 48, 2))
    others = np.zeros((1, 48, 48, 2))
    maps[0, 10, 10], others[0, 10, 22] = 1, 1
    assert accuracy_tasks.figures("hourglass_pose", "pose", [([maps], [others])]) == {
        "distance": 0.25
    }


def yunet(*cells: tuple[int, float]) -> list[Array]:
    """Outputs with a box as large as four cells at each of these cells of the finest
    grid, of this score.
    """
    counts = (1600, 400, 100)
    scores = [np.zeros((1, n, 1)) for n in counts]
    boxes = [np.full((1, n, 4), np.log(4)) for n in counts]
    for cell, score in cells:
        scores[0][0, cell] = score
    return [*scores, *scores, *boxes, *(np.zeros((1, n, 10)) for n in counts)]


@pytest.mark.parametrize(
    ("got", "figure"),
    [
        (yunet((105, 0.9), (830, 0.8)), 1.0),
        (yunet((105, 0.9), (830, 0.3)), 0.5),  # one is lost
        (yunet((105, 0.9), (830, 0.8), (1200, 0.9)), 2 / 3),  # one is made up
        (yunet((105, 0.9), (106, 0.7), (830, 0.8)), 1.0),  # a double is suppressed
        (
            yunet((106, 0.9), (830, 0.8)),
            (0.6 + 1) / 2,
        ),  # one has moved by a quarter of its width
        (yunet(), 0.0),
    ],
)
def test_boxes_are_matched_after_suppression(got: list[Array], figure: float) -> None:
    want = yunet((105, 0.9), (106, 0.6), (830, 0.8))
    # float finds nothing in this photo, which does not count
    empty = (yunet(), yunet((3, 0.9)))
    found = accuracy_tasks.figures("yunet_n_320", "face det", [(want, got), empty])
    assert found == {"boxes": pytest.approx(figure, abs=1e-3)}


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("mp_blazeface_short_onnx_b", 1),
        ("ultraface_rfb320", 4),
        ("yunet_n_320", 4),
        ("yolox_nano_416", 1),
    ],
)
def test_decoders_find_in_reference_outputs_what_is_there(
    shared: Path, name: str, count: int
) -> None:
    with np.load(shared / "models" / name / "ref.npz") as data:
        names = sorted(
            (n for n in data.files if n.startswith("out0_")), key=lambda n: int(n[5:])
        )
        outputs = [data[n] for n in names]
    corners, scores, _ = accuracy_tasks._suppressed(
        accuracy_tasks._DETECTORS[name](outputs)
    )
    assert len(corners) == count
    assert np.all(corners[:, 2:] > corners[:, :2])
    assert np.all((scores >= accuracy_tasks.SCORE) & (scores <= 1))


# ---- rows and verdicts
# --------------------------------------------------------------------------------------


def rows(
    best: float, peer: float, published: float | None = None, tpu: float = 1.0
) -> list[Row]:
    figures = {"best": best, "fast": 1.0, "aimet-minmax": peer} | (
        {} if published is None else {PUBLISHED: published}
    )
    shares = {"best": tpu, "fast": 1.0}
    return [
        Row("m", way, db, db - 5, db + 1, tpu=shares.get(way))
        for way, db in figures.items()
    ]


@pytest.mark.parametrize(
    ("of", "worse"),
    [
        (rows(20, 20.2), False),
        (rows(20, 20.21), True),
        (rows(20, 15, 20.3), True),
        (rows(20, -3), False),
    ],
)
def test_best_may_be_a_little_below_a_peer(of: list[Row], worse: bool) -> None:
    assert behind(of) is worse
    assert ("| no |" in "\n".join(verdicts(of))) is worse


def test_a_peer_without_figures_is_a_row_with_its_reason_and_no_rival() -> None:
    failed = Row("m", "esp-ppq-mse", note="failed: no wheel")
    assert "no wheel" in markdown(failed)
    assert not behind([*rows(20, 18), failed])


def test_the_end_tells_means_and_a_lost_share_of_the_edge_tpu() -> None:
    other = [replace(r, model="n", centred=0.0) for r in rows(21, 20)]
    text = "\n".join(verdicts([*rows(23, 20, tpu=0.5), *other]))
    assert "+2.00 dB, geometric mean of 2 models" in text
    assert "| aimet-minmax | 2 | +2.00 | +1.50 | +2.00 |" in text
    assert "less of it on the Edge TPU by best than by fast: m" in text


def test_a_row_is_kept_until_what_it_hangs_on_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accuracy_rows, "WORK", tmp_path)
    case = Case(ENTRY, "0_1", 4, 0)
    row = Row("digits", "recipes/mine.toml", 12.0, task={"top-1": 1.0})
    case.keep(row, "key")
    assert case.kept(row.way, "key") == row
    assert case.kept(row.way, "other") is None
    assert Case(ENTRY, "0_1", 4, seed=1).kept(row.way, "key") is None


def test_float_photo_models_are_found_in_an_index() -> None:
    entry: dict[str, Any] = {
        "preproc": "0_1",
        "inputs": [{}],
        "tensor_types": {"float32": 3},
    }
    changes: dict[str, dict[str, Any]] = {
        "i8": {"tensor_types": {"int8": 1}},
        "two": {"inputs": [{}, {}]},
        "sound": {"preproc": "kws"},
        "f": {},
    }
    assert [
        *models([{"name": n, **entry, **change} for n, change in changes.items()])
    ] == ["f"]


# ---- peers
# --------------------------------------------------------------------------------------


def test_a_peer_that_cannot_be_installed_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_env, "ROOT", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(
        RuntimeError, match=r"nobody cannot be installed: .*no-such-package"
    ):
        peer_env.environment("nobody", ["no-such-package==1"])


def test_the_child_quantizes_an_onnx_file_and_runs_both(tmp_path: Path) -> None:
    """With onnxruntime, which is here for other tests too; its own float run is the
    reference.
    """
    with np.load(ROOT / "fixtures" / "digits" / "digits_test.npz") as data:
        x = data["x"][:24, None]
    paths = [tmp_path / "calibrate.npz", tmp_path / "test.npz", tmp_path / "out.npz"]
    np.savez(paths[0], x=x[:16])
    np.savez(paths[1], x=x[16:])
    model = ROOT / "fixtures" / "digits" / "digits.onnx"
    _, _, said = accuracy_rows.child(
        sys.executable,
        accuracy_ways.PEER,
        "onnxruntime",
        "percentile",
        model,
        *paths,
        log=tmp_path / "log",
    )
    assert json.loads(said)["seconds"] >= 0
    with np.load(paths[2]) as data:
        want, got = (accuracy_ways._outputs(data, letter) for letter in "fq")
    row = Row("digits", "onnxruntime")
    judge(row, "cls", want, got)
    assert 10 < (row.sqnr or 0) < accuracy_rows.TOP_DB


def test_a_childs_failure_is_told_by_its_last_word(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ValueError: no such thing"):
        accuracy_rows.child(
            sys.executable,
            "-c",
            "raise ValueError('no such thing')",
            log=tmp_path / "log",
        )


def test_the_first_child_of_a_fresh_tree_finds_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accuracy_rows, "WORK", tmp_path / "build" / "accuracy")
    assert accuracy_rows.child(sys.executable, "-c", "print('said')")[2] == "said"


@pytest.mark.shared
def test_published_files_give_real_outputs_in_the_models_form(
    shared: Path, tmp_path: Path
) -> None:
    """BlazeFace's twin has each output in two parts and its own order."""
    entries = json.loads((shared / "models" / "index.json").read_text())
    index = {m["name"]: m for m in entries}
    entry = index["mp_blazeface_short_onnx_b"]
    other = accuracy_ways.twin(entry, entries)
    assert other is not None
    assert other["name"] == "omv_blazeface_i8"
    with np.load(shared / "models" / entry["name"] / "ref.npz") as data:
        x = data["in0_0"]
        want = [[data["out0_0"], data["out0_1"]]]
    np.savez(tmp_path / "x.npz", x=x[None])
    paths = [tmp_path / "x.npz", tmp_path / "x.npz", tmp_path / "out.npz"]
    file = shared / "models" / other["file"]
    accuracy_rows.child(
        sys.executable,
        accuracy_ways.PEER,
        "published",
        "",
        file,
        *paths,
        log=tmp_path / "log",
    )
    with np.load(tmp_path / "out.npz") as data:
        got = accuracy_ways.alike(want, accuracy_ways._outputs(data, "q"))
    assert [y.shape for y in got[0]] == [y.shape for y in want[0]]
    boxes = accuracy_tasks.figures(
        entry["name"], entry["task"], [*zip(want, got, strict=True)]
    )
    assert boxes["boxes"] > 0.6  # the same face


def test_no_twin_of_another_size() -> None:
    others = [{**ENTRY, "name": "digits_i8", "inputs": [{"shape": [1, 64, 64, 1]}]}]
    assert accuracy_ways.twin(ENTRY, others) is None
    with pytest.raises(ValueError, match="no output of"):
        accuracy_ways.alike(
            [[np.zeros((1, 8, 4))]], [[np.zeros((1, 3, 4)), np.zeros((1, 4, 4))]]
        )
