"""What the stock compiler maps.

It takes the first set of TFLite's partition of a graph for a delegate.
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
    """One operation.

    Attributes:
        reads: the tensors it reads.
        writes: the tensors it writes.
        delegable: whether the Edge TPU could run it.
    """

    reads: tuple[Hashable, ...]
    writes: tuple[Hashable, ...]
    delegable: bool


def subsets(nodes: Sequence[StockNode]) -> list[tuple[bool, list[int]]]:
    """Return the node sets that TFLite makes for a delegate.

    Each is (delegated, indices of nodes in the order they are taken). The algorithm is
    TFLite's PartitionGraphIntoIndependentNodeSubsets (tensorflow/lite/graph_info.cc):
    the first node in execution order whose inputs are all ready gives a set its kind;
    the set then takes every node of that kind that is or becomes ready, over and over
    in execution order; then the next set begins. Nodes whose inputs nothing writes in
    time are in no set.
    """
    unwritten = {t for node in nodes for t in node.writes}
    remaining = list(range(len(nodes)))
    sets: list[tuple[bool, list[int]]] = []
    while True:
        indices = _take_set(nodes, remaining, unwritten)
        # Nothing is ready: all nodes are taken, or wait for each other.
        if not indices:
            return sets
        sets.append((nodes[indices[0]].delegable, indices))
        taken = set(indices)
        remaining = [i for i in remaining if i not in taken]


def _take_set(
    nodes: Sequence[StockNode], remaining: Sequence[int], unwritten: set[Hashable]
) -> list[int]:
    """Return the next node set, and remove its results from `unwritten`."""
    kind: bool | None = None
    subset: list[int] = []
    waiting = list(remaining)
    while True:
        still_waiting: list[int] = []
        for i in waiting:
            node = nodes[i]
            # The first ready node decides the kind of the set.
            of_kind = kind is None or node.delegable == kind
            if not of_kind or not unwritten.isdisjoint(node.reads):
                still_waiting.append(i)
                continue
            kind = node.delegable
            unwritten.difference_update(node.writes)
            subset.append(i)
        # A pass without progress ends the set.
        if len(still_waiting) == len(waiting):
            return subset
        waiting = still_waiting


def mapped(nodes: Sequence[StockNode], all_sets: bool = False) -> set[int]:
    """Return the indices of the nodes that the compiler maps.

    These are the first delegated set, or with its option -a all of them.
    """
    delegated = [taken for kind, taken in subsets(nodes) if kind]
    if not all_sets:
        delegated = delegated[:1]
    return {i for taken in delegated for i in taken}


def stock_places(
    graph: Graph,
    all_sets: bool = False,
    outside: Container[Op] = (),
    optimistic: bool = False,
) -> dict[Op, Place]:
    """Return where the ops of an int8 graph run with the stock compiler alone.

    The compiler is given the graph as it is, without any rewrite. outside: ops of the
    graph that are not in the compiler's file; they run on the CPU. optimistic: ops
    without evidence for or against are taken to map.
    """
    if gives_up(op for op in graph.ops if op not in outside) is not None:
        return dict.fromkeys(graph.ops, "cpu")

    nodes: list[StockNode] = []
    for op in graph.ops:
        # An op outside of the compiler's file cannot be mapped.
        delegable = False
        if op not in outside:
            delegable = Verdict(refusals(op)).place(optimistic) == "edgetpu"
        nodes.append(StockNode(_names(op.inputs), _names(op.outputs), delegable))
    mapped_ops = mapped(nodes, all_sets)
    return {
        op: "edgetpu" if i in mapped_ops else "cpu" for i, op in enumerate(graph.ops)
    }


def gives_up(ops: Iterable[Op]) -> str | None:
    """Return why the compiler would give up a whole file with these ops.

    None if it would not.
    """
    for op in ops:
        name = op.spec.tflite[0] if op.spec.tflite else ""
        # A name that TFLite's schema lacks counts as a known one.
        number = getattr(schema.BuiltinOperator, name, 0)
        # An op that is not written as this operator does no harm.
        if number >= FIRST_UNKNOWN_BUILTIN and op.spec.to_tflite(op) is not None:
            return f"{name} ({op.source or op.outputs[0].name}) is newer than it"
    return None


def _names(values: Iterable[Value]) -> tuple[str, ...]:
    return tuple(v.name for v in values)
