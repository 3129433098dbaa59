"""Intervals are those of theory where theory has one, and draws are shared by sides."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from edgec.evaluation.bootstrap import FigureEstimate, ResampledSides, draws
from edgec.evaluation.measure import LabelledPicture, Means, MeasuredFigure
from edgec.evaluation.observation_log import KeptObservations, picture_key
from edgec.ir import Array

TOP_1 = MeasuredFigure("top1", "top-1", "%", "")
ERROR = MeasuredFigure("nme", "error", "%", "", rises=False)


def means(numbers: Array) -> Means:
    rows = [{"top1": float(n), "nme": float(n)} for n in numbers]
    return Means.of((TOP_1, ERROR), rows)


def test_the_interval_of_a_share_is_that_of_the_normal_distribution() -> None:
    right = np.arange(400) % 5 != 0
    sides = ResampledSides.of({"a": means(100.0 * right)}, 400, 4000)
    found = sides.estimate("a", TOP_1)
    half = 1.96 * 100 * math.sqrt(0.8 * 0.2 / 400)
    assert found.value == pytest.approx(80)
    assert found.low == pytest.approx(80 - half, abs=0.35)
    assert found.high == pytest.approx(80 + half, abs=0.35)


def test_a_drop_is_taken_on_the_same_draws() -> None:
    """Two sides that differ on 2 of 200 pictures: the interval is of these, not of the
    pictures that are hard for both.
    """
    rng = np.random.default_rng(0)
    before = 100.0 * (rng.random(200) < 0.6)
    after = before.copy()
    after[np.flatnonzero(before)[:2]] = 0
    sides = ResampledSides.of({"a": means(before), "b": means(after)}, 200, 2000)
    drop = sides.loss("a", "b", TOP_1)
    assert drop.value == pytest.approx(1)
    assert drop.low == pytest.approx(0)
    assert drop.high < 3
    assert sides.estimate("b", TOP_1).high - sides.estimate("b", TOP_1).low > 12
    # Less of an error is better: the same numbers are a gain.
    assert sides.loss("a", "b", ERROR).value == pytest.approx(-1)


def test_equal_sides_have_no_drop() -> None:
    same = means(np.arange(50.0))
    drop = ResampledSides.of({"a": same, "b": same}, 50, 100).loss("a", "b", TOP_1)
    assert (drop.value, drop.low, drop.high) == (0, 0, 0)
    assert math.copysign(1, drop.low) == 1


def test_draws_are_the_same_every_time() -> None:
    one = [*draws(30, 5)]
    assert all(np.array_equal(a, b) for a, b in zip(one, draws(30, 5), strict=True))
    assert all(counts.sum() == 30 and len(counts) == 30 for counts in one)


def test_draws_without_a_value_are_left_out() -> None:
    found = FigureEstimate.of(1.0, np.array([np.nan, 0.0, 2.0]))
    assert 0 <= found.low < found.high <= 2
    nothing = FigureEstimate.of(math.nan, np.array([np.nan]))
    assert nothing.to_json() == {"value": None, "low": None, "high": None}


# ---- what is kept


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_observations_are_kept_for_the_next_call(cache: Path) -> None:
    kept = KeptObservations.of(["bundle", "1"])
    kept.add("a", {"top1": 100.0})
    kept.add("b", {"top1": 0.0})
    assert KeptObservations.of(["bundle", "1"]).known == kept.known
    assert KeptObservations.of(["bundle", "2"]).known == {}
    assert KeptObservations.of(["bundle", "1"], fresh=True).known == {}


def test_a_torn_line_costs_one_picture(cache: Path) -> None:
    kept = KeptObservations.of(["bundle"])
    kept.add("a", {"top1": 100.0})
    with kept.path.open("a") as file:
        file.write('["b",{"to')
    again = KeptObservations.of(["bundle"])
    assert again.known == {"a": {"top1": 100.0}}
    again.add("c", {"top1": 0.0})
    assert set(KeptObservations.of(["bundle"]).known) == {"a", "c"}
    for damage in (b"\xff\xfe", b"[1, 2]\n", b"{}\n", b'["d", 3]\n'):
        kept.path.write_bytes(damage)
        assert KeptObservations.of(["bundle"]).known == {}


def test_a_key_changes_with_the_picture_and_the_label(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(b"one")
    keys = {
        picture_key(LabelledPicture(file, 1)),
        picture_key(LabelledPicture(file, 2)),
    }
    file.write_bytes(b"other")
    keys.add(picture_key(LabelledPicture(file, 1)))
    keys.add(picture_key(LabelledPicture(file, 1, file)))
    assert len(keys) == 4
