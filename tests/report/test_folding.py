"""Folding: every box keeps its place among its neighbours, columns do not overlap, and
a deep network fits a screen.
"""

from __future__ import annotations

import re

from hypothesis import given

from edgec.report.folding import HEIGHT, fold
from edgec.report.layers import draw
from tests.report.test_layers import graphs

Graph = tuple[list[float], list[tuple[int, int]]]


def deep(n: int) -> Graph:
    """A chain with an edge around every fifth of its nodes."""
    return [100.0] * n, [(i, i + 1) for i in range(n - 1)] + [
        (i, i + 4) for i in range(0, n - 4, 5)
    ]


def check(graph: Graph) -> None:
    widths, edges = graph
    folded = fold(draw(widths, edges), widths)
    boxes = [
        (x - w / 2, y - HEIGHT / 2, x + w / 2, y + HEIGHT / 2)
        for (x, y), w in zip(folded.nodes, widths, strict=True)
    ]
    for i, (left, top, right, bottom) in enumerate(boxes):
        assert left >= 0
        assert top >= 0
        assert right <= folded.width
        assert bottom <= folded.height
        for other in boxes[:i]:
            assert (
                right <= other[0]
                or other[2] <= left
                or bottom <= other[1]
                or other[3] <= top
            )
    for path, (a, b) in zip(folded.paths(), edges, strict=True):
        numbers = [float(n) for n in re.findall(r"-?\d+\.\d", path)]
        assert (
            abs(numbers[0] - folded.nodes[a][0]) < 0.1,
            abs(numbers[1] - boxes[a][3]) < 0.1,
        ) == (True, True)
        assert abs(numbers[-1] - boxes[b][1]) < 0.1
        assert all(-0.1 <= n <= max(folded.width, folded.height) for n in numbers)


@given(graphs())
def test_any_graph(graph: Graph) -> None:
    check(graph)


def test_a_deep_network_fits_a_screen() -> None:
    graph = deep(250)
    check(graph)
    folded = fold(draw(*graph), graph[0])
    assert len(folded.first) > 3
    assert 0.5 < folded.width / folded.height < 2.5


def test_a_small_one_is_not_folded() -> None:
    graph = deep(6)
    assert fold(draw(*graph), graph[0]).first == [0]


def test_nothing() -> None:
    assert fold(draw([], []), []).nodes == []
