"""ONNX nodes of the arithmetic families: as edgec reads them and as onnxruntime
computes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from edgec.ir import Array, interp
from edgec.passes.pipeline import optimize
from tests.harness import assert_agree, run_c, with_nan
from tests.ops.onnx_node import Node

RNG = np.random.default_rng(5)


def _x(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def _i64(*values: int) -> Array:
    return np.array(values, np.int64)


def _pools() -> Iterator[Node]:
    image = _x(1, 3, 9, 8)
    for op in ("MaxPool", "AveragePool"):
        yield Node(op, 12, [image], (), {"kernel_shape": [2, 2], "strides": [2, 2]})
        yield Node(op, 12, [image], (), {"kernel_shape": [3, 2]})
        yield Node(
            op,
            12,
            [image],
            (),
            {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 1]},
        )
        for ceil in (
            {"strides": [2, 2]},
            {"strides": [3, 3], "pads": [1, 1, 1, 1]},
            {"strides": [4, 4]},
        ):
            yield Node(
                op, 12, [image], (), {"kernel_shape": [3, 3], "ceil_mode": 1, **ceil}
            )
        valid = {
            "kernel_shape": [3, 3],
            "strides": [2, 3],
            "auto_pad": "VALID",
            "ceil_mode": 1,
        }
        yield Node(op, 12, [_x(1, 3, 10, 11)], (), valid)
        for auto in ("SAME_UPPER", "SAME_LOWER", "VALID"):
            yield Node(
                op,
                12,
                [image],
                (),
                {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": auto},
            )
    attrs = {
        "kernel_shape": [3, 3],
        "strides": [2, 1],
        "pads": [1, 1, 1, 1],
        "count_include_pad": 1,
    }
    yield Node("AveragePool", 11, [image], (), attrs)
    yield Node("GlobalAveragePool", 12, [image])
    yield Node("GlobalMaxPool", 12, [image])


def _reductions() -> Iterator[Node]:
    x = _x(2, 3, 4, 5)
    for op in (
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
    ):
        yield Node(op, 11, [x], (), {"axes": [2, 3]})
        yield Node(op, 11, [x], (), {"axes": [-1], "keepdims": 0})
        yield Node(op, 11, [x])
        yield Node(op, 18, [x], (_i64(1, -2),), {"keepdims": 0})
        yield Node(op, 18, [x])
    yield Node("ReduceSum", 11, [x], (), {"axes": [1]})
    yield Node("ReduceSum", 13, [x], (_i64(0, 3),), {"keepdims": 0})
    yield Node("ReduceSum", 13, [x])
    yield Node("ReduceSum", 13, [x], (), {"noop_with_empty_axes": 1})
    for op in ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceMax"):
        yield Node(op, 18, [x], (), {"noop_with_empty_axes": 1, "keepdims": 0})


def _products() -> Iterator[Node]:
    a = _x(3, 4)
    bias = _x(5)
    yield Node("Gemm", 13, [a], (_x(4, 5), bias))
    yield Node(
        "Gemm", 13, [a], (_x(5, 4), bias), {"transB": 1, "alpha": 0.5, "beta": 2.0}
    )
    yield Node("Gemm", 13, [_x(4, 3)], (_x(4, 5),), {"transA": 1})
    yield Node("Gemm", 13, [a], (_x(4, 5), _x(1, 5)))
    yield Node("Gemm", 13, [a], (_x(4, 5), np.array(0.7, np.float32)), {"beta": 0.3})
    yield Node("Gemm", 13, [a], (_x(4, 5), _x(3, 1)))
    yield Node("Gemm", 13, [a, _x(4, 5), _x(3, 5)], (), {"alpha": 2.0})
    yield Node("Gemm", 9, [a], (_x(4, 5), np.zeros(5, np.float32)))
    yield Node("MatMul", 13, [_x(2, 3, 4)], (_x(4, 5),))
    yield Node("MatMul", 13, [_x(2, 3, 4)], (_x(1, 4, 5),))
    for left, right in (
        ((3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (7, 4, 5)),
        ((3, 4), (2, 4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((2, 3, 4), (4,)),
        ((4,), (2, 4, 5)),
        ((4,), (4,)),
    ):
        yield Node("MatMul", 13, [_x(*left), _x(*right)])


def _transpose_convs() -> Iterator[Node]:
    image = _x(1, 4, 5, 6)
    weights = {k: _x(4, 3, *k) for k in ((3, 3), (2, 2), (4, 2))}
    yield Node("ConvTranspose", 11, [image], (weights[3, 3],))
    yield Node(
        "ConvTranspose", 11, [image], (weights[2, 2], _x(3)), {"strides": [2, 2]}
    )
    attrs = {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}
    yield Node("ConvTranspose", 11, [image], (weights[3, 3], _x(3)), attrs)
    yield Node(
        "ConvTranspose",
        11,
        [image],
        (weights[4, 2],),
        {"strides": [3, 2], "pads": [0, 1, 2, 0]},
    )
    yield Node(
        "ConvTranspose",
        11,
        [image],
        (weights[3, 3],),
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    )
    yield Node(
        "ConvTranspose",
        11,
        [image],
        (weights[3, 3],),
        {"strides": [2, 2], "output_shape": [10, 12]},
    )
    yield Node(
        "ConvTranspose",
        11,
        [image],
        (_x(4, 1, 3, 3), _x(4)),
        {"strides": [2, 2], "group": 4},
    )
    yield Node("ConvTranspose", 11, [image], (_x(4, 3, 2, 2), _x(6)), {"group": 2})


def _softmaxes() -> Iterator[Node]:
    x = _x(2, 3, 4, 5)
    for op in ("Softmax", "LogSoftmax"):
        yield from (Node(op, 11, [x], (), {"axis": a}) for a in (0, 1, 3, -1))
        yield Node(op, 11, [x])
        yield from (Node(op, 13, [x], (), {"axis": a}) for a in (0, 1, -2, 3))
        yield Node(op, 13, [x])


def _unaries() -> Iterator[Node]:
    x = _x(2, 3, 4) * 3
    positive = np.abs(_x(2, 3, 4)) + np.float32(0.1)
    for op in (
        "Relu",
        "Sigmoid",
        "Tanh",
        "Exp",
        "Abs",
        "Neg",
        "Floor",
        "Ceil",
        "Erf",
        "Sin",
        "Cos",
        "Sign",
        "Softplus",
        "Softsign",
    ):
        yield Node(op, 13, [x])
    yield from (Node(op, 13, [positive]) for op in ("Log", "Sqrt", "Reciprocal"))
    yield Node(
        "Round", 13, [np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.6], np.float32)]
    )
    yield Node("HardSwish", 14, [x])
    yield Node("Mish", 18, [x])
    yield from (Node("Gelu", 20, [x], (), a) for a in ({}, {"approximate": "tanh"}))
    yield from (Node("LeakyRelu", 13, [x], (), a) for a in ({}, {"alpha": 0.2}))
    yield from (Node("Elu", 13, [x], (), a) for a in ({}, {"alpha": 0.7}))
    yield from (
        Node("HardSigmoid", 13, [x], (), a) for a in ({}, {"alpha": 0.3, "beta": 0.4})
    )
    yield from (
        Node("Selu", 13, [x], (), a) for a in ({}, {"alpha": 1.5, "gamma": 0.9})
    )
    yield Node("Clip", 7, [x], (), {"min": -0.5, "max": 1.5})
    yield Node("Clip", 7, [x], (), {"min": 0.0, "max": 6.0})
    yield Node("Clip", 7, [x])
    low = np.array(-1, np.float32)
    high = np.array(1, np.float32)
    yield from (
        Node("Clip", 13, [x], c) for c in ((low, high), (low,), (None, high), ())
    )
    image = _x(2, 3, 4, 5)
    yield from (
        Node("PRelu", 13, [image], (_x(*s),))
        for s in ((3, 1, 1), (1,), (5,), (1, 3, 1, 1), (2, 3, 4, 5))
    )


def _binaries() -> Iterator[Node]:
    a = _x(2, 3, 4)
    b = _x(2, 3, 4) + np.float32(3)
    row = _x(4)
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min"):
        yield Node(op, 13, [a, b])
        yield Node(op, 13, [row, a])
    yield Node("Max", 13, [a, b, row])
    yield Node("Sum", 13, [a, b, row])
    yield Node("Pow", 13, [np.abs(a)], (np.array(2.5, np.float32),))
    yield Node("Pow", 13, [a], (np.array(2, np.int64),))
    i = np.array([-7, -2, 5, 9], np.int64)
    j = np.array([2, -3, -3, 4], np.int64)
    yield from (
        Node(op, 13, [i, j]) for op in ("Div", "Mod", "Add", "Max", "Equal", "Less")
    )
    yield from (
        Node(op, 16, [np.round(a), np.round(_x(3, 1))])
        for op in ("Equal", "Less", "LessOrEqual", "Greater")
    )
    yield Node("GreaterOrEqual", 16, [a, b])
    t = RNG.integers(0, 2, (2, 3, 4)).astype(bool)
    f = RNG.integers(0, 2, (4,)).astype(bool)
    yield from (Node(op, 13, [], [t, f]) for op in ("And", "Or", "Xor"))
    yield Node("Not", 13, [], [t])
    yield Node("Where", 13, [], [t, a, row])
    yield Node("Where", 13, [], [f, _x(3, 1), a])


_LEFT = (2, 1, 3, 1, 2, 1, 3, 1)
_RIGHT = (1, 2, 1, 3, 1, 2, 1, 2)


def _eight_axes() -> Iterator[Node]:
    """Operands that are broadcast along every other axis."""
    a = np.abs(_x(*_LEFT))
    b = _x(*_RIGHT)
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Greater", "Equal"):
        yield Node(op, 13, [a, b])
    yield Node("Mod", 13, [a, b], attrs={"fmod": 1})
    yield Node("Sum", 13, [a, b, _x(3, 1)])
    yield Node("Where", 13, [a > 0.5, b, _x(2)])
    full = np.array(np.broadcast_shapes(_LEFT, _RIGHT), np.int64)
    yield Node("Expand", 13, [a], [full])


def _cases(*groups: Iterator[Node]) -> list[object]:
    return [
        pytest.param(node, id=f"{i}-{node}")
        for i, node in enumerate(n for group in groups for n in group)
    ]


@pytest.mark.parametrize(
    "node",
    _cases(_pools(), _reductions(), _products(), _transpose_convs(), _softmaxes()),
)
def test_sums_are_onnxruntimes(node: Node) -> None:
    node.check()


@pytest.mark.parametrize("node", _cases(_unaries(), _binaries()))
def test_elements_are_onnxruntimes(node: Node) -> None:
    node.check()


_LEAVES_NAN_OUT = ("MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin")
"""Operators of which onnxruntime takes the numbers beside NaN, where numpy, its own Max
and edgec do not.
"""


def _with_nan(*groups: Iterator[Node]) -> list[object]:
    """Nodes of floats, in whose inputs some elements are NaN."""
    rng = np.random.default_rng(2)
    nodes = []
    for node in (n for group in groups for n in group):
        floats = [x is not None and x.dtype.kind == "f" for x in node.inputs]
        if any(floats) and node.op_type not in _LEAVES_NAN_OUT:
            inputs = [
                with_nan(x, 0.1, rng) if x is not None and is_float else x
                for x, is_float in zip(node.inputs, floats, strict=True)
            ]
            nodes.append(replace(node, inputs=inputs))
    return _cases(iter(nodes))


def _selections() -> Iterator[Node]:
    x = _x(3, 40)
    for largest in (0, 1):
        for k in (1, 7, 40):
            yield Node("TopK", 11, [x], (_i64(k),), {"largest": largest}, outputs=2)
    for op in ("ArgMax", "ArgMin"):
        yield from (Node(op, 13, [x], (), {"axis": a}) for a in (0, 1))


@pytest.mark.parametrize(
    "node",
    _with_nan(
        _pools(), _reductions(), _softmaxes(), _unaries(), _binaries(), _selections()
    ),
)
def test_nan_goes_on_as_in_onnxruntime(node: Node) -> None:
    node.check()


@pytest.mark.cc
@pytest.mark.parametrize("node", _cases(_eight_axes()))
def test_eight_axes_are_broadcast_as_onnxruntime_does(node: Node) -> None:
    node.check()
    graph = optimize(node.graph())
    feeds = node.feeds()
    assert_agree(run_c(graph, feeds), interp(graph, feeds), 1e-6)
