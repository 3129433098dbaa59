"""TFLite operators that are read as ops which came with ONNX: each file gives what
LiteRT's reference kernels give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import pack
from typing import Any

import numpy as np
import pytest

from edgec.errors import UnsupportedError
from edgec.frontends import read_model
from edgec.ir import interp
from tests.frontends.tflite_operators import Given, const, model_of, packed, reference
from tests.harness import assert_agree, run_c

Options = tuple[str, Mapping[str, Any]] | None
Case = tuple[
    str, str, Options, Sequence[Given | None], Sequence[tuple[Sequence[int], Any]]
]

F32 = np.float32
S32 = np.int32
BOOL = np.bool_
_RNG = np.random.default_rng(7)


def real(*shape: int) -> Given:
    return Given(_RNG.normal(size=shape).astype(F32))


def whole(low: int, high: int, shape: Sequence[int], dtype: Any = S32) -> Given:
    return Given(_RNG.integers(low, high, shape).astype(dtype))


def fixed(given: Given) -> Given:
    return Given(given.data, True)


def conv3d(padding: int, act: int, **strides: int) -> Options:
    return (
        "Conv3DOptions",
        {"padding": padding, "fusedActivationFunction": act, **strides},
    )


STEP = {"strideD": 1, "strideH": 2, "strideW": 1}
CASES: list[Case] = [
    (
        "topk",
        "TOPK_V2",
        ("TopKV2Options", {}),
        [real(3, 9), const(4)],
        [((3, 4), F32), ((3, 4), S32)],
    ),
    (
        "topk_ties",
        "TOPK_V2",
        None,
        [whole(-3, 3, (2, 20)), const(7)],
        [((2, 7), S32), ((2, 7), S32)],
    ),
    (
        "cumsum",
        "CUMSUM",
        ("CumsumOptions", {}),
        [real(3, 4, 5), const(1)],
        [((3, 4, 5), F32)],
    ),
    (
        "cumsum_reverse",
        "CUMSUM",
        ("CumsumOptions", {"exclusive": True, "reverse": True}),
        [whole(-9, 9, (3, 4)), const(-1)],
        [((3, 4), S32)],
    ),
    (
        "one_hot",
        "ONE_HOT",
        ("OneHotOptions", {"axis": -1}),
        [whole(-2, 6, (2, 3)), const(5), const(2, F32), const(-1, F32)],
        [((2, 3, 5), F32)],
    ),
    (
        "one_hot_axis",
        "ONE_HOT",
        ("OneHotOptions", {"axis": 1}),
        [whole(0, 4, (2, 3), np.int64), const(4), const(1), const(0)],
        [((2, 4, 3), S32)],
    ),
    (
        "scatter_nd",
        "SCATTER_ND",
        ("ScatterNdOptions", {}),
        [const([[1], [3], [1]]), real(3, 4), const([5, 4])],
        [((5, 4), F32)],
    ),
    (
        "gather_nd",
        "GATHER_ND",
        ("GatherNdOptions", {}),
        [real(3, 4, 5), const([[2, 1], [0, 3]])],
        [((2, 5), F32)],
    ),
    (
        "segment_sum",
        "SEGMENT_SUM",
        ("SegmentSumOptions", {}),
        [real(5, 3), const([0, 0, 1, 2, 2])],
        [((3, 3), F32)],
    ),
    (
        "add_n",
        "ADD_N",
        ("AddNOptions", {}),
        [real(2, 3), real(2, 3), real(2, 3)],
        [((2, 3), F32)],
    ),
    (
        "atan2",
        "ATAN2",
        ("ATan2Options", {}),
        [real(4, 30), real(4, 30)],
        [((4, 30), F32)],
    ),
    (
        "reduce_any",
        "REDUCE_ANY",
        ("ReducerOptions", {"keepDims": True}),
        [whole(0, 2, (3, 2, 2), BOOL), const([1, 2])],
        [((3, 1, 1), BOOL)],
    ),
    (
        "reduce_all",
        "REDUCE_ALL",
        ("ReducerOptions", {"keepDims": False}),
        [whole(0, 2, (3, 2), BOOL), const([1])],
        [((3,), BOOL)],
    ),
    (
        "embedding",
        "EMBEDDING_LOOKUP",
        None,
        [whole(0, 6, (4,)), fixed(real(6, 3))],
        [((4, 3), F32)],
    ),
    (
        "reverse_sequence",
        "REVERSE_SEQUENCE",
        ("ReverseSequenceOptions", {"seqDim": 1, "batchDim": 0}),
        [real(3, 5, 2), const([5, 2, 0])],
        [((3, 5, 2), F32)],
    ),
    (
        "xor",
        "BITWISE_XOR",
        ("BitwiseXorOptions", {}),
        [whole(-9, 9, (4, 5)), whole(-9, 9, (4, 5))],
        [((4, 5), S32)],
    ),
    ("bitcast", "BITCAST", ("BitcastOptions", {}), [real(4, 5)], [((4, 5), S32)]),
    (
        "conv3d",
        "CONV_3D",
        conv3d(1, 0, **STEP),
        [real(1, 4, 7, 6, 3), fixed(real(2, 3, 2, 3, 4)), fixed(real(4))],
        [((1, 3, 3, 5, 4), F32)],
    ),
    (
        "conv3d_same",
        "CONV_3D",
        conv3d(0, 1, **STEP),
        [real(2, 3, 5, 5, 2), fixed(real(3, 3, 3, 2, 4)), fixed(real(4))],
        [((2, 3, 3, 5, 4), F32)],
    ),
    (
        "where_v2",
        "SELECT_V2",
        ("SelectV2Options", {}),
        [whole(0, 2, (3, 1), BOOL), real(3, 4), real(1, 4)],
        [((3, 4), F32)],
    ),
    (
        "broadcast_to",
        "BROADCAST_TO",
        ("BroadcastToOptions", {}),
        [real(1, 4), const([3, 4])],
        [((3, 4), F32)],
    ),
    (
        "reverse",
        "REVERSE_V2",
        ("ReverseV2Options", {}),
        [real(3, 4), const([1])],
        [((3, 4), F32)],
    ),
]

VERSIONS = {"BROADCAST_TO": 2}
WITHOUT_REFERENCE = ("SEGMENT_SUM",)


@pytest.mark.parametrize("case", CASES, ids=[c[0] for c in CASES])
def test_a_file_of_one_operator_is_litert(case: Case, tmp_path: Path) -> None:
    _, name, options, inputs, outputs = case
    data = packed(model_of(name, options, inputs, outputs, VERSIONS.get(name, 1)))
    path = tmp_path / "m.tflite"
    path.write_bytes(data)
    graph = read_model(path)
    fed = {
        f"x{i}": g.data for i, g in enumerate(inputs) if g is not None and not g.const
    }
    want = reference(data, fed, name in WITHOUT_REFERENCE)
    assert_agree(interp(graph, fed), want)
    assert_agree(run_c(graph, fed), want)


def lstm(
    batch: int, steps: int, time_major: bool, peepholes: bool, clip: float
) -> tuple[Any, dict[str, Any]]:
    """An LSTM of 5 units on 3 features as the converter writes it of a Keras layer, and
    an input.
    """
    n = 5
    features = 3
    inputs: list[Given | None] = [None] * 24
    shape = (steps, batch, features) if time_major else (batch, steps, features)
    x = inputs[0] = real(*shape)
    for i in range(4):
        inputs[1 + i], inputs[5 + i], inputs[12 + i] = (
            fixed(real(*s)) for s in ((n, features), (n, n), (n,))
        )
    for i in range(9, 12) if peepholes else ():
        inputs[i] = fixed(real(n))
    for i in (18, 19):
        inputs[i] = Given(np.zeros((batch, n), F32), fields={"isVariable": True})
    options = (
        "UnidirectionalSequenceLSTMOptions",
        {"fusedActivationFunction": 4, "cellClip": clip},
    )
    options[1]["timeMajor"] = time_major
    model = model_of(
        "UNIDIRECTIONAL_SEQUENCE_LSTM", options, inputs, [((*shape[:2], n), F32)]
    )
    return model, {"x0": x.data}


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize(
    ("peepholes", "clip"), [(False, 10.0), (True, 0.0), (False, 0.2)]
)
def test_lstm(time_major: bool, peepholes: bool, clip: float, tmp_path: Path) -> None:
    """Each inference begins with zeros, as LiteRT's first one does."""
    model, fed = lstm(2, 6, time_major, peepholes, clip)
    path = tmp_path / "m.tflite"
    path.write_bytes(packed(model))
    graph = read_model(path)
    want = reference(packed(model), fed, builtin=True)
    assert_agree(interp(graph, fed), want)
    assert_agree(run_c(graph, fed), want)


