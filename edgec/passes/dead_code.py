"""Removes ops that no output of the graph depends on."""

from __future__ import annotations

from edgec.ir import Graph


def run(graph: Graph) -> bool:
    """Graph inputs stay, read or not: they are the model's interface."""
    return graph.drop_unused()
