"""ONNX nodes that are read as several ops: windows of any rank, recurrences,
transforms, indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from edgec.errors import UnsupportedError
from edgec.ir import Array
from tests.ops.onnx_node import Node

RNG = np.random.default_rng(8)


def _x(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def _i64(*values: int) -> Array:
    return np.array(values, np.int64)


def _windows() -> Iterator[Node]:
    for rank, size in ((1, (9,)), (2, (8, 7)), (3, (5, 6, 4))):
        x = _x(2, 4, *size)
        k = (3, 2, 2)[:rank]
        w = _x(6, 4, *k)
        bias = _x(6)
        yield Node("Conv", 13, [x], (w, bias))
        yield Node("Conv", 13, [x, w, bias])
        wide = {"pads": [1, 0, 1, 1, 1, 0][: 2 * rank], "strides": [2, 1, 2][:rank]}
        yield Node("Conv", 13, [x], (w,), wide)
        yield Node(
            "Conv",
            13,
            [x],
            (_x(6, 2, *k), bias),
            {"group": 2, "dilations": [2, 2, 1][:rank]},
        )
        yield Node(
            "Conv", 13, [x, _x(6, 2, *k)], (), {"group": 2, "auto_pad": "SAME_LOWER"}
        )
        for attrs in (
            {},
            {"strides": [2] * rank, "output_padding": [1] * rank},
            {"dilations": [2] * rank},
        ):
            yield Node("ConvTranspose", 11, [x], (_x(4, 3, *k), _x(3)), attrs)
        yield Node(
            "ConvTranspose",
            11,
            [x, _x(4, 3, *k)],
            (),
            {"group": 2, "pads": [1] * (2 * rank)},
        )
        for op in ("MaxPool", "AveragePool"):
            for more in (
                {},
                {"strides": [2] * rank, "ceil_mode": 1},
                {"pads": [1] * (2 * rank)},
            ):
                yield Node(op, 19, [x], (), {"kernel_shape": list(k), **more})
            yield Node(
                op, 19, [x], (), {"kernel_shape": list(k), "dilations": [2] * rank}
            )
        padded = {
            "kernel_shape": [3] * rank,
            "strides": [2] * rank,
            "pads": [1] * (2 * rank),
            "ceil_mode": 1,
        }
        yield Node("AveragePool", 19, [x], (), {**padded, "count_include_pad": 1})
        yield Node(
            "MaxPool",
            12,
            [x],
            (),
            {"kernel_shape": list(k), "strides": [2] * rank, "pads": [1] * (2 * rank)},
            2,
        )
        yield Node(
            "LpPool",
            18,
            [x],
            (),
            {"kernel_shape": list(k), "strides": [2] * rank, "p": 3},
        )
    yield Node(
        "MaxPool",
        12,
        [RNG.integers(0, 255, (1, 2, 5, 5)).astype(np.uint8)],
        (),
        {"kernel_shape": [2, 2]},
    )


def _recurrent() -> Iterator[Node]:
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        for direction, d in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            weights = [_x(d, gates * 5, 3), _x(d, gates * 5, 5), _x(d, 2 * gates * 5)]
            attrs: dict[str, Any] = {"hidden_size": 5, "direction": direction}
            states = 2 if op == "LSTM" else 1
            yield Node(op, 14, [_x(4, 2, 3)], weights, attrs, 1 + states)
            start = [_x(d, 2, 5) for _ in range(states)]
            yield Node(
                op, 14, [_x(4, 2, 3)], [*weights, None, *start], attrs, 1 + states
            )
        weights = [_x(1, gates * 5, 3), _x(1, gates * 5, 5), _x(1, 2 * gates * 5)]
        lengths = np.array([4, 2], np.int32)
        yield Node(op, 14, [_x(4, 2, 3)], [*weights, lengths], {"hidden_size": 5}, 2)
    yield Node(
        "GRU",
        14,
        [_x(3, 2, 3)],
        [_x(1, 15, 3), _x(1, 15, 5), _x(1, 30)],
        {"hidden_size": 5, "linear_before_reset": 1},
    )
    peep = [_x(1, 20, 3), _x(1, 20, 5), _x(1, 40), None, None, None, _x(1, 15)]
    yield Node("LSTM", 14, [_x(3, 2, 3)], peep, {"hidden_size": 5, "clip": 0.4})


def _activated() -> Iterator[Node]:
    """Recurrent layers with numbers for their activations, and without them."""
    cases: tuple[tuple[list[str], dict[str, list[float]]], ...] = (
        (["HardSigmoid", "Tanh", "Tanh"], {}),
        (
            ["HardSigmoid", "Tanh", "Tanh"],
            {"activation_alpha": [0.3], "activation_beta": [0.4]},
        ),
        (["LeakyRelu", "Tanh", "Elu"], {"activation_alpha": [0.1, 0.5]}),
        (
            ["Sigmoid", "ThresholdedRelu", "Affine"],
            {"activation_alpha": [0.3, 0.9], "activation_beta": [0.2]},
        ),
        (
            ["ScaledTanh", "Softsign", "Softplus"],
            {"activation_alpha": [0.5], "activation_beta": [0.7]},
        ),
    )
    for names, numbers in cases:
        for direction, d in (("forward", 1), ("bidirectional", 2)):
            weights = [_x(d, 20, 3), _x(d, 20, 5)]
            attrs: dict[str, Any] = {n: values * d for n, values in numbers.items()}
            attrs |= {"activations": names * d, "direction": direction}
            yield Node("LSTM", 14, [_x(4, 2, 3)], weights, {**attrs, "hidden_size": 5})
    gru = {
        "hidden_size": 5,
        "activations": ["HardSigmoid", "Affine"],
        "activation_alpha": [0.3, 0.8],
        "activation_beta": [0.4, 0.1],
    }
    yield Node("GRU", 14, [_x(4, 2, 3)], [_x(1, 15, 3), _x(1, 15, 5)], gru)


def _transforms() -> Iterator[Node]:
    yield Node("DFT", 17, [_x(2, 10, 1)], (), {"axis": 1})
    yield Node("DFT", 17, [_x(2, 10, 2)], (), {"axis": 1, "inverse": 1})
    yield Node("DFT", 17, [_x(2, 9, 4, 1)], (), {"axis": 2, "onesided": 1})
    yield Node(
        "STFT",
        17,
        [_x(1, 64, 1)],
        (_i64(8).reshape(()), np.hanning(16).astype(np.float32)),
        {"onesided": 1},
    )
    sizes = [None, None, _i64(1, 2, 5, 4)]
    for mode in ("linear", "cubic"):
        yield Node(
            "Resize", 18, [_x(1, 2, 11, 9)], sizes, {"mode": mode, "antialias": 1}
        )


def _indices() -> Iterator[Node]:
    index = RNG.integers(-3, 3, (2, 3, 2))
    yield Node("GatherElements", 13, [_x(3, 3, 3), index], (), {"axis": 1})
    yield Node(
        "ScatterElements",
        18,
        [_x(3, 3, 3), index, _x(2, 3, 2)],
        (),
        {"axis": 2, "reduction": "add"},
    )
    yield Node(
        "ScatterND",
        18,
        [_x(4, 3), _i64(1, 3).reshape(2, 1), _x(2, 3)],
        (),
        {"reduction": "mul"},
    )
    yield Node(
        "GatherND", 13, [_x(2, 3, 4), _i64(1, 2).reshape(2, 1)], (), {"batch_dims": 1}
    )
    yield Node("TopK", 11, [_x(3, 7)], (_i64(3),), {"axis": -1}, 2)
    yield Node(
        "TopK",
        11,
        [RNG.integers(0, 4, (3, 7))],
        (_i64(4),),
        {"axis": 1, "largest": 0},
        2,
    )
    yield Node(
        "CumSum", 14, [_x(3, 5)], (_i64(1).reshape(()),), {"reverse": 1, "exclusive": 1}
    )
    yield Node(
        "OneHot",
        11,
        [_i64(0, -1, 2, 7)],
        [np.array(4), np.array([2, 5], np.float32)],
    )
    yield Node("Trilu", 14, [_x(2, 4, 5)], (np.array(1),), {"upper": 0})
    yield Node("Hardmax", 13, [_x(3, 6)], (), {"axis": 0})
    yield Node("Hardmax", 11, [_x(3, 2, 3)], (), {"axis": 1})
    yield Node(
        "ReverseSequence",
        10,
        [_x(4, 3, 2)],
        (_i64(4, 2, 1),),
        {"time_axis": 0, "batch_axis": 1},
    )
    for equation, shapes in (
        ("ij,jk->ik", ((3, 4), (4, 5))),
        ("bij,bjk", ((2, 3, 4), (2, 4, 5))),
        ("ii->i", ((4, 4),)),
        ("ij->", ((3, 4),)),
        ("...ij->...ji", ((2, 3, 4),)),
        ("i,j,k->kji", ((2,), (3,), (4,))),
        ("bhwc,hkc->bhwk", ((2, 3, 4, 5), (3, 6, 5))),
    ):
        yield Node("Einsum", 12, [_x(*s) for s in shapes], (), {"equation": equation})
    yield Node("Mod", 13, [_x(3, 4), _x(4)], (), {"fmod": 1})
    yield Node(
        "BitShift",
        11,
        [np.array([1, 7, 200], np.uint8), np.array([1, 2, 9], np.uint8)],
        (),
        {"direction": "LEFT"},
    )
    boxes = np.array([[0, 0, 4, 5], [1.5, 1, 9, 3.25]], np.float32)
    for mode in ("avg", "max"):
        attrs = {
            "output_height": 3,
            "output_width": 2,
            "sampling_ratio": 2,
            "mode": mode,
        }
        yield Node("RoiAlign", 16, [_x(2, 3, 6, 7), boxes, _i64(0, 1)], (), attrs)
    col = {"pads": [1, 0, 1, 0], "strides": [2, 1]}
    yield Node("Col2Im", 18, [_x(2, 3 * 4, 9)], (_i64(5, 4), _i64(2, 2)), col)


def _volumes() -> Iterator[Node]:
    volume = _x(2, 3, 4, 5, 3)
    grid = RNG.uniform(-1.4, 1.4, (2, 2, 3, 4, 3)).astype(np.float32)
    for mode in ("linear", "nearest"):
        for padding in ("zeros", "border"):
            for align in (0, 1):
                attrs = {"mode": mode, "padding_mode": padding, "align_corners": align}
                yield Node("GridSample", 20, [volume, grid], (), attrs)
    yield Node("Det", 11, [_x(2, 3, 4, 4)])


def _cases(*groups: Iterator[Node]) -> list[object]:
    return [
        pytest.param(node, id=f"{i}-{node}")
        for i, node in enumerate(n for group in groups for n in group)
    ]


@pytest.mark.parametrize(
    "node",
    _cases(
        _windows(), _recurrent(), _activated(), _transforms(), _indices(), _volumes()
    ),
)
def test_results_are_onnxruntimes(node: Node) -> None:
    node.check(3e-5)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (
            Node("NonZero", 13, [_x(3)]),
            "the size of its results hangs on the elements of its inputs",
        ),
        (
            Node("Conv", 13, [_x(1, 2, 2, 2, 2, 2)], (_x(2, 2, 1, 1, 1, 1),)),
            "up to three spatial dimensions",
        ),
        (Node("TopK", 11, [_x(3), _i64(2)], (), {}, 2), "is computed at run time"),
        (
            Node("Einsum", 12, [_x(3, 4)], (), {"equation": "ijk->i"}),
            "does not fit inputs of rank 2",
        ),
    ],
)
def test_refusals_say_why(node: Node, text: str) -> None:
    with pytest.raises(UnsupportedError, match=text):
        node.graph()


def _too_many() -> Iterator[Node]:
    size = (65, 65)
    x = _x(1, 1, *size)
    twice = _x(1, 1, 130, 130)
    yield Node("Conv", 13, [x, x])
    yield Node("ConvTranspose", 11, [_x(1, 1, 2, 2), x])
    yield Node("DeformConv", 19, [x, x, _x(1, 2 * 65 * 65, 1, 1)])
    for op in ("MaxPool", "AveragePool"):
        yield Node(op, 19, [twice], (), {"kernel_shape": size, "dilations": (2, 2)})
    yield Node("MaxPool", 12, [x], (), {"kernel_shape": size}, 2)
    yield Node("LpPool", 18, [x], (), {"kernel_shape": size})
    yield Node("GlobalLpPool", 13, [x])
    yield Node("Col2Im", 18, [_x(1, 65 * 65, 1)], (_i64(*size), _i64(*size)))


@pytest.mark.parametrize("node", _cases(_too_many()))
def test_a_window_of_more_elements_than_each_can_be_an_op_is_refused(
    node: Node,
) -> None:
    with pytest.raises(
        UnsupportedError,
        match=f"{node.op_type}: a window of 4,225 elements is more than the 4,096",
    ):
        node.graph()


def test_the_largest_window_of_an_op_for_each_element_is_read() -> None:
    Node(
        "LpPool", 18, [_x(1, 1, 64, 64)], (), {"kernel_shape": (64, 64), "p": 1}
    ).check(3e-5)


@pytest.mark.parametrize(
    ("group", "kind"), [(1, "conv2d"), (12, "depthwise_conv2d"), (3, "conv2d")]
)
def test_a_convolution_over_time_has_the_kernels_of_images(
    group: int, kind: str
) -> None:
    """Its constant weights stay constant, so that it needs no product of windows."""
    rng = np.random.default_rng(group)
    x = rng.normal(size=(1, 12, 20)).astype(np.float32)
    w = rng.normal(size=(24, 12 // group, 5)).astype(np.float32)
    node = Node("Conv", 17, [x], [w], {"group": group, "pads": [2, 2]})
    node.check()
    kinds = [op.kind for op in node.graph().ops]
    assert kind in kinds
    assert not {"batch_matmul", "slice", "concat"} & {*kinds}
