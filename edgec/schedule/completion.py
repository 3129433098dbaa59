"""When each value of a schedule is complete, for programs that compare values."""

from __future__ import annotations

from edgec.ir import Graph, Value
from edgec.schedule.fuse import outer
from edgec.schedule.liveness import tensors
from edgec.schedule.steps import Scheduled


def complete(graph: Graph, schedule: Scheduled) -> dict[Value, int]:
    """Return after how many functions of a profile each value is whole in its place.

    Values that no call stores are left out.
    """
    functions = dict.fromkeys(graph.inputs, 0)
    functions |= _stored(graph, schedule)

    computed = {i for step in schedule.steps for i in step.ops}
    for i, op in enumerate(graph.ops):
        if i in computed:
            continue
        # An op without a step is a copy of bytes that are where they should be.
        reads = [v for v in op.inputs if v.const is None]
        if all(v in functions for v in reads):
            last = max((functions[v] for v in reads), default=0)
            functions |= dict.fromkeys(op.outputs, last)
    return functions


def _stored(graph: Graph, schedule: Scheduled) -> dict[Value, int]:
    """Return after how many functions of a profile each value is that a step stores."""
    # Fusion leaves these out, whatever is done to the steps later.
    fused: set[Value] = set()
    for step in schedule.plain_steps:
        fused |= {*tensors(step.calls)} - {*outer(step.calls)}

    number = {op: n for n, op in enumerate(schedule.ops)}
    functions: dict[Value, int] = {}
    for step in schedule.steps:
        stored = {*outer(step.calls)} - fused
        for i in step.ops:
            for v in graph.ops[i].outputs:
                if v in stored:
                    # The calls of a concat store parts of one value.
                    last = functions.get(v, 0)
                    functions[v] = max(last, number[step.at] + 1)
    return functions
