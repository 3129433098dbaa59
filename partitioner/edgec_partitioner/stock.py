"""What the stock compiler maps: TFLite's partition of a graph for a delegate, of which
it takes the first set.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Sequence
from dataclasses import dataclass

from ai_edge_litert import schema_py_generated as schema

from edgec.ir import Graph, Op, Value
from edgec_partitioner.verdicts import Place, Verdict, refusals

FIRST_UNKNOWN_BUILTIN = 150
"""GELU in TFLite's schema: compiler 16, of 2021, does not know it, nor what was added
later.
"""


@dataclass(frozen=True)
class StockNode:
    """One operation: the tensors that it reads and writes, and whether the Edge TPU
    could run it.
    """

    reads: tuple[Hashable, ...]
    writes: tuple[Hashable, ...]
    delegable: bool


def subsets(nodes: Sequence[StockNode]) -> list[tuple[bool, list[int]]]:
    """The node sets that TFLite makes for a delegate: (delegated, indices of nodes in
    the order they are taken).

    TFLite's PartitionGraphIntoIndependentNodeSubsets (tensorflow/lite/graph_info.cc):
    the first node in execution order whose inputs are all ready gives a set its kind;
    the set then takes every node of that kind that is or becomes ready, over and over
    in execution order; then the next set begins. Nodes that wait for what nothing
    writes in time are in no set.
    """
    waiting = {t for node in nodes for t in node.writes}
    left = list(range(len(nodes)))
    found: list[tuple[bool, list[int]]] = []
    while True:
        kind: bool | None = None
        taken: list[int] = []
        grew = True
        while grew:
            grew = False
            rest = list[int]()
            for i in left:
                ready = waiting.isdisjoint(nodes[i].reads) and kind in (
                    None,
                    nodes[i].delegable,
                )
                if ready:
                    kind = nodes[i].delegable
                    grew = True
                    waiting.difference_update(nodes[i].writes)
                    taken.append(i)
                else:
                    rest.append(i)
            left = rest
        if kind is None:
            return found
        found.append((kind, taken))


def mapped(nodes: Sequence[StockNode], all_sets: bool = False) -> set[int]:
    """Indices of the nodes that the compiler maps: the first delegated set, or with its
    option -a all of them.
    """
    delegated = [taken for kind, taken in subsets(nodes) if kind]
    return {i for taken in (delegated if all_sets else delegated[:1]) for i in taken}


def stock_places(
    graph: Graph,
    all_sets: bool = False,
    outside: Container[Op] = (),
    optimistic: bool = False,
) -> dict[Op, Place]:
    """Where the ops of an int8 graph would run if the compiler were given the graph as
    it is, without any rewrite.

    outside: ops of the graph that are not in the compiler's file; they run on the CPU.
    optimistic: ops of which the evidence does not say whether they map are taken to.
    """
    if gives_up(op for op in graph.ops if op not in outside) is not None:
        return dict.fromkeys(graph.ops, "cpu")
    able = [
        op not in outside and Verdict(refusals(op)).place(optimistic) == "edgetpu"
        for op in graph.ops
    ]
    nodes = [
        StockNode(_names(op.inputs), _names(op.outputs), a)
        for op, a in zip(graph.ops, able, strict=True)
    ]
    taken = mapped(nodes, all_sets)
    return {op: "edgetpu" if i in taken else "cpu" for i, op in enumerate(graph.ops)}


def gives_up(ops: Iterable[Op]) -> str | None:
    """Why the compiler would give up a whole file with these ops; None if it would not."""
    for op in ops:
        name = op.spec.tflite[0] if op.spec.tflite else ""
        young = getattr(schema.BuiltinOperator, name, 0) >= FIRST_UNKNOWN_BUILTIN
        if young and op.spec.to_tflite(op) is not None:
            return f"{name} ({op.source or op.outputs[0].name}) is newer than it"
    return None


def _names(values: Iterable[Value]) -> tuple[str, ...]:
    return tuple(v.name for v in values)
