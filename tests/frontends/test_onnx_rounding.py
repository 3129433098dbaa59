"""Quantized resizes and averages of ONNX files: onnxruntime's integers, in `interp` and
in C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from edgec_partitioner.rounding import as_tflite
from onnx import NodeProto, TensorProto

from edgec.frontends.onnx import read_onnx
from edgec.ir import Array, Graph, interp, verify
from edgec.passes.pipeline import optimize
from tests.frontends.onnx_files import node
from tests.frontends.test_onnx_quantized import MICROSOFT, S8, U8, save
from tests.harness import run_c

SHAPE = (1, 5, 6, 7)
SIZES = ((12, 14), (9, 13), (4, 3))
MODES = ("half_pixel", "asymmetric", "align_corners")


def _agrees(
    path: Path,
    nodes: Sequence[NodeProto],
    constants: Mapping[str, Array],
    shape: Sequence[int],
    optimized: bool = True,
) -> Graph:
    """The optimised graph of a model of one quantized operator, whose integers are
    onnxruntime's. optimized: whether onnxruntime fuses it with the conversions.
    """
    type_: Any = constants["z"].dtype
    code = TensorProto.UINT8 if type_ == U8 else TensorProto.INT8
    save(path, nodes, {"x": (code, shape), "y": (code, None)}, constants)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdqisint8allowed", "1")  # as on Arm
    if not optimized:
        options.graph_optimization_level = (
            onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        )
    session = onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    info = np.iinfo(type_)
    x = {
        "x": np.random.default_rng(5)
        .integers(info.min, info.max + 1, shape)
        .astype(type_)
    }
    graph = optimize(read_onnx(path, {}))
    verify(graph, "quantized")
    assert not [
        op for op in graph.ops if "float32" in (v.type.dtype for v in op.outputs)
    ]
    got = interp(graph, x)["y"]
    np.testing.assert_array_equal(got, session.run(None, x)[0])
    np.testing.assert_array_equal(run_c(graph, x)["y"], got)
    return graph


def _scale(type_: Any, scale: float, zero: int) -> dict[str, Array]:
    return {
        "s": np.array(scale, np.float32),
        "z": np.array(zero + (128 if type_ == U8 else 0), type_),
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("type_", [U8, S8])
def test_a_resize_between_scales_blends_reals(
    type_: Any, size: tuple[int, int], mode: str, tmp_path: Path
) -> None:
    constants = _scale(type_, 0.0711, -9) | {
        "size": np.array([*SHAPE[:2], *size], np.int64)
    }
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], "r"),
        node(
            "Resize",
            ["r", "", "", "size"],
            "f",
            mode="linear",
            coordinate_transformation_mode=mode,
        ),
        node("QuantizeLinear", ["f", "s", "z"], "y"),
    ]
    graph = _agrees(tmp_path / "m.onnx", nodes, constants, SHAPE)
    (resize,) = (op for op in as_tflite(graph).ops if op.kind == "resize_bilinear")
    assert resize.spec == resize.spec.as_tflite()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("type_", [U8, S8])
def test_a_resize_of_integers_cuts_them_off(
    type_: Any, size: tuple[int, int], mode: str, tmp_path: Path
) -> None:
    """Of an image whose channels come last: so do those that onnxruntime's convolutions
    make.
    """
    shape = (1, 6, 7, 5)
    constants = _scale(type_, 0.0711, -9) | {"size": np.array([1, *size, 5], np.int64)}
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], "r"),
        node("QuantizeLinear", ["r", "s", "z"], "q"),
        node(
            "Resize",
            ["q", "", "", "size"],
            "i",
            mode="linear",
            coordinate_transformation_mode=mode,
        ),
        node("DequantizeLinear", ["i", "s", "z"], "f"),
        node("QuantizeLinear", ["f", "s", "z"], "y"),
    ]
    _agrees(tmp_path / "m.onnx", nodes, constants, shape)


@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [
        ([2, 2], {"strides": [2, 2]}),
        ([3, 2], {"pads": [1, 0, 1, 1]}),
        ([3, 2], {"pads": [1, 0, 1, 1], "count_include_pad": 1}),
        ([14, 14], {"strides": [14, 14]}),  # of the whole image: a mean of integers
    ],
)
@pytest.mark.parametrize("type_", [U8, S8])
def test_an_average_rounds_to_even(
    type_: Any, kernel: list[int], attributes: dict[str, Any], tmp_path: Path
) -> None:
    pool = node(
        "QLinearAveragePool",
        ["x", "s", "z", "s", "z"],
        "y",
        kernel_shape=kernel,
        **attributes,
    )
    pool.domain = MICROSOFT
    graph = _agrees(
        tmp_path / "m.onnx", [pool], _scale(type_, 0.05, -9), (1, 96, 14, 14)
    )
    assert all(op.spec == op.spec.as_tflite() for op in as_tflite(graph).ops)


@pytest.mark.parametrize("scale", [1 / 255, 1 / 256, 1 / 1000, 1 / 50])
@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("type_", [U8, S8])
def test_a_softmax_is_floats_rounded_to_the_scale_of_the_file(
    type_: Any, axis: int, scale: float, tmp_path: Path
) -> None:
    """Rows of two: many have a probability that rounds to 1."""
    constants = _scale(type_, 0.2, -9) | {
        "s1": np.array(scale, np.float32),
        "z1": np.array(0 if type_ == U8 else -128, type_),
    }
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], "r"),
        node("Softmax", ["r"], "f", axis=axis),
        node("QuantizeLinear", ["f", "s1", "z1"], "y"),
    ]
    graph = _agrees(tmp_path / "m.onnx", nodes, constants, (50, 2, 3, 2), False)
    kinds = {op.kind for op in as_tflite(graph).ops}
    assert "softmax" in kinds
