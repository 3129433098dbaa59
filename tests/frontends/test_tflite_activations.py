"""Activations that TFLite operators apply to their results."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgec.errors import UnsupportedError
from edgec.frontends import read_model
from edgec.ir import Array, TensorType, interp
from edgec.ir.types import Quant
from edgec.ops.fixed_point import ACTIVATIONS, activation_range
from edgec.passes.pipeline import optimize
from tests.frontends.tflite_operators import (
    Given,
    model_of,
    packed,
    quantized,
    reference,
)
from tests.harness import run_c

_RNG = np.random.default_rng(5)
_NUMBERS = {
    "none": 0,
    "relu": 1,
    "relu_n1_to_1": 2,
    "relu6": 3,
    "tanh": 4,
    "sign_bit": 5,
}
_WINDOW = {"padding": 1, "strideH": 1, "strideW": 1}
_DILATION = {"dilationHFactor": 1, "dilationWFactor": 1}
_CONV = {**_WINDOW, **_DILATION}
_POOL = {**_WINDOW, "filterHeight": 2, "filterWidth": 2}
_VOLUME = {"padding": 1, "strideD": 1, "strideH": 1, "strideW": 1}
_ONE_VOLUME = {"dilationDFactor": 1, "dilationHFactor": 1, "dilationWFactor": 1}


def _reals(*shape: int, const: bool = False) -> Given:
    return Given((_RNG.normal(size=shape) * 5).astype(np.float32), const)


def _weights(*shape: int) -> Given:
    return _reals(*shape, const=True)


_OPERATORS: dict[
    str, tuple[str, Mapping[str, Any], list[Given], tuple[int, ...], int]
] = {
    "CONV_2D": (
        "Conv2D",
        _CONV,
        [_reals(1, 3, 4, 2), _weights(5, 2, 2, 2), _weights(5)],
        (1, 2, 3, 5),
        1,
    ),
    "DEPTHWISE_CONV_2D": (
        "DepthwiseConv2D",
        {**_CONV, "depthMultiplier": 1},
        [_reals(1, 3, 4, 2), _weights(1, 2, 2, 2), _weights(2)],
        (1, 2, 3, 2),
        1,
    ),
    "CONV_3D": (
        "Conv3D",
        {**_VOLUME, **_ONE_VOLUME},
        [_reals(1, 3, 3, 3, 2), _weights(2, 2, 2, 2, 4), _weights(4)],
        (1, 2, 2, 2, 4),
        1,
    ),
    "TRANSPOSE_CONV": (
        "TransposeConv",
        _WINDOW,
        [
            Given(np.array([1, 4, 5, 3], np.int32), True),
            _weights(3, 2, 2, 2),
            _reals(1, 3, 4, 2),
        ],
        (1, 4, 5, 3),
        4,
    ),
    "FULLY_CONNECTED": (
        "FullyConnected",
        {},
        [_reals(2, 6), _weights(4, 6), _weights(4)],
        (2, 4),
        1,
    ),
    "MAX_POOL_2D": ("Pool2D", _POOL, [_reals(1, 4, 4, 3)], (1, 3, 3, 3), 1),
    "AVERAGE_POOL_2D": ("Pool2D", _POOL, [_reals(1, 4, 4, 3)], (1, 3, 3, 3), 1),
    "ADD": ("Add", {}, [_reals(2, 6), _reals(2, 6)], (2, 6), 1),
    "SUB": ("Sub", {}, [_reals(2, 6), _reals(2, 6)], (2, 6), 1),
    "MUL": ("Mul", {}, [_reals(2, 6), _reals(2, 6)], (2, 6), 1),
    "DIV": ("Div", {}, [_reals(2, 6), _reals(2, 6)], (2, 6), 1),
    "CONCATENATION": (
        "Concatenation",
        {"axis": 1},
        [_reals(2, 3), _reals(2, 4)],
        (2, 7),
        1,
    ),
    "L2_NORMALIZATION": ("L2Norm", {}, [_reals(2, 6)], (2, 6), 1),
}
"""Options table and fields, inputs, the output's shape, and the version."""
_NOT_OF_LITERT = ("CONCATENATION", "L2_NORMALIZATION")
"""Operators whose activation LiteRT refuses, though the schema has it."""


