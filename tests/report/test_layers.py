"""The layout: edges lead downwards, nothing overlaps, a chain is straight, and real
sizes take no time.
"""

from __future__ import annotations

import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from edgec.report.layers import Drawing, draw

GAP = 24.0


@st.composite
def graphs(draw_: st.DrawFn) -> tuple[list[float], list[tuple[int, int]]]:
    n = draw_(st.integers(1, 25))
    widths = draw_(st.lists(st.floats(20, 200), min_size=n, max_size=n))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(
        lambda e: e[0] < e[1]
    )
    return widths, draw_(st.lists(pairs, max_size=60, unique=True)) if n > 1 else []


def check(d: Drawing, widths: list[float], edges: list[tuple[int, int]]) -> None:
    for (a, b), points in zip(edges, d.edges, strict=True):
        assert points[0] == (d.x[a], d.row[a])
        assert points[-1] == (d.x[b], d.row[b])
        # one row at a time, always down
        assert all(q[1] == p[1] + 1 for p, q in pairwise(points))
    for row in range(d.rows):
        inside = sorted(
            (d.x[i], widths[i]) for i in range(len(widths)) if d.row[i] == row
        )
        for (x, w), (next_x, next_w) in pairwise(inside):
            assert next_x - x >= (w + next_w) / 2 + GAP - 1e-6
    assert all(
        w / 2 - 1e-6 <= x <= d.width - w / 2 + 1e-6
        for x, w in zip(d.x, widths, strict=True)
    )


@given(graphs())
def test_any_graph(graph: tuple[list[float], list[tuple[int, int]]]) -> None:
    widths, edges = graph
    check(draw(widths, edges, GAP), widths, edges)


def test_a_chain_is_straight_and_an_input_stands_above_its_reader() -> None:
    d = draw([80, 120, 60, 90], [(0, 1), (1, 2), (2, 3)])
    assert len(set(d.x)) == 1
    assert d.row == [0, 1, 2, 3]
    # node 1 is read at the end alone
    late = draw([80] * 5, [(0, 2), (2, 3), (3, 4), (1, 4)])
    assert late.row[1] == late.row[4] - 1


def test_crossings_are_undone() -> None:
    d = draw([50] * 4, [(0, 3), (1, 2)])
    assert (d.x[0] < d.x[1]) == (d.x[3] < d.x[2])


def test_a_large_network_with_long_edges() -> None:
    n = 400
    edges = [(i, i + 1) for i in range(n - 1)] + [
        (i, min(n - 1, i + 60)) for i in range(0, n - 2, 5)
    ]
    started = time.perf_counter()
    check(draw([100.0] * n, edges), [100.0] * n, edges)
    assert time.perf_counter() - started < 10


def test_nothing() -> None:
    assert draw([], []).rows == 0
