"""Quantized ONNX files: what onnxruntime's quantizer writes becomes the int8 graph that
a TFLite import would give.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.backend.test.case import node as node_tests
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from edgec.compiler.lower import notes_on_quantized_file
from edgec.errors import UnsupportedError
from edgec.frontends.onnx import read_onnx
from edgec.ir import Array, Quant, interp, parse, print_graph, verify
from edgec.passes.pipeline import optimize
from edgec.quantize import is_quantized
from tests.frontends.onnx_files import node, write
from tests.harness import run_c

RNG = np.random.default_rng(7)
SHAPE = (1, 4, 8, 6)
MICROSOFT = "com.microsoft"


def session(path: Path) -> onnxruntime.InferenceSession:
    """onnxruntime, whose sums are exact on any machine by this option; x86-64 without
    VNNI saturates them else.
    """
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )


def save(
    path: Path,
    nodes: Sequence[NodeProto],
    ends: Mapping[str, Any],
    constants: Mapping[str, Array],
) -> Path:
    """A model whose inputs x… and output y have the element types and shapes in `ends`."""
    infos = [helper.make_tensor_value_info(n, *t) for n, t in ends.items()]
    graph = helper.make_graph(
        list(nodes),
        "q",
        infos[:-1],
        infos[-1:],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=8), str(path))
    return path


# ---- one operator
# --------------------------------------------------------------------------------------
def _scales(dtype: Any, *reals: float) -> dict[str, Array]:
    """Scales s0, s1, … and zero points z0, z1, … that lie off the middle."""
    middle = 128 if dtype == np.uint8 else 0
    found: dict[str, Array] = {
        f"s{i}": np.array(r, np.float32) for i, r in enumerate(reals)
    }
    return found | {
        f"z{i}": np.array(middle - 5 + 9 * i, dtype) for i, _ in enumerate(reals)
    }


def _weights(shape: tuple[int, ...], channels: int, dtype: Any) -> dict[str, Array]:
    low, high = (-63, 64) if dtype == np.int8 else (60, 187)
    if channels > 1:
        scale = np.linspace(0.01, 0.03, channels).astype(np.float32)
    else:
        scale = np.array(0.02, np.float32)
    zero = np.full(scale.shape, 0 if dtype == np.int8 else 117, dtype)
    return {"w": RNG.integers(low, high, shape).astype(dtype), "ws": scale, "wz": zero}


def _conv(
    dtype: Any, channels: int, weights: Any, group: int = 1
) -> tuple[list[NodeProto], dict[str, Array]]:
    given = _weights((8, 4 // group, 3, 3), channels, weights) | _scales(
        dtype, 0.04, 0.11
    )
    bias = {"b": RNG.integers(-900, 900, 8).astype(np.int32)}
    inputs = ["x", "s0", "z0", "w", "ws", "wz", "s1", "z1", "b"]
    return [
        node("QLinearConv", inputs, "y", pads=[1, 1, 1, 1], strides=[2, 1], group=group)
    ], given | bias


def _matmul(dtype: Any, channels: int) -> tuple[list[NodeProto], dict[str, Array]]:
    given = _weights((6, 5), channels, np.int8) | _scales(dtype, 0.04, 0.05)
    return [
        node("QLinearMatMul", ["x", "s0", "z0", "w", "ws", "wz", "s1", "z1"], "y")
    ], given


def _gemm(dtype: Any) -> tuple[list[NodeProto], dict[str, Array]]:
    given = _weights((5, 6), 1, dtype) | _scales(dtype, 0.04, 0.05)
    shapes = {
        "flat": np.array([32, 6]),
        "b": RNG.integers(-900, 900, 5).astype(np.int32),
    }
    inputs = ["r", "s0", "z0", "w", "ws", "wz", "b", "s1", "z1"]
    gemm = node("QGemm", inputs, "y", transB=1, domain=MICROSOFT)
    return [node("Reshape", ["x", "flat"], "r"), gemm], given | shapes


def _two(op_type: str, dtype: Any) -> tuple[list[NodeProto], dict[str, Array]]:
    constant = {"c": RNG.integers(0, 100, SHAPE).astype(dtype)}
    inputs = ["x", "s0", "z0", "c", "s1", "z1", "s2", "z2"]
    return [node(op_type, inputs, "y", domain=MICROSOFT)], constant | _scales(
        dtype, 0.04, 0.03, 0.06
    )


def _one(
    op_type: str, dtype: Any, y: tuple[float, int], **attrs: Any
) -> tuple[list[NodeProto], dict[str, Array]]:
    inputs = ["x", "s0", "z0", "s1", "z1"]
    zero = {"z1": np.array(y[1] + (128 if dtype == np.uint8 else 0), dtype)}
    return [node(op_type, inputs, "y", domain=MICROSOFT, **attrs)], _scales(
        dtype, 0.04, y[0]
    ) | zero


def _concat(dtype: Any) -> tuple[list[NodeProto], dict[str, Array]]:
    constant = {"c": RNG.integers(0, 100, SHAPE).astype(dtype)}
    inputs = ["s2", "z2", "x", "s0", "z0", "c", "s1", "z1"]
    return [
        node("QLinearConcat", inputs, "y", axis=1, domain=MICROSOFT)
    ], constant | _scales(dtype, 0.04, 0.03, 0.05)


def _one_zero_point(
    made: tuple[list[NodeProto], dict[str, Array]],
) -> tuple[list[NodeProto], dict[str, Array]]:
    """One zero point for the weights' scales of all channels."""
    nodes, constants = made
    return nodes, constants | {"wz": constants["wz"][0]}


