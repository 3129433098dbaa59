"""Stage 2 of a compile: passes bring the graph to its canonical form."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from edgec_partitioner.legalize import rewrites

from edgec.compiler.host import Dump
from edgec.emit.c import check_kernels
from edgec.errors import InputError, did_you_mean
from edgec.ir import Graph
from edgec.passes.pipeline import available, optimize

_RECOGNITION = "recognize_activations"


def optimise(graph: Graph, disabled: Collection[str], dump: Dump) -> Graph:
    """Return the canonical form of a graph as a file has it.

    Raises UnsupportedError for an operation that has no C.
    """
    canonical = optimize(graph.copy(), disabled, dump)
    check_kernels(canonical)
    return canonical


def simplify(
    graph: Graph, disabled: Collection[str], dump: Dump | None = None
) -> Graph:
    """Run the passes on a graph that was canonical and was rewritten since.

    Activations are not recognised again: what the rewrites for the Edge TPU took apart
    would be put together.
    """
    return optimize(graph, {*disabled, _RECOGNITION}, dump)


def disabled(names: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the passes and the rewrites among names.

    Raises InputError for a name that is neither.
    """
    passes = available()
    table = rewrites()
    known = [*passes, *table]
    for name in names:
        if name not in known:
            what = f"there is no pass or rewrite {name}{did_you_mean(name, known)}"
            hint = f"there are: {', '.join(known)}"
            raise InputError(what, "--disable-pass", hint)
    return set(names) & set(passes), set(names) & set(table)
