"""Minimum s-t cut of a small directed graph.

The maximum flow is found by augmenting along shortest paths (Edmonds and Karp,
"Theoretical improvements in algorithmic efficiency for network flow problems", J. ACM
19(2), 1972). By the max-flow min-cut theorem its value is the cost of the cheapest cut.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

SOURCE = 0
SINK = 1
UNLIMITED = 1 << 62
"""The capacity of an edge that no cheapest cut may cross: far more than all bytes of a
model.
"""


class MinCut:
    """A flow network whose node 0 is the source and node 1 the sink."""

    def __init__(self) -> None:
        self._residual: list[dict[int, int]] = [{}, {}]

    def node(self) -> int:
        """Add a node and return its number."""
        self._residual.append({})
        return len(self._residual) - 1

    def edge(self, a: int, b: int, cost: int) -> None:
        """Add a cost for cutting node `a` (source side) from node `b` (sink side).

        The costs of several edges between the same nodes add up.
        """
        if a == b or not cost:
            return
        self._residual[a][b] = self._residual[a].get(b, 0) + cost
        # The reverse edge lets a later path take back flow of an earlier one.
        self._residual[b].setdefault(a, 0)

    def solve(self) -> tuple[int, set[int]]:
        """Return the cost of the cheapest cut and the nodes on the source's side."""
        total_flow = 0
        while True:
            parent = self._shortest_paths()
            # Without a path to the sink, the reached nodes are the source's side.
            if SINK not in parent:
                return total_flow, set(parent)

            path = [SINK]
            while path[-1] != SOURCE:
                path.append(parent[path[-1]])
            edges = [(a, b) for b, a in pairwise(path)]

            # The narrowest edge limits the flow along the path.
            flow = min(self._residual[a][b] for a, b in edges)
            for a, b in edges:
                self._residual[a][b] -= flow
                self._residual[b][a] += flow
            total_flow += flow

    def _shortest_paths(self) -> dict[int, int]:
        """Return the nodes within reach of the source, each with its predecessor.

        The search is breadth-first and stops at the sink.
        """
        parent = {SOURCE: SOURCE}
        queue = deque([SOURCE])
        while queue and SINK not in parent:
            a = queue.popleft()
            for b, residual in self._residual[a].items():
                if residual > 0 and b not in parent:
                    parent[b] = a
                    queue.append(b)
        return parent
