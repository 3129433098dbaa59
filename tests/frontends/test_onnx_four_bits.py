"""ONNX weights of four bits and less: the reals that onnxruntime computes with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import edgec.onnx_backend as backend
from edgec.errors import UnsupportedError
from edgec.frontends.onnx import read_onnx
from edgec.ir import Array, interp
from tests.frontends.onnx_files import node
from tests.harness import assert_agree, run_c

_RNG = np.random.default_rng(3)
_TYPES = {TensorProto.INT4: (-8, 8), TensorProto.UINT4: (0, 16)}
DEPTH = 32
ROWS = 8


def _numbers(code: int, *shape: int) -> Array:
    return _RNG.integers(*_TYPES[code], shape)


def _save(
    path: Path,
    nodes: Sequence[NodeProto],
    shape: Sequence[int],
    constants: Mapping[str, Array],
    four_bits: Mapping[str, Array],
    code: int = TensorProto.INT4,
) -> Path:
    """A model of float x and y. four_bits: constants of the type `code`."""
    weights = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    for name, array in four_bits.items():
        flat = array.reshape(-1).tolist()
        weights.append(helper.make_tensor(name, code, array.shape, flat))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(list(nodes), "bits", [x], [y], weights)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    onnx.save(model, str(path))
    return path


def _agrees(path: Path) -> None:
    """onnxruntime is not optimised: else it rounds x to 8 bits."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    session = onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    graph = read_onnx(path, {})
    (x,) = graph.inputs
    feeds = {"x": _RNG.normal(size=x.type.shape).astype(np.float32)}
    want = {"y": session.run(None, feeds)[0]}
    assert_agree(interp(graph, feeds), want, 1e-5)
    assert_agree(run_c(graph, feeds), want, 1e-5)


_AXES = ("tensor", "axis", "blocks", "blocks of columns")


