"""The ONNX front-end: shapes that become static, constants that fold, and what it says
when it cannot.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgec import onnx_backend
from edgec.errors import EdgecError, InputError, UnsupportedError
from edgec.frontends import read_model
from edgec.frontends.onnx import read_onnx
from edgec.ir import interp
from tests.frontends.onnx_files import agree, node, write

RELU = [node("Relu", ["x"], "y")]
I64 = np.int64


def message(
    path: Path,
    error: type[EdgecError],
    shapes: dict[str, tuple[int, ...]] | None = None,
) -> str:
    with pytest.raises(error) as caught:
        read_onnx(path, shapes or {})
    assert caught.value.exit_code == 2
    assert str(path) in str(caught.value.at)
    return str(caught.value)


# ---- files
# --------------------------------------------------------------------------------------
def test_a_truncated_file(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", RELU, {"x": [1, 3]}, ["y"])
    path.write_bytes(path.read_bytes()[:-10])
    text = message(path, InputError)
    assert "error: m.onnx cannot be read as ONNX" in text
    assert "hint: the file is damaged or cut short" in text


@pytest.mark.parametrize("data", [b"", b"\x89PNG\r\n\x1a\n", b"just text\n"])
def test_no_onnx_file(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    assert "error: m.onnx " in message(path, InputError)


def test_a_model_without_graph(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(onnx.ModelProto(ir_version=8).SerializeToString())
    assert "m.onnx holds no ONNX graph" in message(path, InputError)


def test_missing_external_data(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx",
        [node("Add", ["x", "w"], "y")],
        {"x": [4]},
        ["y"],
        {"w": np.ones(4, np.float32)},
    )
    model = onnx.load(str(path))
    onnx.save(
        model, str(path), save_as_external_data=True, location="w.bin", size_threshold=0
    )
    agree(path)
    (tmp_path / "w.bin").unlink()
    text = message(path, InputError)
    assert "the external data of m.onnx cannot be read" in text
    assert (
        "hint: put the weights' file, as the exporter wrote it, next to m.onnx" in text
    )


def test_an_old_opset(tmp_path: Path) -> None:
    text = message(
        write(tmp_path / "m.onnx", RELU, {"x": [1]}, ["y"], opset=6), UnsupportedError
    )
    assert "m.onnx uses opset 6; edgec reads 7 and up" in text
    assert "hint: convert it with onnx.version_converter" in text


def test_a_value_that_nothing_writes(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx", [node("Add", ["x", "ghost"], "y")], {"x": [1]}, ["y"]
    )
    text = message(path, InputError)
    assert "ghost is read before anything writes it" in text
    assert "at: node n_y (Add)" in text


def test_a_value_that_two_nodes_write(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", [*RELU, *RELU], {"x": [1]}, ["y"])
    assert "two nodes write y" in message(path, InputError)


# ---- operators
# --------------------------------------------------------------------------------------
def test_unknown_operators(tmp_path: Path) -> None:
    nodes = [*RELU, node("Frobnicate", ["y"], "z"), node("Twiddle", ["z"], "t")]
    text = message(
        write(tmp_path / "m.onnx", nodes, {"x": [1]}, ["t"]), UnsupportedError
    )
    assert "edgec does not know the ONNX operator Frobnicate (nor Twiddle)" in text
    assert "at: node n_z (Frobnicate)" in text
    assert "hint: docs/supported-ops.md" in text


def test_unknown_operators_that_nothing_needs(tmp_path: Path) -> None:
    nodes = [*RELU, node("Frobnicate", ["y"], "z")]
    assert (
        len(read_onnx(write(tmp_path / "m.onnx", nodes, {"x": [1]}, ["y"]), {}).ops)
        == 1
    )


def test_a_foreign_domain(tmp_path: Path) -> None:
    nodes = [node("MoE", ["x"], "y", domain="com.microsoft")]
    text = message(
        write(tmp_path / "m.onnx", nodes, {"x": [1]}, ["y"]), UnsupportedError
    )
    assert "edgec does not know the ONNX operator com.microsoft:MoE" in text


def test_control_flow(tmp_path: Path) -> None:
    branch = helper.make_graph([helper.make_node("Relu", ["x"], ["r"])], "b", [], [])
    nodes = [node("If", ["x"], "y", then_branch=branch, else_branch=branch)]
    text = message(
        write(tmp_path / "m.onnx", nodes, {"x": [1]}, ["y"]), UnsupportedError
    )
    assert (
        "If: edgec compiles models without control flow: "
        "the condition (x) is computed at run time" in text
    )
    assert "hint: --fix x=NUMBER if it is always the same" in text
    text = message(
        write(tmp_path / "m.onnx", nodes, {"x": [2]}, ["y"]), UnsupportedError
    )
    assert (
        "hint: edgec compiles models without control flow: export it with fixed shapes"
        in text
    )


def test_a_condition_that_is_constant(tmp_path: Path) -> None:
    def branch(nodes: list[onnx.NodeProto], out: str) -> onnx.GraphProto:
        return helper.make_graph(
            nodes,
            "branch",
            [],
            [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)],
        )

    squeezed = branch([helper.make_node("Squeeze", ["r", "one"], ["t"])], "t")
    same = branch([helper.make_node("Frobnicate", ["r"], ["e"])], "e")
    nodes = [
        *RELU,
        node("Sigmoid", ["y"], "r"),
        node("Shape", ["y"], "s"),
        node("Gather", ["s", "one"], "d"),
        node("Equal", ["d", "one"], "c"),
        node("If", ["c"], "z", then_branch=squeezed, else_branch=same),
    ]
    path = write(
        tmp_path / "m.onnx", nodes, {"x": [2, 1, 3]}, ["z"], {"one": np.array([1], I64)}
    )
    graph = read_onnx(path, {})
    assert [op.kind for op in graph.ops] == ["relu", "logistic", "reshape"]
    assert (graph.outputs[0].name, graph.outputs[0].type.shape) == ("z", (2, 3))
    path = write(
        tmp_path / "m.onnx", nodes, {"x": [2, 2, 3]}, ["z"], {"one": np.array([1], I64)}
    )
    assert "edgec does not know the ONNX operator Frobnicate" in message(
        path, UnsupportedError
    )


def test_a_node_that_cannot_be_read(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx",
        [node("Reshape", ["x", "s"], "y")],
        {"x": [4]},
        ["y"],
        {"s": np.array([3], I64)},
    )
    text = message(path, UnsupportedError)
    assert "error: Reshape: float32[4] does not fit the shape [3]" in text
    assert "at: node n_y (Reshape)" in text


def test_an_axis_that_is_inserted_twice(tmp_path: Path) -> None:
    axes = {"axes": np.array([1, -2], I64)}
    nodes = [node("Unsqueeze", ["x", "axes"], "y")]
    path = write(tmp_path / "m.onnx", nodes, {"x": [4]}, ["y"], axes)
    text = message(path, UnsupportedError)
    assert "error: Unsqueeze: axes [1, -2] name one of 3 twice" in text


def test_a_computed_shape(tmp_path: Path) -> None:
    nodes = [
        node("Cast", ["x"], "s", to=TensorProto.INT64),
        node("Reshape", ["x", "s"], "y"),
    ]
    text = message(
        write(tmp_path / "m.onnx", nodes, {"x": [1]}, ["y"]), UnsupportedError
    )
    assert "input 1 (s) is computed at run time; edgec needs it to be constant" in text


def test_an_output_that_is_not_computed(tmp_path: Path) -> None:
    constants = {n: np.ones(4, np.float32) for n in "abcd"}
    nodes = [
        node("BatchNormalization", ["x", *"abcd"], ["y", "mean"]),
        node("Relu", ["mean"], "z"),
    ]
    path = write(
        tmp_path / "m.onnx", nodes, {"x": [1, 4, 2]}, ["z"], constants, opset=9
    )
    text = message(path, UnsupportedError)
    assert (
        "output 1 of BatchNormalization (mean) is read; edgec cannot compute it" in text
    )


def test_elements_that_edgec_does_not_know(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", RELU, {"x": [1]}, ["y"])
    model = onnx.load(str(path))
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
    onnx.save(model, str(path))
    assert "input x has elements of type bfloat16" in message(path, UnsupportedError)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT
    model.graph.initializer.append(
        helper.make_tensor("w", TensorProto.STRING, [1], [b"hello"])
    )
    onnx.save(model, str(path))
    assert "tensor w has elements of type string" in message(path, UnsupportedError)


# ---- shapes
# --------------------------------------------------------------------------------------
def test_a_dynamic_input(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", RELU, {"x": ["n", 3, "height", None]}, ["y"])
    text = message(path, InputError)
    assert "error: input x has the dynamic shape [n, 3, height, ?]" in text
    assert "hint: freeze it, for instance --input-shape x=1x3x224x224" in text
    assert read_onnx(path, {"x": (2, 3, 5, 7)}).inputs[0].type.shape == (2, 3, 5, 7)


@pytest.mark.parametrize(
    ("imgsz", "example"),
    [
        ("[480, 640]", "x=1x3x480x640"),
        ("[320,320]", "x=1x3x320x320"),
        ("[0, 640]", "x=1x3x224x224"),
        ("a picture's", "x=1x3x224x224"),
    ],
)
def test_a_dynamic_input_of_a_stated_size(
    imgsz: str, example: str, tmp_path: Path
) -> None:
    """Height and width in the hint are those of Ultralytics' exporter."""
    path = write(
        tmp_path / "m.onnx", RELU, {"x": ["batch", 3, "height", "width"]}, ["y"]
    )
    model = onnx.load(str(path))
    model.metadata_props.add(key="imgsz", value=imgsz)
    onnx.save(model, str(path))
    assert f"--input-shape {example}\n" in f"{message(path, InputError)}\n"