def _file(name: str, act: int) -> bytes:
    table, fields, inputs, shape, version = _OPERATORS[name]
    options = (f"{table}Options", {**fields, "fusedActivationFunction": act})
    return packed(model_of(name, options, inputs, [(shape, np.float32)], version))


def _fed(inputs: list[Given]) -> dict[str, Array]:
    return {f"x{i}": x.data for i, x in enumerate(inputs) if not x.const}


def _clamped(y: Array, act: str) -> Array:
    return np.clip(y, *ACTIVATIONS[act]).astype(y.dtype)


@pytest.mark.cc
@pytest.mark.parametrize("act", sorted(ACTIVATIONS))
@pytest.mark.parametrize("name", _OPERATORS)
def test_floats_are_litert(name: str, act: str, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(_file(name, _NUMBERS[act]))
    fed = _fed(_OPERATORS[name][2])
    if name in _NOT_OF_LITERT:
        want = _clamped(reference(_file(name, 0), fed)["y0"], act)
    else:
        want = reference(path.read_bytes(), fed)["y0"]
    graph = read_model(path)
    for got in (interp(graph, fed), run_c(optimize(graph), fed)):
        np.testing.assert_allclose(got["y0"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("number", [4, 5, 6, -1])
@pytest.mark.parametrize("name", _OPERATORS)
def test_others_are_refused_by_name(name: str, number: int, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(_file(name, number))
    known = {4: "TANH", 5: "SIGN_BIT"}
    with pytest.raises(UnsupportedError) as caught:
        read_model(path)
    assert caught.value.what == (
        f"{name}: the fused activation {known.get(number, f'NUMBER {number}')} is not "
        "supported; it can be NONE, RELU, RELU6, RELU_N1_TO_1"
    )
    assert name in str(caught.value.at)


@pytest.mark.cc
@pytest.mark.parametrize(
    ("name", "dtype"),
    [*product(("ADD", "SUB", "MUL"), (np.int32, np.int64)), ("DIV", np.int32)],
)
@pytest.mark.parametrize("act", sorted(ACTIVATIONS))
def test_integers_are_litert(name: str, act: str, dtype: Any, tmp_path: Path) -> None:
    a = _RNG.integers(-9, 10, (2, 30)).astype(dtype)
    b = _RNG.integers(1, 5, (2, 30)).astype(dtype)
    table = (
        f"{_OPERATORS[name][0]}Options",
        {"fusedActivationFunction": _NUMBERS[act]},
    )
    file = packed(model_of(name, table, [Given(a), Given(b)], [((2, 30), dtype)]))
    (tmp_path / "m.tflite").write_bytes(file)
    fed = {"x0": a, "x1": b}
    want = reference(file, fed)["y0"]
    graph = read_model(tmp_path / "m.tflite")
    for got in (interp(graph, fed), run_c(optimize(graph), fed)):
        np.testing.assert_array_equal(got["y0"], want)


@pytest.mark.cc
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
@pytest.mark.parametrize("act", ["relu", "relu6", "relu_n1_to_1"])
def test_joined_integers_are_clamped(act: str, dtype: Any, tmp_path: Path) -> None:
    """LiteRT refuses it: its join, and the bounds as its other kernels round them."""
    scale, zero_point = 0.11, 3
    quant: Any = None if dtype == np.int32 else ([scale], [zero_point], 0)
    low, high = (0, 256) if dtype == np.uint8 else (-128, 128)
    inputs = [
        Given(_RNG.integers(low, high, (2, n)).astype(dtype), quant=quant)
        for n in (30, 50)
    ]

    def file(number: int) -> bytes:
        options = {"axis": -1, "fusedActivationFunction": number}
        table = ("ConcatenationOptions", options)
        model = model_of("CONCATENATION", table, inputs, [((2, 80), dtype)])
        if quant:
            quantized(model.subgraphs[0].tensors[-1], quant)
        return packed(model)

    (tmp_path / "m.tflite").write_bytes(file(_NUMBERS[act]))
    fed = _fed(inputs)
    want = reference(file(0), fed)["y0"]
    if quant:
        name = np.dtype(dtype).name
        y = TensorType((2, 80), name, Quant.per_tensor(scale, zero_point))
        want = np.clip(want, *activation_range(act, y))
    else:
        want = _clamped(want, act)
    graph = read_model(tmp_path / "m.tflite")
    for got in (interp(graph, fed), run_c(optimize(graph), fed)):
        np.testing.assert_array_equal(got["y0"], want)
