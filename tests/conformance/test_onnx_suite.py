"""edgec behind the onnx.backend interface, and a seeded sample of ONNX's node tests
(`make conformance` has all).
"""

from __future__ import annotations

import unittest
from random import Random
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import TensorProto, helper

import edgec.onnx_backend as backend
from benchmarks.conformance import Case, batch, cases, markdown, out_of_scope
from edgec.errors import EdgecError, InputError, UnsupportedError
from edgec.ir import Array

X = np.array([[-1.0, 2.0, 3.0]], np.float32)


def _model(
    nodes: list[onnx.NodeProto], inputs: dict[str, Array], outputs: list[str]
) -> onnx.ModelProto:
    infos = [
        helper.make_tensor_value_info(
            n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape
        )
        for n, a in inputs.items()
    ]
    graph = helper.make_graph(
        nodes, "g", infos, [helper.make_tensor_value_info(n, 1, None) for n in outputs]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.cc
@pytest.mark.parametrize("device", ["CPU", "INTERP", "CPU:0"])
def test_a_model_is_prepared_once_and_run_often(device: str) -> None:
    model = _model([helper.make_node("Relu", ["x"], ["y"])], {"x": X}, ["y"])
    kwargs = {"cc": "gcc"}
    assert backend.supports_device(device)
    assert backend.is_compatible(model, device)
    prepared = backend.prepare(model, device, **kwargs)
    for x in (X, 2 * X, -X):
        for given in ([x], {"x": x}):
            outputs: Any = prepared.run(given)
            np.testing.assert_array_equal(outputs["y"], np.maximum(x, 0))


def test_an_input_that_says_a_shape_is_a_constant_of_the_run() -> None:
    shape = np.array([3, 1])
    model = _model(
        [helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": X, "s": shape}, ["y"]
    )
    prepared = backend.prepare(model, "INTERP")
    assert prepared.run([X, shape])[0].shape == (3, 1)
    assert prepared.run([X, np.array([1, 3])])[0].shape == (1, 3)
    assert prepared.specialised({"x": X, "s": shape}).constants.keys() == {"s"}


def test_one_node() -> None:
    add = helper.make_node("Add", ["a", "b"], ["y"])
    assert backend.run_node(add, [X, X], "INTERP")[0].tolist() == (2 * X).tolist()


def test_refusals_are_edgecs_own() -> None:
    nodes = [helper.make_node("RandomNormal", [], ["y"], shape=[2])]
    with pytest.raises(UnsupportedError, match="RandomNormal"):
        backend.prepare(_model(nodes, {}, ["y"]))
    assert not backend.is_compatible(_model(nodes, {}, ["y"]))
    assert not backend.supports_device("CUDA")
    model = _model([helper.make_node("Relu", ["x"], ["y"])], {"x": X}, ["y"])
    with pytest.raises(InputError, match="there is no device CUDA"):
        backend.prepare(model, "CUDA")
    with pytest.raises(InputError, match="the model takes the inputs x"):
        backend.prepare(model, "INTERP").run([])


@pytest.mark.slow
def test_onnxs_own_suite_drives_it() -> None:
    suite = onnx.backend.test.BackendTest(_Interpreter, "edgec_suite")
    suite.include(
        "^test_(add|sub|relu|concat_1d_axis_0|transpose_default|argmax_default_axis_example)_cpu$"
    )
    case = suite.test_cases["OnnxBackendNodeModelTest"]
    names = [n for n in dir(case) if n.startswith("test_") and "cuda" not in n]
    chosen = [
        case(n)
        for n in names
        if not getattr(getattr(case, n), "__unittest_skip__", False)
    ]
    result = unittest.TestResult()
    for test in chosen:
        test.run(result)
    assert len(chosen) == 6
    assert not result.errors + result.failures


class _Interpreter(backend.EdgecBackend):
    """The backend whose default device needs no compiler."""

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: object
    ) -> backend.Prepared:
        return super().prepare(model, "INTERP")


@pytest.fixture(scope="module")
def everything() -> list[Case]:
    """Loading them takes some seconds."""
    return cases()


@pytest.mark.slow
@pytest.mark.cc
def test_a_sample_of_the_node_tests(everything: list[Case]) -> None:
    results = batch(
        Random(0).sample([c for c in everything if not out_of_scope(c)], 60), "CPU"
    )
    crashed = {r.name: r.reason for r in results if r.outcome == "crashed"}
    assert not crashed
    wrong = {
        r.name: r.reason
        for r in results
        if r.outcome == "failed" and "differs" in r.reason
    }
    assert not wrong
    assert sum(r.outcome == "passed" for r in results) >= 50


@pytest.mark.slow
def test_what_is_out_of_scope_is_refused_with_a_reason(everything: list[Case]) -> None:
    results = batch(
        Random(1).sample([c for c in everything if out_of_scope(c)], 60), "INTERP"
    )
    assert not [r for r in results if r.outcome == "crashed"]
    assert all(r.reason for r in results if r.outcome == "out of scope")
    table = "".join(markdown(results))
    assert "| operator | in C | when compiled | failed | out of scope | why |" in table


def test_every_refusal_has_a_message() -> None:
    seen = {
        TensorProto.STRING: "string",
        TensorProto.FLOAT8E4M3FN: "float8e4m3fn",
        TensorProto.BFLOAT16: "bfloat16",
    }
    for type_, name in seen.items():
        model = _model([helper.make_node("Identity", ["x"], ["y"])], {"x": X}, ["y"])
        model.graph.input[0].type.tensor_type.elem_type = type_
        with pytest.raises(EdgecError, match=f"input x has elements of type {name}"):
            backend.prepare(model)
