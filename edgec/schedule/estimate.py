"""Estimates of the cycles that ops take on a core, from measured rates of kernels.

A file beside each core's table has the rates of every kernel that `make cpu-table`
measured: cycles of a call, of a multiply-accumulate, and of each byte that it writes,
that it reads, and that it reads of constants. A name that begins with a plus sign is a
plain kernel that is fused with the call before it; its rate is for each byte of the
result of that call.

    cycles(op) = rates(kernels of op) · work(op)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import numpy as np
from edgec_devices.cores import cycles_file

from edgec.errors import UnsupportedError
from edgec.ir import Array, Graph, KernelCall, Op
from edgec.ir.c_structs import PoolParams
from edgec.ir.verify import wants_scales
from edgec.schedule.cores import Core
from edgec.schedule.steps import plan_plain_steps
from edgec.schedule.variant import choice, variants
from edgec.schedule.views import copy_of

Rates = Mapping[str, Array]
"""The cycles for each part of `work`, by the names of kernels joined by "+"."""

OTHER = "other"
"""The name for kernels that were not measured."""

NOT_IN_C = (UnsupportedError, NotImplementedError, ValueError)
"""The errors of an op that cannot be written as C: it has no kernel, or its scale is no
number.
"""

THEN = "+"
"""The beginning of the names of fused kernels."""

WRITTEN_BYTES = 2
"""The position of the bytes that are written in `work`."""


def is_known(name: str) -> bool:
    """Return whether a core, by its compiler's name, was measured."""
    return cycles_file(name).is_file()


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
    if not all(map(_has_scales, graph.ops)):
        return {op: cycles(op, on) for op in graph.ops}

    try:
        plan = plan_plain_steps(graph, on)
    except NOT_IN_C:
        return {op: cycles(op, on) for op in graph.ops}

    table = rates(on.name)
    total = dict.fromkeys(graph.ops, 0.0)
    for step, core in zip(plan.plain_steps, plan.cores, strict=True):
        head, *fused = (graph.ops[i] for i in step.ops)

        # Some calls of a concat may be part of the steps that write its operands.
        share = len(step.calls) / len(head.calls())
        names = chosen_names(step.calls, core)
        total[head] += share * float(rate(table, names) @ work(head))

        nbytes = head.outputs[0].type.nbytes
        for op, call in zip(fused, step.calls[0].then, strict=True):
            total[op] += following(table, call.kernel.name) * nbytes

    return total


def following(table: Rates, plain: str) -> float:
    """Return the cycles of a fused call for each byte of the result before it.

    plain: the name of its plain kernel.
    """
    per_work = table.get(THEN + plain, table[THEN + OTHER])
    return float(per_work[WRITTEN_BYTES])


def kernels(op: Op, on: Core) -> tuple[str, ...]:
    """Return the names of the kernels that compute an op on a core, in order.

    None for an op that has nothing to do, and `OTHER` for one without a kernel.
    """
    if op.spec.view:
        return ()

    calls = _calls(op)
    if calls is None:
        return (OTHER,)

    # A copy of a whole value becomes a view.
    copy = copy_of(calls[0]) if len(calls) == 1 else None
    if copy is not None and copy.nbytes == copy.source.value.type.nbytes:
        return ()

    return chosen_names(calls, on)


def chosen_names(calls: Iterable[KernelCall], on: Core) -> tuple[str, ...]:
    """Return the names of the kernels that compute calls on a core, each once."""
    names: list[str] = []
    for call in calls:
        way = choice(call, on)
        names.append(call.kernel.name if way is None else way[0].name)

    return tuple(dict.fromkeys(names))


def work(op: Op) -> Array:
    """Return the work of an op, in the order of the rates.

    It consists of calls, multiply-accumulates, bytes that are written, read, and read
    of constants. Each element of a pool's window counts as a multiply-accumulate.
    """
    nbytes = {value: value.type.nbytes for value in op.inputs}
    constants = sum(n for value, n in nbytes.items() if value.const is not None)
    written = sum(value.type.nbytes for value in op.outputs)
    macs = op.spec.macs(op)
    if not macs:
        results = sum(value.type.size for value in op.outputs[:1])
        macs = results * _taps(op)

    read = sum(nbytes.values()) - constants
    return np.array([1, macs, written, read, constants], np.float64)


def _calls(op: Op) -> Sequence[KernelCall] | None:
    """Return the calls of an op; None where it cannot be written as C."""
    if not _has_scales(op):
        return None

    try:
        return op.calls()
    except NOT_IN_C:
        return None


def _has_scales(op: Op) -> bool:
    """Return whether an op has the scales that it needs.

    Graphs that are only looked at may lack them.
    """
    if not wants_scales(op):
        return True

    values = (*op.inputs, *op.outputs)
    return not any(value.type.is_plain_int8 for value in values)


def _taps(op: Op) -> int:
    """Return the elements of a pooling's window; 0 for all other ops."""
    for call in _calls(op) or ():
        p = call.optional_struct(PoolParams)
        if p is not None:
            return p.kh * p.kw

    return 0


def rate(table: Rates, names: Sequence[str]) -> Array:
    """Return the rates of kernels.

    A kernel that was not measured is taken to be as fast as the first measured one for
    the calls of the same plain kernel.
    """
    key = "+".join(names)
    if key in table:
        return table[key]

    candidates = [names[0]]
    for plain, plain_variants in variants().items():
        variant_names = [variant.name for variant in plain_variants]
        if names[0] in (plain.name, *variant_names):
            candidates += variant_names

    for name in candidates:
        if name in table:
            return table[name]

    return table[OTHER]


@cache
def rates(name: str) -> Rates:
    """Return the rates of a measured core."""
    table: dict[str, list[float]] = json.loads(cycles_file(name).read_text())
    return {kernel: np.array(per_work) for kernel, per_work in table.items()}