@pytest.mark.parametrize("batch", ["batch", None])
def test_a_dynamic_batch_is_one(tmp_path: Path, batch: int | str | None) -> None:
    path = write(tmp_path / "m.onnx", RELU, {"x": [batch, 3, 4]}, ["y"])
    assert read_onnx(path, {}).inputs[0].type.shape == (1, 3, 4)
    assert read_onnx(path, {"x": (5, 3, 4)}).inputs[0].type.shape == (5, 3, 4)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (0,)])
def test_a_dimension_of_0_is_0(shape: tuple[int, ...], tmp_path: Path) -> None:
    """As onnxruntime has it; another size can be given."""
    path = write(tmp_path / "m.onnx", RELU, {"x": shape}, ["y"])
    graph = read_onnx(path, {})
    x = np.ones(shape, np.float32)
    session = onnxruntime.InferenceSession(
        str(path), providers=["CPUExecutionProvider"]
    )
    np.testing.assert_array_equal(
        interp(graph, {"x": x})["y"], session.run(None, {"x": x})[0]
    )
    assert graph.inputs[0].type.shape == shape
    with pytest.raises(
        InputError, match=r"x has the shape \[.*0.*\], without an element"
    ):
        read_model(path)
    given = tuple(d or 5 for d in shape)
    assert read_onnx(path, {"x": given}).inputs[0].type.shape == given


