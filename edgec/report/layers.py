"""Places the nodes of a directed acyclic graph in layers from top to bottom.

The method is Sugiyama, Tagawa and Toda's ("Methods for visual understanding of
hierarchical system structures", 1981) in its plainest form: layers by the longest path,
a bend in each layer that an edge passes, barycentre sweeps against crossings, and then
each node as near to the mean of its neighbours as the widths of the others allow.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

SWEEPS = 8
"""Barycentre sweeps, down and up in turn."""
BEND_WIDTH = 12.0
"""Width that is kept free for an edge that passes a layer, px."""


@dataclass(frozen=True)
class Drawing:
    """The layout of a graph; a row is a layer.

    Attributes:
        x: centre of each node, px
        row: row of each node
        edges: of each edge, the (x, row) points that it goes through, ends included
        width: width of the drawing, px
        rows: number of rows
    """

    x: list[float]
    row: list[int]
    edges: list[list[tuple[float, int]]]
    width: float
    rows: int


@dataclass(frozen=True)
class _Layered:
    """A graph whose edges lead only from one layer to the next.

    Attributes:
        widths: of each node and then of each bend, px
        rows: of each node and then of each bend
        chains: of each edge of the drawn graph, its nodes and bends in order
        above: predecessors of each node or bend
        below: successors of each node or bend
    """

    widths: list[float]
    rows: list[int]
    chains: list[list[int]]
    above: list[list[int]]
    below: list[list[int]]


def draw(
    widths: Sequence[float], edges: Sequence[tuple[int, int]], gap: float = 24.0
) -> Drawing:
    """Lay out nodes of these widths, at least `gap` px apart.

    Each edge leads from a node to a node of a higher index.
    """
    row = _longest_paths(len(widths), edges)
    graph = _with_bends(widths, row, edges)
    layers = _ordered(graph)
    x = _placed(layers, graph, gap)

    # Move everything so that the leftmost side is at 0.
    halves = [width / 2 for width in graph.widths]
    left = min((c - h for c, h in zip(x, halves, strict=True)), default=0.0)
    right = max((c + h for c, h in zip(x, halves, strict=True)), default=0.0)
    x = [centre - left for centre in x]

    lines = [[(x[v], graph.rows[v]) for v in chain] for chain in graph.chains]
    return Drawing(x[: len(widths)], row, lines, right - left, len(layers))


def _longest_paths(n: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the row of each node: the length of the longest path to it.

    A node without predecessors stands right above its first successor.
    """
    row = [0] * n
    has_predecessor = [False] * n
    # Predecessors have lower indices, so in this order their rows are final.
    for start, end in sorted(edges, key=lambda edge: edge[1]):
        row[end] = max(row[end], row[start] + 1)
        has_predecessor[end] = True

    first_successor = [n] * n
    for start, end in edges:
        first_successor[start] = min(first_successor[start], row[end])

    for v in range(n):
        if not has_predecessor[v] and first_successor[v] != n:
            row[v] = first_successor[v] - 1
    return row


def _with_bends(
    widths: Sequence[float], row: Sequence[int], edges: Sequence[tuple[int, int]]
) -> _Layered:
    """Return the graph with a bend for each layer that an edge passes."""
    all_widths = list(widths)
    rows = list(row)
    chains = []
    for start, end in edges:
        chain = [start]
        # A bend reserves space for the edge in each layer it passes.
        for between in range(row[start] + 1, row[end]):
            chain.append(len(all_widths))
            all_widths.append(BEND_WIDTH)
            rows.append(between)
        chain.append(end)
        chains.append(chain)

    above: list[list[int]] = [[] for _ in all_widths]
    below: list[list[int]] = [[] for _ in all_widths]
    for chain in chains:
        for upper, lower in pairwise(chain):
            above[lower].append(upper)
            below[upper].append(lower)
    return _Layered(all_widths, rows, chains, above, below)


def _ordered(graph: _Layered) -> list[list[int]]:
    """Return the nodes of each layer from left to right.

    Of all sweeps, the order with the fewest crossings is taken.
    """
    layers: list[list[int]] = [[] for _ in range(max(graph.rows, default=-1) + 1)]
    for v, row in enumerate(graph.rows):
        layers[row].append(v)

    best = [list(layer) for layer in layers]
    fewest = _crossings(layers, graph.below)
    for sweep in range(SWEEPS):
        _sort_by_neighbours(layers, graph, down=sweep % 2 == 0)
        crossings = _crossings(layers, graph.below)
        # A later sweep may make the order worse again.
        if crossings < fewest:
            best = [list(layer) for layer in layers]
            fewest = crossings
    return best


def _sort_by_neighbours(layers: list[list[int]], graph: _Layered, down: bool) -> None:
    """Sort each layer by the mean position of the neighbours in the layer before."""
    neighbours = graph.above if down else graph.below
    position = _positions(layers)
    for layer in layers if down else reversed(layers):
        keys = {}
        for v in layer:
            near = [position[u] for u in neighbours[v]]
            keys[v] = _mean(near, position[v])
        layer.sort(key=keys.__getitem__)
        for i, v in enumerate(layer):
            # The next layer is sorted by the new positions.
            position[v] = float(i)


def _positions(layers: Sequence[Sequence[int]]) -> dict[int, float]:
    """Return the index of each node in its layer."""
    return {v: float(i) for layer in layers for i, v in enumerate(layer)}


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _crossings(layers: Sequence[Sequence[int]], below: Sequence[list[int]]) -> int:
    """Return how many pairs of edges cross.

    Two edges between the same two layers cross if their order at the top is the reverse
    of their order at the bottom: the number of inversions.
    """
    position = _positions(layers)
    total = 0
    for layer in layers:
        ends: list[float] = []
        for v in layer:
            ends += sorted(position[u] for u in below[v])
        earlier: list[float] = []
        for end in ends:
            total += len(earlier) - bisect_right(earlier, end)
            insort(earlier, end)
    return total


def _placed(
    layers: Sequence[Sequence[int]], graph: _Layered, gap: float
) -> list[float]:
    """Return the centre of each node, px, after sweeps down and up.

    In a sweep each layer goes to the means of its neighbours in the layer before.
    """
    x = [0.0] * len(graph.widths)
    for layer in layers:
        _push_apart(layer, [0.0] * len(layer), graph.widths, gap, x)

    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        neighbours = graph.above if down else graph.below
        for layer in layers if down else reversed(layers):
            targets = []
            for v in layer:
                near = [x[u] for u in neighbours[v]]
                targets.append(_mean(near, x[v]))
            _push_apart(layer, targets, graph.widths, gap, x)
    return x


def _push_apart(
    layer: Sequence[int],
    targets: Sequence[float],
    widths: Sequence[float],
    gap: float,
    x: list[float],
) -> None:
    """Set the centres of a layer near `targets`, without overlaps.

    The result is the mean of two passes, one that pushes nodes only to the right and
    one that pushes them only to the left: it favours neither side.
    """
    distances = []
    for v, following in pairwise(layer):
        distances.append((widths[v] + widths[following]) / 2 + gap)

    right = list(targets)
    for i in range(1, len(layer)):
        right[i] = max(right[i], right[i - 1] + distances[i - 1])

    left = list(targets)
    for i in range(len(layer) - 2, -1, -1):
        left[i] = min(left[i], left[i + 1] - distances[i])

    for v, a, b in zip(layer, right, left, strict=True):
        x[v] = (a + b) / 2
