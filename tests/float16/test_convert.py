"""Which ops of a graph compute with float16, and where casts are."""

from __future__ import annotations

import numpy as np

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.float16.convert import float16_ops, to_float16
from edgec.ir import Builder, Graph, State, TensorType, interp, verify
from edgec.ops.arithmetic import Pow
from edgec.ops.binary import Add, Mul
from edgec.ops.conv import Conv2D
from edgec.ops.shape import Reshape
from edgec.ops.unary import Relu
from tests.float16.nets import ROWS, WIDTH, dense, given, samples


def _kinds(graph: Graph, dtype: str) -> list[str]:
    """The kinds of the ops that write a type."""
    return [op.kind for op in graph.ops if op.outputs[0].type.dtype == dtype]


def test_casts_are_at_the_ends_and_once_for_each_value() -> None:
    build = Builder("net")
    x = given(build)
    y = build.add(Add(), [dense(build, x, "left"), dense(build, x, "right1")], "y")
    build.graph.outputs = [y]
    half = to_float16(build.graph)
    verify(half, "imported")
    assert [op.kind for op in half.ops] == [
        "cast",
        "fully_connected",
        "fully_connected",
        "add",
        "cast",
    ]
    assert _kinds(half, "float32") == ["cast"]
    weights = [v.const for op in half.ops for v in op.inputs if v.const is not None]
    assert {w.dtype for w in weights} == {np.dtype(np.float16)}


def test_a_graph_keeps_its_ends_and_is_left_as_it_was() -> None:
    build = Builder("net")
    first = dense(build, given(build), "first")
    build.graph.outputs = [first, dense(build, first, "second")]
    half = to_float16(build.graph)
    assert [(v.name, v.type) for v in half.inputs] == [("x", TensorType((ROWS, WIDTH)))]
    assert [(v.name, v.type.dtype) for v in half.outputs] == [
        ("first", "float32"),
        ("second", "float32"),
    ]
    assert not any(v.type.dtype == "float16" for v in build.graph.values())

    # An output that another layer reads is not cast there and back again.
    assert [op.kind for op in half.ops].count("cast") == 3
    (sample,) = samples(1)
    got, want = interp(half, sample), interp(build.graph, sample)
    for name, y in want.items():
        assert np.abs(got[name] - y).max() < 4e-3 * np.abs(y).max()
        assert not np.array_equal(got[name], y)


def test_state_stays_float32() -> None:
    build = Builder("net")
    x = given(build)
    before = given(build, "before")
    after = build.add(Add(), [dense(build, x, "layer"), before], "after")
    build.graph.outputs = [dense(build, after, "y"), after]
    build.graph.state = [
        State("before", "after", np.zeros((ROWS, WIDTH), np.float32)),
    ]
    half = to_float16(build.graph)
    verify(half, "imported")
    assert half.state == build.graph.state
    ends = {v.name: v.type.dtype for v in (*half.inputs, *half.outputs)}
    assert ends["before"] == "float32"
    assert ends["after"] == "float32"
    assert "add" in _kinds(half, "float16")


def test_a_constant_beyond_float16_keeps_its_op_in_float32() -> None:
    def converted(factor: float) -> set[str]:
        build = Builder("net")
        c = build.const(np.array(factor, np.float32), "c")
        y = build.add(Mul(), [dense(build, given(build), "first"), c], "scaled")
        build.graph.outputs = [dense(build, y, "last")]
        return {op.outputs[0].name for op in float16_ops(build.graph)}

    assert converted(65504.0) == {"first", "scaled", "last"}
    assert converted(-65505.0) == {"first", "last"}

    # A mask's infinity is one in float16 too.
    assert converted(-np.inf) == {"first", "scaled", "last"}


def test_an_op_without_a_kernel_for_float16_stays_float32() -> None:
    build = Builder("net")
    two = build.const(np.array(2, np.float32), "two")
    y = build.add(Pow(), [dense(build, given(build), "first"), two], "power")
    build.graph.outputs = [dense(build, y, "last")]
    half = to_float16(build.graph)
    verify(half, "imported")
    assert "pow" in _kinds(half, "float32")
    assert _kinds(half, "float16").count("fully_connected") == 2


def test_kept_ops_stay_float32() -> None:
    build = Builder("net")
    first = dense(build, given(build), "first")
    build.graph.outputs = [dense(build, first, "second")]
    half = to_float16(build.graph, keep=["second"])
    assert [op.kind for op in half.ops] == [
        "cast",
        "fully_connected",
        "cast",
        "fully_connected",
    ]
    assert half.ops[-1].output.type.dtype == "float32"


def test_an_island_whose_casts_cost_more_stays_float32() -> None:
    build = Builder("net")
    build.graph.outputs = [build.add(Relu(), [given(build)], "y")]
    assert float16_ops(build.graph) == set()
    assert to_float16(build.graph) == build.graph


def test_a_change_of_place_alone_is_no_reason_for_a_cast() -> None:
    build = Builder("net")
    x = build.input("x", TensorType((WIDTH, ROWS)))
    moved = build.add(Reshape((ROWS, WIDTH)), [x], "moved")
    build.graph.outputs = [
        build.add(Reshape((WIDTH, ROWS)), [dense(build, moved, "layer")], "y")
    ]
    names = {op.outputs[0].name for op in float16_ops(build.graph)}
    assert names == {"layer", "y"}


def test_a_convolution_of_few_channels_is_worth_its_casts() -> None:
    rng = np.random.default_rng(0)
    build = Builder("net")
    x = build.input("x", TensorType((1, 16, 16, 3)))
    w = build.const(rng.normal(size=(8, 3, 3, 3)).astype(np.float32), "w")
    b = build.const(np.zeros(8, np.float32), "b")
    build.graph.outputs = [build.add(Conv2D(), [x, w, b], "y")]
    assert len(float16_ops(build.graph)) == 1