def test_a_vector_has_no_batch(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", RELU, {"x": ["n"]}, ["y"])
    assert "input x has the dynamic shape [n]" in message(path, InputError)


@pytest.mark.parametrize("given", [(1, 4, 5, 5), (1, 3, 5), (1, 3, 0, 5)])
def test_a_shape_that_does_not_fit(tmp_path: Path, given: tuple[int, ...]) -> None:
    path = write(tmp_path / "m.onnx", RELU, {"x": ["n", 3, "h", "w"]}, ["y"])
    text = message(path, InputError, {"x": given})
    assert (
        f"input x has the shape [n, 3, h, w] in the file, which {list(given)} does not fit"
        in text
    )


def test_a_shape_for_an_input_that_is_not_there(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx", RELU, {"x": ["n", 3]}, ["y"], {"w": np.ones(1, np.float32)}
    )
    text = message(path, InputError, {"X": (1, 3)})
    assert "the model has no input X" in text
    assert "hint: its inputs: x" in text


def test_an_input_without_shape(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", RELU, {"x": [1]}, ["y"])
    model = onnx.load(str(path))
    model.graph.input[0].type.tensor_type.ClearField("shape")
    onnx.save(model, str(path))
    assert "input x has the dynamic shape unknown" in message(path, InputError)
    assert read_onnx(path, {"x": (2, 2)}).inputs[0].type.shape == (2, 2)


# ---- constants
# --------------------------------------------------------------------------------------
def test_an_initializer_that_is_an_input_too_is_a_constant(tmp_path: Path) -> None:
    nodes = [node("Add", ["x", "w"], "y")]
    path = write(
        tmp_path / "m.onnx",
        nodes,
        {"x": [4], "w": [4]},
        ["y"],
        {"w": np.arange(4, dtype=np.float32)},
    )
    graph = read_onnx(path, {})
    assert [v.name for v in graph.inputs] == ["x"]
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(interp(graph, {"x": x})["y"], [1, 2, 3, 4])


def test_shape_arithmetic_folds(tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], "s"),
        node("Constant", [], "i", value_int=1),
        node("Gather", ["s", "i"], "c"),
        node("Unsqueeze", ["c", "zero"], "c1"),
        node("Slice", ["s", "two", "four"], "hw"),
        node("Mul", ["hw", "half"], "hw2"),
        node("Cast", ["hw2"], "f", to=TensorProto.DOUBLE),
        node("Cast", ["f"], "hw3", to=TensorProto.INT64),
        node("Concat", ["minus", "c1", "hw3"], "t", axis=0),
        node("Reshape", ["x", "t"], "y"),
    ]
    numbers = {"zero": [0], "two": [2], "four": [4], "half": [2], "minus": [-1]}
    constants = {k: np.array(v, I64) for k, v in numbers.items()}
    path = write(tmp_path / "m.onnx", nodes, {"x": [4, 3, 2, 5]}, ["y"], constants)
    graph = read_onnx(path, {})
    assert [op.kind for op in graph.ops] == ["reshape"]
    assert graph.outputs[0].type.shape == (1, 3, 4, 10)


