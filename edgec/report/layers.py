"""Where to draw the nodes of a directed acyclic graph: layers from top to bottom, few
crossings, straight long edges.

Longest-path layers; an edge that passes layers gets a bend in each; barycentre order;
then every node goes as near to the middle of its neighbours as the width of the others
allows (Sugiyama, Tagawa and Toda 1981, in its plainest form).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 8
_BEND = 12.0
"""Width that is kept free for an edge that passes a layer."""


@dataclass(frozen=True)
class Drawing:
    """Centres of the nodes, by index, and the points that each edge goes through, ends
    included. Layers are rows.
    """

    x: list[float]
    row: list[int]
    edges: list[list[tuple[float, int]]]
    width: float
    rows: int


def draw(
    widths: Sequence[float], edges: Sequence[tuple[int, int]], gap: float = 24.0
) -> Drawing:
    """Lay out nodes of these widths.

    Each edge leads from a node to one of a higher index.
    """
    row = _rows(len(widths), edges)
    wide = list(widths)
    rows = list(row)
    chains = list[list[int]]()
    for a, b in edges:
        chain = [a]
        for between in range(row[a] + 1, row[b]):
            chain.append(len(wide))
            wide.append(_BEND)
            rows.append(between)
        chains.append([*chain, b])
    above: list[list[int]] = [[] for _ in wide]
    below: list[list[int]] = [[] for _ in wide]
    for chain in chains:
        for a, b in pairwise(chain):
            above[b].append(a)
            below[a].append(b)
    layers = _ordered(rows, above, below)
    x = _placed(layers, wide, above, below, gap)
    left = min((x[v] - wide[v] / 2 for v in range(len(wide))), default=0.0)
    right = max((x[v] + wide[v] / 2 for v in range(len(wide))), default=0.0)
    x = [at - left for at in x]
    lines = [[(x[v], rows[v]) for v in chain] for chain in chains]
    return Drawing(x[: len(widths)], row, lines, right - left, len(layers))


def _rows(n: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The longest path to each node; one without predecessors stands right above its
    first reader.
    """
    row = [0] * n
    first = [n] * n
    reads = [False] * n
    for a, b in sorted(edges, key=lambda e: e[1]):
        row[b] = max(row[b], row[a] + 1)
        reads[b] = True
    for a, b in edges:
        first[a] = min(first[a], row[b])
    return [row[v] if reads[v] or first[v] == n else first[v] - 1 for v in range(n)]


def _ordered(
    rows: Sequence[int], above: Sequence[list[int]], below: Sequence[list[int]]
) -> list[list[int]]:
    """The nodes of each row from left to right; the best of the sweeps by the number of
    crossings.
    """
    layers: list[list[int]] = [[] for _ in range(max(rows, default=-1) + 1)]
    for v, r in enumerate(rows):
        layers[r].append(v)
    best = [list(layer) for layer in layers]
    fewest = _crossings(layers, below)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        at = _positions(layers)
        for layer in layers if down else reversed(layers):
            keys = {v: _mean([at[u] for u in near[v]], at[v]) for v in layer}
            layer.sort(key=keys.__getitem__)
            at.update((v, float(i)) for i, v in enumerate(layer))
        count = _crossings(layers, below)
        if count < fewest:
            best = [list(layer) for layer in layers]
            fewest = count
    return best


def _positions(layers: Sequence[Sequence[int]]) -> dict[int, float]:
    return {v: float(i) for layer in layers for i, v in enumerate(layer)}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _crossings(layers: Sequence[Sequence[int]], below: Sequence[list[int]]) -> int:
    """How many pairs of edges cross: inversions, counted per pair of rows."""
    at = _positions(layers)
    total = 0
    for layer in layers:
        ends = [at[b] for v in layer for b in sorted(below[v], key=at.__getitem__)]
        seen: list[float] = []
        for end in ends:
            total += len(seen) - bisect_right(seen, end)
            insort(seen, end)
    return total


def _placed(
    layers: Sequence[Sequence[int]],
    wide: Sequence[float],
    above: Sequence[list[int]],
    below: Sequence[list[int]],
    gap: float,
) -> list[float]:
    """Centres, by sweeps: each row goes to the means of the row before it, pushed apart
    from both sides.
    """
    x = [0.0] * len(wide)
    for layer in layers:
        _push(layer, [0.0] * len(layer), wide, gap, x)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for layer in layers if down else reversed(layers):
            _push(
                layer,
                [_mean([x[u] for u in near[v]], x[v]) for v in layer],
                wide,
                gap,
                x,
            )
    return x


def _push(
    layer: Sequence[int],
    wanted: Sequence[float],
    wide: Sequence[float],
    gap: float,
    x: list[float],
) -> None:
    """Put a row near where it wants to be, without overlaps: the mean of pushing to the
    right and to the left.
    """
    right = list(wanted)
    left = list(wanted)
    for i in range(1, len(layer)):
        apart = (wide[layer[i - 1]] + wide[layer[i]]) / 2 + gap
        right[i] = max(right[i], right[i - 1] + apart)
    for i in range(len(layer) - 2, -1, -1):
        apart = (wide[layer[i]] + wide[layer[i + 1]]) / 2 + gap
        left[i] = min(left[i], left[i + 1] - apart)
    for v, a, b in zip(layer, right, left, strict=True):
        x[v] = (a + b) / 2