def test_a_layer_that_is_not_read_says_why(tmp_path: Path) -> None:
    model, _ = lstm(1, 2, False, False, 0.0)
    model.subgraphs[0].operators[0].inputs[1] = -1
    path = tmp_path / "m.tflite"
    path.write_bytes(packed(model))
    with pytest.raises(UnsupportedError, match="coupled input and forget gates"):
        read_model(path)


def _pooled(
    x: Any, kernel: tuple[int, int], stride: tuple[int, int], same: bool
) -> tuple[Any, Any]:
    """What MediaPipe says of its operator: of each window the largest element and its
    number in the window plus 0.1.
    """
    out = [
        -(-d // s) if same else (d - k) // s + 1
        for d, k, s in zip(x.shape[1:3], kernel, stride, strict=True)
    ]
    total = [
        (o - 1) * s + k - d
        for o, d, k, s in zip(out, x.shape[1:3], kernel, stride, strict=True)
    ]
    top, left = (max(0, t) // 2 for t in total)
    best, where = (np.zeros((x.shape[0], *out, x.shape[3]), F32) for _ in range(2))
    for n, oy, ox, c in np.ndindex(best.shape):
        found = [
            (
                x[n, oy * stride[0] - top + i, ox * stride[1] - left + j, c],
                -(i * kernel[1] + j),
            )
            for i in range(kernel[0])
            for j in range(kernel[1])
            if 0 <= oy * stride[0] - top + i < x.shape[1]
            and 0 <= ox * stride[1] - left + j < x.shape[2]
        ]
        largest, number = max(found)
        best[n, oy, ox, c], where[n, oy, ox, c] = largest, -number + F32(0.1)
    return best, where


@pytest.mark.parametrize(
    ("same", "kernel", "stride"),
    [(False, (2, 2), (2, 2)), (True, (2, 2), (2, 2)), (True, (3, 2), (2, 1))],
)
def test_mediapipe_pools_with_argmax(
    same: bool, kernel: tuple[int, int], stride: tuple[int, int], tmp_path: Path
) -> None:
    x = _RNG.integers(-4, 4, (2, 5, 7, 3)).astype(F32)
    options = pack(
        "<10i",
        1 if same else 2,
        stride[1],
        stride[0],
        kernel[1],
        kernel[0],
        0,
        0,
        0,
        0,
        0,
    )
    best, where = _pooled(x, kernel, stride, same)
    model = model_of(
        "MaxPoolingWithArgmax2D",
        options,
        [Given(x)],
        [(best.shape, F32), (best.shape, F32)],
    )
    path = tmp_path / "m.tflite"
    path.write_bytes(packed(model))
    graph = read_model(path)
    for got in (interp(graph, {"x0": x}), run_c(graph, {"x0": x})):
        assert_agree(got, {"y0": best, "y1": where})


@pytest.mark.parametrize("dialect", ["mediapipe", "tensorflow"])
def test_unpooling(dialect: str, tmp_path: Path) -> None:
    """MediaPipe's indices count within a window; TensorFlow's within the whole image."""
    x = _RNG.normal(size=(2, 2, 3, 2)).astype(F32)
    number = _RNG.integers(0, 4, x.shape)
    want = np.zeros((2, 4, 6, 2), F32)
    flat = np.zeros(x.shape, S32)
    for n, y, at, c in np.ndindex(x.shape):
        row = 2 * y + number[n, y, at, c] // 2
        column = 2 * at + number[n, y, at, c] % 2
        want[n, row, column, c] = x[n, y, at, c]
        flat[n, y, at, c] = (row * 6 + column) * 2 + c
    index = number + F32(0.1) if dialect == "mediapipe" else flat
    fed = {"x0": x, "x1": index.astype(F32) if dialect == "mediapipe" else flat}
    options = pack("<10i", 1, 2, 2, 2, 2, 0, 0, 0, 0, 0)
    path = tmp_path / "m.tflite"
    path.write_bytes(
        packed(
            model_of(
                "MaxUnpooling2D",
                options,
                [Given(v) for v in fed.values()],
                [(want.shape, F32)],
            )
        )
    )
    graph = read_model(path)
    for got in (interp(graph, fed), run_c(graph, fed)):
        assert_agree(got, {"y0": want})


@pytest.mark.parametrize(
    ("name", "options", "inputs"),
    [
        (
            "ONE_HOT",
            ("OneHotOptions", {"axis": -1}),
            [whole(0, 4, (2, 3)), const(1 << 30), const(1), const(0)],
        ),
        ("TOPK_V2", None, [whole(0, 4, (2, 3)), const(1 << 30)]),
        (
            "SCATTER_ND",
            ("ScatterNdOptions", {}),
            [const([[1]]), whole(0, 4, (1, 3)), const([1 << 30, 3])],
        ),
        (
            "MaxPoolingWithArgmax2D",
            pack("<10i", 1, 1, 1, 1 << 15, 1 << 15, *[0] * 5),
            [real(1, 4, 4, 1)],
        ),
    ],
)
def test_sizes_that_only_damage_writes_are_refused(
    name: str, options: Any, inputs: Sequence[Given], tmp_path: Path
) -> None:
    path = tmp_path / "m.tflite"
    outputs = [((2, 3), S32)] * (1 if name in ("ONE_HOT", "SCATTER_ND") else 2)
    path.write_bytes(packed(model_of(name, options, inputs, outputs)))
    with pytest.raises(UnsupportedError, match=name):
        read_model(path)
