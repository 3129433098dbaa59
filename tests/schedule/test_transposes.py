"""Transposes of floats, and copies of every second one, by vectors move every element to
its place.
"""

from __future__ import annotations

import numpy as np
import pytest

from edgec.emit.c import segment_source
from edgec.ir import Builder, Graph, TensorType, interp
from edgec.ops.shape import Transpose
from edgec.ops.slice import Slice
from edgec.schedule.cores import core
from tests.harness import float16_graph, random_inputs
from tests.schedule.on import WIDTHS, on
from tests.schedule.runner import run_on

TURNED = "ek_gather_f32_simd("
TURNED_HALVES = "ek_gather_f16_simd("
EVENS = "ek_gather_evens_f32_simd("
EVENS_HALVES = "ek_gather_evens_f16_simd("
CASES = (
    ((1, 19, 53, 19), (0, 3, 1, 2)),
    ((2, 40, 3, 50), (0, 3, 2, 1)),
    ((1, 16, 16), (0, 2, 1)),
    ((3, 67, 2, 5, 21), (0, 4, 3, 2, 1)),
    ((2, 16, 1100), (0, 2, 1)),
)


def _graph(shape: tuple[int, ...], perm: tuple[int, ...]) -> Graph:
    build = Builder("turned")
    y = build.add(Transpose(perm), [build.input("x", TensorType(shape))], "y")
    build.graph.outputs = [y]
    return build.graph


def _evens(size: int, begin: int) -> Graph:
    """Every second number of a row, to its end."""
    build = Builder("evens")
    x = build.input("x", TensorType((size, 2)))
    build.graph.outputs = [build.add(Slice((0, begin), (size, 1), (1, 1)), [x], "y")]
    return build.graph


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", on(*WIDTHS))
@pytest.mark.parametrize("parts", [0, 3])
def test_transposes_move_every_element(name: str, parts: int) -> None:
    graphs = [_graph(*case) for case in CASES]
    graphs += [_evens(size, begin) for size in (16, 31, 100) for begin in (0, 1)]
    halves = [half for graph in graphs if (half := float16_graph(graph))]
    assert len(halves) == len(graphs)
    graphs += halves
    inputs = [random_inputs(graph, i) for i, graph in enumerate(graphs)]
    got = run_on(name, graphs, inputs, parts)
    for graph, x, y in zip(graphs, inputs, got, strict=True):
        np.testing.assert_array_equal(y["y"], interp(graph, x)["y"])


def test_long_sides_are_turned_by_vectors() -> None:
    on_a72 = core("cortex_a72")
    assert all(TURNED in segment_source(_graph(*c), "seg", on_a72).text for c in CASES)
    assert EVENS in segment_source(_evens(50, 1), "seg", on_a72).text
    half = float16_graph(_graph(*CASES[0]))
    evens = float16_graph(_evens(50, 1))
    assert half
    assert evens
    on_a76 = core("cortex_a76")
    assert TURNED_HALVES in segment_source(half, "seg", on_a76).text
    assert EVENS_HALVES in segment_source(evens, "seg", on_a76).text
    assert TURNED_HALVES not in segment_source(half, "seg", on_a72).text
    short = _graph((1, 60, 80, 12), (0, 3, 1, 2))
    assert TURNED not in segment_source(short, "seg", on_a72).text
