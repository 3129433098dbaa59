"""Removes ops that no output of the graph depends on."""

from __future__ import annotations

from edgec.ir import Graph


def run(graph: Graph) -> bool:
    """Remove unused ops, and return whether there were any.

    Inputs of the graph stay even if unused: they are the model's interface.
    """
    return graph.drop_unused()
