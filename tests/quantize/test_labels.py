"""int8 on data with labels: it loses at most 0.3 points of float's accuracy, on 1,000
images and more.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Bundle

from benchmarks.accuracy_labels import ALLOWED, Scored, scored
from benchmarks.small_net import slopes_of, start


def judged(name: str, way: str, folder: Path) -> Scored:
    (row,) = scored(name, [way], folder)
    with Bundle.open(folder / f"{name}-{way}.edgec") as bundle:
        assert bundle.manifest.quantization["recipe"]["name"] == way
    return row


@pytest.mark.cc
@pytest.mark.shared
@pytest.mark.parametrize("way", ["fast", pytest.param("best", marks=pytest.mark.slow)])
@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", ["mnist", "mnist8"])
def test_mnist(name: str, way: str, tmp_path: Path) -> None:
    row = judged(name, way, tmp_path)
    assert row.images >= 1000
    assert row.floats / row.images > 0.93  # a network that has learnt something
    assert row.lost <= ALLOWED


@pytest.mark.cc
@pytest.mark.parametrize("way", ["fast", pytest.param("best", marks=pytest.mark.slow)])
def test_digits(way: str, tmp_path: Path) -> None:
    pytest.importorskip(
        "sklearn", reason="scikit-learn has the digits: pip install scikit-learn"
    )
    row = judged("digits", way, tmp_path)
    assert row.images >= 1000
    assert row.floats / row.images > 0.98
    assert row.lost <= ALLOWED


def test_the_trainers_slopes_are_those_of_its_loss() -> None:
    rng = np.random.default_rng(0)
    weights = [w.astype(np.float64) for w in start(rng, 2)]
    x = rng.uniform(0, 1, (3, 1, 8, 8))
    y = np.array([1, 4, 9])

    def loss() -> float:
        return slopes_of(weights, x, y)[0]

    for w, slope in zip(weights, slopes_of(weights, x, y)[1], strict=True):
        place = tuple(rng.integers(0, n) for n in w.shape)
        before = w[place]
        w[place] = before + 1e-5
        high = loss()
        w[place] = before - 1e-5
        low = loss()
        w[place] = before
        assert slope[place] == pytest.approx((high - low) / 2e-5, rel=1e-3, abs=1e-6)