def _channels_last(
    made: tuple[list[NodeProto], dict[str, Array]],
) -> tuple[list[NodeProto], dict[str, Array]]:
    """The operator as onnxruntime's optimiser writes it, after a transpose."""
    (operator,), constants = made
    operator.domain = MICROSOFT
    operator.input[list(operator.input).index("x")] = "last"
    operator.attribute.append(helper.make_attribute("channels_last", 1))
    return [node("Transpose", ["x"], "last", perm=[0, 2, 3, 1]), operator], constants


U8 = np.uint8
S8 = np.int8
OPERATORS: dict[str, Callable[[], tuple[list[NodeProto], dict[str, Array]]]] = {
    "conv_u8": lambda: _conv(U8, 1, S8),
    "conv_u8_channel": lambda: _conv(U8, 8, S8),
    "conv_u8_asymmetric": lambda: _conv(U8, 1, U8),
    "conv_s8_channel": lambda: _conv(S8, 8, S8),
    "conv_depthwise": lambda: _conv(U8, 8, S8, 4),
    "conv_grouped": lambda: _conv(S8, 1, S8, 2),
    "conv_u8_one_zero_point": lambda: _one_zero_point(_conv(U8, 8, S8)),
    "conv_s8_one_zero_point": lambda: _one_zero_point(_conv(S8, 8, S8)),
    "conv_last": lambda: _channels_last(_conv(U8, 8, S8)),
    "matmul_one_zero_point": lambda: _one_zero_point(_matmul(U8, 5)),
    "global_average_pool_last": lambda: _channels_last(
        _one("QLinearGlobalAveragePool", U8, (0.03, 9))
    ),
    "average_pool_last": lambda: _channels_last(
        _one("QLinearAveragePool", U8, (0.03, 9), kernel_shape=[2, 2], strides=[2, 2])
    ),
    "matmul_u8": lambda: _matmul(U8, 1),
    "matmul_s8_channel": lambda: _matmul(S8, 5),
    "gemm_u8": lambda: _gemm(U8),
    "add_u8": lambda: _two("QLinearAdd", U8),
    "add_s8": lambda: _two("QLinearAdd", S8),
    "mul_u8": lambda: _two("QLinearMul", U8),
    "mul_s8": lambda: _two("QLinearMul", S8),
    "concat_u8": lambda: _concat(U8),
    "concat_s8": lambda: _concat(S8),
    "global_average_pool": lambda: _one("QLinearGlobalAveragePool", U8, (0.03, 9)),
    "average_pool": lambda: _one(
        "QLinearAveragePool", U8, (0.03, 9), kernel_shape=[2, 2], strides=[2, 2]
    ),
    "average_pool_finer": lambda: _one(
        "QLinearAveragePool", U8, (0.011, 9), kernel_shape=[3, 2], strides=[2, 2]
    ),
    "average_pool_whole": lambda: _one(
        "QLinearAveragePool", U8, (0.013, 9), kernel_shape=[8, 6]
    ),
    "leaky_relu": lambda: _one("QLinearLeakyRelu", S8, (0.03, -50), alpha=0.1),
    "sigmoid_u8": lambda: _one("QLinearSigmoid", U8, (1 / 256, -128)),
    "sigmoid_s8": lambda: _one("QLinearSigmoid", S8, (1 / 220, -128)),
    "softmax_u8": lambda: _one(
        "QLinearSoftmax", U8, (1 / 255, -128), axis=-1, opset=13
    ),
}


