"""Outputs that are inputs, constants or one value twice: through the compiler, the
Session and the C program.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Session
from onnx import NodeProto

import edgec
from tests.frontends.onnx_files import node, write

pytestmark = pytest.mark.slow

X = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)
RELU = node("Relu", ["x"], "y")
ENDS: dict[str, tuple[list[NodeProto], list[str]]] = {
    "an_input_alone": ([], ["x"]),
    "an_input": ([RELU], ["y", "x"]),
    "a_constant_alone": ([], ["c"]),
    "a_constant": ([RELU], ["y", "c"]),
    "one_value_twice": ([RELU, node("Identity", ["y"], "z")], ["y", "z"]),
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("target", ["host", "pi4+coral"])
def test_an_output_that_no_operation_writes(
    target: str, name: str, tmp_path: Path
) -> None:
    nodes, outputs = ENDS[name]
    constant = np.array([7, 8], np.float32)
    path = write(
        tmp_path / "m.onnx",
        nodes,
        {"x": [2, 3]},
        outputs,
        {"c": constant} if "c" in outputs else {},
    )
    bundle = tmp_path / "m.edgec"
    edgec.compile(path, target, bundle, allow_float=True)
    known = {"x": X, "y": np.maximum(X, 0), "z": np.maximum(X, 0), "c": constant}
    found = []
    if target == "host":
        found.append(dict(edgec.run(bundle, {"x": X}, "local:")))  # by the C program
    with Session(bundle) as session:
        found.append(session.run({"x": X}))
    for got in found:
        assert set(got) == set(outputs)
        for key, array in got.items():
            np.testing.assert_array_equal(array, known[key])
