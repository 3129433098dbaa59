"""Minimum s-t cut of a small directed graph, by shortest augmenting paths
(Edmonds-Karp).
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

SOURCE = 0
SINK = 1
UNLIMITED = 1 << 62


class MinCut:
    """Nodes 0 and 1 are the source and the sink; `node()` makes more."""

    def __init__(self) -> None:
        self._capacity: list[dict[int, int]] = [{}, {}]

    def node(self) -> int:
        """A new node."""
        self._capacity.append({})
        return len(self._capacity) - 1

    def edge(self, a: int, b: int, cost: int) -> None:
        """Cutting a (source's side) from b (sink's side) costs so much; edges between
        the same nodes add up.
        """
        if a != b and cost:
            self._capacity[a][b] = self._capacity[a].get(b, 0) + cost
            self._capacity[b].setdefault(a, 0)

    def solve(self) -> tuple[int, set[int]]:
        """The cost of the cheapest cut and the nodes on the source's side."""
        total = 0
        while True:
            parent = self._reach()
            if SINK not in parent:
                return total, set(parent)
            path = [SINK]
            while path[-1] != SOURCE:
                path.append(parent[path[-1]])
            steps = [(a, b) for b, a in pairwise(path)]
            flow = min(self._capacity[a][b] for a, b in steps)
            for a, b in steps:
                self._capacity[a][b] -= flow
                self._capacity[b][a] += flow
            total += flow

    def _reach(self) -> dict[int, int]:
        """The nodes that the source still reaches, each with the one before it on a
        shortest path.
        """
        parent = {SOURCE: SOURCE}
        queue = deque([SOURCE])
        while queue and SINK not in parent:
            a = queue.popleft()
            for b, left in self._capacity[a].items():
                if left > 0 and b not in parent:
                    parent[b] = a
                    queue.append(b)
        return parent
