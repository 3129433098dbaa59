"""The measures of agreement on hand-made outputs."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from edgec.measure.agreement import Tally
from edgec.quantize import compare, cosine, sqnr_db


def test_cosine() -> None:
    a = np.array([1.0, 2.0, 3.0])
    assert cosine(a, a * 5) == pytest.approx(1)
    assert cosine(a, -a) == pytest.approx(-1)
    assert cosine(np.zeros(3), np.zeros(3)) == 1
    assert cosine(np.zeros(3), a) == 0


def test_sqnr() -> None:
    a = np.array([3.0, 4.0])
    assert sqnr_db(a, a) == math.inf
    assert sqnr_db(a, a + 0.5) == pytest.approx(10 * math.log10(25 / 0.5))
    assert sqnr_db(np.zeros(2), a) == -math.inf


def test_compare_joins_samples() -> None:
    a = np.array([[0.1, 0.9]])
    b = np.array([[0.8, 0.2]])
    found = compare(
        [({"y": a, "z": a}, {"y": a, "z": a}), ({"y": b, "z": b}, {"y": a, "z": b})]
    )
    assert found["y"].top1 == 0.5
    assert found["y"].samples == 2
    assert found["z"].as_dict() == {
        "cosine": pytest.approx(1),
        "sqnr_db": None,
        "top1": 1.0,
        "samples": 2,
        "centred_cosine": None,
        "centred_sqnr_db": None,
    }
    json.dumps(found["z"].as_dict(), allow_nan=False)
    assert "top-1 50 %" in str(found["y"])


def test_top1_needs_one_row() -> None:
    image = {"y": np.ones((1, 4, 4, 3))}
    assert compare([(image, image)])["y"].top1 is None
    assert compare([]) == {}


def test_an_output_that_is_nearly_constant_is_judged_about_its_mean() -> None:
    """An offset of 100 hides that nothing of what varies was kept."""
    rng = np.random.default_rng(0)
    want = 100 + rng.normal(size=(1, 50, 2, 2))
    found = compare([({"y": want}, {"y": np.full_like(want, 100)})])["y"]
    assert found.sqnr_db > 35
    assert found.cosine > 0.999
    assert found.centred_sqnr_db == pytest.approx(0, abs=0.5)
    assert [m.split()[0] for m in found.misses()] == ["SQNR", "cosine"]
    assert "about its mean" in str(found)
    exact = compare([({"y": np.full(8, 3.0)}, {"y": np.full(8, 3.001)})])["y"]
    # it is constant: there is nothing about the mean
    assert exact.centred_sqnr_db is None
    assert exact.misses() == []


def test_the_marks() -> None:
    want = np.random.default_rng(1).normal(size=10_000)
    for db, cos, count in [(20.0, 0.99, 0), (14.0, 0.98, 1), (10.0, 0.95, 2)]:
        noise = np.random.default_rng(2).normal(size=want.shape)
        noise *= np.sqrt(
            np.square(want).sum() / np.square(noise).sum() / 10 ** (db / 10)
        )
        found = compare([({"y": want}, {"y": want + noise})])["y"]
        assert found.sqnr_db == pytest.approx(db)
        assert found.cosine == pytest.approx(cos, abs=0.01)
        assert len(found.misses()) == count


def test_samples_are_summed_one_at_a_time_and_infinities_that_agree_do_not_count() -> (
    None
):
    rng = np.random.default_rng(3)
    pairs = [
        ({"y": rng.normal(size=(2, 3))}, {"y": rng.normal(size=(2, 3))})
        for _ in range(5)
    ]
    stacked = [np.stack([side[i]["y"] for side in pairs]) for i in (0, 1)]
    found = compare(iter(pairs))["y"]
    assert found.sqnr_db == pytest.approx(sqnr_db(*stacked))
    assert found.cosine == pytest.approx(cosine(*stacked))
    a = np.array([1.0, -np.inf, np.nan])
    assert sqnr_db(a, a) == math.inf
    assert compare([({"y": a}, {"y": np.ones(3)})])["y"].misses() != []


@pytest.mark.parametrize(
    "shapes",
    [[(1, 4, 3)] * 5, [(1, 1, 6)] * 5, [(2, 3), (2, 3), (2, 5), (2, 3), (2, 3)]],
)
def test_sums_of_parts_are_those_of_the_whole(shapes: list[tuple[int, ...]]) -> None:
    """By way of JSON, as a search remembers them."""
    rng = np.random.default_rng(0)
    pairs = [
        (
            x := rng.normal(2, 1, s).astype(np.float32),
            x + rng.normal(0, 0.1, s).astype(np.float32),
        )
        for s in shapes
    ]
    whole = Tally()
    parts = [Tally(), Tally()]
    for i, (x, y) in enumerate(pairs):
        whole.add(x, y)
        parts[i // 2 % 2].add(x, y)
    got = Tally.of(json.loads(json.dumps([p.state() for p in parts])))
    want = whole.result()
    found = got.result()
    assert found.samples == want.samples
    assert found.top1 == want.top1
    for figure in (
        Tally.sqnr_db,
        Tally.centred_sqnr_db,
        Tally.channels_sqnr_db,
        Tally.cosine,
        Tally.rms_error,
    ):
        assert figure(got) == pytest.approx(figure(whole), rel=1e-9)
    assert got.max_error == whole.max_error
    assert Tally.of([]).result().samples == 0
