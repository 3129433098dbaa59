"""Integer arithmetic of ONNX nodes: as onnxruntime has it, and with C of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from edgec.ir import Array, Builder, OpDef, TensorType, interp
from edgec.ops.arithmetic import FloorDiv, FloorMod
from edgec.ops.common import INTEGERS
from edgec.ops.division import Div
from tests.harness import assert_agree, run_c
from tests.ops.onnx_backend import compiled
from tests.ops.onnx_node import Node

_RNG = np.random.default_rng(0)


def _numbers(dtype: str) -> Array:
    """Some of both signs, and the extremes."""
    info = np.iinfo(dtype)
    x = _RNG.integers(-100, 100, (2, 3, 4)).astype(dtype)
    x.reshape(-1)[:3] = (info.min, info.max, 0)
    return x


def _nodes(dtype: str) -> Iterator[Node]:
    x = _numbers(dtype)
    row = np.array([3, -7, 1, 2], dtype)
    for op in ("Add", "Sub", "Mul", "Max", "Min", "Div"):
        yield Node(op, 14, [x], [row])
    for low, high in (
        (-3, 50),
        (None, 7),
        (np.iinfo(dtype).max - 1, np.iinfo(dtype).max),
    ):
        yield Node(
            "Clip",
            13,
            [x],
            [None if low is None else np.array(low, dtype), np.array(high, dtype)],
        )
    for op in ("Abs", "Neg", "Sign"):
        yield Node(op, 13, [x])
    yield Node("Relu", 14, [x])
    for op in ("ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum"):
        yield Node(
            op,
            18,
            [x // 2**20 if dtype == "int32" else x // 2**44],
            [np.array([1], np.int64)],
            {"keepdims": 0},
        )


def _cases() -> list[Any]:
    return [
        pytest.param(n, id=f"{i}-{n.op_type}-{t}")
        for t in ("int32", "int64")
        for i, n in enumerate(_nodes(t))
    ]


@pytest.mark.cc
@pytest.mark.parametrize("node", _cases())
def test_integers_are_onnxruntimes(node: Node) -> None:
    if (node.op_type, node.inputs[0].dtype.name) != ("Relu", "int64"):  # type: ignore[union-attr]
        node.check(0.0)
    graph = node.graph()
    feeds = {v.name: node.feeds()[v.name] for v in graph.inputs}
    assert_agree(run_c(graph, feeds), interp(graph, feeds))
    assert compiled(onnx.load_from_string(node.model())) == "compiled"


@pytest.mark.cc
@pytest.mark.parametrize(
    ("spec", "want"), [(Div(), -306783378), (FloorDiv(), -306783379), (FloorMod(), 5)]
)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_quotients_of_extremes(spec: OpDef, want: int, dtype: str) -> None:
    low = np.iinfo(dtype).min
    high = np.iinfo(dtype).max
    x = np.array([low, low, high, low, 7, -7, 5, high, low], dtype)
    y = np.array([7, -1, -1, 0, -2, 2, 0, low, low], dtype)
    build = Builder("quotients")
    values = [build.input(name, TensorType(x.shape, dtype)) for name in "xy"]
    build.graph.outputs = [build.add(spec, values, "q")]
    with np.errstate(all="ignore"):
        expected = interp(build.graph, {"x": x, "y": y})
    assert_agree(run_c(build.graph, {"x": x, "y": y}), expected)
    if dtype == "int32":
        assert expected["q"][0] == want


def _plain(dtype: str, *shape: int) -> Array:
    low = 0 if dtype.startswith("u") else -100
    return _RNG.integers(low, 100, shape).astype(dtype)


def _places(dtype: str) -> Iterator[Node]:
    """Operators that move elements or compare them, of a tensor without a scale."""
    image = _plain(dtype, 1, 8, 4, 5)
    pads = np.array([0, 0, 1, 2, 0, 0, 2, 3], np.int64)
    for mode in ("constant", "reflect", "edge", "wrap"):
        value = [np.array(7, dtype)] if mode == "constant" else []
        yield Node("Pad", 19, [image], [pads, *value], {"mode": mode})
    attrs: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    yield Node("MaxPool", 12, [image], attrs=attrs)
    attrs = {"axis": -1, "keepdims": 0, "select_last_index": 1}
    yield Node("ArgMax", 13, [image], attrs={"axis": 1})
    yield Node("ArgMin", 13, [image], attrs=attrs)
    for order in ("DCR", "CRD"):
        yield Node("DepthToSpace", 13, [image], attrs={"blocksize": 2, "mode": order})
    yield Node("SpaceToDepth", 13, [image[:, :, :, :4]], attrs={"blocksize": 2})


def _products(dtype: str) -> Iterator[Node]:
    """Products, one of which wraps around."""
    weights = _plain(dtype, 4, 5)
    yield Node("MatMul", 13, [_plain(dtype, 2, 3, 4)], [weights])
    yield Node("MatMul", 13, [_plain(dtype, 2, 3, 4), _plain(dtype, 2, 4, 5)])
    yield Node("MatMul", 13, [_plain(dtype, 4)], [weights])
    big = np.full((2, 4), np.iinfo(dtype).max, dtype)
    yield Node("MatMul", 13, [big], [weights])
    attrs = {"transA": 1, "transB": 1, "alpha": 2.0, "beta": 3.0}
    columns = [_plain(dtype, 5, 4), _plain(dtype, 3, 1)]
    yield Node("Gemm", 13, [_plain(dtype, 4, 3)], columns, attrs)
    yield Node("Gemm", 13, [_plain(dtype, 3, 4)], [weights, _plain(dtype, 5)])


_OF_THE_REFERENCE = [
    *((_places, dtype) for dtype in INTEGERS),
    *((_products, dtype) for dtype in ("int32", "uint32", "int64", "uint64")),
]


@pytest.mark.cc
@pytest.mark.parametrize(("nodes", "dtype"), _OF_THE_REFERENCE)
def test_integers_without_a_scale_are_those_of_the_reference(
    nodes: Callable[[str], Iterator[Node]], dtype: str
) -> None:
    """onnxruntime has kernels for few of these types."""
    for node in nodes(dtype):
        model = onnx.load_from_string(node.model())
        with np.errstate(all="ignore"):
            (want,) = ReferenceEvaluator(model).run(None, node.feeds())
        graph = node.graph()
        feeds = {v.name: node.feeds()[v.name] for v in graph.inputs}
        got = interp(graph, feeds)
        np.testing.assert_array_equal(got["y0"], want, err_msg=str(node))
        assert_agree(run_c(graph, feeds), got)


@pytest.mark.cc
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_pool_with_a_border_of_integers(dtype: str) -> None:
    """ONNX's reference has no such pool, and its border is beneath all elements."""
    attrs = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    node = Node("MaxPool", 12, [_plain(dtype, 1, 8, 4, 5) - 100], attrs=attrs)
    node.check(0.0)
    graph = node.graph()
    assert_agree(run_c(graph, node.feeds()), interp(graph, node.feeds()))


@pytest.mark.cc
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("op", ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_functions_of_integers_are_cut_off(op: str, dtype: str) -> None:
    x = np.abs(_plain(dtype, 2, 3, 4)) + 1
    node = Node(op, 18, [x], [np.array([1], np.int64)])
    node.check(0.0)
    graph = node.graph()
    assert_agree(run_c(graph, node.feeds()), interp(graph, node.feeds()))