EXACT = ("conv", "matmul", "gemm", "add", "mul", "global", "concat", "leaky", "sigmoid")
"""Beginnings of the names of those whose rounding edgec follows."""


@pytest.mark.parametrize("name", OPERATORS)
def test_a_quantized_operator_is_one_int8_operation_within_a_step(
    name: str, tmp_path: Path
) -> None:
    nodes, constants = OPERATORS[name]()
    code = TensorProto.UINT8 if constants["z0"].dtype == U8 else TensorProto.INT8
    path = save(
        tmp_path / "m.onnx", nodes, {"x": (code, SHAPE), "y": (code, None)}, constants
    )
    info = np.iinfo(constants["z0"].dtype)
    x = {"x": RNG.integers(info.min, info.max + 1, SHAPE).astype(info.dtype)}
    (want,) = session(path).run(None, x)
    graph = read_onnx(path, {})
    verify(graph, "imported")
    read = interp(graph, x)["y"]
    assert read.dtype == want.dtype
    assert np.abs(read.astype(int) - want).max() <= 1
    graph = optimize(graph)
    verify(graph, "quantized")
    assert not [
        op for op in graph.ops if "float32" in (v.type.dtype for v in op.outputs)
    ], print_graph(graph, False)
    if name.startswith(EXACT):
        np.testing.assert_array_equal(interp(graph, x)["y"], want)
    got = interp(graph, x)["y"]
    assert got.dtype == want.dtype
    assert np.abs(got.astype(int) - want).max() <= 1
    np.testing.assert_array_equal(run_c(graph, x)["y"], got)
    assert parse(print_graph(graph)) == graph


@pytest.mark.parametrize("outputs", [[], [""]])
def test_an_operator_that_writes_nothing_is_left_out(
    outputs: list[str], tmp_path: Path
) -> None:
    nodes, constants = _conv(U8, 1, np.int8)
    mute = helper.make_node("QLinearConv", nodes[0].input, outputs, "mute")
    path = save(
        tmp_path / "m.onnx",
        [mute, *nodes],
        {"x": (2, SHAPE), "y": (2, None)},
        constants,
    )
    assert [op.kind for op in read_onnx(path, {}).ops].count("conv2d") == 1


def test_weights_that_are_asymmetric_per_channel_stay_float(tmp_path: Path) -> None:
    nodes, constants = _conv(U8, 8, U8)
    constants["wz"] = np.arange(100, 108).astype(U8)
    ends = {"x": (TensorProto.UINT8, SHAPE), "y": (TensorProto.UINT8, None)}
    path = save(tmp_path / "m.onnx", nodes, ends, constants)
    x = {"x": RNG.integers(0, 256, SHAPE).astype(U8)}
    graph = optimize(read_onnx(path, {}))
    np.testing.assert_array_equal(interp(graph, x)["y"], session(path).run(None, x)[0])
    assert "1 x conv2d" in notes_on_quantized_file(graph)[1]


@pytest.mark.parametrize("name", ["self", "output", "op_type", "axes"])
def test_an_attribute_that_no_operator_has(name: str, tmp_path: Path) -> None:
    nodes, constants = _conv(U8, 1, S8)
    nodes[0].attribute.append(helper.make_attribute(name, 1))
    ends = {"x": (TensorProto.UINT8, SHAPE), "y": (TensorProto.UINT8, None)}
    with pytest.raises(UnsupportedError, match=f"the attribute {name} "):
        read_onnx(save(tmp_path / "m.onnx", nodes, ends, constants), {})


