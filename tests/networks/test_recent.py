"""The twelve networks: they have the size that their papers state, and activations of a
trained network's scale.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from edgec.frontends import read_model
from tests.networks.recent import RECENT

MMACS = {
    "yolo11n_320": 810,
    "yolo26n_320": 700,
    "mobilenet_v4_s": 185,
    "fastvit_t8": 700,
    "efficientvit_b0": 100,
    "vit_tiny": 1250,
    "swin_nano": 1160,
    "repvit_m0_9": 900,
    "efficientformer_v2_s0": 400,
    "convnext_v2_atto": 550,
    "conformer": 56,
    "pp_liteseg": 5900,
}
"""Millions of multiply-accumulates: those of the papers, where these have the same network."""


@pytest.mark.slow
@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", RECENT)
def test_a_network_is_as_large_as_its_paper_says(name: str, tmp_path: Path) -> None:
    path = RECENT[name](tmp_path / f"{name}.onnx")
    graph = read_model(path)
    macs = sum(op.spec.macs(op) for op in graph.ops)
    assert macs / 1e6 == pytest.approx(MMACS[name], rel=0.15)

    # Every value as an output: none may come near the largest float16.
    model = onnx.load(path)
    seen = {v.name for v in model.graph.output}
    for value in onnx.shape_inference.infer_shapes(model).graph.value_info:
        if value.type.tensor_type.elem_type == 1 and value.name not in seen:
            model.graph.output.append(value)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (given,) = session.get_inputs()
    image = np.random.default_rng(0).uniform(0, 1, given.shape).astype(np.float32)
    for y in session.run(None, {given.name: image}):
        if isinstance(y, np.ndarray) and y.size:
            assert np.isfinite(y).all()
            assert np.abs(y).max() < 6550
