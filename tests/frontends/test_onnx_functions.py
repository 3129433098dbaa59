"""Operators that are read as the nodes that they are made of, and nodes in any order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edgec.errors import InputError, UnsupportedError
from edgec.frontends import read_model
from edgec.frontends.onnx import read_onnx
from edgec.ir import Array
from tests.frontends.onnx_files import agree, node, write

RNG = np.random.default_rng(3)


def _x(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("op", "opset", "attrs"),
    [
        ("Celu", 12, {"alpha": 2.0}),
        ("Celu", 12, {}),
        ("ThresholdedRelu", 18, {"alpha": 0.3}),
        ("MeanVarianceNormalization", 13, {"axes": [0, 2, 3]}),
        ("Shrink", 18, {"lambd": 0.4, "bias": 0.1}),
        ("ReduceLogSum", 13, {"axes": [1]}),
        ("ReduceLogSumExp", 13, {"axes": [1, 2], "keepdims": 0}),
    ],
)
def test_a_standard_operator_is_read_by_its_function(
    tmp_path: Path, op: str, opset: int, attrs: dict[str, Any]
) -> None:
    nodes = [node("Abs", ["x"], "a"), node(op, ["a"], "y", **attrs)]
    agree(write(tmp_path / "m.onnx", nodes, {"x": [2, 3, 4, 5]}, ["y"], opset=opset))


def test_all_outputs_of_a_normalisation(tmp_path: Path) -> None:
    norm = node(
        "LayerNormalization", ["x", "s", "b"], ["y", "mean", "deviation"], axis=-1
    )
    path = write(
        tmp_path / "m.onnx",
        [norm],
        {"x": [2, 3, 8]},
        ["y", "mean"],
        {"s": _x(8), "b": _x(8)},
        opset=17,
    )
    agree(path)


def _functions(
    path: Path, functions: list[onnx.FunctionProto], domain: str = "mine"
) -> Path:
    model = onnx.load(str(path))
    model.functions.extend(functions)
    model.opset_import.append(helper.make_opsetid(domain, 1))
    onnx.save(model, str(path))
    return path


def _function(
    name: str, nodes: list[onnx.NodeProto], attributes: list[str]
) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", 13), helper.make_opsetid("mine", 1)]
    return helper.make_function("mine", name, ["x"], ["y"], nodes, imports, attributes)


def _leak(inputs: list[str], output: str) -> onnx.NodeProto:
    leak = helper.make_node("LeakyRelu", inputs, [output])
    leak.attribute.append(
        onnx.AttributeProto(
            name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT
        )
    )
    return leak


def test_functions_of_the_model_in_one_another(tmp_path: Path) -> None:
    inner = _function(
        "Leak", [_leak(["x"], "t"), helper.make_node("Neg", ["t"], ["y"])], ["slope"]
    )
    call = helper.make_node("Leak", ["x"], ["t"], domain="mine", slope=0.25)
    outer = _function("Twice", [call, helper.make_node("Add", ["t", "x"], ["y"])], [])
    nodes = [
        node("Twice", ["x"], "t", domain="mine"),
        node("Leak", ["t"], "y", domain="mine", slope=0.5),
    ]
    agree(
        _functions(
            write(tmp_path / "m.onnx", nodes, {"x": [2, 5]}, ["y"]), [inner, outer]
        )
    )


def test_a_message_says_in_which_function(tmp_path: Path) -> None:
    inner = _function("Bad", [helper.make_node("Flatten", ["x"], ["y"], axis=7)], [])
    path = write(
        tmp_path / "m.onnx",
        [node("Bad", ["x"], "y", domain="mine")],
        {"x": [2, 5]},
        ["y"],
    )
    with pytest.raises(UnsupportedError) as caught:
        read_onnx(_functions(path, [inner]), {})
    assert "Flatten: axis 7" in caught.value.what
    assert "(Flatten)" in str(caught.value.at)
    assert " in n_y (Bad)" in str(caught.value.at)


def test_a_function_that_calls_itself(tmp_path: Path) -> None:
    endless = _function(
        "Endless", [helper.make_node("Endless", ["x"], ["y"], domain="mine")], []
    )
    path = write(
        tmp_path / "m.onnx",
        [node("Endless", ["x"], "y", domain="mine")],
        {"x": [2]},
        ["y"],
    )
    with pytest.raises(UnsupportedError, match="functions call each other without end"):
        read_onnx(_functions(path, [endless]), {})


@pytest.mark.parametrize(
    ("op", "own", "attrs"),
    [
        ("Softmax", 11, {}),  # along another axis by default
        ("Softmax", 11, {"axis": 1}),  # of joined axes
        ("ReduceMax", 17, {"axes": [1]}),  # an input from 18 on
        ("Gelu", 19, {}),  # not yet there
    ],
)
def test_a_function_of_another_operator_set(
    tmp_path: Path, op: str, own: int, attrs: dict[str, Any]
) -> None:
    inner = _function("Own", [helper.make_node(op, ["x"], ["y"], **attrs)], [])
    inner.opset_import[0].version = own
    nodes = [node("Own", ["x"], "y", domain="mine")]
    path = write(tmp_path / "m.onnx", nodes, {"x": [2, 3, 4]}, ["y"], opset=20)
    with pytest.raises(InputError) as caught:
        read_onnx(_functions(path, [inner]), {})
    different = (
        f"operator set {own} and its caller of 20, which have different operators"
    )
    assert f"{different} {op}" in caught.value.what
    assert caught.value.at == f"function Own, {path}"


def test_a_function_of_another_operator_set_with_the_same_operators(
    tmp_path: Path,
) -> None:
    inner = _function("Own", [helper.make_node("Relu", ["x"], ["y"])], [])
    inner.opset_import[0].version = 13
    nodes = [node("Own", ["x"], "y", domain="mine")]
    path = write(tmp_path / "m.onnx", nodes, {"x": [2, 3]}, ["y"], opset=18)
    agree(_functions(path, [inner]))


def test_an_attribute_that_a_function_does_not_know(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx",
        [node("Relu", ["x"], "y", slope=0.5)],
        {"x": [2]},
        ["y"],
        opset=18,
    )
    with pytest.raises(UnsupportedError, match="does not know the attribute slope"):
        read_onnx(path, {})


W = _x(3, 2, 3, 3)
B = _x(3)


@pytest.mark.parametrize(
    ("op", "shapes", "constants", "attrs"),
    [
        (
            "FusedConv",
            {"x": [1, 2, 6, 5]},
            {"w": W, "b": B},
            {"activation": "Relu", "pads": [1, 1, 1, 1]},
        ),
        (
            "FusedConv",
            {"x": [1, 2, 6, 5]},
            {"w": W},
            {"activation": "LeakyRelu", "activation_params": [0.2]},
        ),
        (
            "FusedConv",
            {"x": [1, 2, 6, 5]},
            {"w": W},
            {"activation": "Clip", "activation_params": [-0.1, 0.3]},
        ),
        (
            "FusedMatMul",
            {"x": [2, 3, 4], "z": [2, 3, 5]},
            {},
            {"transA": 1, "alpha": 0.5},
        ),
        ("FusedMatMul", {"x": [3, 4], "z": [5, 4]}, {}, {"transB": 1}),
        ("Gelu", {"x": [2, 6]}, {}, {}),
        ("BiasGelu", {"x": [2, 6]}, {"b": _x(6)}, {}),
        ("FastGelu", {"x": [2, 6]}, {"b": _x(6)}, {}),
        ("QuickGelu", {"x": [2, 6]}, {}, {"alpha": 1.5}),
        (
            "SkipLayerNormalization",
            {"x": [1, 4, 6], "z": [1, 4, 6]},
            {"s": _x(6), "b": _x(6)},
            {"epsilon": 1e-5},
        ),
        (
            "SkipSimplifiedLayerNormalization",
            {"x": [2, 4, 6], "z": [2, 4, 6]},
            {"s": _x(6)},
            {"epsilon": 1e-5},
        ),
        (
            "SkipSimplifiedLayerNormalization",
            {"x": [2, 4, 6], "z": [4, 6]},
            {"s": _x(6), "b": _x(6)},
            {},
        ),
    ],
)
def test_operators_of_onnxruntimes_domain(
    tmp_path: Path,
    op: str,
    shapes: dict[str, list[int]],
    constants: dict[str, Array],
    attrs: dict[str, Any],
) -> None:
    outputs = ["y", "", "", "sum"] if op.startswith("Skip") else ["y"]
    inputs = [*shapes, *constants]
    nodes = [node(op, inputs, outputs, domain="com.microsoft", **attrs)]
    named = [name for name in outputs if name]
    path = write(tmp_path / "m.onnx", nodes, shapes, named, constants)
    model = onnx.load(str(path))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, str(path))
    agree(path)


@pytest.mark.parametrize("axis", [-1, 1])
def test_a_norm_that_onnxruntime_writes_into_the_standards_domain(
    tmp_path: Path, axis: int
) -> None:
    attrs = {"axis": axis, "epsilon": 1e-4, "stash_type": 1}
    op = "SimplifiedLayerNormalization"
    nodes = [node(op, ["x", "s"], ["y", "inverse"], **attrs)]
    scale = _x(6) if axis == -1 else _x(4, 6)
    path = tmp_path / "m.onnx"
    agree(write(path, nodes, {"x": [2, 4, 6]}, ["y", "inverse"], {"s": scale}))


@pytest.mark.parametrize(
    ("op", "shape", "constants", "attrs"),
    [
        ("Affine", [2, 6], {}, {"alpha": 1.5, "beta": -0.5}),
        ("ImageScaler", [1, 3, 4, 5], {}, {"bias": [0.5, -1.0, 2.0]}),
        ("ImageScaler", [2, 1, 4, 5], {}, {"bias": [0.5], "scale": 0.25}),
        ("Crop", [1, 2, 7, 8], {}, {"border": [1, 2, 3, 0]}),
        ("Crop", [1, 2, 7, 8], {}, {"border": [1, 2, 3, 0], "scale": [4, 5]}),
        ("DynamicSlice", [5, 6], {"s": np.array([1, 2]), "e": np.array([4, 6])}, {}),
        ("ParametricSoftplus", [2, 6], {}, {"alpha": 0.5, "beta": 2.0}),
        ("ScaledTanh", [2, 6], {}, {"alpha": 0.5, "beta": 2.0}),
    ],
)
def test_experimental_operators_that_onnx_took_back(
    tmp_path: Path,
    op: str,
    shape: list[int],
    constants: dict[str, Array],
    attrs: dict[str, Any],
) -> None:
    nodes = [node(op, ["x", *constants], "y", **attrs)]
    agree(write(tmp_path / "m.onnx", nodes, {"x": shape}, ["y"], constants, opset=7))


@pytest.mark.parametrize(
    ("op", "attrs", "message"),
    [
        ("Affine", {"alpha": 1.0}, "the attribute beta is missing"),
        ("ImageScaler", {"bias": [1.0, 2.0]}, "2 biases for a value of shape"),
        ("Crop", {"border": [1, 1, 1]}, "4, 2 and 4 numbers"),
        (
            "Crop",
            {"border": [2, 0, 3, 0]},
            "leave nothing of 4 x 5, or reach beyond it",
        ),
        (
            "Crop",
            {"border": [2, 0, 0, 0], "scale": [4, 4]},
            "leave nothing of 4 x 5, or reach beyond it",
        ),
        (
            "Crop",
            {"border": [0, 0, 0, 0], "size": [4, 4]},
            "does not know the attribute size",
        ),
    ],
)
def test_experimental_operators_that_are_wrong(
    tmp_path: Path, op: str, attrs: dict[str, Any], message: str
) -> None:
    path = write(
        tmp_path / "m.onnx",
        [node(op, ["x"], "y", **attrs)],
        {"x": [1, 3, 4, 5]},
        ["y"],
        opset=7,
    )
    with pytest.raises(UnsupportedError, match=message):
        read_onnx(path, {})


def test_an_attribute_of_that_domain_that_is_not_known(tmp_path: Path) -> None:
    nodes = [node("QuickGelu", ["x"], "y", domain="com.microsoft", beta=2.0)]
    with pytest.raises(UnsupportedError, match="does not know the attribute beta"):
        read_onnx(write(tmp_path / "m.onnx", nodes, {"x": [2]}, ["y"]), {})


def test_nodes_out_of_order_are_sorted(tmp_path: Path) -> None:
    nodes = [
        node("Add", ["a", "b"], "y"),
        node("Exp", ["a"], "b"),
        node("Relu", ["x"], "a"),
    ]
    path = write(tmp_path / "m.onnx", nodes, {"x": [2, 3]}, ["y"])
    graph = read_onnx(path, {})
    assert [op.kind for op in graph.ops] == ["relu", "exp", "add"]


def test_nodes_in_a_circle(tmp_path: Path) -> None:
    nodes = [node("Add", ["x", "b"], "a"), node("Exp", ["a"], "b")]
    with pytest.raises(InputError, match="b is read before anything writes it"):
        read_onnx(write(tmp_path / "m.onnx", nodes, {"x": [2]}, ["b"]), {})


@pytest.mark.parametrize("elements", ["float16", "double"])
def test_floats_of_other_widths_at_the_border(tmp_path: Path, elements: str) -> None:
    path = write(tmp_path / "m.onnx", [node("Exp", ["x"], "y")], {"x": [2, 3]}, ["y"])
    model = onnx.load(str(path))
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.elem_type = onnx.TensorProto.DataType.Value(
            elements.upper()
        )
    onnx.save(model, str(path))
    graph = read_onnx(path, {})
    width = "float64" if elements == "double" else elements
    assert [v.type.dtype for v in (*graph.inputs, *graph.outputs)] == [width, width]
    assert [op.kind for op in graph.ops] == ["cast", "exp", "cast"]


def test_tensors_without_elements_are_inside_alone(tmp_path: Path) -> None:
    ends = {"s": np.array([2]), "e": np.array([2])}
    nodes = [
        node("Slice", ["x", "s", "e"], "none"),
        node("Concat", ["none", "x"], "y", axis=0),
    ]
    agree(write(tmp_path / "m.onnx", nodes, {"x": [2, 3]}, ["y"], ends))
    with pytest.raises(
        InputError, match=r"none has the shape \[0, 3\], without an element"
    ):
        read_model(write(tmp_path / "n.onnx", nodes[:1], {"x": [2, 3]}, ["none"], ends))
