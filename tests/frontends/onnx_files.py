"""Small ONNX files for the tests, and what onnxruntime makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, TensorProto, helper, numpy_helper

from edgec.frontends.onnx import read_onnx
from edgec.ir import Array, Graph, interp, verify
from edgec.passes.pipeline import optimize

Dim = int | str | None


def node(
    op_type: str, inputs: Sequence[str], outputs: Sequence[str] | str, **attrs: Any
) -> NodeProto:
    """A node whose name is its first output's, prefixed."""
    outputs = [outputs] if isinstance(outputs, str) else outputs
    return helper.make_node(op_type, inputs, outputs, name=f"n_{outputs[0]}", **attrs)


def write(
    path: Path,
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[Dim]],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
    opset: int = 13,
) -> Path:
    """A float32 model file."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s))
            for n, s in inputs.items()
        ],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [
            numpy_helper.from_array(np.asarray(a), n)
            for n, a in (constants or {}).items()
        ],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8
    )
    onnx.save(model, str(path))
    return path


def random_floats(graph: Graph, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        v.name: rng.normal(size=v.type.shape).astype(np.float32) for v in graph.inputs
    }


def agree(path: Path, disabled: Sequence[str] = (), tolerance: float = 1e-5) -> Graph:
    """Import, compare with onnxruntime, optimise, compare again; returns the optimised
    graph.
    """
    graph = read_onnx(path, {})
    verify(graph, "imported")
    inputs = random_floats(graph)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    want = dict(
        zip(
            (o.name for o in session.get_outputs()),
            session.run(None, inputs),
            strict=True,
        )
    )
    assert [v.name for v in graph.outputs] == list(want)
    optimized = optimize(graph.copy(), disabled)
    for g in (graph, optimized):
        for name, y in interp(g, inputs).items():
            assert y.shape == want[name].shape
            assert y.dtype == want[name].dtype
            if y.dtype.kind == "f":
                scale = float(np.abs(want[name]).max(initial=1e-6))
                np.testing.assert_allclose(
                    y, want[name], rtol=tolerance, atol=tolerance * scale
                )
            else:
                np.testing.assert_array_equal(y, want[name])
    return optimized
