"""Values that lie in others: what is copied stays where it is, and what has to be
copied still is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from edgec.compiler.native import NativeGraph, native_compiler
from edgec.emit.c import segment_source
from edgec.ir import Builder, Graph, TensorType, Value, interp
from edgec.ops.binary import Add
from edgec.ops.concat import Concat
from edgec.ops.shape import Reshape
from edgec.ops.slice import Slice
from edgec.ops.unary import Relu
from edgec.schedule.cores import PLAIN
from edgec.schedule.steps import schedule
from tests.harness import random_inputs

IMAGE = TensorType((1, 4, 5, 3))


def _graph(build: Callable[[Builder, Value], list[Value]]) -> Graph:
    b = Builder("g")
    b.graph.outputs = build(b, b.input("x", IMAGE))
    return b.graph


def _rows(b: Builder, x: Value, first: int, count: int) -> Value:
    return b.add(Slice((0, first, 0, 0), (1, count, 5, 3), (1, 1, 1, 1)), [x], "rows")


def _relu(b: Builder, x: Value) -> Value:
    return b.add(Relu(), [x], "relu")


def _plus(b: Builder, x: Value, number: float) -> Value:
    return b.add(Add(), [x, b.const(np.array([number], np.float32))], "plus")


def _joined_rows(b: Builder, x: Value) -> list[Value]:
    """A concat of images by rows, of which one part has another reader, below another
    concat by rows.
    """
    one = _relu(b, x)
    two = _plus(b, x, 1)
    both = b.add(Concat(1), [one, two], "both")
    more = b.add(Concat(1), [_plus(b, x, 2), both], "more")
    return [_plus(b, more, 3), _plus(b, one, 4)]


def _joined_twice(b: Builder, x: Value) -> list[Value]:
    """A value that a concat has twice, with an input of the graph and a constant."""
    one = _relu(b, x)
    four = b.const(np.full(IMAGE.shape, 4, np.float32))
    return [_plus(b, b.add(Concat(1), [one, x, one, four], "four"), 1)]


def _split(b: Builder, x: Value) -> list[Value]:
    """Slices of rows of a value, of a graph's input and of one of its outputs; one that
    is an output itself.
    """
    y = _plus(b, x, 1)
    out = _relu(b, y)
    parts = [_rows(b, y, 0, 2), _rows(b, x, 1, 2), _rows(b, out, 2, 2)]
    whole = b.add(Add(), [b.add(Add(), parts[:2], "a"), parts[2]], "b")
    return [
        out,
        whole,
        _rows(b, y, 3, 1),
        _plus(b, b.add(Reshape((2, 15)), [parts[1]], "flat"), 1),
    ]


def _outputs(b: Builder, x: Value) -> list[Value]:
    """Outputs that are joined, reshaped and the same as others."""
    one = _relu(b, x)
    two = _plus(b, x, 1)
    flat = b.add(Reshape((60,)), [one], "flat")
    return [
        b.add(Concat(1), [one, two], "both"),
        flat,
        two,
        b.add(Reshape((1, 60)), [x], "x_flat"),
    ]


def _by_channels(b: Builder, x: Value) -> list[Value]:
    """A concat and a slice whose elements do not lie side by side."""
    y = b.add(Concat(3), [_relu(b, x), _plus(b, x, 1)], "y")
    return [
        _plus(b, b.add(Slice((0, 0, 0, 2), (1, 4, 5, 3), (1, 1, 1, 1)), [y], "some"), 1)
    ]


BUILDS = (_joined_rows, _joined_twice, _split, _outputs, _by_channels)


@pytest.mark.cc
@pytest.mark.parametrize("build", BUILDS)
def test_c_with_views_computes_what_the_graph_means(
    build: Callable[[Builder, Value], list[Value]],
) -> None:
    graph = _graph(build)
    inputs = random_inputs(graph)
    seen: dict[Value, bytes] = {}
    got = NativeGraph(graph, native_compiler("gcc"))(
        inputs, lambda v, x: seen.update({v: x.tobytes()})
    )
    expected: dict[Value, bytes] = {}
    wanted = interp(graph, inputs, lambda v, x: expected.update({v: x.tobytes()}))
    assert {k: v.tobytes() for k, v in got.items()} == {
        k: v.tobytes() for k, v in wanted.items()
    }
    assert seen == {v: x for v, x in expected.items() if v.const is None}


def test_parts_of_a_concat_are_written_to_their_place() -> None:
    graph = _graph(_joined_rows)
    made = schedule(graph, PLAIN)
    assert [graph.ops[i].kind for i in made.ops] == ["relu", "add", "add", "add", "add"]
    more = next(op.output for op in graph.ops if op.output.name == "more")
    at = {
        graph.ops[i].output.name: made.places[graph.ops[i].output].at
        for i in made.ops[:3]
    }
    assert at == {"relu": 240, "plus": 480, "plus_1": 0}
    assert all(made.places[graph.ops[i].output].root is more for i in made.ops[:3])


def test_what_the_caller_owns_shares_no_bytes() -> None:
    for build in BUILDS:
        graph = _graph(build)
        where = schedule(graph, PLAIN).places
        for v in (*graph.inputs, *graph.outputs):
            assert where[v].root is v


def test_slices_of_rows_take_no_step() -> None:
    graph = _graph(_split)
    kinds = [graph.ops[i].kind for i in schedule(graph, PLAIN).ops]
    assert kinds.count("slice") == 1, "the one that is an output"


def test_a_view_that_would_keep_more_bytes_alive_is_a_copy() -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        large = b.add(Concat(1), [_plus(b, x, i) for i in range(8)], "large")
        row = b.add(Slice((0, 0, 0, 0), (1, 1, 5, 3), (1, 1, 1, 1)), [large], "row")
        again = b.add(Concat(1), [_plus(b, x, 10 + i) for i in range(8)], "again")
        return [_plus(b, row, 1), _plus(b, again, 1)]

    graph = _graph(build)
    kinds = [graph.ops[i].kind for i in schedule(graph, PLAIN).ops]
    assert kinds.count("slice") == 1
    assert segment_source(graph, "s").plan.lower_bound < 2 * 8 * 240
