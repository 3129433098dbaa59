"""Constants of ONNX files: sparse ones, and those that are computed of others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgec.errors import InputError
from edgec.frontends.onnx import read_onnx
from edgec.ir import Array
from tests.frontends.onnx_files import agree, node, write

_PLACES = {
    "of elements": np.array([1, 5, 10], np.int64),
    "of axes": np.array([[0, 1], [1, 1], [2, 2]], np.int64),
}


def _sparse(places: Array, shape: list[int]) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([1.5, -2, 3], np.float32), "c")
    return helper.make_sparse_tensor(
        values, numpy_helper.from_array(places, "places"), shape
    )


@pytest.mark.parametrize("places", _PLACES)
def test_a_sparse_constant(places: str, tmp_path: Path) -> None:
    sparse = _sparse(_PLACES[places], [3, 4])
    nodes = [
        node("Constant", [], "c", sparse_value=sparse),
        node("Add", ["x", "c"], "y"),
    ]
    agree(write(tmp_path / "m.onnx", nodes, {"x": [3, 4]}, ["y"]))


@pytest.mark.parametrize("places", _PLACES)
def test_a_sparse_initializer(places: str, tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx", [node("Add", ["x", "c"], "y")], {"x": [3, 4]}, ["y"]
    )
    model = onnx.load(str(path))
    model.graph.sparse_initializer.append(_sparse(_PLACES[places], [3, 4]))
    onnx.save(model, str(path))
    agree(path)


@pytest.mark.parametrize(
    ("places", "shape"),
    [
        (np.array([1, 5, 12]), [3, 4]),
        (np.array([1, 5, -1]), [3, 4]),
        (np.array([1, 5]), [3, 4]),
        (np.array([[0, 1], [1, 1], [2, 4]]), [3, 4]),
        (np.array([[0, 1, 2], [1, 1, 2], [2, 4, 2]]), [3, 4]),
        (np.array([1, 5, 10]), [3, -4]),
        (np.array([1, 5, 10]), [1 << 40, 1 << 40]),
    ],
)
def test_a_sparse_constant_that_is_damaged(
    places: Array, shape: list[int], tmp_path: Path
) -> None:
    sparse = _sparse(places.astype(np.int64), [3, 4])
    sparse.dims[:] = shape
    nodes = [
        node("Constant", [], "c", sparse_value=sparse),
        node("Add", ["x", "c"], "y"),
    ]
    path = write(tmp_path / "m.onnx", nodes, {"x": [3, 4]}, ["y"])
    with pytest.raises(InputError, match="the sparse tensor c is damaged"):
        read_onnx(path, {})


@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("is_sorted", [0, 1])
def test_different_elements_are_in_onnxruntimes_order(
    is_sorted: int, axis: int | None, outputs: int, tmp_path: Path
) -> None:
    c = np.array([[3, 1, 1, 3], [2, 2, 0, 2], [3, 1, 1, 3]], np.int64)
    names = ["elements", "first", "inverse", "counts"][:outputs]
    attrs = {} if axis is None else {"axis": axis}
    unique = node("Unique", ["c"], names, sorted=is_sorted, **attrs)
    ends = [helper.make_tensor_value_info(n, TensorProto.INT64, None) for n in names]
    weights = [numpy_helper.from_array(c, "c")]
    graph = helper.make_graph([unique], "unique", [], ends, weights)
    imports = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    path = tmp_path / "m.onnx"
    onnx.save(model, str(path))

    session = onnxruntime.InferenceSession(
        str(path), providers=["CPUExecutionProvider"]
    )
    got = read_onnx(path, {}).outputs
    for value, want in zip(got, session.run(None, {}), strict=True):
        assert value.const is not None
        np.testing.assert_array_equal(value.const, want)