def test_operators_that_edgec_does_not_know_fold_on_constants(tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], "s"),
        node("Equal", ["s", "two"], "e"),
        node("Not", ["e"], "ne"),
        node("Where", ["ne", "s", "one"], "w"),
        node("Reshape", ["x", "w"], "y"),
    ]
    constants = {"two": np.array([2], I64), "one": np.array([1], I64)}
    graph = agree(write(tmp_path / "m.onnx", nodes, {"x": [3, 4]}, ["y"], constants))
    assert graph.outputs[0].type.shape == (3, 4)


def test_doubles_become_floats(tmp_path: Path) -> None:
    nodes = [
        node("Cast", ["w"], "f", to=TensorProto.FLOAT),
        node("Add", ["x", "f"], "y"),
    ]
    graph = agree(
        write(tmp_path / "m.onnx", nodes, {"x": [4]}, ["y"], {"w": np.arange(4.0)})
    )
    assert [op.kind for op in graph.ops] == ["add"]


def test_constants_of_every_attribute(tmp_path: Path) -> None:
    nodes = [
        node("Constant", [], "a", value=onnx.numpy_helper.from_array(np.float32(2))),
        node("Constant", [], "b", value_float=3.0),
        node("Constant", [], "c", value_floats=[1.0, 2.0]),
        node("Constant", [], "d", value_ints=[1, 2]),
        node("Mul", ["x", "a"], "y1"),
        node("Add", ["y1", "b"], "y2"),
        node("Mul", ["y2", "c"], "y3"),
        node("Reshape", ["y3", "d"], "y"),
    ]
    agree(write(tmp_path / "m.onnx", nodes, {"x": [1, 2]}, ["y"]))


