"""Trained ONNX models of the data folder: read, optimised, and within 1e-4 of
onnxruntime's outputs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgec.frontends.onnx import read_onnx
from edgec.ir import Graph, Op, interp, parse, print_graph, verify
from edgec.passes.pipeline import optimize

SLOW = pytest.mark.slow
MODELS = [
    ("mp_selfie_land_onnx", 0),
    ("mp_face_landmark_onnx", 0),
    ("mp_blazeface_short_onnx_b", 0),
    ("ultraface_rfb320", 0),
    ("pfld_ghostone", 0),
    ("mnist8", 0),
    ("superres_ppp", 0),
    ("yunet_n_320", 0),
    pytest.param("prisma_onnx", 0, marks=SLOW),
    pytest.param("fastestdet_onnx", 0, marks=SLOW),
    pytest.param("yolox_nano_416", 0, marks=SLOW),
    pytest.param("sinet_portrait_onnx", 11, marks=SLOW),
    pytest.param("vittrack", 3, marks=SLOW),
    pytest.param("fns_udnie_std_256", 0, marks=SLOW),
]
"""With the number of transposes between convolutions that are the model's own: channel
shuffles, attention.
"""

TOLERANCE = 1e-4
"""Of the output's range."""
RESOLUTION = 1e-6
"""Of the output's magnitude, or absolute where that is below 1: outputs may hardly
differ from one another.
"""


@pytest.mark.shared
@pytest.mark.parametrize(("name", "own_transposes"), MODELS)
def test_a_trained_model(shared: Path, name: str, own_transposes: int) -> None:
    folder = shared / "models" / name
    imported = read_onnx(folder / f"{name}.onnx", {})
    verify(imported, "imported")
    graph = optimize(imported.copy())
    assert parse(print_graph(graph)) == graph
    assert [(v.name, v.type) for v in graph.inputs] == [
        (v.name, v.type) for v in imported.inputs
    ]
    assert [(v.name, v.type) for v in graph.outputs] == [
        (v.name, v.type) for v in imported.outputs
    ]
    assert len(between_convolutions(graph)) == own_transposes
    data = np.load(folder / "ref.npz")
    got = interp(graph, {v.name: data[f"in0_{i}"] for i, v in enumerate(graph.inputs)})
    for i, v in enumerate(graph.outputs):
        want = data[f"out0_{i}"]
        allowed = max(
            TOLERANCE * float(want.max() - want.min()),
            RESOLUTION * max(1.0, float(np.abs(want).max())),
        )
        assert np.abs(got[v.name] - want).max() <= allowed


def between_convolutions(graph: Graph) -> list[Op]:
    """The transposes on the way from one convolution to another, if the elements move."""
    found: list[Op] = []
    after = _reached(graph.ops)
    before = _reached(
        [Op(op.spec, op.outputs, op.inputs) for op in reversed(graph.ops)]
    )
    for op in graph.ops:
        if op.kind == "transpose" and op.inputs[0] in after and op.output in before:
            found.append(op)
    return found


def _reached(ops: list[Op]) -> set[object]:
    """Values that depend on a convolution's."""
    reached: set[object] = set()
    for op in ops:
        if op.kind in ("conv2d", "depthwise_conv2d", "transpose_conv2d") or any(
            v in reached for v in op.inputs
        ):
            reached.update(op.outputs)
    return reached
