"""Stage 2 of a compile: passes bring the graph to its canonical form."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from edgec_partitioner.choice import INTERFACES
from edgec_partitioner.legalize import rewrites

from edgec.compiler.host import Dump
from edgec.emit.c import check_kernels
from edgec.errors import InputError, did_you_mean
from edgec.ir import Graph
from edgec.passes.pipeline import available, optimize

_RECOGNITION = "recognize_activations"
"""The pass that fuses activations into their producers."""


def optimise(graph: Graph, disabled: Collection[str], dump: Dump) -> Graph:
    """Return the canonical form of a graph from a file.

    Raises UnsupportedError for an operation that has no C.
    """
    # The copy leaves the graph as read for verification.
    canonical = optimize(graph.copy(), disabled, dump)
    check_kernels(canonical)
    return canonical


def simplify(
    graph: Graph, disabled: Collection[str], dump: Dump | None = None
) -> Graph:
    """Run the passes again after rewrites of a canonical graph."""
    # The rewrites for the Edge TPU took some activations apart: recognition would undo
    # this.
    return optimize(graph, {*disabled, _RECOGNITION}, dump)


def disabled(names: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the passes among names, and the rewrites and smaller interfaces.

    Raises InputError for a name that is neither.
    """
    # A person need not know the difference, so both share one option.
    passes = available()
    known = [*passes, *rewrites(), *INTERFACES]
    for name in names:
        if name not in known:
            what = f"there is no pass or rewrite {name}{did_you_mean(name, known)}"
            hint = f"there are: {', '.join(known)}"
            raise InputError(what, "--disable-pass", hint)
    return set(names) & set(passes), set(names) - set(passes)
