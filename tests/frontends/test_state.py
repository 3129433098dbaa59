"""What a model keeps between calls, of both front-ends, and inputs that are fixed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from edgec.errors import InputError, UnsupportedError
from edgec.frontends import read_model
from edgec.frontends.input_requests import likely_state
from edgec.ir import Array, Calls, Graph, State, interp, parse, print_graph, verify
from edgec.ir.verify import VerifyError
from edgec.passes.pipeline import optimize
from tests.frontends.onnx_files import node, write
from tests.frontends.test_tflite_operators import lstm
from tests.frontends.tflite_operators import packed
from tests.frontends.tflite_state import BUILTIN, START, litert_calls, stateful

_RNG = np.random.default_rng(0)


def running(path: Path) -> Path:
    """y = relu(h + x) and h_out = 0.5 (h + x), of an h that is given."""
    nodes = [
        node("Add", ["h", "x"], "s"),
        node("Mul", ["s", "half"], "h_out"),
        node("Relu", ["s"], "y"),
    ]
    return write(
        path,
        nodes,
        {"x": [1, 4], "h": [1, 4]},
        ["y", "h_out"],
        {"half": np.array(0.5, np.float32)},
    )


def _xs(count: int = 6) -> list[Array]:
    return [_RNG.normal(size=(1, 4)).astype(np.float32) for _ in range(count)]


def _read(tmp_path: Path, data: bytes) -> Graph:
    (tmp_path / "m.tflite").write_bytes(data)
    return read_model(tmp_path / "m.tflite")


@pytest.mark.parametrize("optimised", [False, True])
def test_variables_are_what_litert_keeps(optimised: bool, tmp_path: Path) -> None:
    graph = _read(tmp_path, stateful())
    xs = _xs()
    graph = optimize(graph) if optimised else graph
    assert [v.name for v in graph.given()] == ["x"]
    assert [v.name for v in graph.returned()] == ["y", "w"]
    assert {s.input: s.initial.tolist() for s in graph.state} == {
        "sum": START.tolist(),
        "old": [[0] * 4],
        "older": [[0] * 4],
    }
    calls = Calls(graph)
    want = [*litert_calls(stateful(), xs)]
    for _ in range(2):
        for x, (y, w) in zip(xs, want, strict=True):
            got = calls({"x": x})
            np.testing.assert_allclose(got["y"], y, atol=1e-6)
            np.testing.assert_allclose(got["w"], w, atol=1e-6)
        calls.reset()


def test_a_sequence_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    """As LiteRT's variables do: until a reset."""
    model, fed = lstm(2, 6, False, False, 0.0)
    graph = _read(tmp_path, packed(model))
    assert [s.input for s in graph.state] == ["x18", "x19"]
    calls = Calls(optimize(graph))
    xs = [fed["x0"], fed["x0"] * 2, fed["x0"] - 1]
    for x, (want,) in zip(xs, litert_calls(packed(model), xs, BUILTIN), strict=True):
        np.testing.assert_allclose(calls({"x0": x})["y0"], want, atol=1e-5)


def test_a_variable_that_begins_as_another_shape_is_refused(tmp_path: Path) -> None:
    graph = _read(tmp_path, stateful())
    graph.state[0] = State("sum", graph.state[0].output, np.zeros((1, 5), np.float32))
    with pytest.raises(VerifyError, match="state_paired"):
        verify(graph, "imported")


def test_pairs_that_a_person_names(tmp_path: Path) -> None:
    graph = read_model(running(tmp_path / "m.onnx"), state={"h": "h_out"})
    xs = _xs(4)
    assert [v.name for v in graph.given()] == ["x"]
    calls = Calls(graph)
    h = np.zeros((1, 4), np.float32)
    for x in xs:
        assert [*calls({"x": x})] == ["y"]
        h = ((h + x) * np.float32(0.5)).astype(np.float32)
        np.testing.assert_array_equal(calls.state["h"], h)
    assert (
        interp(graph, {"x": xs[0]})["h_out"].tolist()
        == (xs[0] * np.float32(0.5)).tolist()
    )


