"""Valid files that use rarer features of TFLite's schema: read, or refused by the
feature's name; never "damaged".
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from edgec.emit.tflite import write_tflite
from edgec.errors import InputError, UnsupportedError
from edgec.frontends import read_model
from edgec.frontends.operators import read_operators
from edgec.frontends.tflite import read_tflite
from edgec.ir import Graph, interp, print_graph
from edgec.options.compile import CompileOptions
from edgec.verbs.explain import explain_model
from tests.emit.test_c import residual_int8
from tests.harness import random_inputs


def packed(model: Any) -> bytes:
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def parsed() -> Any:
    return schema.ModelT.InitFromPackedBuf(write_tflite(residual_int8()))


def weights(model: Any) -> Any:
    """The tensor of the first operator's weights."""
    graph = model.subgraphs[0]
    return graph.tensors[
        next(o for o in graph.operators if len(o.inputs) > 1).inputs[1]
    ]


def moved_out(model: Any) -> bytes:
    """The file with the elements of every constant behind the flatbuffer, as converters
    write models of gigabytes.
    """
    held = [
        (b, bytes(b.data)) for b in model.buffers if b.data is not None and len(b.data)
    ]
    for b, data in held:
        b.data = None
        b.offset = 1 << 40
        b.size = len(data)
    at = -(-len(packed(model)) // 64) * 64
    tail = b""
    for b, data in held:
        b.offset = at + len(tail)
        tail += data + bytes(-len(data) % 16)
    return packed(model).ljust(at, b"\0") + tail


def test_buffers_outside_the_flatbuffer_are_read(tmp_path: Path) -> None:
    whole = tmp_path / "whole" / "m.tflite"
    apart = tmp_path / "apart" / "m.tflite"
    for path, data in ((whole, packed(parsed())), (apart, moved_out(parsed()))):
        path.parent.mkdir()
        path.write_bytes(data)
    graph = read_model(apart)
    assert print_graph(graph) == print_graph(read_model(whole))
    inputs = random_inputs(graph)
    interpreter = Interpreter(model_content=apart.read_bytes())
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], inputs[detail["name"]])
    interpreter.invoke()
    for detail in interpreter.get_output_details():
        got = interp(graph, inputs)[detail["name"]]
        assert (
            np.abs(got.astype(int) - interpreter.get_tensor(detail["index"])).max() <= 1
        )


def test_buffers_beyond_the_end(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(moved_out(parsed())[:-17])
    with pytest.raises(InputError, match="the last of the file"):
        read_model(path)


def external(model: Any) -> None:
    weights(model).externalBuffer = 1


def blockwise(model: Any) -> None:
    quantization = weights(model).quantization
    quantization.detailsType = schema.QuantizationDetails.BlockwiseQuantization
    quantization.details = schema.BlockwiseQuantizationT()


@pytest.mark.parametrize(
    ("change", "feature"),
    [
        (external, "its elements in a file of their own"),
        (blockwise, "BlockwiseQuantization of its elements"),
    ],
)
def test_features_that_are_not_read_are_named(
    tmp_path: Path, change: Any, feature: str
) -> None:
    model = parsed()
    path = tmp_path / "m.tflite"
    change(model)
    path.write_bytes(packed(model))
    for opaque in (False, True):
        with pytest.raises(
            UnsupportedError, match=f"has {feature}, which edgec does not read"
        ) as caught:
            read_tflite(path, {}, opaque=opaque)
        assert caught.value.exit_code == 2
        assert "damaged" not in str(caught.value)


def test_tensors_of_one_name(tmp_path: Path) -> None:
    model = parsed()
    path = tmp_path / "m.tflite"
    plain = read_after(packed(model), path)
    for tensor in model.subgraphs[0].tensors:
        tensor.name = b"same"
    graph = read_after(packed(model), path)
    assert [op.kind for op in graph.ops] == [op.kind for op in plain.ops]
    inputs = random_inputs(graph)
    got = interp(graph, inputs)
    want = interp(
        plain, dict(zip((v.name for v in plain.inputs), inputs.values(), strict=True))
    )
    np.testing.assert_array_equal(next(iter(got.values())), next(iter(want.values())))
    explain_model(path, CompileOptions(target="pi4+coral"))


def test_what_follows_from_an_open_dimension_is_open(tmp_path: Path) -> None:
    """Though the file does not say it: TFLite computes shapes; tools that insert
    operators declare what they see.
    """
    model = parsed()
    path = tmp_path / "m.tflite"
    plain = read_after(packed(model), path)
    sub = model.subgraphs[0]
    made = [i for op in sub.operators for i in op.outputs]
    for i in made:
        sub.tensors[i].shape = [7, *sub.tensors[i].shape[1:]]
    sub.tensors[made[0]].shapeSignature = [-1, *sub.tensors[made[0]].shape[1:]]
    graph = read_after(packed(model), path)
    assert print_graph(graph) == print_graph(plain)


def read_after(data: bytes, path: Path) -> Graph:
    path.write_bytes(data)
    return read_model(path)


def test_an_operator_that_reads_what_comes_later(tmp_path: Path) -> None:
    model = parsed()
    path = tmp_path / "m.tflite"
    model.subgraphs[0].operators.reverse()
    path.write_bytes(packed(model))
    with pytest.raises(InputError, match="is read before anything writes it"):
        read_operators(path)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("scale", [np.nan], "with the scale nan"),
        ("scale", [-0.5], "with the scale -0.5"),
        ("scale", [0.5, 0.5, 0.5], "with 3 scales"),
        ("zeroPoint", [1 << 40], "with the zero point 1099511627776"),
    ],
)
def test_quantization_that_no_converter_writes(
    tmp_path: Path, field: str, value: list[Any], text: str
) -> None:
    model = parsed()
    path = tmp_path / "m.tflite"
    of = (
        model.subgraphs[0]
        .tensors[model.subgraphs[0].operators[0].outputs[0]]
        .quantization
    )
    setattr(of, field, np.array(value, np.float32 if field == "scale" else np.int64))
    path.write_bytes(packed(model))
    with pytest.raises(InputError, match=text):
        read_model(path)


@pytest.mark.shared
def test_files_that_ended_as_a_bug(shared: Path) -> None:
    """Each is explained, for which it is lowered and partitioned, or refused with exit
    code 2.
    """
    files = sorted((shared / "repro").glob("models-*/m.*"))
    assert len(files) > 15
    for path in files:
        with contextlib.suppress(InputError, UnsupportedError):
            explain_model(path, CompileOptions(target="pi4+coral"))
