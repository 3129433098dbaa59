"""Every YOLO head compiles for a board with float16, whatever the size of its values."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import edgec
from tests.networks.yolo import yolo11n, yolo26n
from tests.tasks.yolo import EXTRA, yolo

SIDE = 160
"""Pixels of a side: enough cells for the 300 boxes of YOLO26."""


def fresh(path: Path) -> Path:
    """Give a network the weights that PyTorch starts with.

    They are uniform within 1 / sqrt(n) of n products, a variance of 1 / 3n where that of
    the file is about 2 / n, and there are no biases: values fade from layer to layer.
    """
    model = onnx.load(path)
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    weights = {node.input[1] for node in convolutions}
    biases = {node.input[2] for node in convolutions if len(node.input) > 2}
    for constant in model.graph.initializer:
        array = numpy_helper.to_array(constant)
        if constant.name in weights:
            array = array / math.sqrt(6)
        elif constant.name in biases:
            array = np.zeros_like(array)
        else:
            continue
        array = array.astype(np.float32)
        constant.CopyFrom(numpy_helper.from_array(array, constant.name))

    onnx.save(model, path)
    return path


def whole(build: Callable[..., Path]) -> Callable[[Path], Path]:
    """Return the writer of a whole network of few pixels."""
    return lambda path: build(path, SIDE, classes=8)


def head(kind: str, end_to_end: bool) -> Callable[[Path], Path]:
    """Return the writer of a few layers and a head."""
    return lambda path: yolo(path, kind, end_to_end)


NETWORKS: dict[str, Callable[[Path], Path]] = {
    "yolo11n": whole(yolo11n),
    "yolo26n": whole(yolo26n),
}
for kind in EXTRA:
    NETWORKS[kind] = head(kind, end_to_end=False)
    NETWORKS[f"{kind}_end_to_end"] = head(kind, end_to_end=True)


@pytest.mark.slow
@pytest.mark.sweep(3)
@pytest.mark.parametrize("width", ["auto", "16", "32"])
@pytest.mark.parametrize("weights", ["trained", "fresh"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_head_compiles_with_every_width(
    name: str, weights: str, width: str, tmp_path: Path
) -> None:
    path = NETWORKS[name](tmp_path / f"{name}.onnx")
    if weights == "fresh":
        fresh(path)
    done = edgec.compile(path, "pi5", tmp_path / "y.edgec", float_width=width)
    if width != "16":
        assert not done.network.verification.float16
    # Boxes that a network picks itself change places where their scores are alike.
    if not name.startswith("yolo26") and not name.endswith("end_to_end"):
        for output, agreement in done.network.verification.whole.items():
            assert agreement.cosine > 0.99, output
