"""The parts of a graph for which float16 saves more than the casts around them cost.

An island is a set of ops that are connected by values of float16. With M
multiply-accumulates, results of E elements and C elements to cast, it saves

    M / 16 + E / 4 - C  cycles

on a Cortex-A76 (Arm, "Cortex-A76 Software Optimization Guide": two vectors of 128 bits a
cycle, of 8 halves or 4 floats).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from edgec.ir import Graph, Op, Value

MAC_GAIN = 1 / 16
"""Cycles that a multiply-accumulate in float16 saves on a Cortex-A76: it does 16 a cycle,
and 8 in float32.
"""
ELEMENT_GAIN = 1 / 4
"""Cycles that each element of a result saves, as two bytes are written and read less."""
CAST_COST = 1.0
"""Cycles of a cast for each element."""


def gain(op: Op) -> float:
    """Estimate the cycles that an op saves with float16 elements."""
    macs = op.spec.macs(op)
    elements = 0
    for v in op.outputs:
        elements += v.type.size

    by_macs = MAC_GAIN * macs
    by_elements = ELEMENT_GAIN * elements
    return by_macs + by_elements


def saved(graph: Graph, ops: Collection[Op]) -> float:
    """Estimate the cycles that ops with float16 elements save, less those of the casts."""
    gains = sum(map(gain, ops))
    elements = sum(size for _, size in _cast_elements(graph, ops))
    return gains - CAST_COST * elements


def worthwhile(graph: Graph, ops: Collection[Op]) -> set[Op]:
    """Return the ops of the islands that save more than their casts cost.

    ops: the ops that may compute with float16
    """
    # Each island is known by its first op, with which its cycles are counted.
    island = _islands(graph, ops)
    gains: dict[Op, float] = dict.fromkeys(island.values(), 0.0)
    for op in ops:
        first = island[op]
        gains[first] += gain(op)

    for op, elements in _cast_elements(graph, ops):
        first = island[op]
        gains[first] -= CAST_COST * elements

    return {op for op in ops if gains[island[op]] > 0}


def _islands(graph: Graph, ops: Collection[Op]) -> dict[Op, Op]:
    """Return for each op the first op of its island.

    The islands are the sets of a union-find (Galler and Fischer, 1964): each op points
    to an older one of its island, and the first op to itself.
    """
    older: dict[Op, Op] = {}
    producers = graph.producers()
    for op in graph.ops:
        if op not in ops:
            continue

        older[op] = op
        for v in op.inputs:
            before = producers.get(v)
            if before in older:
                # Two islands become one, with the first op of the older one.
                last = _first(older, op)
                older[last] = _first(older, before)

    return {op: _first(older, op) for op in older}


def _first(older: Mapping[Op, Op], op: Op) -> Op:
    """Return the first op of an op's island."""
    while older[op] is not op:
        op = older[op]

    return op


def _cast_elements(graph: Graph, ops: Collection[Op]) -> list[tuple[Op, int]]:
    """Return the elements of each cast, with an op of the island that needs it."""
    casts: list[tuple[Op, int]] = []
    users = graph.users()
    visited: set[Value] = set()
    for op in graph.ops:
        if op not in ops:
            continue

        # Results are cast back for readers with float32, and for the caller.
        for v in op.outputs:
            visited.add(v)
            readers = users.get(v, ())
            is_output = v in graph.outputs
            if is_output or any(reader not in ops for reader in readers):
                casts.append((op, v.type.size))

        # An input from outside is cast once for all ops; a constant by the compiler.
        for v in op.inputs:
            is_float = v.type.dtype == "float32"
            if not is_float or v.const is not None or v in visited:
                continue
            visited.add(v)
            casts.append((op, v.type.size))

    return casts