def test_text_has_the_state(tmp_path: Path) -> None:
    graph = _read(tmp_path, stateful())
    assert print_graph(parse(print_graph(graph))) == print_graph(graph)
    assert "state %sum = %" in print_graph(graph)
    assert [(s.input, s.output) for s in graph.copy().state] == [
        (s.input, s.output) for s in graph.state
    ]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"g": "h_out"}, "no input g"),
        ({"h": "h_uot"}, 'no output h_uot; did you mean "h_out"'),
        ({"h": "h_out", "x": "y"}, "all inputs or all outputs are state"),
        ({"h": "h_out", "x": "h_out"}, "no output h_out"),
    ],
)
def test_pairs_that_cannot_be(
    state: Mapping[str, str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        read_model(running(tmp_path / "m.onnx"), state=state)
    assert said in str(caught.value)
    assert "at: --state" in str(caught.value)


def test_pairs_that_look_like_state(tmp_path: Path) -> None:
    def found(before: str, after: str, shape: tuple[int, ...] = (1, 4)) -> bool:
        nodes = [node("Relu", ["x"], "y"), node("Tanh", [before], after)]
        graph = read_model(
            write(
                tmp_path / "m.onnx", nodes, {"x": [1, 4], before: shape}, ["y", after]
            )
        )
        return [(a.name, b.name) for a, b in likely_state(graph)] == [(before, after)]

    for pair in (
        ("state", "stateN"),
        ("h", "hn"),
        ("c0", "cn"),
        ("h_in", "h_out"),
        ("past_k", "present_k"),
        ("m_prev", "m"),
    ):
        assert found(*pair)
    for pair in (
        ("a", "b"),
        ("image", "mask"),
        ("left", "right"),
        ("input", "output"),
    ):
        assert not found(*pair)
    nodes = [node("Tanh", ["picture_in"], "picture_out")]
    alone = write(tmp_path / "m.onnx", nodes, {"picture_in": [1, 4]}, ["picture_out"])
    assert not [*likely_state(read_model(alone))], "it would leave no input"
    graph = read_model(running(tmp_path / "m.onnx"), state={"h": "h_out"})
    assert not [*likely_state(graph)]


def _branches(path: Path) -> Path:
    """An If on whether `rate`, an int64, is 16000."""

    def branch(op: str, name: str) -> object:
        return helper.make_graph(
            [helper.make_node(op, ["x"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)],
        )

    nodes = [
        node("Equal", ["rate", "known"], "c"),
        node(
            "If",
            ["c"],
            "y",
            then_branch=branch("Relu", "t"),
            else_branch=branch("Tanh", "e"),
        ),
    ]
    made = write(path, nodes, {"x": [1, 4]}, ["y"], {"known": np.array(16000)})
    import onnx

    model = onnx.load(made)
    model.graph.input.append(
        helper.make_tensor_value_info("rate", TensorProto.INT64, [])
    )
    onnx.save(model, made)
    return path


def test_an_if_on_an_input_that_is_fixed(tmp_path: Path) -> None:
    path = _branches(tmp_path / "m.onnx")
    for rate, kind in ((16000, "relu"), (8000, "tanh")):
        graph = read_model(path, fixed={"rate": (rate,)})
        assert [v.name for v in graph.inputs] == ["x"]
        assert [op.kind for op in graph.ops] == [kind]
    with pytest.raises(UnsupportedError, match="the condition") as caught:
        read_model(path)
    assert caught.value.hint == "--fix rate=NUMBER if it is always the same"


@pytest.mark.parametrize(
    ("fixed", "said"),
    [
        ({"rat": (1.0,)}, 'no input rat; did you mean "rate"'),
        ({"rate": (1.0, 2.0)}, "2 numbers do not fill rate"),
        ({"rate": (0.5,)}, "0.5 does not fit the input rate of int64"),
        ({"rate": (1.0,), "x": (0.0,)}, "no input is left"),
    ],
)
def test_inputs_that_cannot_be_fixed(
    fixed: Mapping[str, tuple[float, ...]], said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        read_model(_branches(tmp_path / "m.onnx"), fixed=fixed)
    assert said in str(caught.value)


def test_a_fixed_input_of_tflite(tmp_path: Path) -> None:
    from tests.frontends.tflite_operators import Given, model_of

    xs = [_RNG.normal(size=(2, 3)).astype(np.float32) for _ in range(2)]
    (tmp_path / "m.tflite").write_bytes(
        packed(
            model_of(
                "ADD",
                ("AddOptions", {}),
                [Given(x) for x in xs],
                [((2, 3), np.float32)],
            )
        )
    )
    graph = read_model(tmp_path / "m.tflite", fixed={"x1": range(6)})
    got = interp(graph, {"x0": xs[0]})["y0"]
    np.testing.assert_array_equal(
        got, xs[0] + np.arange(6, dtype=np.float32).reshape(2, 3)
    )
