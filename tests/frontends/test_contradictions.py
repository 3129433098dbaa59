"""Files that contradict themselves as only damaged ones do: each ends as a message.

Found by make fuzz-readers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from onnx import helper, numpy_helper

from edgec.cli.main import run_verb
from edgec.errors import UnsupportedError
from edgec.frontends import read_model
from edgec.ir import parse, verify
from edgec.ir.verify import VerifyError
from edgec.quantize.change.convert import evenly
from tests.frontends.tflite_operators import Given, model_of, packed


def _batch_norm(path: Path) -> onnx.ModelProto:
    ones = [numpy_helper.from_array(np.ones(3, np.float32), n) for n in "sbmv"]
    node = helper.make_node("BatchNormalization", ["x", *"sbmv"], ["y"], epsilon=1e-3)
    ends = [helper.make_tensor_value_info(n, 1, (1, 3, 4, 4)) for n in "xy"]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], ones)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)])


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("INT", "epsilon is of type INT, where ONNX has FLOAT"),
        ("UNDEFINED", "of type UNDEFINED"),
        ("TENSOR", "TENSOR"),
    ],
)
def test_an_attribute_of_another_type(kind: str, said: str, tmp_path: Path) -> None:
    model = _batch_norm(tmp_path)
    model.graph.node[0].attribute[0].type = onnx.AttributeProto.AttributeType.Value(
        kind
    )
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UnsupportedError, match=said):
        read_model(tmp_path / "m.onnx")


@pytest.mark.parametrize("op", ["Conv", "MaxPool"])
def test_pads_that_cut_off(op: str, tmp_path: Path) -> None:
    """ONNX has them not below 0; with an Edge TPU they once ended as a bug."""
    weights = numpy_helper.from_array(np.ones((3, 3, 3, 3), np.float32), "w")
    attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, -1]}
    node = helper.make_node(
        op, ["x", "w"] if op == "Conv" else ["x"], ["y"], **attributes
    )
    ends = [
        helper.make_tensor_value_info(n, 1, (1, 3, 8, w))
        for n, w in (("x", 8), ("y", 6))
    ]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [weights])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)]),
        tmp_path / "m.onnx",
    )
    with pytest.raises(
        UnsupportedError, match="pads 1 and -1; neither may be negative"
    ):
        read_model(tmp_path / "m.onnx")


def test_a_stride_out_of_all_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once a minute and all memory, for a rule tried each place within the stride."""
    weights = numpy_helper.from_array(np.ones((3, 2, 4, 4), np.float32), "w")
    attributes = {"strides": [1, (1 << 31) - 1], "pads": [1, 0, 1, 3 * ((1 << 31) - 1)]}
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes)
    ends = [
        helper.make_tensor_value_info(n, 1, (1, c, 4, 4))
        for n, c in (("x", 3), ("y", 2))
    ]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [weights])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)]),
        tmp_path / "m.onnx",
    )
    assert (
        run_verb(["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.edgec")])
        == 2
    )
    assert "stride or dilation (1, 2147483647)" in capsys.readouterr().err


def test_an_operator_that_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.zeros((1, 4), np.float32)
    model = model_of("RELU", None, [Given(x)], [((1, 4), np.float32)])
    extra = schema.OperatorT()
    extra.opcodeIndex = 0
    extra.inputs = [0]
    extra.outputs = []
    model.subgraphs[0].operators.append(extra)
    (tmp_path / "m.tflite").write_bytes(packed(model))
    assert run_verb(
        ["explain", str(tmp_path / "m.tflite"), "--target", "pi4+coral"]
    ) in (0, 2)
    assert "bug" not in capsys.readouterr().err


def test_int8_without_a_scale_where_others_have_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.zeros((1, 4), np.int8)
    model = model_of(
        "ADD",
        ("AddOptions", {}),
        [Given(x, quant=([0.5], [0], 0)), Given(x)],
        [((1, 4), np.int8)],
    )
    (tmp_path / "m.tflite").write_bytes(packed(model))
    assert run_verb(["explain", str(tmp_path / "m.tflite")]) == 0
    assert "edgec cannot compile this model yet" in capsys.readouterr().out
    assert (
        run_verb(
            ["compile", str(tmp_path / "m.tflite"), "-o", str(tmp_path / "m.edgec")]
        )
        == 2
    )
    assert "without a scale" in capsys.readouterr().err


def test_an_attribute_of_a_text_form_that_is_no_type() -> None:
    text = (
        "graph \"g\"\ninput %x : float32[4]\n%y = cast(%x) {dtype='nosuch'} : "
        'float32[4] from "n"\noutput %y\n',
        "graph \"g\"\ninput %x : float32[4]\n%y = bit_cast(%x) {dtype='nosuch'} : "
        'float32[4] from "n"\noutput %y\n',
    )
    for one in text:
        with pytest.raises((VerifyError, ValueError)):
            verify(parse(one), "imported")


def _explained(
    path: Path, capsys: pytest.CaptureFixture[str], target: str = "host"
) -> str:
    """What `explain` says of a file, on the screen and beside; it is no bug, and no
    warning.
    """
    code = run_verb(["explain", str(path), "--ops", "--target", target])
    said = capsys.readouterr()
    assert code in (0, 2), said.err
    assert "bug" not in said.err
    assert "Warning" not in said.err
    return said.out + said.err


