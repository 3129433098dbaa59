"""int8 loses at most 0.3 points of float's accuracy on 1,000 images with labels and more."""

from __future__ import annotations

from pathlib import Path

import pytest
from edgec_runtime import Bundle

from benchmarks.accuracy_labels import ALLOWED, Score, scores


def scored(name: str, way: str, folder: Path) -> Score:
    (score,) = scores(name, [way], folder)
    with Bundle.open(folder / f"{name}-{way}.edgec") as bundle:
        assert bundle.manifest.quantization["recipe"]["name"] == way
    return score


WAYS = ["fast", pytest.param("best", marks=pytest.mark.slow)]


@pytest.mark.cc
@pytest.mark.shared
@pytest.mark.parametrize("way", WAYS)
def test_mnist(way: str, tmp_path: Path) -> None:
    score = scored("mnist8", way, tmp_path)
    assert score.images >= 1000
    assert score.floats / score.images > 0.93
    assert score.lost <= ALLOWED


@pytest.mark.cc
@pytest.mark.parametrize("way", WAYS)
def test_digits(way: str, tmp_path: Path) -> None:
    pytest.importorskip(
        "sklearn", reason="scikit-learn has the digits: pip install scikit-learn"
    )
    score = scored("digits", way, tmp_path)
    assert score.images >= 1000
    assert score.floats / score.images > 0.98
    assert score.lost <= ALLOWED
