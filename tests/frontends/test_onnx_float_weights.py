"""Weights that a quantized ONNX file has in floats: rounded where and as onnxruntime's
default session rounds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto

from edgec.frontends.onnx import read_onnx
from edgec.ir import Array, interp
from edgec.passes.pipeline import optimize
from tests.frontends.onnx_files import node
from tests.frontends.test_onnx_quantized import save, session
from tests.harness import run_c

RNG = np.random.default_rng(11)
IMAGE = (1, 4, 8, 8)
ROWS = (5, 4)
W = (RNG.normal(size=(6, 4, 3, 3)) * 0.1).astype(np.float32)
MATRIX = (RNG.normal(size=(4, 6)) * 0.1).astype(np.float32)
BIAS = (RNG.normal(size=6) * 0.1).astype(np.float32)
NORM = {
    k: (RNG.random(6) + 0.5).astype(np.float32)
    for k in ("scale", "shift", "mean", "var")
}
ROUNDED: dict[str, tuple[list[NodeProto], dict[str, Array]]] = {
    "conv": ([node("Conv", ["r", "w", "b"], "f")], {}),
    "conv_without_bias": ([node("Conv", ["r", "w"], "f")], {}),
    "depthwise": (
        [node("Conv", ["r", "w", "b"], "f", group=4)],
        {"w": W[:4, :1], "b": BIAS[:4]},
    ),
    "all_positive": ([node("Conv", ["r", "w", "b"], "f")], {"w": np.abs(W) + 0.1}),
    "all_zero": ([node("Conv", ["r", "w", "b"], "f")], {"w": 0 * W}),
    "relu": ([node("Conv", ["r", "w", "b"], "g"), node("Relu", ["g"], "f")], {}),
    "clip": (
        [node("Conv", ["r", "w", "b"], "g"), node("Clip", ["g", "low", "high"], "f")],
        {"low": np.array(-0.05, np.float32), "high": np.array(0.2, np.float32)},
    ),
    "batch_norm": (
        [
            node("Conv", ["r", "w", "b"], "g"),
            node("BatchNormalization", ["g", "scale", "shift", "mean", "var"], "f"),
        ],
        NORM,
    ),
    "pool_between": (
        [
            node("Conv", ["r", "w", "b"], "g"),
            node("MaxPool", ["g"], "f", kernel_shape=[2, 2]),
        ],
        {},
    ),
    "transposed": (
        [node("ConvTranspose", ["r", "w", "b"], "f")],
        {"w": W.transpose(1, 0, 2, 3)},
    ),
    "gemm": ([node("Gemm", ["r", "w", "b"], "f")], {"w": MATRIX}),
    "matmul_with_bias": (
        [node("MatMul", ["r", "w"], "g"), node("Add", ["g", "b"], "f")],
        {"w": MATRIX},
    ),
}
KEPT: dict[str, tuple[list[NodeProto], dict[str, Array]]] = {
    "matmul": ([node("MatMul", ["r", "w"], "f")], {"w": MATRIX}),
    "sigmoid": ([node("Conv", ["r", "w", "b"], "g"), node("Sigmoid", ["g"], "f")], {}),
    "after_relu": ([node("Relu", ["r"], "g"), node("Conv", ["g", "w", "b"], "f")], {}),
    "sum": ([node("Conv", ["r", "w", "b"], "g"), node("Add", ["g", "g"], "f")], {}),
}


def _both(
    path: Path, nodes: list[NodeProto], more: Mapping[str, Array]
) -> tuple[Array, Array, set[str]]:
    """What edgec and onnxruntime's default session make of it, and the element types of
    what edgec computes.
    """
    given: dict[str, Any] = {
        "xs": np.array(0.031, np.float32),
        "xz": np.array(120, np.uint8),
    }
    given |= {
        "ys": np.array(0.0017, np.float32),
        "yz": np.array(128, np.uint8),
        "w": W,
        "b": BIAS,
        **more,
    }
    shape = ROWS if given["w"].ndim == 2 else IMAGE
    ends = {"x": (TensorProto.UINT8, shape), "y": (TensorProto.UINT8, None)}
    whole = [
        node("DequantizeLinear", ["x", "xs", "xz"], "r"),
        *nodes,
        node("QuantizeLinear", ["f", "ys", "yz"], "y"),
    ]
    save(path, whole, ends, {k: np.ascontiguousarray(v) for k, v in given.items()})
    x = {"x": RNG.integers(0, 256, shape).astype(np.uint8)}
    graph = optimize(read_onnx(path, {}))
    got = interp(graph, x)["y"]
    np.testing.assert_array_equal(run_c(graph, x)["y"], got)
    computed = [op for op in graph.ops if op.kind not in ("quantize", "dequantize")]
    return (
        got,
        session(path).run(None, x)[0],
        {v.type.dtype for op in computed for v in op.outputs},
    )


@pytest.mark.parametrize("case", ROUNDED)
def test_weights_are_rounded_where_onnxruntime_rounds_them(
    case: str, tmp_path: Path
) -> None:
    got, want, types = _both(tmp_path / "m.onnx", *ROUNDED[case])
    assert "float32" not in types
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("case", KEPT)
def test_weights_stay_where_onnxruntime_keeps_them(case: str, tmp_path: Path) -> None:
    got, want, types = _both(tmp_path / "m.onnx", *KEPT[case])
    assert "float32" in types
    np.testing.assert_array_equal(got, want)