# ---- what onnxruntime's quantizer writes
# --------------------------------------------------------------------------------------
class Samples(CalibrationDataReader):  # type: ignore[misc]
    """What a net is calibrated with."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._samples = iter(
            [
                {"x": rng.normal(size=(1, 3, 16, 16)).astype(np.float32)}
                for _ in range(4)
            ]
        )

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self._samples, None)


def _net(path: Path) -> Path:
    """Convolutions, a sum, a join, pools, a gate and a row of scores."""

    def w(*shape: int) -> Array:
        return np.asarray(
            RNG.normal(size=shape) / np.sqrt(np.prod(shape[1:])), np.float32
        )

    nodes = [
        node("Conv", ["x", "w1", "b1"], "c1", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c1"], "r1"),
        node("Conv", ["r1", "w2"], "c2", pads=[1, 1, 1, 1], group=8),
        node("Clip", ["c2", "zero", "six"], "r2"),
        node("Conv", ["r2", "w3", "b1"], "c3"),
        node("Add", ["r1", "c3"], "sum"),
        node("MaxPool", ["sum"], "small", kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", ["sum"], "mean", kernel_shape=[2, 2], strides=[2, 2]),
        node("Concat", ["small", "mean"], "both", axis=1),
        node("Sigmoid", ["both"], "gate"),
        node("Mul", ["both", "gate"], "gated"),
        node("GlobalAveragePool", ["gated"], "pooled"),
        node("Flatten", ["pooled"], "flat"),
        node("Gemm", ["flat", "w4", "b4"], "y", transB=1),
    ]
    constants = {
        "w1": w(8, 3, 3, 3),
        "b1": w(8, 1).reshape(8),
        "w2": w(8, 1, 3, 3),
        "w3": w(8, 8, 1, 1),
        "w4": w(10, 16),
        "b4": w(10, 1).reshape(10),
        "zero": np.array(0, np.float32),
        "six": np.array(6, np.float32),
    }
    return write(path, nodes, {"x": [1, 3, 16, 16]}, ["y"], constants)


@pytest.mark.parametrize("channel", [False, True])
@pytest.mark.parametrize("acts", [QuantType.QUInt8, QuantType.QInt8])
@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_a_statically_quantized_file_is_an_int8_graph(
    form: QuantFormat, acts: QuantType, channel: bool, tmp_path: Path
) -> None:
    path = tmp_path / "q.onnx"
    types = {
        "activation_type": acts,
        "weight_type": QuantType.QInt8,
        "reduce_range": True,
    }
    quantize_static(
        str(_net(tmp_path / "f.onnx")),
        str(path),
        Samples(),
        form,
        per_channel=channel,
        **types,
    )
    graph = optimize(read_onnx(path, {}))
    verify(graph, "quantized")
    floats = [op.kind for op in graph.ops if op.output.type.dtype == "float32"]
    assert is_quantized(graph)
    assert floats == ["dequantize"], print_graph(graph, False)
    assert len(notes_on_quantized_file(graph)) == 1
    assert "differ by one step from onnxruntime" in notes_on_quantized_file(graph)[0]
    x = {"x": np.random.default_rng(1).normal(size=(1, 3, 16, 16)).astype(np.float32)}
    got = interp(graph, x)["y"]
    np.testing.assert_array_equal(run_c(graph, x)["y"], got)
    if form is QuantFormat.QOperator and acts is QuantType.QInt8:
        return  # onnxruntime has no kernels for the int8 QGemm that it writes
    step = graph.ops[-1].inputs[0].type.scale
    assert np.abs(got - session(path).run(None, x)[0]).max() <= 2.001 * step


def test_a_dynamically_quantized_file_is_float_with_its_weights_dequantized(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.onnx"
    quantize_dynamic(
        str(_net(tmp_path / "f.onnx")), str(path), weight_type=QuantType.QUInt8
    )
    kinds = {n.op_type for n in onnx.load(str(path)).graph.node}
    assert {"DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"} <= kinds
    graph = optimize(read_onnx(path, {}))
    assert not is_quantized(graph)
    assert "depthwise_conv2d" in {op.kind for op in graph.ops}
    x = {"x": np.random.default_rng(1).normal(size=(1, 3, 16, 16)).astype(np.float32)}
    want = session(path).run(None, x)[0]
    assert np.abs(interp(graph, x)["y"] - want).max() < 0.02 * np.ptp(want)


def test_a_dynamically_quantized_lstm(tmp_path: Path) -> None:
    steps = 5
    features = 6
    hidden = 8
    shapes = {
        "w": (2, 4 * hidden, features),
        "r": (2, 4 * hidden, hidden),
        "b": (2, 8 * hidden),
    }
    constants = {n: RNG.normal(size=s).astype(np.float32) for n, s in shapes.items()}
    layer = node(
        "LSTM",
        ["x", "w", "r", "b"],
        ["y", "y_h"],
        hidden_size=hidden,
        direction="bidirectional",
    )
    write(
        tmp_path / "f.onnx",
        [layer],
        {"x": [steps, 1, features]},
        ["y", "y_h"],
        constants,
    )
    path = tmp_path / "d.onnx"
    quantize_dynamic(str(tmp_path / "f.onnx"), str(path), op_types_to_quantize=["LSTM"])
    assert [n.op_type for n in onnx.load(str(path)).graph.node] == [
        "DynamicQuantizeLSTM"
    ]
    graph = optimize(read_onnx(path, {}))
    x = {"x": RNG.normal(size=(steps, 1, features)).astype(np.float32)}
    for got, want in zip(
        interp(graph, x).values(), session(path).run(None, x), strict=True
    ):
        assert np.abs(got - want).max() < 0.03 * np.ptp(want)


def test_a_bias_that_is_added_to_dynamic_sums(tmp_path: Path) -> None:
    """As earlier quantizers of onnxruntime write a convolution."""
    constants: dict[str, Array] = {
        "w": RNG.integers(-127, 128, (5, 3, 3, 3)).astype(np.int8),
        "ws": np.array(0.02, np.float32),
        "wz": np.array(0, np.int8),
        "bias": RNG.normal(size=5).astype(np.float32),
        "shape": np.array([1, -1, 1, 1]),
    }
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("Mul", ["s", "ws"], "both"),
        node("Div", ["bias", "both"], "div"),
        node("Floor", ["div"], "floor"),
        helper.make_node("Cast", ["floor"], ["whole"], to=TensorProto.INT32),
        node("Reshape", ["whole", "shape"], "wide"),
        node("ConvInteger", ["q", "w", "z", "wz"], "sums"),
        node("Add", ["sums", "wide"], "biased"),
        helper.make_node("Cast", ["biased"], ["cast"], to=TensorProto.FLOAT),
        node("Mul", ["s", "ws"], "scales"),
        node("Mul", ["cast", "scales"], "y"),
    ]
    path = write(tmp_path / "m.onnx", nodes, {"x": [1, 3, 6, 6]}, ["y"], constants)
    graph = optimize(read_onnx(path, {}))
    assert sorted(op.kind for op in graph.ops) == ["conv2d", "transpose", "transpose"]
    x = {"x": RNG.normal(size=(1, 3, 6, 6)).astype(np.float32)}
    want = session(path).run(None, x)[0]
    assert np.abs(interp(graph, x)["y"] - want).max() < 0.02 * np.ptp(want)


def test_weights_alone_are_folded(tmp_path: Path) -> None:
    weights = _weights((5, 3, 3, 3), 5, S8)
    nodes = [
        node("DequantizeLinear", ["w", "ws", "wz"], "wf", axis=0),
        node("Conv", ["x", "wf"], "y"),
    ]
    path = write(tmp_path / "m.onnx", nodes, {"x": [1, 3, 6, 6]}, ["y"], weights)
    graph = optimize(read_onnx(path, {}))
    assert not is_quantized(graph)
    assert not [v for v in graph.values() if v.type.quant is not None]
    x = {"x": RNG.normal(size=(1, 3, 6, 6)).astype(np.float32)}
    np.testing.assert_allclose(
        interp(graph, x)["y"], session(path).run(None, x)[0], atol=1e-5
    )


def test_a_uint8_image_in_another_layout_gets_the_scale(tmp_path: Path) -> None:
    nodes, constants = _conv(U8, 8, S8)
    nodes.insert(0, node("Transpose", ["image"], "x", perm=[0, 3, 1, 2]))
    ends = {"image": (TensorProto.UINT8, (1, 8, 6, 4)), "y": (TensorProto.UINT8, None)}
    path = save(tmp_path / "m.onnx", nodes, ends, constants)
    graph = optimize(read_onnx(path, {}))
    assert [op.kind for op in graph.ops][:2] == ["quantize", "conv2d"]
    assert graph.inputs[0].type.quant == Quant.per_tensor(0.04, 123)
    x = {"image": RNG.integers(0, 256, (1, 8, 6, 4)).astype(U8)}
    assert (
        np.abs(interp(graph, x)["y"].astype(int) - session(path).run(None, x)[0]).max()
        <= 1
    )


def test_integers_that_are_computed_with_are_those_of_the_file(tmp_path: Path) -> None:
    nodes = [
        node("QuantizeLinear", ["x", "s0", "z0"], "q"),
        node("Cast", ["q"], "y", to=TensorProto.FLOAT),
    ]
    path = write(tmp_path / "m.onnx", nodes, {"x": [3, 50]}, ["y"], _scales(U8, 0.02))
    x = {"x": RNG.normal(size=(3, 50)).astype(np.float32)}
    np.testing.assert_array_equal(
        interp(optimize(read_onnx(path, {})), x)["y"], session(path).run(None, x)[0]
    )


@pytest.mark.shared
def test_a_trained_quantized_model(shared: Path) -> None:
    folder = shared / "models" / "shufflenetv2_i8_onnx"
    graph = optimize(read_onnx(folder / "shufflenetv2_i8_onnx.onnx", {}))
    assert [op.kind for op in graph.ops if op.output.type.dtype == "float32"] == [
        "dequantize"
    ]
    data = np.load(folder / "ref.npz")
    for i in (0, 1):
        got = interp(graph, {"input": data[f"in{i}_0"]})["output"]
        want = data[f"out{i}_0"]
        np.testing.assert_array_equal(got, want)


# ---- ONNX's own cases
# --------------------------------------------------------------------------------------
_CASES = (
    "quantizelinear",
    "dequantizelinear",
    "qlinearconv",
    "qlinearmatmul",
    "convinteger",
    "matmulinteger",
)
_NOT = ("e4m3fn", "e5m2", "int4", "int2", "float4", "16", "blocked", "expanded", "e8m0")


def _cases() -> Iterator[Any]:
    """Of the modules of these operators alone: importing one computes its cases."""
    for operator in _CASES:
        importlib.import_module(f"{node_tests.__name__}.{operator}")
    for case in node_tests._NodeTestCases:
        operator = case.name.removeprefix("test_").split("_")[0]
        if operator in _CASES and not any(n in case.name for n in _NOT):
            yield pytest.param(case, id=case.name)


@pytest.mark.parametrize("case", list(_cases()))
def test_the_cases_of_the_standard(case: Any, tmp_path: Path) -> None:
    model, (inputs, outputs) = case.model, case.data_sets[0]
    first = model.graph.input[0].name
    names = [i.name for i in model.graph.input]
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(a), n)
        for n, a in zip(names, inputs, strict=True)
        if n != first
    )
    path = tmp_path / "case.onnx"
    onnx.save(model, str(path))
    graph = optimize(read_onnx(path, {}))
    got = run_c(graph, {first: np.asarray(inputs[0])})[model.graph.output[0].name]
    want = np.asarray(outputs[0])
    assert got.dtype == want.dtype
    if got.dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol=1e-6)
    else:
        steps = int(case.name.startswith("test_qlinear"))
        assert np.abs(got.astype(int) - want.astype(int)).max() <= steps
