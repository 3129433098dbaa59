"""Files that contradict themselves as only damaged ones do: each ends as a message. Found by make fuzz-readers."""

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
from tests.frontends.tflite_operators import Given, model_of, packed


def _batch_norm(path: Path) -> onnx.ModelProto:
    ones = [numpy_helper.from_array(np.ones(3, np.float32), n) for n in "sbmv"]
    node = helper.make_node("BatchNormalization", ["x", *"sbmv"], ["y"], epsilon=1e-3)
    ends = [helper.make_tensor_value_info(n, 1, (1, 3, 4, 4)) for n in "xy"]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], ones)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)])


@pytest.mark.parametrize(
    ("kind", "said"),
    [("INT", "epsilon is of type INT, where ONNX has FLOAT"), ("UNDEFINED", "of type UNDEFINED"), ("TENSOR", "TENSOR")],
)
def test_an_attribute_of_another_type(kind: str, said: str, tmp_path: Path) -> None:
    model = _batch_norm(tmp_path)
    model.graph.node[0].attribute[0].type = onnx.AttributeProto.AttributeType.Value(kind)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UnsupportedError, match=said):
        read_model(tmp_path / "m.onnx")


def test_an_operator_that_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.zeros((1, 4), np.float32)
    model = model_of("RELU", None, [Given(x)], [((1, 4), np.float32)])
    extra = schema.OperatorT()
    extra.opcodeIndex, extra.inputs, extra.outputs = 0, [0], []
    model.subgraphs[0].operators.append(extra)
    (tmp_path / "m.tflite").write_bytes(packed(model))
    assert run_verb(["explain", str(tmp_path / "m.tflite"), "--target", "pi4+coral"]) in (0, 2)
    assert "bug" not in capsys.readouterr().err


def test_int8_without_a_scale_where_others_have_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.zeros((1, 4), np.int8)
    model = model_of("ADD", ("AddOptions", {}), [Given(x, quant=([0.5], [0], 0)), Given(x)], [((1, 4), np.int8)])
    (tmp_path / "m.tflite").write_bytes(packed(model))
    assert run_verb(["explain", str(tmp_path / "m.tflite")]) == 0
    assert "edgec cannot compile this model yet" in capsys.readouterr().out
    assert run_verb(["compile", str(tmp_path / "m.tflite"), "-o", str(tmp_path / "m.edgec")]) == 2
    assert "without a scale" in capsys.readouterr().err


def test_an_attribute_of_a_text_form_that_is_no_type() -> None:
    text = (
        'graph "g"\ninput %x : float32[4]\n%y = cast(%x) {dtype=\'nosuch\'} : float32[4] from "n"\noutput %y\n',
        'graph "g"\ninput %x : float32[4]\n%y = bit_cast(%x) {dtype=\'nosuch\'} : float32[4] from "n"\noutput %y\n',
    )
    for one in text:
        with pytest.raises((VerifyError, ValueError)):
            verify(parse(one), "imported")
