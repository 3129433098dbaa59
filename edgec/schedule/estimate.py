"""Estimates of the cycles that ops take on a core, from measured rates of kernels."""

from __future__ import annotations

from edgec.ir import Graph, Op
from edgec.schedule.cores import Core
from edgec.schedule.rates import (
    NOT_IN_C,
    OTHER,
    calls_in_c,
    chosen_names,
    has_scales,
    rate,
    rates,
    step_cycles,
    work,
)
from edgec.schedule.steps import plan_plain_steps
from edgec.schedule.views import copy_of


def cycles(op: Op, on: Core) -> float:
    """Return the cycles of an op by itself, for one thread of a measured core.

    Ops that only give bytes another shape take none.
    """
    names = kernels(op, on)
    if not names:
        return 0.0

    return float(rate(rates(on.name), names) @ work(op))


def in_graph(graph: Graph, on: Core) -> dict[Op, float]:
    """Return the cycles of each op of a graph, as if all of it were one segment.

    Fusion and views are taken into account, unless an op cannot be written as C.
    """
    if not all(map(has_scales, graph.ops)):
        return {op: cycles(op, on) for op in graph.ops}

    try:
        plan = plan_plain_steps(graph, on)
    except NOT_IN_C:
        return {op: cycles(op, on) for op in graph.ops}

    total = dict.fromkeys(graph.ops, 0.0)
    for step, core in zip(plan.plain_steps, plan.cores, strict=True):
        ops = [graph.ops[i] for i in step.ops]
        for op, spent in zip(ops, step_cycles(ops, step.calls, core), strict=True):
            total[op] += spent

    return total


def kernels(op: Op, on: Core) -> tuple[str, ...]:
    """Return the names of the kernels that compute an op on a core, in order.

    None for an op that has nothing to do, and `OTHER` for one without a kernel.
    """
    if op.spec.view:
        return ()

    calls = calls_in_c(op)
    if calls is None:
        return (OTHER,)

    # A copy of a whole value becomes a view.
    copy = copy_of(calls[0]) if len(calls) == 1 else None
    if copy is not None and copy.nbytes == copy.source.value.type.nbytes:
        return ()

    return chosen_names(calls, on)
