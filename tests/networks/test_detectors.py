"""Detectors that benchmarks.truth rebuilds, beside what is published of them."""

from __future__ import annotations

import math
from pathlib import Path

import onnx
import pytest

from benchmarks.truth.detectors import ANCHORS, WRITERS
from tests.networks.stages import EFFICIENTDET_LITE

# Sizes of float32 files, MB, from the logs of NobuoTsukamoto/benchmarks (tensorflow/lite/
# efficentdet/results/RasPi5/efficientdet_latency_v2.18.0.txt).
SIZES = {"0": 13.6828, "1": 18.1733, "2": 22.7969}


@pytest.mark.parametrize("name", SIZES)
def test_efficientdet_has_the_published_size(name: str, tmp_path: Path) -> None:
    path = WRITERS[f"efficientdet-lite{name}"](tmp_path / "a.onnx")
    graph = onnx.load(path).graph
    numbers = sum(math.prod(constant.dims) for constant in graph.initializer)
    boxes, scores = (
        [d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in graph.output
    )
    sides = [-(-EFFICIENTDET_LITE[name].size // 2**level) for level in range(3, 8)]
    anchors = ANCHORS * sum(side * side for side in sides)
    assert (boxes, scores) == ([1, anchors, 4], [1, anchors, 90])
    # The published files have the anchors too, and the structure.
    assert 4e-6 * (numbers + 4 * anchors) == pytest.approx(SIZES[name], rel=0.01)
