"""An attribute or option that no reader looked at is an error with its name, unless the
schema says the same anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
)

from edgec.errors import UnsupportedError
from edgec.frontends import read_model
from edgec.frontends.onnx import read_onnx
from edgec.ir import Array
from tests.frontends.onnx_files import agree, node, write
from tests.ops.tflite_node import Operator

IMAGE = [1, 4, 4, 6]
CHANNELS = {n: np.linspace(0.5, 1, 4).astype(np.float32) for n in "abcd"}
WEIGHTS = np.ones((2, 4, 3, 3), np.float32)


def refusal(path: Path) -> str:
    with pytest.raises(UnsupportedError) as caught:
        read_onnx(path, {})
    assert caught.value.exit_code == 2
    assert "node n_y" in str(caught.value.at)
    return caught.value.what


@pytest.mark.parametrize(
    ("op", "attrs", "text"),
    [
        (
            "Relu",
            {"slope": 0.5},
            "Relu: edgec does not know the attribute slope (here 0.5)",
        ),
        ("SpaceToDepth", {"blocksize": 2, "mode": "CDR"}, "mode CDR"),
        ("Flatten", {"axis": 5}, "axis 5 of a tensor of rank 4"),
        ("Flatten", {"axis": -5}, "axis -5 of a tensor of rank 4"),
        ("Squeeze", {"axes": [7]}, "axis 7 of a tensor of rank 4"),
    ],
)
def test_attributes_that_no_reader_knows(
    tmp_path: Path, op: str, attrs: dict[str, Any], text: str
) -> None:
    path = write(
        tmp_path / "m.onnx",
        [node(op, ["x"], "y", **attrs)],
        {"x": IMAGE},
        ["y"],
        opset=11,
    )
    assert text in refusal(path)


def test_normalisation_of_each_element(tmp_path: Path) -> None:
    norm = node("BatchNormalization", ["x", *"abcd"], "y", spatial=0)
    assert "spatial=0" in refusal(
        write(tmp_path / "m.onnx", [norm], {"x": IMAGE}, ["y"], CHANNELS, opset=7)
    )


def test_a_window_that_the_weights_contradict(tmp_path: Path) -> None:
    conv = node("Conv", ["x", "w"], "y", kernel_shape=[1, 1])
    path = write(tmp_path / "m.onnx", [conv], {"x": IMAGE}, ["y"], {"w": WEIGHTS})
    assert "Conv: kernel_shape [1, 1] with weights float32[2,4,3,3]" in refusal(path)


@pytest.mark.parametrize(
    ("nodes", "constants", "opset"),
    [
        (
            [
                node(
                    "Conv",
                    ["x", "w"],
                    "y",
                    kernel_shape=[3, 3],
                    pads=[0] * 4,
                    auto_pad="NOTSET",
                )
            ],
            {"w": WEIGHTS},
            13,
        ),
        ([node("Conv", ["x", "w"], "y", auto_pad="SAME_UPPER")], {"w": WEIGHTS}, 13),
        ([node("BatchNormalization", ["x", *"abcd"], "y", momentum=0.99)], CHANNELS, 9),
        ([node("MaxPool", ["x"], "y", kernel_shape=[2, 2], storage_order=1)], {}, 12),
        ([node("Dropout", ["x"], "y", ratio=0.3)], {}, 10),
        ([node("Dropout", ["x"], "y", seed=7)], {}, 13),
        ([node("Flatten", ["x"], "y", axis=-2)], {}, 13),
        ([node("Flatten", ["x"], "y", axis=4)], {}, 13),
        (
            [node("ReduceMax", ["x", "one"], "y", noop_with_empty_axes=1)],
            {"one": np.array([1])},
            18,
        ),
        (
            [
                node(
                    "Resize",
                    ["x", "", "s"],
                    "y",
                    mode="linear",
                    nearest_mode="floor",
                    cubic_coeff_a=-0.5,
                )
            ],
            {"s": np.array([1, 1, 2, 2], np.float32)},
            13,
        ),
    ],
)
def test_attributes_without_effect(
    tmp_path: Path, nodes: Any, constants: dict[str, Array], opset: int
) -> None:
    agree(write(tmp_path / "m.onnx", nodes, {"x": IMAGE}, ["y"], constants, opset))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_dropout_in_training(tmp_path: Path, training: bool, ratio: float) -> None:
    constants = {"r": np.array(ratio, np.float32), "t": np.array(training)}
    path = write(
        tmp_path / "m.onnx",
        [node("Dropout", ["x", "r", "t"], "y")],
        {"x": IMAGE},
        ["y"],
        constants,
    )
    if training and ratio:
        assert "Dropout: training_mode; export the model for inference" in refusal(path)
    else:
        agree(path)


def test_options_that_no_reader_knows(tmp_path: Path) -> None:
    x = np.ones((1, 2, 2, 4), np.float32)
    path = tmp_path / "m.tflite"
    path.write_bytes(Operator("NEG", [x], options=("NegOptions", {})).model([x.shape]))
    assert len(read_model(path).ops) == 1
    # A table of another operator: all fields of its own have a reader.
    fused = ("AddOptions", {"fusedActivationFunction": 1})
    path.write_bytes(Operator("NEG", [x], options=fused).model([x.shape]))
    with pytest.raises(
        UnsupportedError,
        match=r"does not know the attribute fusedActivationFunction \(here 1\)",
    ) as e:
        read_model(path)
    assert "operator 0 (NEG)" in str(e.value.at)


def _whole(
    nodes: list[NodeProto], functions: Sequence[FunctionProto] = ()
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(True), "yes")],
    )
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(
        graph, opset_imports=sets, ir_version=9, functions=functions
    )


def _own() -> FunctionProto:
    body = [helper.make_node("LeakyRelu", ["a"], ["b"])]
    body[0].attribute.append(
        AttributeProto(name="alpha", type=AttributeProto.FLOAT, ref_attr_name="slope")
    )
    return helper.make_function(
        "own", "Own", ["a"], ["b"], body, [helper.make_opsetid("", 18)], ["slope"]
    )


def _branch() -> GraphProto:
    return helper.make_graph(
        [node("Relu", ["x"], "t")],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
    )


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([node("Own", ["x"], "y", domain="own", slope=0.5)], ""),
        (
            [node("Own", ["x"], "y", domain="own", slope=0.5, slop=0.5)],
            "the attribute slop (here 0.5)",
        ),
        (
            [node("Constant", [], "c", value_float=2.0), node("Add", ["x", "c"], "y")],
            "",
        ),
        (
            [
                node("Constant", [], "c", value_float=2.0, scale=3),
                node("Add", ["x", "c"], "y"),
            ],
            "attribute scale",
        ),
        ([node("If", ["yes"], "y", then_branch=_branch(), else_branch=_branch())], ""),
        (
            [
                node(
                    "If",
                    ["yes"],
                    "y",
                    then_branch=_branch(),
                    else_branch=_branch(),
                    eager=1,
                )
            ],
            "attribute eager",
        ),
    ],
)
def test_attributes_where_no_op_reads_the_node(
    tmp_path: Path, nodes: list[NodeProto], text: str
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(_whole(nodes, [_own()]), path)
    if not text:
        assert len(read_onnx(path, {}).ops) == 1
        return
    with pytest.raises(UnsupportedError) as caught:
        read_onnx(path, {})
    assert text in caught.value.what


def test_an_attribute_that_is_given_twice(tmp_path: Path) -> None:
    twice = node("LeakyRelu", ["x"], "y", alpha=0.5)
    twice.attribute.append(helper.make_attribute("alpha", 0.25))
    path = tmp_path / "m.onnx"
    onnx.save(_whole([twice]), path)
    with pytest.raises(UnsupportedError, match="the attribute alpha is given twice"):
        read_onnx(path, {})
