"""When each value of a schedule lies in its place as a whole, for who looks at values
while its functions run.
"""

from __future__ import annotations

from edgec.ir import Graph, Value
from edgec.schedule.fuse import outer
from edgec.schedule.liveness import tensors
from edgec.schedule.steps import Scheduled


def complete(graph: Graph, made: Scheduled) -> dict[Value, int]:
    """After how many functions of a profile each value is in its place; without those
    that no call stores.
    """
    number = {op: n for n, op in enumerate(made.ops)}
    inner = {
        v for s in made.plain_steps for v in {*tensors(s.calls)} - {*outer(s.calls)}
    }
    found: dict[Value, int] = dict.fromkeys(graph.inputs, 0)
    computed = {i for s in made.steps for i in s.ops}
    for s in made.steps:
        stored = {*outer(s.calls)} - inner
        for v in (v for i in s.ops for v in graph.ops[i].outputs if v in stored):
            found[v] = max(found.get(v, 0), number[s.at] + 1)
    for i, op in enumerate(graph.ops):
        reads = [v for v in op.inputs if v.const is None]
        # what it copies is where it should be
        if i not in computed and all(v in found for v in reads):
            found |= dict.fromkeys(
                op.outputs, max((found[v] for v in reads), default=0)
            )
    return found
