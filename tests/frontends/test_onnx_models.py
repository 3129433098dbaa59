"""Trained ONNX models of the data folder: read, optimised, and within 1e-4 of onnxruntime's outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgec.frontends.onnx import read_onnx
from edgec.ir import Graph, Op, interp, parse, print_graph, verify
from edgec.passes.pipeline import optimize

SLOW = pytest.mark.slow
MODELS = [
    "mp_selfie_land_onnx",
    "mp_face_landmark_onnx",
    "mp_blazeface_short_onnx_b",
    "ultraface_rfb320",
    "pfld_ghostone",
    "mnist8",
    "superres_ppp",
    "yunet_n_320",
    pytest.param("prisma_onnx", marks=SLOW),
    pytest.param("fastestdet_onnx", marks=SLOW),
    pytest.param("yolox_nano_416", marks=SLOW),
    pytest.param("sinet_portrait_onnx", marks=SLOW),
    pytest.param("vittrack", marks=SLOW),
    pytest.param("fns_udnie_std_256", marks=SLOW),
]
TOLERANCE = 1e-4
"""Of the output's range."""


@pytest.mark.shared
@pytest.mark.parametrize("name", MODELS)
def test_a_trained_model(shared: Path, name: str) -> None:
    folder = shared / "models" / name
    imported = read_onnx(folder / f"{name}.onnx", {})
    verify(imported, "imported")
    graph = optimize(imported.copy())
    assert parse(print_graph(graph)) == graph
    assert [(v.name, v.type) for v in graph.inputs] == [(v.name, v.type) for v in imported.inputs]
    assert [(v.name, v.type) for v in graph.outputs] == [(v.name, v.type) for v in imported.outputs]
    assert not between_convolutions(graph)
    data = np.load(folder / "ref.npz")
    got = interp(graph, {v.name: data[f"in0_{i}"] for i, v in enumerate(graph.inputs)})
    for i, v in enumerate(graph.outputs):
        want = data[f"out0_{i}"]
        assert np.abs(got[v.name] - want).max() <= TOLERANCE * float(want.max() - want.min())


def between_convolutions(graph: Graph) -> list[Op]:
    """The transposes on the way from one convolution to another, if the elements move."""
    found: list[Op] = []
    after = _reached(graph.ops)
    before = _reached([Op(op.spec, op.outputs, op.inputs) for op in reversed(graph.ops)])
    for op in graph.ops:
        if op.kind == "transpose" and op.inputs[0] in after and op.output in before:
            found.append(op)
    return found


def _reached(ops: list[Op]) -> set[object]:
    """Values that depend on a convolution's."""
    reached: set[object] = set()
    for op in ops:
        if op.kind in ("conv2d", "depthwise_conv2d", "transpose_conv2d") or any(v in reached for v in op.inputs):
            reached.update(op.outputs)
    return reached
