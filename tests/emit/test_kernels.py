"""Every op is written as C, or refused by its name before any C is written; explain and
compile agree on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgec.compiler.lower import lower
from edgec.emit.c import segment_source
from edgec.errors import UnsupportedError
from edgec.frontends.onnx import read_onnx
from edgec.ir import Array, interp
from edgec.options.compile import CompileOptions
from edgec.verbs.explain import explain_model
from tests.frontends.onnx_files import agree, node, random_floats, write
from tests.harness import assert_agree, run_c

TWO = np.array(2, np.float32)
SUM = node("ReduceSum", ["x"], "s", keepdims=0)
MATRIX = np.ones((3, 3), np.float32)
LARGEST = [node("MatMul", ["x", "w"], "s"), node("ReduceMax", ["s"], "t", keepdims=0)]


@pytest.mark.parametrize("target", ["host", "pi4+coral"])
@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ([node("Add", ["x", "c"], "y")], []),
        ([SUM, node("Mul", ["s", "c"], "t"), node("Add", ["t", "c"], "y")], [2, 3]),
        ([*LARGEST, node("Sub", ["t", "c"], "y")], [3]),
    ],
)
def test_a_constant_and_a_scalar(
    tmp_path: Path, nodes: Any, shape: Sequence[int], target: str
) -> None:
    path = write(
        tmp_path / "m.onnx", nodes, {"x": shape}, ["y"], {"c": TWO, "w": MATRIX}
    )
    agree(path)
    for s in lower(
        path, CompileOptions(target=target, allow_float=True)
    ).partition.segments:
        segment_source(s.graph, s.name)


@pytest.mark.cc
def test_a_bias_that_is_computed(tmp_path: Path) -> None:
    weights: Mapping[str, Array] = {"w": np.ones((2, 3, 1, 1), np.float32)}
    path = write(
        tmp_path / "m.onnx",
        [node("Conv", ["x", "w", "b"], "y")],
        {"x": [1, 3, 4, 4], "b": [2]},
        ["y"],
        weights,
    )
    graph = read_onnx(path, {})
    inputs = random_floats(graph)
    assert_agree(run_c(graph, inputs), interp(graph, inputs))


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        (
            [node("Cast", ["x"], "i", to=6), node("Sqrt", ["i"], "y")],
            "edgec has no C kernel for sqrt of int32",
        ),
        (
            [node("Cast", ["x"], "i", to=3), node("Softmax", ["i"], "y")],
            "softmax of int8",
        ),
    ],
)
def test_refused_by_name(tmp_path: Path, nodes: Any, text: str) -> None:
    path = write(
        tmp_path / "m.onnx", nodes, {"x": [1, 3, 2, 2], "w": [3, 3, 1, 1]}, ["y"]
    )
    for call in (lower, explain_model):
        with pytest.raises(UnsupportedError) as caught:
            call(path, CompileOptions())
        assert text in caught.value.what
        assert caught.value.exit_code == 2
        assert "n_" in str(caught.value.at)
