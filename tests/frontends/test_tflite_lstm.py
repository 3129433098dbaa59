"""TFLite's LSTM of int8, bit for bit, over sequences that go on where the last one
ended.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from edgec.frontends import read_model
from edgec.ir import Calls, interp
from edgec.ops.gemmlowp import logistic_16, tanh_16
from edgec.passes.pipeline import optimize
from tests.frontends.tflite_operators import Given, model_of, packed
from tests.frontends.tflite_state import litert_calls
from tests.harness import run_c

_RNG = np.random.default_rng(5)


def _int8(
    *shape: int, low: int = -127, quant: tuple[float, int], **fields: Any
) -> Given:
    data = _RNG.integers(low, 128, shape).astype(np.int8)
    return Given(data, not fields, ([quant[0]], [quant[1]], 0), fields=fields or None)


def _layer(batch: int, steps: int, time_major: bool, zero: int, clip: float) -> bytes:
    """5 units on 3 features. zero: the zero point of what it remembers."""
    n = 5
    features = 3
    inputs: list[Given | None] = [None] * 24
    shape = (steps, batch, features) if time_major else (batch, steps, features)
    inputs[0] = Given(np.zeros(shape, np.int8), quant=([0.03], [7], 0))
    for i in range(4):
        inputs[1 + i] = _int8(n, features, quant=(0.011 + 0.002 * i, 0))
        inputs[5 + i] = _int8(n, n, quant=(0.007 + 0.001 * i, 0))
        bias = _RNG.integers(-4000, 4000, n).astype(np.int32)
        inputs[12 + i] = Given(bias, True, ([(0.011 + 0.002 * i) * 0.03], [0], 0))
    state = ([0.0078], [zero], 0)
    inputs[18] = Given(
        np.zeros((batch, n), np.int8), quant=state, fields={"isVariable": True}
    )
    inputs[19] = Given(
        np.zeros((batch, n), np.int16),
        quant=([2.0**-12], [0], 0),
        fields={"isVariable": True},
    )
    options = (
        "UnidirectionalSequenceLSTMOptions",
        {"fusedActivationFunction": 4, "cellClip": clip},
    )
    options[1]["timeMajor"] = time_major
    model = model_of(
        "UNIDIRECTIONAL_SEQUENCE_LSTM", options, inputs, [((*shape[:2], n), np.int8)]
    )
    sub = model.subgraphs[0]
    sub.tensors[-1].quantization = _quant(0.0078, zero)
    for i in range(5):
        tensor = schema.TensorT()
        tensor.name = f"between{i}".encode()
        tensor.type = schema.TensorType.FLOAT32
        tensor.shape = np.array([0], np.int32)
        if i == 4:
            tensor.type = schema.TensorType.INT8
            tensor.quantization = _quant(0.0078, zero)
        sub.tensors.append(tensor)
    sub.operators[0].intermediates = np.arange(
        len(sub.tensors) - 5, len(sub.tensors), dtype=np.int32
    )
    return packed(model)


def _quant(scale: float, zero: int) -> Any:
    q = schema.QuantizationParametersT()
    q.scale = np.array([scale], np.float32)
    q.zeroPoint = np.array([zero], np.int64)
    return q


@pytest.mark.parametrize(("batch", "time_major"), [(1, False), (2, True)])
@pytest.mark.parametrize(("zero", "clip"), [(0, 0.0), (9, 0.0), (0, 0.3)])
def test_a_layer_of_int8(
    batch: int, time_major: bool, zero: int, clip: float, tmp_path: Path
) -> None:
    data = _layer(batch, 6, time_major, zero, clip)
    (tmp_path / "m.tflite").write_bytes(data)
    graph = optimize(read_model(tmp_path / "m.tflite"))
    (x,) = graph.given()
    xs = [_RNG.integers(-128, 128, x.type.shape).astype(np.int8) for _ in range(6)]
    calls = Calls(graph)
    states = []
    for one, (want,) in zip(xs, litert_calls(data, xs), strict=True):
        states.append(calls.state)
        np.testing.assert_array_equal(calls({x.name: one})["y0"], want)
    last = {x.name: xs[-1], **states[-1]}
    for name, got in run_c(graph, last).items():
        np.testing.assert_array_equal(got, interp(graph, last)[name])


@pytest.mark.parametrize("bits", range(5))
def test_the_curves_are_near_those_of_reals(bits: int) -> None:
    a = np.arange(-(1 << 15), 1 << 15)
    reals = a / (1 << (15 - bits))
    assert np.abs(logistic_16(a, bits) / 2**15 - 1 / (1 + np.exp(-reals))).max() < 3e-4
    assert np.abs(tanh_16(a, bits) / 2**15 - np.tanh(reals)).max() < 5e-4
