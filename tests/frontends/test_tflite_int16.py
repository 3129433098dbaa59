"""TFLite's int16 activations with int8 weights: floats inside the graph, within a few
of 65536 steps of LiteRT.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

import edgec
from edgec.compiler.lower import lower
from edgec.frontends import read_model
from edgec.ir import interp
from edgec.options.compile import CompileOptions
from edgec.passes.pipeline import optimize
from tests.frontends.tflite_operators import (
    Given,
    const,
    model_of,
    packed,
    quantized,
    reference,
)
from tests.harness import run_c

_RNG = np.random.default_rng(2)
_S16 = np.int16
Quant = tuple[Sequence[float], Sequence[int], int]


def _image(*shape: int, scale: float = 2.0**-12) -> Given:
    return Given(
        _RNG.integers(-20000, 20000, shape).astype(_S16), quant=([scale], [0], 0)
    )


def _weights(shape: tuple[int, ...], axis: int) -> tuple[Given, Given]:
    """int8 by channel and its int64 bias."""
    n = shape[axis]
    x = 2.0**-12
    scales = [0.002 + 0.001 * i for i in range(n)]
    w = Given(
        _RNG.integers(-127, 128, shape).astype(np.int8), True, (scales, [0] * n, axis)
    )
    bias = _RNG.integers(-200000, 200000, n).astype(np.int64)
    return w, Given(bias, True, ([s * x for s in scales], [0] * n, 0))


Case = tuple[str, Any, list[Given], tuple[int, ...], float, int]


def _cases() -> list[Case]:
    """Operator, options, inputs, the output's shape and scale, and how many steps
    apart.
    """
    window: dict[str, Any] = {"padding": 1, "strideH": 1, "strideW": 1}
    conv = {
        **window,
        "dilationHFactor": 1,
        "dilationWFactor": 1,
        "fusedActivationFunction": 1,
    }
    pool = {**window, "filterWidth": 2, "filterHeight": 2}
    return [
        (
            "CONV_2D",
            ("Conv2DOptions", conv),
            [_image(1, 5, 6, 3), *_weights((4, 3, 3, 3), 0)],
            (1, 3, 4, 4),
            2**-10,
            1,
        ),
        (
            "DEPTHWISE_CONV_2D",
            ("DepthwiseConv2DOptions", {**conv, "depthMultiplier": 1}),
            [_image(1, 5, 6, 4), *_weights((1, 3, 3, 4), 3)],
            (1, 3, 4, 4),
            2**-10,
            1,
        ),
        (
            "ADD",
            ("AddOptions", {"potScaleInt16": False}),
            [_image(2, 6), _image(2, 6, scale=2**-13)],
            (2, 6),
            2**-11,
            1,
        ),
        (
            "MUL",
            ("MulOptions", {}),
            [_image(2, 6), _image(2, 6, scale=2**-13)],
            (2, 6),
            2**-11,
            1,
        ),
        (
            "MAX_POOL_2D",
            ("Pool2DOptions", pool),
            [_image(1, 4, 4, 3)],
            (1, 3, 3, 3),
            2**-12,
            0,
        ),
        (
            "AVERAGE_POOL_2D",
            ("Pool2DOptions", pool),
            [_image(1, 4, 4, 3)],
            (1, 3, 3, 3),
            2**-12,
            1,
        ),
        (
            "SOFTMAX",
            ("SoftmaxOptions", {"beta": 1.0}),
            [_image(2, 9)],
            (2, 9),
            2**-15,
            4,
        ),
        ("LOGISTIC", None, [_image(2, 9)], (2, 9), 2**-15, 4),
        ("TANH", None, [_image(2, 9)], (2, 9), 2**-15, 4),
        (
            "RESHAPE",
            ("ReshapeOptions", {"newShape": np.array([3, 4], np.int32)}),
            [_image(2, 6), const([3, 4])],
            (3, 4),
            2**-12,
            0,
        ),
    ]


@pytest.mark.parametrize("case", _cases(), ids=lambda c: str(c[0]))
def test_operators(case: Case, tmp_path: Path) -> None:
    name, options, inputs, shape, scale, steps = case
    model = model_of(name, options, inputs, [(shape, _S16)])
    quantized(model.subgraphs[0].tensors[-1], ([scale], [0], 0))
    (tmp_path / "m.tflite").write_bytes(packed(model))
    graph = read_model(tmp_path / "m.tflite")
    assert {v.type.dtype for op in graph.ops for v in op.outputs} <= {
        "float32",
        "int16",
    }
    fed = {f"x{i}": x.data for i, x in enumerate(inputs) if not x.const}
    want = reference(packed(model), fed)["y0"].astype(int)
    for got in (interp(graph, fed), run_c(optimize(graph), fed)):
        assert np.abs(got["y0"] - want).max() <= steps


@pytest.mark.parametrize("name", ["CONV_2D", "ADD", "MUL"])
def test_results_end_where_int16_does(name: str, tmp_path: Path) -> None:
    """Scales that are too fine for what is computed, as calibration with few samples
    finds them.
    """
    _, options, inputs, shape, scale, steps = next(c for c in _cases() if c[0] == name)
    model = model_of(name, options, inputs, [(shape, _S16)])
    tensors = model.subgraphs[0].tensors
    quantized(tensors[-1], ([scale / 64], [0], 0))
    # read by another operator: the end of the graph alone would hide it
    doubled = copy.deepcopy(tensors[-1])
    doubled.name = b"y1"
    doubled.buffer = len(model.buffers)
    model.buffers.append(schema.BufferT())
    quantized(doubled, ([scale / 16], [0], 0))
    tensors.append(doubled)
    add = next(c for c in _cases() if c[0] == "ADD")
    other = model_of("ADD", add[1], add[2], [(shape, _S16)])
    model.operatorCodes.append(other.operatorCodes[0])
    operator = other.subgraphs[0].operators[0]
    operator.opcodeIndex = 1
    operator.inputs = np.array([len(tensors) - 2] * 2, np.int32)
    model.subgraphs[0].outputs = np.array([len(tensors) - 1], np.int32)
    operator.outputs = model.subgraphs[0].outputs
    model.subgraphs[0].operators.append(operator)
    (tmp_path / "m.tflite").write_bytes(packed(model))
    fed = {f"x{i}": x.data for i, x in enumerate(inputs) if not x.const}
    want = reference(packed(model), fed)["y1"].astype(int)
    assert (np.abs(want) >= 16383).any()
    graph = read_model(tmp_path / "m.tflite")
    for got in (interp(graph, fed), run_c(optimize(graph), fed)):
        assert np.abs(got["y1"] - want).max() <= steps


def test_a_file_of_16_bits_can_become_int8(tmp_path: Path) -> None:
    """Its border keeps its types; inside it is a float model, which calibration makes
    int8.
    """
    name, options, inputs, shape, scale, _ = _cases()[0]
    model = model_of(name, options, inputs, [(shape, _S16)])
    quantized(model.subgraphs[0].tensors[-1], ([scale], [0], 0))
    path = tmp_path / "m.tflite"
    path.write_bytes(packed(model))
    np.savez(
        tmp_path / "c.npz",
        x0=_RNG.integers(-20000, 20000, (8, 1, 5, 6, 3)).astype(_S16),
    )
    graph = lower(
        path, CompileOptions(calibrate=tmp_path / "c.npz", quantize="fast")
    ).graph
    assert {op.output.type.dtype for op in graph.ops if op.kind == "conv2d"} == {"int8"}
    assert "clamp" not in {op.kind for op in graph.ops}
    assert (graph.inputs[0].type.dtype, graph.outputs[0].type.dtype) == (
        "int16",
        "int16",
    )
    assert edgec.explain(path)
