"""Computes every op whose inputs are all constant."""

from __future__ import annotations

from edgec.ir import Graph, fold


def run(graph: Graph) -> bool:
    """Replace such ops by their results, through the ops' own `ref`."""
    kept = [op for op in graph.ops if not fold(op)]
    changed = len(kept) < len(graph.ops)
    graph.ops = kept
    return changed