# ---- outputs
# --------------------------------------------------------------------------------------
def test_outputs_that_are_inputs_or_constants(tmp_path: Path) -> None:
    nodes = [
        node("Identity", ["x"], "same"),
        node("Relu", ["w"], "k"),
        node("Cast", ["x"], "c", to=TensorProto.FLOAT),
    ]
    path = write(
        tmp_path / "m.onnx",
        nodes,
        {"x": [3]},
        ["x", "same", "k", "c"],
        {"w": np.array([-1, 2], np.float32)},
    )
    assert [v.name for v in agree(path).outputs] == ["x", "same", "k", "c"]


@pytest.mark.parametrize(
    "elements", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.UINT8]
)
def test_outputs_are_listed_again(elements: int, tmp_path: Path) -> None:
    """Also in a width that edgec computes in another, and quantized."""
    dtype = helper.tensor_dtype_to_np_dtype(elements)
    quantized = dtype == np.uint8
    scale = {"s": np.array(0.05, np.float32), "z": np.array(128, np.uint8)}
    scaled = ["s", "z"] if quantized else []
    core = [node("Mul", ["real", "k"], "product")]
    if quantized:
        begin = node("DequantizeLinear", ["x", *scaled], "real")
        end = node("QuantizeLinear", ["product", *scaled], "y")
    else:
        begin = node("Cast", ["x"], "real", to=TensorProto.FLOAT)
        end = node("Cast", ["product"], "y", to=elements)
    constants = {"k": np.array([2, 3, 4], np.float32), "c": np.array([1], dtype)}
    names = ["y", "x", "c", "y", "c", "x"]
    graph = helper.make_graph(
        [begin, *core, end],
        "again",
        [helper.make_tensor_value_info("x", elements, [2, 3])],
        [helper.make_tensor_value_info(n, elements, None) for n in names],
        [numpy_helper.from_array(a, n) for n, a in {**constants, **scale}.items()],
    )
    opset = helper.make_opsetid("", 13)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    x = np.array([[1, 50, 255], [7, 128, 0]]).astype(dtype)
    want = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, {"x": x})
    for device in ("INTERP", "CPU"):
        got = onnx_backend.prepare(model, device).run([x])
        for name, array, expected in zip(names, got, want, strict=True):
            assert array.dtype == expected.dtype
            np.testing.assert_array_equal(array, expected, err_msg=f"{name} {device}")


def test_an_output_twice_and_between(tmp_path: Path) -> None:
    nodes = [*RELU, node("Sigmoid", ["y"], "z"), node("Identity", ["z"], "t")]
    agree(write(tmp_path / "m.onnx", nodes, {"x": [3]}, ["z", "y", "t"]))


def test_names_are_those_of_the_file(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], "mid"), node("Relu", ["mid"], "y")]
    constants = {"w": np.ones((2, 3, 1, 1), np.float32)}
    graph = read_onnx(
        write(tmp_path / "m.onnx", nodes, {"x": [1, 3, 2, 2]}, ["y"], constants), {}
    )
    names = {v.name for v in graph.values()}
    assert {"x", "mid", "y"} <= names
    assert {op.source for op in graph.ops} == {"n_mid", "n_y"}


def test_an_output_that_is_no_tensor_is_refused(tmp_path: Path) -> None:
    """Also where it is known: a sequence of one is no tensor with one more dimension."""
    one = helper.make_node(
        "Constant", [], ["one"], value=numpy_helper.from_array(np.ones(5, np.float32))
    )
    nodes = [one, helper.make_node("SequenceConstruct", ["one"], ["y"])]
    outputs = [helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)]
    path = tmp_path / "sequence.onnx"
    onnx.save(
        helper.make_model(helper.make_graph(nodes, "sequence", [], outputs)), path
    )
    with pytest.raises(UnsupportedError, match="output y is not a tensor"):
        read_model(path)
