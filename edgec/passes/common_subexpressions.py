"""Computes equal things once.

Equal constants become one constant, and ops of equal attributes on the same inputs
become one op.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from edgec.ir import Graph, Value
from edgec.ir.rewrite import Rewriter


def run(graph: Graph) -> bool:
    """Merge equal constants, then equal ops.

    Constants come first, so that the ops reading them can be recognised as equal.
    """
    merged = _merge_constants(graph)

    rw = Rewriter(graph)
    first_outputs: dict[Hashable, list[Value]] = {}
    for op in rw.ops():
        input_ids = tuple(id(v) for v in op.inputs)
        output_types = tuple(v.type for v in op.outputs)
        key = (op.spec, input_ids, output_types)
        # Ops of several outputs are rare, and forward handles one.
        outputs = first_outputs.setdefault(key, op.outputs)
        if outputs is not op.outputs and len(op.outputs) == 1:
            rw.forward(op, outputs[0])

    return merged or rw.changed


def _merge_constants(graph: Graph) -> bool:
    """Let all readers of equal constants read the first of them.

    Only constants of equal types are compared, as reading all bytes is slow.
    """
    constants = graph.constants()
    type_counts = Counter(v.type for v in constants)
    first: dict[Hashable, Value] = {}
    replacements: dict[Value, Value] = {}
    for v in constants:
        # An output must keep its name.
        if type_counts[v.type] == 1 or v in graph.outputs or v.const is None:
            continue
        # The bytes are the key, so that -0.0 and 0.0 stay apart.
        original = first.setdefault((v.type, v.const.tobytes()), v)
        if original is not v:
            replacements[v] = original

    for op in graph.ops:
        op.inputs = [replacements.get(v, v) for v in op.inputs]
    return bool(replacements)
