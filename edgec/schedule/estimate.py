"""How many cycles a core takes for ops, by the kernels that are chosen for them there:
what was measured, fitted.

A file beside each core's table has the rates of every kernel that `make cpu-table`
measured: cycles of a call, of a multiply-accumulate, and of each byte that it writes,
reads, and reads of constants; and, behind a plus sign, of the calls that follow another
at once, for each byte of that one's result.
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
"""By kernel, cycles for each of `work`."""

OTHER = "other"
"""In place of a kernel: those of which nothing was measured."""

NOT_IN_C = (UnsupportedError, NotImplementedError, ValueError)
"""What an op raises that cannot be written as C: edgec has no kernel for it, or its
scale is no number.
"""

THEN = "+"
"""Before the plain kernel of a call that follows another at once."""


def is_known(name: str) -> bool:
    """Whether a core, named as compilers do, was measured."""
    return cycles_file(name).is_file()


def cycles(op: Op, on: Core) -> float:
    """Of one op alone, by one thread of a core that was measured.

    What only names bytes otherwise takes none.
    """
    names = kernels(op, on)
    return float(rate(rates(on.name), names) @ work(op)) if names else 0.0


def in_graph(graph: Graph, on: Core) -> dict[Op, float]:
    """Of each op of a graph, were all of it one segment: with what fusion and views
    save.
    """
    try:
        made = plan_plain_steps(graph, on) if all(map(_is_sound, graph.ops)) else None
    except NOT_IN_C:
        made = None
    if made is None:
        return {op: cycles(op, on) for op in graph.ops}
    table = rates(on.name)
    found = dict.fromkeys(graph.ops, 0.0)
    for step, here in zip(made.plain_steps, made.cores, strict=True):
        head, *others = (graph.ops[i] for i in step.ops)
        left = len(step.calls) / len(head.calls())
        found[head] += left * float(
            rate(table, chosen_names(step.calls, here)) @ work(head)
        )
        for op, call in zip(others, step.calls[0].then, strict=True):
            found[op] += (
                following(table, call.kernel.name) * head.outputs[0].type.nbytes
            )
    return found


def following(table: Rates, plain: str) -> float:
    """Cycles that a call takes at once with the one before it, for each byte of that
    one's result.
    """
    return float(table.get(THEN + plain, table[THEN + OTHER])[2])


def kernels(op: Op, on: Core) -> tuple[str, ...]:
    """What computes an op on a core, the first first; none where nothing is to do, and
    `OTHER` where nothing can.
    """
    if op.spec.view:
        return ()
    calls = _calls(op)
    if calls is None:
        return (OTHER,)
    if (
        len(calls) == 1
        and (copy := copy_of(calls[0]))
        and copy.nbytes == copy.source.value.type.nbytes
    ):
        return ()
    return chosen_names(calls, on)


def chosen_names(calls: Iterable[KernelCall], on: Core) -> tuple[str, ...]:
    """The kernels that compute calls on a core."""
    best = ((call.kernel.name, choice(call, on)) for call in calls)
    return tuple(
        dict.fromkeys(found[0].name if found else plain for plain, found in best)
    )


def work(op: Op) -> Array:
    """Of an op: calls, multiply-accumulates, bytes that are written, read, and read of
    constants.

    A pooling takes something for each element of each window: they are counted like
    multiply-accumulates.
    """
    read = {v: v.type.nbytes for v in op.inputs}
    constants = sum(n for v, n in read.items() if v.const is not None)
    written = sum(v.type.nbytes for v in op.outputs)
    macs = op.spec.macs(op) or sum(v.type.size for v in op.outputs[:1]) * _taps(op)
    return np.array(
        [1, macs, written, sum(read.values()) - constants, constants], np.float64
    )


def _calls(op: Op) -> Sequence[KernelCall] | None:
    """None where it cannot be written as C."""
    try:
        return op.calls() if _is_sound(op) else None
    except NOT_IN_C:
        return None


def _is_sound(op: Op) -> bool:
    """Whether it has the scales that it needs: graphs that are only looked at may lack
    them.
    """
    return not (
        wants_scales(op)
        and any(v.type.is_plain_int8 for v in (*op.inputs, *op.outputs))
    )


def _taps(op: Op) -> int:
    """Return the elements of a pooling's window; 0 for all other ops."""
    for call in _calls(op) or ():
        p = call.optional_struct(PoolParams)
        if p is not None:
            return p.kh * p.kw

    return 0


def rate(table: Rates, names: Sequence[str]) -> Array:
    """That of kernels that were measured; of others, that of the first that does the
    same, or of any.
    """
    key = "+".join(names)
    if key in table:
        return table[key]
    same = [
        v.name
        for plain, several in variants().items()
        if plain.name == names[0] or any(v.name == names[0] for v in several)
        for v in several
    ]
    return next(
        (table[name] for name in (names[0], *same) if name in table), table[OTHER]
    )


@cache
def rates(name: str) -> Rates:
    """Of a core that was measured."""
    found: dict[str, list[float]] = json.loads(cycles_file(name).read_text())
    return {kernel: np.array(per) for kernel, per in found.items()}
