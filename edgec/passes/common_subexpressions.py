"""Computes equal things once: equal constants become one, and so do equal ops on the
same inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from edgec.ir import Graph, Value
from edgec.ir.rewrite import Rewriter


def run(graph: Graph) -> bool:
    """Constants first, so that ops that read them can be recognised as equal."""
    merged = _merge_constants(graph)
    rw = Rewriter(graph)
    first: dict[Hashable, list[Value]] = {}
    for op in rw.ops():
        key = (
            op.spec,
            tuple(id(v) for v in op.inputs),
            tuple(v.type for v in op.outputs),
        )
        same = first.setdefault(key, op.outputs)
        if same is not op.outputs and len(op.outputs) == 1:
            rw.forward(op, same[0])
    return merged or rw.changed


def _merge_constants(graph: Graph) -> bool:
    """Let all readers of equal constants read the first of them.

    Only constants of equal types are compared.
    """
    constants = graph.constants()
    types = Counter(v.type for v in constants)
    first: dict[Hashable, Value] = {}
    same: dict[Value, Value] = {}
    for v in constants:
        if types[v.type] > 1 and v not in graph.outputs and v.const is not None:
            original = first.setdefault((v.type, v.const.tobytes()), v)
            if original is not v:
                same[v] = original
    for op in graph.ops:
        op.inputs = [same.get(v, v) for v in op.inputs]
    return bool(same)