@pytest.mark.parametrize(
    "field", ["strideH", "strideW", "dilationHFactor", "dilationWFactor"]
)
@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_a_step_of_nothing(
    kind: str, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = {
        "strideH": 1,
        "strideW": 1,
        "dilationHFactor": 1,
        "dilationWFactor": 1,
        field: 0,
        "padding": 1,
    }
    options = (
        {"CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions"}[
            kind
        ],
        steps,
    )
    x = Given(np.zeros((1, 5, 5, 4), np.float32))
    w = Given(np.ones((4, 3, 3, 4), np.float32), True)
    w = w if kind == "CONV_2D" else Given(np.ones((1, 3, 3, 4), np.float32), True)
    bias = Given(np.zeros(4, np.float32), True)
    (tmp_path / "m.tflite").write_bytes(
        packed(model_of(kind, options, [x, w, bias], [((1, 3, 3, 4), np.float32)]))
    )
    _explained(tmp_path / "m.tflite", capsys)
    with pytest.raises(UnsupportedError, match=r"each is from 1 to|by zero"):
        read_model(tmp_path / "m.tflite")


def test_float16_that_is_computed_is_dequantized(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = Given(np.zeros((1, 4), np.float16))
    model = model_of(
        "DEQUANTIZE", ("DequantizeOptions", {}), [x], [((1, 4), np.float32)]
    )
    (tmp_path / "m.tflite").write_bytes(packed(model))
    assert "float32[1,4]" in _explained(tmp_path / "m.tflite", capsys)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_an_output_of_quantize_without_a_scale(
    dtype: type, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = Given(np.zeros((1, 4), np.int8), quant=([0.5], [0], 0))
    (tmp_path / "m.tflite").write_bytes(
        packed(model_of("QUANTIZE", ("QuantizeOptions", {}), [x], [((1, 4), dtype)]))
    )
    _explained(tmp_path / "m.tflite", capsys)
    with pytest.raises(UnsupportedError, match="which has no scale"):
        read_model(tmp_path / "m.tflite")


def test_an_output_of_the_file_without_the_scale_that_is_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = Given(np.zeros((1, 4), np.uint8), quant=([0.5], [0], 0))
    model = model_of("RELU", None, [x], [((1, 4), np.uint8)])
    (tmp_path / "m.tflite").write_bytes(packed(model))
    _explained(tmp_path / "m.tflite", capsys)


@pytest.mark.parametrize("kind", ["STRING", "COMPLEX64"])
def test_a_quantized_input_that_is_no_integer(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = Given(np.zeros((1, 4), np.int8), quant=([0.5], [0], 0))
    model = model_of("RELU", None, [x], [((1, 4), np.int8)])
    model.subgraphs[0].tensors[0].type = getattr(schema.TensorType, kind)
    (tmp_path / "m.tflite").write_bytes(packed(model))
    _explained(tmp_path / "m.tflite", capsys)


def test_a_negative_variance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = _batch_norm(tmp_path)
    model.graph.initializer[3].CopyFrom(
        numpy_helper.from_array(np.full(3, -1, np.float32), "v")
    )
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert "a variance of -1" in _explained(tmp_path / "m.onnx", capsys, "pi4+coral")


@pytest.mark.parametrize("kind", ["UNDEFINED", "empty"])
def test_an_attribute_of_a_quantized_operator_without_a_value(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scale = numpy_helper.from_array(np.float32(0.5), "s")
    zero = numpy_helper.from_array(np.int8(0), "z")
    weight = numpy_helper.from_array(np.ones((2, 3, 1, 1), np.int8), "w")
    names = ["x", "s", "z", "w", "s", "z", "s", "z"]
    node = helper.make_node("QLinearConv", names, ["y"], strides=[1, 1])
    if kind == "empty":
        del node.attribute[0].ints[:]
    else:
        node.attribute[0].type = onnx.AttributeProto.UNDEFINED
    x, y = (
        helper.make_tensor_value_info(n, 3, (1, c, 4, 4))
        for n, c in (("x", 3), ("y", 2))
    )
    model = helper.make_model(
        helper.make_graph([node], "g", [x], [y], [scale, zero, weight])
    )
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert "QLinearConv: " in _explained(tmp_path / "m.onnx", capsys)


def test_a_quantize_in_a_float_model_stays_as_it_is() -> None:
    text = (
        'graph "g"\ninput %x : float32[1,8]\n%a = relu(%x) {} : float32[1,8]\n'
        "%q = quantize(%a) {} : int8[1,8] q(0.5, 0)\n%r = relu(%q) {} : "
        "int8[1,8] q(0.5, 0)\noutput %r\n"
    )
    graph = evenly(parse(text))
    assert [op.kind for op in graph.ops].count("quantize") >= 1


def test_an_element_type_that_c_has_no_kernels_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = Given(np.zeros((1, 4), np.float32))
    axis = Given(np.array([1], np.int32), True)
    model = model_of("ARG_MAX", ("ArgMaxOptions", {}), [x, axis], [((1,), np.int64)])
    model.subgraphs[0].tensors[0].type = schema.TensorType.COMPLEX64
    (tmp_path / "m.tflite").write_bytes(packed(model))
    _explained(tmp_path / "m.tflite", capsys)
    model.subgraphs[0].tensors[0].type = 0
    model.subgraphs[0].tensors[2].type = schema.TensorType.COMPLEX64
    (tmp_path / "m.tflite").write_bytes(packed(model))
    _explained(tmp_path / "m.tflite", capsys)


def test_infinite_weights_become_int8(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = numpy_helper.from_array(np.array([[np.inf, 1], [2, 3]], np.float32), "w")
    bias = numpy_helper.from_array(np.array([1, -np.inf], np.float32), "b")
    ends = [helper.make_tensor_value_info(n, 1, (1, 2)) for n in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"])],
        "g",
        ends[:1],
        ends[1:],
        [weights, bias],
    )
    (tmp_path / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    assert "infinite constants" in _explained(tmp_path / "m.onnx", capsys, "pi4+coral")