@pytest.mark.cc
@pytest.mark.parametrize("where", _AXES)
@pytest.mark.parametrize("code", _TYPES)
def test_weights_of_four_bits(code: int, where: str, tmp_path: Path) -> None:
    attrs: dict[str, dict[str, int]] = {
        "tensor": {},
        "axis": {"axis": 1},
        "blocks": {"axis": 0, "block_size": 16},
        "blocks of columns": {"axis": 1, "block_size": 4},
    }
    shapes = {"axis": (ROWS,), "blocks": (DEPTH // 16, ROWS)}
    shapes |= {"blocks of columns": (DEPTH, ROWS // 4), "tensor": ()}
    scale = _RNG.uniform(0.1, 0.2, shapes[where]).astype(np.float32)
    four_bits = {
        "w": _numbers(code, DEPTH, ROWS),
        "z": _numbers(code, *shapes[where]),
    }
    nodes = [
        node("DequantizeLinear", ["w", "s", "z"], "r", **attrs[where]),
        node("MatMul", ["x", "r"], "y"),
    ]
    path = tmp_path / "m.onnx"
    _agrees(_save(path, nodes, (3, DEPTH), {"s": scale}, four_bits, code))


@pytest.mark.cc
def test_a_convolution_with_weights_of_four_bits(tmp_path: Path) -> None:
    scale = _RNG.uniform(0.1, 0.2, 4).astype(np.float32)
    nodes = [
        node("DequantizeLinear", ["w", "s"], "r", axis=0),
        node("Conv", ["x", "r"], "y"),
    ]
    weights = {"w": _numbers(TensorProto.INT4, 4, 3, 3, 3)}
    _agrees(_save(tmp_path / "m.onnx", nodes, (1, 3, 8, 8), {"s": scale}, weights))


@pytest.mark.cc
@pytest.mark.parametrize("constant_node", [False, True])
@pytest.mark.parametrize("code", _TYPES)
def test_reals_saturate_to_four_bits(
    code: int, constant_node: bool, tmp_path: Path
) -> None:
    zero = np.array(-2 if code == TensorProto.INT4 else 7)
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "s", "z"], "y"),
    ]
    four_bits = {"z": zero}
    if constant_node:
        tensor = helper.make_tensor("value", code, (), [int(zero)])
        nodes.insert(0, node("Constant", [], "z", value=tensor))
        four_bits = {}
    scale = {"s": np.array(0.1, np.float32)}
    _agrees(_save(tmp_path / "m.onnx", nodes, (4, 50), scale, four_bits, code))


@pytest.mark.cc
@pytest.mark.parametrize(
    ("bits", "block", "depth", "zero"),
    [
        (4, 16, 32, ""),
        (4, 16, 32, "packed"),
        (4, 32, 32, "packed"),
        (4, 16, 40, "floats"),
        (4, 128, 100, "packed"),
        (8, 16, 32, "packed"),
        (2, 16, 32, "packed"),
    ],
)
def test_a_product_with_weights_of_a_few_bits(
    bits: int, block: int, depth: int, zero: str, tmp_path: Path
) -> None:
    blocks = -(-depth // block)
    size = ROWS * -(-blocks * bits // 8)
    packed = _RNG.integers(0, 256, size).astype(np.uint8)
    reals = _RNG.uniform(0, 15, ROWS * blocks).astype(np.float32)
    of_kind: dict[str, dict[str, Array]]
    of_kind = {"": {}, "packed": {"z": packed}, "floats": {"z": reals}}
    zeros = of_kind[zero]
    weights = _RNG.integers(0, 256, (ROWS, blocks, block * bits // 8))
    constants: dict[str, Array] = {
        "w": weights.astype(np.uint8),
        "s": _RNG.uniform(0.05, 0.1, ROWS * blocks).astype(np.float32),
        "b": _RNG.normal(size=ROWS).astype(np.float32),
        **zeros,
    }
    inputs = ["x", "w", "s", *(zeros or [""]), "", "b"]
    attrs: dict[str, int] = {"K": depth, "N": ROWS, "bits": bits, "block_size": block}
    nodes = [node("MatMulNBits", inputs, "y", domain="com.microsoft", **attrs)]
    _agrees(_save(tmp_path / "m.onnx", nodes, (2, 3, depth), constants, {}))


@pytest.mark.parametrize("code", _TYPES)
def test_inputs_and_outputs_of_four_bits_have_eight(code: int) -> None:
    """A number that does not fit keeps its low bits, as in ONNX's reference."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [40])
    like = helper.make_tensor_value_info("like", code, [1])
    ends = [helper.make_tensor_value_info(name, code, [40]) for name in ("y", "z")]
    nodes = [node("CastLike", ["x", "like"], "y"), node("Cast", ["x"], "z", to=code)]
    graph = helper.make_graph(nodes, "casts", [x, like], ends)
    imports = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    four_bits = helper.tensor_dtype_to_np_dtype(code)
    feeds = {
        "x": np.arange(-20, 20).astype(np.float32),
        "like": np.zeros(1, four_bits),
    }
    got = backend.prepare(model, "INTERP").run(feeds)
    low, high = _TYPES[code]
    want = (np.arange(-20, 20) - low) % 16 + low
    assert want.max() == high - 1
    for name in ("y", "z"):
        array = getattr(got, name)
        assert array.dtype == (np.int8 if low else np.uint8)
        np.testing.assert_array_equal(array, want)


def test_an_order_of_the_weights_is_refused(tmp_path: Path) -> None:
    constants: dict[str, Array] = {
        "w": np.zeros((ROWS, 2, 8), np.uint8),
        "s": np.ones(ROWS * 2, np.float32),
        "order": np.zeros(DEPTH, np.int32),
    }
    inputs = ["x", "w", "s", "", "order"]
    attrs = {"K": DEPTH, "N": ROWS, "bits": 4, "block_size": 16}
    nodes = [node("MatMulNBits", inputs, "y", domain="com.microsoft", **attrs)]
    path = _save(tmp_path / "m.onnx", nodes, (3, DEPTH), constants, {})
    with pytest.raises(UnsupportedError, match="an order of their own"):
        read_onnx(path, {})
