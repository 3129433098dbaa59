"""Integer arithmetic of ONNX nodes: as onnxruntime has it, and with C of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from edgec.ir import Array, Builder, OpDef, TensorType, interp
from edgec.ops.arithmetic import FloorDiv, FloorMod
from edgec.ops.binary import Div
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
